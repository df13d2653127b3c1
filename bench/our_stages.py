"""The stages of `beside_optipfair` as a job of this project does them.

Each stage imports what it needs and no more: the edit loads neither torch nor the model.
"""

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.methods.fairness_pruning import METHOD
from app.domain.architectures import find_layout
from bench.stage_cost import Request, Run, run_stage
from workers.methods.fairness_pruning.editing.edit import apply_edit
from workers.methods.fairness_pruning.selecting.importance import importance_scores
from workers.methods.fairness_pruning.selecting.selection import combined_scores, select_neurons

if TYPE_CHECKING:
    from bench.our_diagnosis import Loaded

# The other library's choices, so that both do the same work.
PRESET = "optipfair"


def resolved_config(request: Request) -> FairnessPruningConfig:
    """Make the config of a job with the request's pairs."""
    pairs = [{"prompt_1": one, "prompt_2": two} for one, two in request.pairs]
    fields = {"pairs": pairs, "preset": PRESET, "fraction": request.percent / 100}
    config = METHOD.resolve(METHOD.config.model_validate(fields))
    assert isinstance(config, FairnessPruningConfig)
    return config


def load(request: Request) -> "Loaded":
    """Load model and tokenizer as a job does."""
    from bench.our_diagnosis import load_for_diagnosis

    return load_for_diagnosis(request.model, resolved_config(request))


def metrics(request: Request) -> Run:
    """Measure the activation differences of every pair."""
    loaded = load(request)
    return lambda _number: loaded.metrics()


def neuron_bias(request: Request) -> Run:
    """Score every neuron by all pairs; compared by the sum over the first layer."""
    loaded = load(request)
    return lambda _number: float(loaded.neuron_bias()[0].sum())


def scores(request: Request) -> Run:
    """Combine bias, which is at hand, and importance, which is read from disk."""
    bias, config = read_bias(request), resolved_config(request)

    def run(_number: int) -> float:
        importance = read_importance(request, config)
        return sum(
            float(combined_scores(bias[n], importance[n], bias_weight=config.bias_weight).sum())
            for n in importance
        )

    return run


def prune_and_save(request: Request) -> Run:
    """Stream the edit with hashes and fsync, with the scores at hand."""
    bias, config = read_bias(request), resolved_config(request)
    settings = json.loads((request.model / "config.json").read_text())
    layout = find_layout(settings["model_type"])
    assert layout is not None
    dimensions = layout.dimensions(settings)
    removed = select_neurons(
        dict(enumerate(bias)), read_importance(request, config), config, dimensions
    ).removed

    def run(number: int) -> int:
        report = apply_edit(
            request.model, request.folder / str(number), removed, config,
            should_stop=lambda: False, on_progress=lambda _done, _total: None,
        )  # fmt: skip
        return report.intermediate_size_after

    return run


def plots(request: Request) -> Run:
    """Draw the same pictures of the first pair, each with its JSON twin."""
    loaded = load(request)
    from bench.our_pictures import draw_all

    return lambda number: draw_all(loaded, request.folder / str(number))


def save_bias(request: Request) -> Run:
    """Hand the bias on to the stages that work without a model."""
    loaded = load(request)
    return lambda _number: loaded.neuron_bias().tolist()


def read_bias(request: Request) -> Any:
    """Read what `save_bias` found, (layers, neurons)."""
    return np.array(json.loads(request.bias.read_text())["answer"])


def read_importance(request: Request, config: FairnessPruningConfig) -> Any:
    """Score the neurons by the stored weights."""
    settings = json.loads((request.model / "config.json").read_text())
    layout = find_layout(settings["model_type"])
    assert layout is not None
    return importance_scores(request.model, layout, config.importance)


STAGES = {
    "metrics": metrics,
    "neuron_bias": neuron_bias,
    "scores": scores,
    "prune_and_save": prune_and_save,
    "plots": plots,
    "save_bias": save_bias,
}

if __name__ == "__main__":
    run_stage(STAGES)
