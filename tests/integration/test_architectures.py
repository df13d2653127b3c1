"""Every family of the table: found, measured, edited, written and loaded again.

One small random model of each family is saved, in one file and in several, and edited once; the
tests look at the results.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import (
    LAYOUTS,
    MlpLayout,
    check_diagnosis,
    check_mlps,
    find_layout,
    layout_model_types,
)
from app.domain.models import ModelFacts
from app.domain.native_tensors import check_native_tensors
from app.security.model_config import clean_config
from tests.tiny_models import HIDDEN, LAYERS, NEURONS, SETTINGS, save_tiny_model
from workers.methods.fairness_pruning.editing.edit import EditReport, apply_edit
from workers.methods.fairness_pruning.measuring.capture import (
    CapturePoint,
    Decoder,
    capture,
    capture_points,
    scaled_neurons,
)
from workers.methods.fairness_pruning.measuring.subject import read_shape
from workers.models.load import load_causal_lm
from workers.models.tensor_files import open_checkpoint

EDITABLE = layout_model_types()
FIXED_WIDTH = ("bloom", "mpt")
RESIZABLE = tuple(family for family in EDITABLE if family not in FIXED_WIDTH)
EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "gpt_oss")
WITH_BIAS = (
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gptj",
    "codegen",
    "gpt_neox",
    "opt",
    "phi",
    "starcoder2",
)
FUSED = ("phi3", "glm", "glm4")
REMOVED = {0: [0, 7, 39], 1: [3, 4, 5], 2: [10, 20, 30]}
TOKENS = torch.tensor([[1, 5, 9, 33, 60, 12], [1, 5, 9, 8, 9, 10]])
SHARED_PREFIX = 3
# float32 sums in another order; seen: 4e-7 of the largest logit. The method allows 1e-4.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Edited:
    """A saved model, the same in several files, and what the edit made of each."""

    base: Path
    out: Path
    sharded_out: Path
    report: EditReport

    @cached_property
    def seen(self) -> dict[tuple[CapturePoint, int], torch.Tensor]:
        """Activations of the base at every point of every layer."""
        return activations(decoder_of(self.base))

    @cached_property
    def logits(self) -> torch.Tensor:
        """Logits of the edited model."""
        return logits(decoder_of(self.out))

    @cached_property
    def masked(self) -> torch.Tensor:
        """Logits of the base with the neurons masked in memory."""
        return masked_logits(self.base)


def layout_of(family: str) -> MlpLayout:
    layout = find_layout(family)
    assert layout is not None
    return layout


def edit(base: Path, out: Path, mode: str, removed: Mapping[int, list[int]]) -> EditReport:
    config = FairnessPruningConfig.model_validate({"neuron_indices": REMOVED, "mode": mode})
    return apply_edit(
        base,
        out,
        removed,
        config,
        should_stop=lambda: False,
        on_progress=lambda done, total: None,
    )


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Give the edited model of a family, made when first asked for."""

    @cache
    def make(family: str) -> Edited:
        root = tmp_path_factory.mktemp(family)
        mode = "zero" if family in FIXED_WIDTH else "prune"
        base = save_tiny_model(root / "base", family, tied=None)
        several = save_tiny_model(root / "several", family, tied=None, sharded=True)
        assert len(list(several.glob("*.safetensors"))) > 1
        report = edit(base, root / "out", mode, REMOVED)
        edit(several, root / "several_out", mode, REMOVED)
        return Edited(base, root / "out", root / "several_out", report)

    return make


def facts_of(folder: Path) -> ModelFacts:
    return open_checkpoint(folder).facts()


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return {
        name: tensor
        for path in folder.glob("*.safetensors")
        for name, tensor in load_file(path).items()
    }


def decoder_of(folder: Path) -> Decoder:
    model = load_causal_lm(folder, device="cpu", dtype="float32").model
    shape = read_shape(folder)
    return Decoder(model, shape.layout, shape.dimensions.layers)


def logits(decoder: Decoder) -> torch.Tensor:
    with torch.inference_mode():
        result: torch.Tensor = decoder.model(TOKENS).logits
    return result


