"""Where heads lie and whether they can go, judged by config and tensor headers."""

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.architectures import find_layout
from app.domain.attention import (
    AttentionShape,
    check_attention,
    find_attention,
    kept_heads_obstacle,
    read_attention,
    removal_obstacle,
)
from app.domain.models import ModelFacts, TensorFact

LAYERS, HIDDEN, HEADS, GROUPS, HEAD_DIM = 3, 24, 6, 2, 4
Change = Callable[[dict[str, Any], dict[str, TensorFact]], None]


def tensor(shape: tuple[int, ...], dtype: str = "F32") -> TensorFact:
    return TensorFact(dtype, shape, "model.safetensors", 4)


def name(layer: int, module: str) -> str:
    return f"model.layers.{layer}.self_attn.{module}.weight"


def facts(change: Change = lambda config, tensors: None, model_type: str = "llama") -> ModelFacts:
    """Six heads of width 4 on two key-value heads: a width of 24."""
    config: dict[str, Any] = {
        "model_type": model_type,
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "intermediate_size": 10,
        "num_attention_heads": HEADS,
    }
    tensors = {}
    for layer in range(LAYERS):
        tensors[f"model.layers.{layer}.mlp.up_proj.weight"] = tensor((10, HIDDEN))
        for module, rows in (("q_proj", 24), ("k_proj", 8), ("v_proj", 8), ("o_proj", 24)):
            tensors[name(layer, module)] = tensor((rows, HIDDEN))
    change(config, tensors)
    return ModelFacts(config, tensors, ())


def set_tensor(key: str, shape: tuple[int, ...], dtype: str = "F32") -> Change:
    return lambda config, tensors: tensors.update({key: tensor(shape, dtype)})


def set_config(**values: Any) -> Change:
    return lambda config, tensors: config.update(values)


def drop_tensor(key: str) -> Change:
    def drop(config: dict[str, Any], tensors: dict[str, TensorFact]) -> None:
        del tensors[key]

    return drop


def test_sizes_come_from_the_headers() -> None:
    assert read_attention(facts()).shape == AttentionShape(LAYERS, HIDDEN, HEADS, GROUPS, HEAD_DIM)


def test_heads_of_a_group_are_neighbours() -> None:
    shape = AttentionShape(LAYERS, HIDDEN, HEADS, GROUPS, HEAD_DIM)

    assert shape.width == 24
    assert shape.group_size == 3
    assert [shape.group_of(head) for head in range(HEADS)] == [0, 0, 0, 1, 1, 1]
    assert list(shape.heads_of(1)) == [3, 4, 5]
    assert shape.groups_of([5, 0, 3, 4]) == [1]


def fused(model_type: str, prefix: str, config: dict[str, Any], shapes: dict[str, Any]) -> Any:
    tensors = {
        f"{prefix.format(layer=layer)}.{module}.weight": tensor(shape)
        for layer in range(LAYERS)
        for module, shape in shapes.items()
    }
    return ModelFacts({"model_type": model_type, **config}, tensors, ())


