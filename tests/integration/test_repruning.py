"""An edited checkpoint is a checkpoint like any other: it can be edited again.

Every stored tensor comes out under its name, whatever the head: tied or not, stored or not.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from tests.tiny_models import HIDDEN, LAYERS, NEURONS, VOCABULARY, save_tiny_model
from workers.methods.fairness_pruning.editing.edit import EditReport, apply_edit

FIRST = {0: [0, 7, 39], 1: [3, 4, 5], 2: [10, 20, 30]}
# Numbers of neurons in the model that is already smaller.
SECOND = {0: [0, 36], 1: [1, 2], 2: [0, 35]}
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
INDEX = "model.safetensors.index.json"
# Seen: below 1e-6 in fp32; the method allows 1e-4 of the largest logit.
TOLERANCE = 1e-5
TOKENS = torch.tensor([[1, 5, 9, 33, 60, 12], [1, 6, 7, 8, 9, 10]])


@dataclass(frozen=True)
class Head:
    """How a checkpoint keeps its output head."""

    tied: bool
    stored: bool = False
    differs: bool = False


HEADS = {
    "untied": Head(tied=False),
    "tied, none stored": Head(tied=True),
    "tied, a copy stored": Head(tied=True, stored=True),
    "tied, another one stored": Head(tied=True, stored=True, differs=True),
}
every_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
every_layout = pytest.mark.parametrize("sharded", [False, True], ids=["single file", "sharded"])


def save_base(
    folder: Path, head: Head, *, sharded: bool = False, dtype: torch.dtype = torch.float32
) -> Path:
    """Save a model, with a head of its own added to the last file where `head` says so."""
    base = save_tiny_model(folder, "llama", tied=head.tied, sharded=sharded, dtype=dtype)
    if head.stored:
        weights = read_tensors(base)[EMBEDDING]
        add_tensor(base, HEAD, weights.flip(0).contiguous() if head.differs else weights)
    return base


def add_tensor(base: Path, name: str, tensor: torch.Tensor) -> None:
    """Add a tensor to the last weight file, and to the index where there is one."""
    path = sorted(base.glob("*.safetensors"))[-1]
    save_file({**load_file(path), name: tensor.clone()}, path, metadata={"format": "pt"})
    if (base / INDEX).exists():
        index = json.loads((base / INDEX).read_text())
        index["weight_map"][name] = path.name
        index["metadata"]["total_size"] += tensor.nbytes
        index["metadata"]["total_parameters"] += tensor.numel()
        (base / INDEX).write_text(json.dumps(index))


def prune(base: Path, out: Path, removed: Mapping[int, list[int]]) -> EditReport:
    config = FairnessPruningConfig.model_validate({"neuron_indices": removed})
    return apply_edit(
        base,
        out,
        removed,
        config,
        should_stop=lambda: False,
        on_progress=lambda done, total: None,
    )


def prune_twice(base: Path, folder: Path) -> Path:
    prune(base, folder / "once", FIRST)
    prune(folder / "once", folder / "twice", SECOND)
    return folder / "twice"


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


def names_by_file(folder: Path) -> dict[str, set[str]]:
    return {path.name: set(load_file(path)) for path in folder.glob("*.safetensors")}


def load_plainly(folder: Path) -> Any:
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto", output_loading_info=True
    )
    assert not any(report.values()), report
    return model.eval()


def logits_of(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        result: torch.Tensor = model(TOKENS).logits.float()
    return result


def removed_by_both() -> dict[int, list[int]]:
    """Numbers, in the base model, of the neurons that two rounds remove."""
    removed = {}
    for layer in range(LAYERS):
        left = [n for n in range(NEURONS) if n not in FIRST[layer]]
        removed[layer] = sorted([*FIRST[layer], *(left[n] for n in SECOND[layer])])
    return removed


def zero_neurons(model: Any, removed: Mapping[int, list[int]]) -> Any:
    """Take the neurons' contribution away without any of this project's code."""
    with torch.no_grad():
        for layer, neurons in removed.items():
            model.model.layers[layer].mlp.down_proj.weight[:, neurons] = 0
    return model


@every_layout
@every_head
def test_two_rounds_equal_the_base_without_the_neurons_of_both(
    tmp_path: Path, head: Head, sharded: bool
) -> None:
    base = save_base(tmp_path / "base", head, sharded=sharded)

    twice = prune_twice(base, tmp_path)

    expected = logits_of(zero_neurons(load_plainly(base), removed_by_both()))
    difference = (logits_of(load_plainly(twice)) - expected).abs().max()
    assert difference < TOLERANCE * expected.abs().max()


@every_layout
@every_head
def test_same_names_come_out_of_the_same_files(tmp_path: Path, head: Head, sharded: bool) -> None:
    base = save_base(tmp_path / "base", head, sharded=sharded)
    assert (HEAD in read_tensors(base)) == (head.stored or not head.tied)

    twice = prune_twice(base, tmp_path)

    assert names_by_file(twice) == names_by_file(base)


@every_head
def test_stored_head_and_embedding_are_bit_identical(tmp_path: Path, head: Head) -> None:
    base = save_base(tmp_path / "base", head, sharded=True)

    twice = prune_twice(base, tmp_path)

    before, after = read_tensors(base), read_tensors(twice)
    for name in {HEAD, EMBEDDING} & before.keys():
        assert torch.equal(after[name], before[name])


@every_head
def test_every_round_counts_the_parameters_that_it_removes(tmp_path: Path, head: Head) -> None:
    base = save_base(tmp_path / "base", head)

    first = prune(base, tmp_path / "once", FIRST)
    second = prune(tmp_path / "once", tmp_path / "twice", SECOND)

    assert first.parameters_before == sum(t.numel() for t in read_tensors(base).values())
    assert first.parameters_before - first.parameters_after == LAYERS * 3 * 3 * HIDDEN
    assert second.parameters_before == first.parameters_after
    assert second.parameters_before - second.parameters_after == LAYERS * 2 * 3 * HIDDEN
    stored = sum(t.numel() for t in read_tensors(tmp_path / "twice").values())
    assert second.parameters_after == stored


@every_head
def test_model_pruned_twice_generates_and_can_be_saved(tmp_path: Path, head: Head) -> None:
    base = save_base(tmp_path / "base", head, sharded=True)

    model = load_plainly(prune_twice(base, tmp_path))

    text = model.generate(TOKENS[:1], max_new_tokens=4, min_new_tokens=4, do_sample=False)
    assert text.shape == (1, TOKENS.shape[1] + 4)
    assert int(text.max()) < VOCABULARY
    model.save_pretrained(tmp_path / "saved")
    assert torch.equal(logits_of(load_plainly(tmp_path / "saved")), logits_of(model))


@every_head
def test_index_has_the_totals_of_what_is_stored(tmp_path: Path, head: Head) -> None:
    base = save_base(tmp_path / "base", head, sharded=True)

    twice = prune_twice(base, tmp_path)

    tensors = read_tensors(twice).values()
    index = json.loads((twice / INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors)
    lost = LAYERS * 5 * 3 * HIDDEN
    before = json.loads((base / INDEX).read_text())["metadata"]["total_parameters"]
    assert index["metadata"]["total_parameters"] == before - lost
    assert index["weight_map"] == json.loads((base / INDEX).read_text())["weight_map"]


@every_layout
def test_metadata_of_every_file_survives_two_rounds(tmp_path: Path, sharded: bool) -> None:
    base = save_base(tmp_path / "base", Head(tied=False), sharded=sharded)
    for path in base.glob("*.safetensors"):
        save_file(load_file(path), path, metadata={"format": "pt", "trained_by": path.stem})

    twice = prune_twice(base, tmp_path)

    for path in twice.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            assert file.metadata() == {"format": "pt", "trained_by": path.stem}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_moved_and_never_rounded(tmp_path: Path, dtype: torch.dtype) -> None:
    head = Head(tied=True, stored=True)
    base = save_base(tmp_path / "base", head, sharded=True, dtype=dtype)

    twice = prune_twice(base, tmp_path)

    before, after = read_tensors(base), read_tensors(twice)
    removed = removed_by_both()
    for name, tensor in before.items():
        expected = tensor
        if ".mlp." in name:
            layer = int(name.split(".")[2])
            kept = [n for n in range(NEURONS) if n not in removed[layer]]
            expected = tensor[:, kept] if "down_proj" in name else tensor[kept]
        assert after[name].dtype == dtype
        assert torch.equal(after[name], expected), name


def test_two_rounds_give_the_bytes_of_one_round_with_all_neurons(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", Head(tied=True), sharded=True)

    twice = prune_twice(base, tmp_path)
    prune(base, tmp_path / "at once", removed_by_both())

    for path in twice.iterdir():
        assert path.read_bytes() == (tmp_path / "at once" / path.name).read_bytes(), path.name