def masked_logits(folder: Path) -> torch.Tensor:
    decoder = decoder_of(folder)
    mask = torch.ones(LAYERS, read_shape(folder).dimensions.neurons)
    for layer, neurons in REMOVED.items():
        mask[layer, neurons] = 0
    with scaled_neurons(decoder, mask):
        return logits(decoder)


def difference(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().max() / second.abs().max())


def activations(decoder: Decoder) -> dict[tuple[CapturePoint, int], torch.Tensor]:
    seen: dict[tuple[CapturePoint, int], torch.Tensor] = {}

    def observe(point: CapturePoint, layer: int, values: torch.Tensor) -> None:
        seen[point, layer] = values.clone()

    with torch.inference_mode(), capture(decoder, observe, points=capture_points(decoder.layout)):
        decoder.model(TOKENS)
    return seen


def test_every_family_of_the_table_has_a_model_here() -> None:
    families = [family for layout in LAYOUTS for family in layout.model_types]

    assert sorted(families) == sorted(SETTINGS)
    assert {*EDITABLE, *EXPERTS} == set(families)


@pytest.mark.parametrize("family", EDITABLE)
def test_edited_model_computes_what_the_masked_base_computes(edited: Any, family: str) -> None:
    model = edited(family)

    assert difference(model.logits, model.masked) < TOLERANCE
    assert difference(logits(decoder_of(model.base)), model.masked) > 1e-2, "it must matter"


@pytest.mark.parametrize("family", EDITABLE)
def test_several_files_and_one_give_the_same_tensors(edited: Any, family: str) -> None:
    model = edited(family)

    one, several = tensors_of(model.out), tensors_of(model.sharded_out)

    assert one.keys() == several.keys()
    assert all(torch.equal(one[name], several[name]) for name in one)


@pytest.mark.parametrize("family", RESIZABLE)
def test_what_stays_is_bit_identical_and_in_order(edited: Any, family: str) -> None:
    model = edited(family)
    before, after = tensors_of(model.base), tensors_of(model.out)

    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == set(model.report.tensors_changed)
    for name in changed:
        layer = next(int(part) for part in name.split(".") if part.isdecimal())
        (axis,) = (n for n, size in enumerate(before[name].shape) if size != after[name].shape[n])
        blocks = before[name].shape[axis] // NEURONS
        gone = {n + block * NEURONS for n in REMOVED[layer] for block in range(blocks)}
        kept = torch.tensor([n for n in range(blocks * NEURONS) if n not in gone])
        assert torch.equal(before[name].index_select(axis, kept), after[name]), name


@pytest.mark.parametrize("family", RESIZABLE)
def test_parameters_lost_are_those_of_the_removed_neurons(edited: Any, family: str) -> None:
    model = edited(family)
    gates = 0 if layout_of(family).is_extension else 1
    biases = 1 if family in WITH_BIAS else 0
    per_neuron = (2 + gates) * HIDDEN + biases

    report = model.report

    lost = report.parameters_before - report.parameters_after
    assert lost == LAYERS * 3 * per_neuron
    stored = sum(tensor.numel() for tensor in tensors_of(model.out).values())
    assert report.parameters_after == stored


@pytest.mark.parametrize("family", EDITABLE)
def test_file_is_its_header_and_the_bytes_of_its_tensors(edited: Any, family: str) -> None:
    path = edited(family).out / "model.safetensors"

    header = int.from_bytes(path.read_bytes()[:8], "little")

    stored = sum(tensor.numel() * tensor.element_size() for tensor in load_file(path).values())
    assert path.stat().st_size == 8 + header + stored


@pytest.mark.parametrize("family", EDITABLE)
def test_removing_nothing_keeps_tensors_and_config(
    edited: Any, tmp_path: Path, family: str
) -> None:
    base = edited(family).base

    report = edit(base, tmp_path / "out", "zero" if family in FIXED_WIDTH else "prune", {})

    before, after = tensors_of(base), tensors_of(tmp_path / "out")
    assert report.tensors_changed == ()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (tmp_path / "out/config.json").read_bytes() == (base / "config.json").read_bytes()


