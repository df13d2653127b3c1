"""Scores and whole jobs on families whose weights lie otherwise than Llama's."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from app.domain.architectures import find_layout
from tests.fairness_pruning_jobs import QUIET, pair, run_job, word_model
from tests.tiny_models import LAYERS, NEURONS, save_tiny_model
from workers.methods.fairness_pruning.measuring.capture import Decoder, scaled_neurons
from workers.methods.fairness_pruning.measuring.subject import read_shape
from workers.methods.fairness_pruning.selecting.importance import importance_scores
from workers.models.load import load_causal_lm

LAYER = 1
Roles = Mapping[str, Tensor]


def fused(tensors: Mapping[str, Tensor]) -> Roles:
    both = tensors[f"model.layers.{LAYER}.mlp.gate_up_proj.weight"]
    down = tensors[f"model.layers.{LAYER}.mlp.down_proj.weight"]
    return {"gate": both[:NEURONS], "up": both[NEURONS:], "down": down.T}


def conv1d(tensors: Mapping[str, Tensor]) -> Roles:
    prefix = f"transformer.h.{LAYER}.mlp"
    up, down = tensors[f"{prefix}.c_fc.weight"], tensors[f"{prefix}.c_proj.weight"]
    return {"up": up.T, "down": down}


def plain(tensors: Mapping[str, Tensor]) -> Roles:
    prefix = f"model.decoder.layers.{LAYER}"
    return {"up": tensors[f"{prefix}.fc1.weight"], "down": tensors[f"{prefix}.fc2.weight"].T}


# The weights of each neuron as rows, by hand.
ROWS: dict[str, Callable[[Mapping[str, Tensor]], Roles]] = {
    "phi3": fused,
    "gpt2": conv1d,
    "opt": plain,
}
SLOW: dict[str, Callable[[Tensor], Tensor]] = {
    "max_abs": lambda rows: rows.abs().amax(1),
    "ppm": lambda rows: rows.amax(1) + rows.amin(1).abs(),
    "vow": lambda rows: rows.var(1, correction=1),
    "pon": lambda rows: rows.abs().sum(1),
    "l2": lambda rows: rows.square().sum(1).sqrt(),
}


def layer_scores(folder: Path, family: str, kind: str, **options: object) -> np.ndarray:
    layout = find_layout(family)
    assert layout is not None
    return importance_scores(folder, layout, kind, **options)[LAYER]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", SLOW)
@pytest.mark.parametrize("family", ROWS)
def test_importance_reads_the_weights_of_each_neuron(
    tmp_path: Path, family: str, kind: str
) -> None:
    base = save_tiny_model(tmp_path / "m", family)
    rows = ROWS[family](load_file(base / "model.safetensors"))
    parts = [SLOW[kind](rows[role].double()) for role in ("gate", "up") if role in rows]

    scores = layer_scores(base, family, kind)

    expected = parts[0] if len(parts) == 1 else sum(parts[1:], parts[0])
    if kind == "pon" and len(parts) == 2:
        expected = parts[0] * parts[1]
    # Both are sums in float64; the score is then rounded to float32.
    np.testing.assert_allclose(scores, expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("family", ROWS)
def test_hybrid_importance_reads_every_way_in_and_out(tmp_path: Path, family: str) -> None:
    base = save_tiny_model(tmp_path / "m", family)
    rows = ROWS[family](load_file(base / "model.safetensors"))
    norms = {layer: np.linspace(1, 2, NEURONS) for layer in range(LAYERS)}

    scores = layer_scores(base, family, "hybrid", activation_norms=norms)

    ranges = [SLOW["ppm"](matrix.double()) for matrix in rows.values()]
    expected = sum(part / part.max() for part in ranges[1:]) + ranges[0] / ranges[0].max()
    # The definition adds 1e-8 below each fraction line.
    np.testing.assert_allclose(scores, expected.numpy() * norms[LAYER], rtol=1e-6)


PAIRS = [
    pair(f"the man {tail}", f"the woman {tail}", category="gender")
    for tail in ("was very old", "is happy", "said it", "saw the house")
]
JOBS = [
    ("phi3", {}),
    ("gpt2", {}),
    ("gpt2", {"importance": "hybrid", "calibration_texts": ["the man was very old"]}),
    ("opt", {"importance": "hybrid", "calibration_texts": ["the man was very old"]}),
    ("gemma3", {}),
    ("bloom", {"mode": "zero"}),
]


@pytest.mark.parametrize(("family", "options"), JOBS)
def test_job_goes_from_pairs_to_a_checkpoint_that_equals_its_masked_base(
    tmp_path: Path, family: str, options: dict[str, object]
) -> None:
    base = word_model(tmp_path / "m", family, tied=None)
    config = {**QUIET, "pairs": PAIRS, "neurons_per_layer": 4, "fraction": None, **options}

    job = run_job(base, tmp_path / "job", config)

    shape = read_shape(base)
    mask = torch.ones(LAYERS, shape.dimensions.neurons)
    for layer, neurons in job.report["removed"].items():
        assert len(neurons) == 4
        mask[int(layer), neurons] = 0
    tokens = torch.arange(1, 31)[None]
    model = load_causal_lm(base, device="cpu", dtype="float32").model
    edited = load_causal_lm(job.checkpoint, device="cpu", dtype="float32").model
    with torch.inference_mode():
        plain_logits = model(tokens).logits
        with scaled_neurons(Decoder(model, shape.layout, LAYERS), mask):
            expected = model(tokens).logits
        result = edited(tokens).logits
    largest = float(expected.abs().max())
    # float32 sums in another order; the method allows 1e-4.
    assert float((result - expected).abs().max()) <= 1e-5 * largest
    assert float((plain_logits - expected).abs().max()) > 1e-3 * largest
    for entry in job.report["pairs"]:
        assert entry["bias_metric_parity"]["before"] > 0
