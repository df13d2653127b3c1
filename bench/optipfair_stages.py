"""The stages of `beside_optipfair` as optiPfair does them, by its public interface.

Runs under a Python that has optiPfair and not this project: imports nothing of it but the clock.
"""

import contextlib
import io
import logging
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import torch
from optipfair.bias import (
    analyze_neuron_bias,
    calculate_bias_metrics,
    compute_fairness_pruning_scores,
    get_activation_pairs,
    visualize_bias,
)
from optipfair.pruning import prune_model_mlp_glu
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.stage_cost import Request, Run, run_stage


def load(request: Request) -> tuple[Any, Any]:
    """Load model and tokenizer as the library's own examples do."""
    model = AutoModelForCausalLM.from_pretrained(request.model, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(request.model)


def metrics(request: Request) -> Run:
    """Measure the activation differences of every pair."""
    model, tokenizer = load(request)

    def run(_number: int) -> list[float]:
        found = [
            calculate_bias_metrics(*get_activation_pairs(model, tokenizer, *pair))
            for pair in request.pairs
        ]
        return [metric["overall_metrics"]["mean_difference"] for metric in found]

    return run


def neuron_bias(request: Request) -> Run:
    """Score every neuron by all pairs; compared by the sum over the first layer."""
    model, tokenizer = load(request)

    def run(_number: int) -> float:
        bias = analyze_neuron_bias(model, tokenizer, request.pairs, show_progress=False)
        return float((bias["gate_proj_layer_0"] + bias["up_proj_layer_0"]).sum() / 2)

    return run


def scores(request: Request) -> Run:
    """Combine bias, which is at hand, and importance."""
    model, tokenizer = load(request)
    bias = analyze_neuron_bias(model, tokenizer, request.pairs, show_progress=False)

    def run(_number: int) -> float:
        combined = compute_fairness_pruning_scores(model, bias)
        return sum(float(layer.sum()) for layer in combined.values())

    return run


def prune_and_save(request: Request) -> Run:
    """Remove neurons in memory and `save_pretrained`, with the scores at hand."""
    model, tokenizer = load(request)
    bias = analyze_neuron_bias(model, tokenizer, request.pairs, show_progress=False)
    combined = compute_fairness_pruning_scores(model, bias)

    def run(number: int) -> int:
        pruned = prune_model_mlp_glu(
            model,
            pruning_percentage=request.percent,
            fairness_scores=combined,
            show_progress=False,
        )
        pruned.save_pretrained(request.folder / str(number))
        return int(pruned.config.intermediate_size)

    return run


def plots(request: Request) -> Run:
    """Draw every picture of the first pair: bars, heat maps and planes of all layers."""
    model, tokenizer = load(request)

    def run(number: int) -> int:
        folder = request.folder / str(number)
        with contextlib.redirect_stdout(io.StringIO()):
            visualize_bias(
                model,
                tokenizer,
                request.pairs[:1],
                layers="all",
                output_dir=str(folder),
                show_progress=False,
            )
        return len(list(folder.glob("*.png")))

    return run


STAGES = {
    "metrics": metrics,
    "neuron_bias": neuron_bias,
    "scores": scores,
    "prune_and_save": prune_and_save,
    "plots": plots,
}

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    run_stage(STAGES)