@pytest.mark.parametrize("family", RESIZABLE)
def test_zeroing_computes_what_pruning_computes(edited: Any, tmp_path: Path, family: str) -> None:
    model = edited(family)

    report = edit(model.base, tmp_path / "out", "zero", REMOVED)

    zeroed = logits(decoder_of(tmp_path / "out"))
    assert difference(zeroed, model.logits) < TOLERANCE
    assert report.parameters_after == report.parameters_before


@pytest.mark.parametrize("family", EDITABLE)
def test_scaling_changes_the_way_out_of_the_neurons_only(
    edited: Any, tmp_path: Path, family: str
) -> None:
    base = edited(family).base
    fields = {"neuron_indices": REMOVED, "mode": "scale", "scale_factor": 0.5}

    report = apply_edit(
        base,
        tmp_path / "out",
        REMOVED,
        FairnessPruningConfig.model_validate(fields),
        should_stop=lambda: False,
        on_progress=lambda done, total: None,
    )

    layout, names = layout_of(family), set(tensors_of(base))
    down = layout.projection("down")
    assert down is not None
    assert len(report.tensors_changed) == LAYERS
    spelled = layout.tensor_names(names)
    before, after = tensors_of(base), tensors_of(tmp_path / "out")
    for layer, neurons in REMOVED.items():
        name = spelled.weight(layer, down)
        factors = torch.ones(before[name].shape[down.neuron_axis])
        factors[neurons] = 0.5
        shape = (-1, 1) if down.neuron_axis == 0 else (1, -1)
        assert torch.equal(after[name], before[name] * factors.view(shape))


@pytest.mark.parametrize("family", RESIZABLE)
def test_only_the_size_field_of_the_config_changes(edited: Any, family: str) -> None:
    model, layout = edited(family), layout_of(family)
    expected = json.loads((model.base / "config.json").read_text())
    section = expected["text_config"] if family == "gemma3" else expected

    after = json.loads((model.out / "config.json").read_text())

    assert section[layout.size_field] == NEURONS
    section[layout.size_field] = NEURONS - 3
    assert after == expected


@pytest.mark.parametrize(
    ("family", "field"),
    [
        ("gpt2", "n_inner"),
        ("gpt_bigcode", "n_inner"),
        ("gpt_neo", "intermediate_size"),
        ("gptj", "n_inner"),
        ("codegen", "n_inner"),
        ("falcon", "ffn_hidden_size"),
    ],
)
@pytest.mark.parametrize("stored", ["null", "absent"])
def test_size_that_the_config_leaves_open_is_written(
    tmp_path: Path, family: str, field: str, stored: str
) -> None:
    base = save_tiny_model(tmp_path / "base", family, tied=None, settings={field: None})
    config = json.loads((base / "config.json").read_text())
    config[field] = None
    if stored == "absent":
        del config[field]
    (base / "config.json").write_text(json.dumps(config))

    report = edit(base, tmp_path / "out", "prune", REMOVED)

    assert report.intermediate_size_before == 4 * HIDDEN
    after = json.loads((tmp_path / "out/config.json").read_text())
    assert after == {**config, field: 4 * HIDDEN - 3}
    assert difference(logits(decoder_of(tmp_path / "out")), masked_logits(base)) < TOLERANCE


@pytest.mark.parametrize("family", FUSED)
def test_both_halves_of_a_fused_projection_lose_the_same_neurons(edited: Any, family: str) -> None:
    model = edited(family)
    name = "model.layers.1.mlp.gate_up_proj.weight"

    before, after = tensors_of(model.base)[name], tensors_of(model.out)[name]

    kept = [n for n in range(NEURONS) if n not in REMOVED[1]]
    assert torch.equal(after[: NEURONS - 3], before[:NEURONS][kept])
    assert torch.equal(after[NEURONS - 3 :], before[NEURONS:][kept])