FUSED = {
    # Conv1D: rows are inputs, so three times the width are columns.
    "gpt2": (
        fused(
            "gpt2",
            "transformer.h.{layer}",
            {"n_layer": LAYERS, "n_embd": HIDDEN, "n_inner": None, "n_head": HEADS},
            {"mlp.c_fc": (24, 96), "attn.c_attn": (24, 72), "attn.c_proj": (24, 24)},
        ),
        HEADS,
    ),
    "grouped phi3": (
        fused(
            "phi3",
            "model.layers.{layer}",
            {
                "num_hidden_layers": LAYERS,
                "hidden_size": HIDDEN,
                "intermediate_size": 10,
                "num_attention_heads": HEADS,
            },
            {
                "mlp.down_proj": (24, 10),
                "self_attn.qkv_proj": (40, 24),
                "self_attn.o_proj": (24, 24),
            },
        ),
        GROUPS,
    ),
    "one key-value head for all": (
        fused(
            "falcon",
            "transformer.h.{layer}",
            {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": HEADS},
            {
                "mlp.dense_4h_to_h": (24, 96),
                "self_attention.query_key_value": (32, 24),
                "self_attention.dense": (24, 24),
            },
        ),
        1,
    ),
}


@pytest.mark.parametrize(("model", "groups"), FUSED.values(), ids=FUSED.keys())
def test_key_value_heads_are_counted_in_a_fused_projection(model: ModelFacts, groups: int) -> None:
    assert check_attention(model) == ()
    shape = read_attention(model).shape
    assert (shape.heads, shape.key_value_heads, shape.head_dim) == (HEADS, groups, HEAD_DIM)
    assert removal_obstacle(model, read_attention(model)) is not None


REFUSALS: dict[str, tuple[Change, str]] = {
    "family without a row": (set_config(model_type="mixtral"), "mixtral"),
    "no number of heads": (set_config(num_attention_heads=None), "num_attention_heads"),
    "heads are a boolean": (set_config(num_attention_heads=True), "num_attention_heads"),
    "heads do not divide the width": (set_config(num_attention_heads=5), "5 attention heads"),
    "key rows of no whole head": (set_tensor(name(0, "k_proj"), (7, HIDDEN)), "6 attention heads"),
    "groups of unequal size": (set_tensor(name(0, "k_proj"), (16, HIDDEN)), "6 attention heads"),
    "no output projection": (drop_tensor(name(0, "o_proj")), "layers.0.self_attn.o_proj"),
    "output projection is a vector": (set_tensor(name(0, "o_proj"), (24,)), "no matrix"),
    "value projection missing later": (drop_tensor(name(2, "v_proj")), "layer 2"),
    "last layer differs": (set_tensor(name(2, "q_proj"), (20, HIDDEN)), "[20, 24]"),
    "values are integers": (set_tensor(name(1, "v_proj"), (8, HIDDEN), "I8"), "I8"),
}


@pytest.mark.parametrize(("change", "told"), REFUSALS.values(), ids=REFUSALS.keys())
def test_attention_that_does_not_fit_is_refused_with_its_reason(change: Change, told: str) -> None:
    findings = check_attention(facts(change))

    assert {finding.code for finding in findings} == {"unsupported_attention"}
    assert {finding.pointer for finding in findings} == {"/config/attention_heads"}
    assert told in findings[0].message


def test_damaged_model_gives_a_bounded_list() -> None:
    def drop(config: dict[str, Any], tensors: dict[str, TensorFact]) -> None:
        config["num_hidden_layers"] = 1000

    assert len(check_attention(facts(drop))) == 20


def obstacle(change: Change, model_type: str = "llama") -> str | None:
    model = facts(change, model_type)
    return removal_obstacle(model, read_attention(model))


def test_norm_of_each_head_does_not_forbid_removal() -> None:
    norms = set_tensor(name(1, "q_norm"), (HEAD_DIM,))

    assert obstacle(norms, "qwen3") is None


@pytest.mark.parametrize("family", ["qwen3", "olmo2"])
def test_norm_over_all_heads_forbids_removal(family: str) -> None:
    norms = set_tensor(name(1, "q_norm"), (HEADS * HEAD_DIM,))

    assert "layers.1.self_attn.q_norm" in (obstacle(norms, family) or "")


def test_norm_that_a_family_derives_from_the_number_of_heads_forbids_removal() -> None:
    assert "q_norm" in (obstacle(set_tensor(name(0, "q_norm"), (HEAD_DIM,)), "mistral") or "")


def test_buffer_of_old_checkpoints_does_not_forbid_removal() -> None:
    buffer = set_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", (2,))

    assert obstacle(buffer) is None


def test_derived_head_width_forbids_removal() -> None:
    assert "number of heads" in (obstacle(lambda config, tensors: None, "stablelm") or "")


def test_kept_heads_must_divide_the_hidden_size_only_where_the_config_class_says_so() -> None:
    strict = read_attention(facts())
    free = read_attention(facts(model_type="mistral"))

    assert kept_heads_obstacle(strict, 3) is None
    assert "24 is no multiple of 5" in (kept_heads_obstacle(strict, 5) or "")
    assert kept_heads_obstacle(free, 5) is None


def test_families_without_layout_are_unknown() -> None:
    assert find_attention("bert") is None
    assert find_layout("bert") is None


def test_heads_that_gemma_3_leaves_out_are_those_of_its_class() -> None:
    def change(config: dict[str, Any], tensors: dict[str, TensorFact]) -> None:
        del config["num_attention_heads"]
        for layer in range(LAYERS):
            for module, rows in (("q_proj", 32), ("k_proj", 16), ("v_proj", 16)):
                tensors[name(layer, module)] = tensor((rows, HIDDEN))
            tensors[name(layer, "o_proj")] = tensor((HIDDEN, 32))

    attention = read_attention(facts(change, "gemma3_text"))

    assert attention.shape == AttentionShape(LAYERS, HIDDEN, 8, 4, 4)
