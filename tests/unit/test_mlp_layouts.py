"""Which models have an MLP that can be edited, judged by config and tensor headers."""

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.architectures import (
    check_diagnosis,
    check_mlps,
    find_layout,
    layout_model_types,
)
from app.domain.errors import Finding
from app.domain.models import FileFact, ModelFacts, TensorFact

LAYERS, HIDDEN, NEURONS = 3, 8, 20
Change = Callable[[dict[str, Any], dict[str, TensorFact]], None]


def facts(change: Change = lambda config, tensors: None, files: tuple[str, ...] = ()) -> ModelFacts:
    config: dict[str, Any] = {
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "intermediate_size": NEURONS,
    }
    tensors = {}
    for layer in range(LAYERS):
        for module, shape in (
            ("gate_proj", (NEURONS, HIDDEN)),
            ("up_proj", (NEURONS, HIDDEN)),
            ("down_proj", (HIDDEN, NEURONS)),
        ):
            tensors[weight(layer, module)] = tensor(shape)
    change(config, tensors)
    return ModelFacts(config, tensors, tuple(FileFact(name, 1) for name in files))


def weight(layer: int, module: str) -> str:
    return f"model.layers.{layer}.mlp.{module}.weight"


def tensor(shape: tuple[int, ...], dtype: str = "F32") -> TensorFact:
    return TensorFact(dtype, shape, "model.safetensors", 4)


def test_model_that_fits_its_layout_has_no_findings() -> None:
    assert check_mlps(facts()) == ()


@pytest.mark.parametrize("family", layout_model_types())
def test_every_family_of_the_table_is_found(family: str) -> None:
    layout = find_layout(family)

    assert layout is not None
    assert layout.module(2, "mlp.x").endswith(".2.mlp.x")


def test_biases_in_every_layer_are_accepted() -> None:
    def add_biases(config: dict[str, Any], tensors: dict[str, TensorFact]) -> None:
        for layer in range(LAYERS):
            tensors[weight(layer, "gate_proj")[:-6] + "bias"] = tensor((NEURONS,))
            tensors[weight(layer, "down_proj")[:-6] + "bias"] = tensor((HIDDEN,))

    assert check_mlps(facts(add_biases)) == ()


def set_config(**values: Any) -> Change:
    return lambda config, tensors: config.update(values)


def set_tensor(name: str, shape: tuple[int, ...], dtype: str = "F32") -> Change:
    return lambda config, tensors: tensors.update({name: tensor(shape, dtype)})


def drop_config(name: str) -> Change:
    return lambda config, tensors: config.pop(name)


def drop_tensors(*names: str) -> Change:
    def drop(config: dict[str, Any], tensors: dict[str, TensorFact]) -> None:
        for name in names:
            del tensors[name]

    return drop


def only_adapter_tensors(config: dict[str, Any], tensors: dict[str, TensorFact]) -> None:
    tensors.clear()
    tensors["base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"] = tensor((4, HIDDEN))