def without_head(base: Path, out: Path, layout: MlpLayout) -> Path:
    """Copy a model with names as saved without its head: `h.0` in place of `transformer.h.0`."""
    out.mkdir()
    (out / "config.json").write_bytes((base / "config.json").read_bytes())
    root = layout.layer_prefix.partition(".")[0] + "."
    tensors = {name.removeprefix(root): tensor for name, tensor in tensors_of(base).items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return out


@pytest.mark.parametrize("family", [family for family in EDITABLE if family != "gemma3"])
def test_names_without_the_head_go_out_as_they_came_in(
    edited: Any, tmp_path: Path, family: str
) -> None:
    model = edited(family)
    base = without_head(model.base, tmp_path / "base", layout_of(family))
    findings = check_mlps(facts_of(base), resizes=family not in FIXED_WIDTH)

    edit(base, tmp_path / "out", "zero" if family in FIXED_WIDTH else "prune", REMOVED)

    assert findings == ()
    assert tensors_of(tmp_path / "out").keys() == tensors_of(base).keys()
    assert difference(logits(decoder_of(tmp_path / "out")), model.masked) < TOLERANCE


@pytest.mark.parametrize("family", EDITABLE)
def test_stored_tensors_are_those_that_intake_expects(
    edited: Any, tmp_path: Path, family: str
) -> None:
    base = edited(family).base
    bare = without_head(base, tmp_path / "bare", layout_of(family))

    assert check_native_tensors(facts_of(base)) == ()
    assert check_native_tensors(facts_of(bare)) == ()
    config = json.loads((base / "config.json").read_text())
    assert clean_config(config).config.keys() == config.keys()


def gemma3_as_loaded(base: Path, out: Path) -> Path:
    """Copy a gemma3 model with its tensors named as in memory, another spelling on the hub."""
    out.mkdir()
    (out / "config.json").write_bytes((base / "config.json").read_bytes())
    tensors = {
        "model." + name.replace("language_model.model.", "language_model."): tensor
        for name, tensor in tensors_of(base).items()
    }
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return out


def test_multimodal_wrapper_is_edited_under_its_other_prefix(edited: Any, tmp_path: Path) -> None:
    base = gemma3_as_loaded(edited("gemma3").base, tmp_path / "base")

    report = edit(base, tmp_path / "out", "prune", REMOVED)

    prefix = "model.language_model.layers."
    assert len(report.tensors_changed) == LAYERS * 3
    assert all(name.startswith(prefix) for name in report.tensors_changed)
    assert difference(logits(decoder_of(tmp_path / "out")), edited("gemma3").masked) < TOLERANCE


def test_vision_tower_is_left_alone(edited: Any) -> None:
    model = edited("gemma3")
    before, after = tensors_of(model.base), tensors_of(model.out)

    tower = [name for name in before if "vision_tower" in name and ".mlp." in name]

    assert tower
    assert all(torch.equal(before[name], after[name]) for name in tower)
    config = json.loads((model.out / "config.json").read_text())
    assert config["vision_config"]["intermediate_size"] == 24


@pytest.mark.parametrize("family", SETTINGS)
def test_every_capture_point_of_every_layer_is_seen(
    edited: Any, tmp_path: Path, family: str
) -> None:
    folder = tmp_path if family in EXPERTS else edited(family).base
    if family in EXPERTS:
        save_tiny_model(folder, family)
    shape = read_shape(folder)
    neurons = shape.dimensions.neurons

    seen = activations(decoder_of(folder)) if family in EXPERTS else edited(family).seen

    points = capture_points(shape.layout)
    assert seen.keys() == {(point, layer) for point in points for layer in range(LAYERS)}
    for (point, _), values in seen.items():
        is_inner = point in ("gate_proj", "up_proj", "down_proj_input")
        assert values.shape == (*TOKENS.shape, neurons if is_inner else HIDDEN), point


@pytest.mark.parametrize("family", EDITABLE)
def test_mlp_output_is_what_the_down_projection_gives(edited: Any, family: str) -> None:
    seen = edited(family).seen

    for layer in range(LAYERS):
        mlp = seen[CapturePoint.MLP_OUTPUT, layer]
        assert torch.equal(mlp, seen[CapturePoint.DOWN_PROJ, layer])


@pytest.mark.parametrize("family", EDITABLE)
def test_attention_output_has_nothing_of_the_residual_in_it(edited: Any, family: str) -> None:
    decoder = decoder_of(edited(family).base)
    with torch.no_grad():
        for name, parameter in decoder.block(0).named_parameters():
            if ("attn." in name or "attention." in name) and "norm" not in name:
                parameter.zero_()

    seen = activations(decoder)

    assert not seen[CapturePoint.ATTENTION_OUTPUT, 0].any()
    assert seen[CapturePoint.ATTENTION_OUTPUT, 1].any()


NORMS = [
    *((family, {}) for family in EDITABLE if layout_of(family).input_norm),
    ("falcon", {"new_decoder_architecture": True}),
    ("falcon", {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1}),
    ("falcon", {"parallel_attn": False}),
    ("gpt_neox", {"use_parallel_residual": False}),
    ("stablelm", {"use_parallel_residual": True}),
]


@pytest.mark.parametrize(("family", "settings"), NORMS)
def test_input_norm_is_what_attention_reads(
    tmp_path: Path, family: str, settings: dict[str, Any]
) -> None:
    decoder = decoder_of(save_tiny_model(tmp_path / "m", family, settings=settings))
    read: list[torch.Tensor] = []
    attention = decoder.module(1, str(decoder.layout.attention).split(".")[0])
    attention.register_forward_pre_hook(
        lambda _, args, kwargs: read.append(args[0] if args else kwargs["hidden_states"]),
        with_kwargs=True,
    )

    seen = activations(decoder)

    assert torch.equal(seen[CapturePoint.INPUT_NORM, 1], read[0])


def test_norm_after_attention_is_not_reported_as_its_input(tmp_path: Path) -> None:
    settings = {"do_layer_norm_before": False, "word_embed_proj_dim": 16}
    base = save_tiny_model(tmp_path / "m", "opt", tied=None, settings=settings)

    seen = activations(decoder_of(base))

    assert CapturePoint.INPUT_NORM not in {point for point, _ in seen}
    assert CapturePoint.UP_PROJ in {point for point, _ in seen}


@pytest.mark.parametrize("family", EDITABLE)
def test_what_comes_before_a_difference_does_not_feel_it(edited: Any, family: str) -> None:
    for point, values in edited(family).seen.items():
        distance = (values[0] - values[1]).abs().amax(dim=-1)
        # Both prompts run in one batch, so that equal slots see equal sums.
        assert float(distance[:SHARED_PREFIX].max()) < 1e-5, point
        assert float(distance[SHARED_PREFIX]) > 1e-5, point


def test_families_without_a_gate_are_extensions() -> None:
    gated = {f for f in EDITABLE if not layout_of(f).is_extension}

    assert {"llama", "gemma3", "phi3", "glm4", "cohere2"} <= gated
    assert not gated & {"gpt2", "opt", "nemotron", "bloom", "starcoder2", "falcon"}


FRESH_PROCESS = """
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

tokens = torch.tensor([[1, 5, 9]])
for folder in map(Path, sys.argv[1:]):
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), (folder, report)
    longer = model.generate(tokens, max_new_tokens=2, min_new_tokens=2, do_sample=False)
    assert longer.shape[1] == 5
    model.save_pretrained(folder / "again")
    again = AutoModelForCausalLM.from_pretrained(folder / "again").eval()
    assert torch.equal(again(tokens).logits, model.eval()(tokens).logits), folder
assert not {"app", "workers"} & set(sys.modules)
print("loaded", len(sys.argv) - 1)
"""


def test_plain_transformers_loads_generates_and_saves_every_family(edited: Any) -> None:
    folders = [str(edited(family).out) for family in EDITABLE]
    folders += [str(edited(family).sharded_out) for family in ("llama", "phi3", "gpt2", "gemma3")]

    result = subprocess.run(
        [sys.executable, "-I", "-c", FRESH_PROCESS, *folders],
        check=False,
        capture_output=True,
        text=True,
        cwd=edited("llama").out,
        timeout=110,
    )

    assert result.stdout == f"loaded {len(folders)}\n", result.stderr[-2000:]


@pytest.mark.parametrize("family", FIXED_WIDTH)
def test_family_of_fixed_width_is_zeroed_but_never_pruned(edited: Any, family: str) -> None:
    facts = facts_of(edited(family).base)

    (finding,) = check_mlps(facts)

    assert finding.code == "unsupported_mlp"
    assert f"model_type `{family}`" in finding.message
    assert "`zero` or `scale`" in finding.message
    assert check_mlps(facts, resizes=False) == ()


# Layers 1 and 2 have experts; in the last three layer 0 has a plain MLP.
EXPERT_LAYERS = {
    **dict.fromkeys(("mixtral", "qwen2_moe", "gpt_oss"), "layers 0, 1, 2"),
    **dict.fromkeys(("qwen3_moe", "deepseek_v2", "deepseek_v3"), "layers 1, 2"),
}


@pytest.mark.parametrize("family", EXPERTS)
def test_experts_are_refused_by_layer_but_can_be_measured(tmp_path: Path, family: str) -> None:
    facts = facts_of(save_tiny_model(tmp_path / "m", family))

    (finding,) = check_mlps(facts)

    assert finding.code == "unsupported_mlp"
    assert f"experts ({EXPERT_LAYERS[family]})" in finding.message
    assert check_diagnosis(facts) == ()


def test_measured_experts_have_no_neuron_points() -> None:
    layout = layout_of("mixtral")

    assert not layout.is_editable
    assert capture_points(layout) == ("input_norm", "attention_output", "mlp_output")


@pytest.mark.parametrize("family", SETTINGS)
def test_config_over_the_tensors_of_another_family_is_refused(edited: Any, family: str) -> None:
    other = "phi3" if family in ("gpt2", "opt") else "gpt2"
    config: dict[str, Any] = {"num_hidden_layers": LAYERS, "n_layer": LAYERS, "num_layers": LAYERS}
    config |= {"n_layers": LAYERS, "hidden_size": HIDDEN, "n_embd": HIDDEN, "d_model": HIDDEN}
    config |= {"intermediate_size": NEURONS, "n_inner": NEURONS, "ffn_dim": NEURONS}
    config |= {"ffn_hidden_size": NEURONS}
    config |= {"model_type": family, "text_config": dict(config)}
    facts = facts_of(edited(other).base)

    findings = check_diagnosis(ModelFacts(config, facts.tensors, facts.files))

    assert {finding.code for finding in findings} <= {"unsupported_mlp", "checkpoint_inconsistent"}
    assert findings


def test_gate_that_the_family_does_not_have_is_refused(edited: Any) -> None:
    facts = facts_of(edited("llama").base)

    (finding,) = check_mlps(
        ModelFacts({**facts.config, "model_type": "nemotron"}, facts.tensors, facts.files)
    )

    assert finding.code == "unsupported_mlp"
    assert "no `mlp.gate_proj`, but layers 0, 1, 2 have one" in finding.message


# What old versions of the library stored, and files on the hub still have.
OLD_BUFFERS = [
    ("llama", "self_attn.rotary_emb.inv_freq"),
    ("gpt2", "attn.bias"),
    ("gpt2", "attn.masked_bias"),
    ("gpt_bigcode", "attn.bias"),
    ("gpt_neo", "attn.attention.bias"),
    ("gpt_neo", "attn.attention.masked_bias"),
    ("gptj", "attn.masked_bias"),
    ("codegen", "attn.causal_mask"),
    ("gpt_neox", "attention.bias"),
    ("falcon", "self_attention.rotary_emb.inv_freq"),
]


@pytest.mark.parametrize(("family", "buffer"), OLD_BUFFERS)
def test_buffers_of_old_versions_do_no_harm(
    edited: Any, tmp_path: Path, family: str, buffer: str
) -> None:
    model = edited(family)
    (tmp_path / "base").mkdir()
    (tmp_path / "base/config.json").write_bytes((model.base / "config.json").read_bytes())
    tensors = tensors_of(model.base)
    name = layout_of(family).tensor_names(tensors).tensor(0, buffer)
    path = tmp_path / "base/model.safetensors"
    save_file({**tensors, name: torch.ones(3)}, path, metadata={"format": "pt"})
    assert check_mlps(facts_of(tmp_path / "base")) == ()

    edit(tmp_path / "base", tmp_path / "out", "prune", REMOVED)

    assert torch.equal(logits(decoder_of(tmp_path / "out")), model.logits)
    assert torch.equal(tensors_of(tmp_path / "out")[name], torch.ones(3))