REFUSALS: dict[str, tuple[Change, str, str]] = {
    "unknown family": (set_config(model_type="mamba"), "unsupported_architecture", "mamba"),
    "no model_type": (drop_config("model_type"), "unsupported_architecture", "without model_type"),
    "encoder": (set_config(model_type="bert"), "unsupported_architecture", "an encoder, not"),
    "mixtral": (
        set_config(model_type="mixtral", num_local_experts=8),
        "unsupported_mlp",
        "num_local_experts",
    ),
    "experts in config": (set_config(n_routed_experts=64), "unsupported_mlp", "n_routed_experts"),
    "experts in the last layer only": (
        set_tensor("model.layers.2.mlp.experts.0.up_proj.weight", (NEURONS, HIDDEN)),
        "unsupported_mlp",
        "layers 2",
    ),
    "no gate in any layer": (
        drop_tensors(*(weight(n, "gate_proj") for n in range(LAYERS))),
        "unsupported_mlp",
        "mlp.gate_proj",
    ),
    "quantization_config": (
        set_config(quantization_config={"quant_method": "gptq"}),
        "quantized_checkpoint",
        "unquantised",
    ),
    "packed integers in one layer": (
        set_tensor(weight(1, "down_proj"), (HIDDEN, NEURONS), "I32"),
        "quantized_checkpoint",
        "I32",
    ),
    "float8 weights": (
        set_tensor(weight(0, "up_proj"), (NEURONS, HIDDEN), "F8_E4M3"),
        "quantized_checkpoint",
        "F8_E4M3",
    ),
    "adapter tensors": (only_adapter_tensors, "adapter_checkpoint", "merge"),
    "adapter config": (set_config(peft_type="LORA"), "adapter_checkpoint", "merge"),
    "wrong width in the last layer": (
        set_tensor(weight(2, "up_proj"), (NEURONS - 1, HIDDEN)),
        "checkpoint_inconsistent",
        "[19, 8]",
    ),
    "transposed down projection": (
        set_tensor(weight(1, "down_proj"), (NEURONS, HIDDEN)),
        "checkpoint_inconsistent",
        "[20, 8]",
    ),
    "projection missing in one layer": (
        drop_tensors(weight(1, "down_proj")),
        "checkpoint_inconsistent",
        "layers 1",
    ),
    "bias in one layer only": (
        set_tensor("model.layers.1.mlp.up_proj.bias", (NEURONS,)),
        "checkpoint_inconsistent",
        "layers.0.mlp.up_proj.bias",
    ),
    "bias of the wrong length": (
        set_tensor("model.layers.1.mlp.up_proj.bias", (HIDDEN,)),
        "checkpoint_inconsistent",
        "[8]",
    ),
    "more layers than config says": (
        set_tensor(weight(LAYERS, "up_proj"), (NEURONS, HIDDEN)),
        "checkpoint_inconsistent",
        "3 layers",
    ),
    "no size field": (
        drop_config("intermediate_size"),
        "checkpoint_inconsistent",
        "intermediate_size",
    ),
    "size is a boolean": (
        set_config(num_hidden_layers=True),
        "checkpoint_inconsistent",
        "num_hidden_layers",
    ),
    "size is text": (set_config(hidden_size="8"), "checkpoint_inconsistent", "hidden_size"),
}


@pytest.mark.parametrize(("change", "code", "told"), REFUSALS.values(), ids=REFUSALS.keys())
def test_unfit_model_is_refused_with_its_reason(change: Change, code: str, told: str) -> None:
    findings = check_mlps(facts(change))

    assert code in {finding.code for finding in findings}
    assert any(told in finding.message for finding in findings)
    assert all(finding.pointer == "/model" for finding in findings)


@pytest.mark.parametrize(("check", "named"), [(check_mlps, False), (check_diagnosis, True)])
def test_families_of_experts_are_named_where_a_model_is_only_measured(
    check: Callable[[ModelFacts], tuple[Finding, ...]], named: bool
) -> None:
    (finding,) = check(facts(set_config(model_type="bert")))

    assert finding.code == "unsupported_architecture"
    assert "llama" in finding.message
    assert ("mixtral" in finding.message) is named


def test_adapter_without_weights_is_refused() -> None:
    bare = facts(lambda config, tensors: tensors.clear(), files=("adapter_config.json",))

    assert [finding.code for finding in check_mlps(bare)] == ["adapter_checkpoint"]


def test_badly_damaged_model_gives_a_bounded_list() -> None:
    broken = facts(set_config(num_hidden_layers=1, hidden_size=9, intermediate_size=1))
    many = {weight(n, "up_proj"): tensor((1, 1)) for n in range(100)}
    broken = ModelFacts({**broken.config, "num_hidden_layers": 100}, many, ())

    assert len(check_mlps(broken)) == 20


def test_claim_of_more_layers_than_there_are_tensors_is_refused_at_once() -> None:
    (finding,) = check_mlps(facts(set_config(num_hidden_layers=10**9)))

    assert finding.code == "checkpoint_inconsistent"
    assert "1000000000" in finding.message
