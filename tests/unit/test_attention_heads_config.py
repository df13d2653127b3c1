"""The config section of attention heads, its amounts, and what a model refuses."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.catalog.fairness_pruning.check import check
from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.head_section import AttentionHeadsConfig
from app.catalog.fairness_pruning.heads import head_counts, head_findings
from app.catalog.fairness_pruning.resolve import resolve
from app.catalog.method import CheckResult
from app.domain.attention import AttentionShape
from app.domain.errors import Finding
from app.domain.models import ModelFacts
from tests.unit.test_attention_layouts import LAYERS, Change, facts, name, set_tensor, tensor

# Six heads, three of them on each of two key-value heads.
SHAPE = AttentionShape(layers=LAYERS, hidden=24, heads=6, key_value_heads=2, head_dim=4)


def section(**fields: Any) -> AttentionHeadsConfig:
    return AttentionHeadsConfig.model_validate(fields)


def findings(model_type: str = "llama", change: Change | None = None, **fields: Any) -> list[Any]:
    model = facts(model_type=model_type) if change is None else facts(change, model_type)
    return list(head_findings(section(**fields), model))


def only(found: list[Finding]) -> tuple[str, str, str]:
    (finding,) = found
    return finding.code, finding.pointer.removeprefix("/config/attention_heads"), finding.message


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "one_amount"),
        ({"heads_per_layer": 1, "fraction": 0.1}, "one_amount"),
        ({"head_indices": {"0": [1, 1]}}, "bad_index"),
        ({"head_indices": {}}, "too_short"),
        ({"fraction": 0.0}, "greater_than"),
        ({"fraction": 1.0}, "less_than"),
        ({"heads_per_layer": 0}, "greater_than_equal"),
        ({"heads_per_layer": 1, "mode": "scale"}, "literal_error"),
        ({"heads_per_layer": 1, "bias_weight": 1.5}, "less_than_equal"),
        ({"heads_per_layer": True}, "int_type"),
        ({"heads_per_layer": 1, "other": 1}, "extra_forbidden"),
    ],
)
def test_malformed_section_is_refused(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(ValidationError) as refused:
        section(**fields)

    assert refused.value.errors()[0]["type"] == code


def test_heads_are_cleared_by_default() -> None:
    config = section(heads_per_layer=1)

    assert config.mode == "zero"
    assert config.bias_weight is None


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"heads_per_layer": 2}, 2),
        ({"fraction": 0.34}, 2),
        # 0.29 * 100 is 28.999... in floats; here 6 heads and an exact decimal.
        ({"fraction": 0.5}, 3),
        ({"fraction": 0.5, "mode": "remove"}, 3),
        ({"fraction": 0.9, "mode": "remove"}, 3),
        ({"fraction": 0.49, "mode": "remove"}, 0),
    ],
)
def test_every_layer_loses_the_same_number(fields: dict[str, Any], count: int) -> None:
    assert head_counts(section(**fields), SHAPE) == dict.fromkeys(range(LAYERS), count)


def test_named_heads_are_counted_by_layer() -> None:
    config = section(head_indices={"1": [0, 5]})

    assert head_counts(config, SHAPE) == {0: 0, 1: 2, 2: 0}


@pytest.mark.parametrize(
    "fields",
    [
        {"heads_per_layer": 5},
        {"fraction": 0.2},
        {"head_indices": {"2": [5]}},
        {"heads_per_layer": 3, "mode": "remove"},
        {"fraction": 0.5, "mode": "remove"},
        {"head_indices": {"0": [5, 4, 3], "1": [0, 1, 2], "2": [3, 4, 5]}, "mode": "remove"},
    ],
)
def test_fitting_requests_have_no_findings(fields: dict[str, Any]) -> None:
    assert findings(**fields) == []


@pytest.mark.parametrize(
    ("fields", "code", "pointer", "told"),
    [
        ({"heads_per_layer": 6}, "prune_all", "/heads_per_layer", "at most 5"),
        ({"fraction": 0.1}, "nothing_to_prune", "/fraction", "1/6"),
        ({"fraction": 0.4, "mode": "remove"}, "nothing_to_prune", "/fraction", "3/6"),
        ({"head_indices": {"3": [0]}}, "bad_index", "/head_indices/3", "no layer 3"),
        ({"head_indices": {"0": [6]}}, "bad_index", "/head_indices/0", "no head 6"),
        (
            {"heads_per_layer": 2, "mode": "remove"},
            "unsupported_attention",
            "/heads_per_layer",
            "3 query heads",
        ),
        (
            {"head_indices": {"1": [0, 1, 2, 4]}, "mode": "remove"},
            "unsupported_attention",
            "/head_indices",
            "Head 4 of layer 1 shares its key-value head with heads 3 to 5",
        ),
        (
            {"head_indices": {"1": [0, 1, 2]}, "mode": "remove"},
            "uneven_layers",
            "/head_indices",
            "from 0 to 3",
        ),
    ],
)
def test_impossible_amounts_are_refused(
    fields: dict[str, Any], code: str, pointer: str, told: str
) -> None:
    found = only(findings(**fields))

    assert found[:2] == (code, pointer)
    assert told in found[2]


def test_family_without_a_config_for_fewer_heads_is_told_to_clear_them() -> None:
    code, pointer, message = only(findings("stablelm", heads_per_layer=3, mode="remove"))

    assert (code, pointer) == ("unsupported_attention", "/mode")
    assert "number of heads" in message
    assert "`zero`" in message


def test_number_of_kept_heads_that_the_config_class_rejects_is_refused() -> None:
    def one_group_each(config: dict[str, Any], tensors: dict[str, Any]) -> None:
        for layer in range(LAYERS):
            for module in ("k_proj", "v_proj"):
                set_tensor(name(layer, module), (24, 24))(config, tensors)

    code, _, message = only(findings("llama", one_group_each, heads_per_layer=1, mode="remove"))
    assert code == "unsupported_attention"
    assert "24 is no multiple of 5" in message
    assert findings("mistral", one_group_each, heads_per_layer=1, mode="remove") == []


def test_model_whose_attention_does_not_fit_is_refused_first() -> None:
    broken = set_tensor(name(2, "o_proj"), (24, 20))

    code, _, message = only(findings("llama", broken, heads_per_layer=6))

    assert code == "unsupported_attention"
    assert "[24, 20]" in message


PAIR = {"prompt_1": "the boy was", "prompt_2": "the girl was"}
WORDS = {"the": 1, "boy": 2, "girl": 3, "was": 4}


def encode(text: str) -> list[int]:
    return [WORDS[word] for word in text.split()]


def job(**fields: Any) -> FairnessPruningConfig:
    return FairnessPruningConfig.model_validate({"pairs": [PAIR], "fraction": 0.0, **fields})


def whole_model(model_type: str = "llama") -> ModelFacts:
    def with_mlp(config: dict[str, Any], tensors: dict[str, Any]) -> None:
        config.update(num_key_value_heads=2, head_dim=4, vocab_size=9, hidden_act="silu")
        config.update(tie_word_embeddings=True)
        tensors["model.embed_tokens.weight"] = tensor((9, 24))
        tensors["model.norm.weight"] = tensor((24,))
        for layer in range(LAYERS):
            prefix = f"model.layers.{layer}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                tensors[f"{prefix}.{norm}.weight"] = tensor((24,))
            tensors[f"{prefix}.mlp.gate_proj.weight"] = tensor((10, 24))
            tensors[f"{prefix}.mlp.down_proj.weight"] = tensor((24, 10))

    model = facts(with_mlp, model_type)
    return ModelFacts(model.config, model.tensors, (), encode)


def test_a_job_without_neurons_is_allowed_beside_heads_and_changes_the_model() -> None:
    result = check(job(attention_heads={"heads_per_layer": 1}), whole_model())

    assert result == CheckResult()
    assert check(job(), whole_model()).warnings == (
        "No neuron is removed: the result equals the base model.",
    )


def test_unsupported_request_is_refused_before_the_job() -> None:
    config = job(attention_heads={"heads_per_layer": 2, "mode": "remove"})

    (finding,) = check(config, whole_model()).invalid

    assert finding.code == "unsupported_attention"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"diagnose_only": True, "fraction": None}, "conflicting_fields"),
        ({"pairs": [], "neuron_indices": {"0": [1]}, "fraction": None}, "pairs_required"),
    ],
)
def test_heads_that_could_not_be_scored_or_taken_out_are_refused(
    fields: dict[str, Any], code: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        job(**fields, attention_heads={"heads_per_layer": 1})

    assert refused.value.errors()[0]["type"] == code


def test_heads_named_by_index_need_no_pairs_where_neurons_are_named_too() -> None:
    named = {"attention_heads": {"head_indices": {"0": [1]}}, "neuron_indices": {"0": [1]}}

    assert job(pairs=[], fraction=None, **named).attention_heads is not None


def test_resolved_config_writes_out_the_weight_of_heads() -> None:
    resolved = resolve(job(bias_weight=0.8, attention_heads={"heads_per_layer": 1}))

    assert resolved.attention_heads is not None
    assert resolved.attention_heads.bias_weight == 0.8
    assert resolve(resolved) == resolved


def test_own_weight_of_heads_stays() -> None:
    heads = {"heads_per_layer": 1, "bias_weight": 1.0}

    resolved = resolve(job(bias_weight=0.8, attention_heads=heads))

    assert resolved.attention_heads is not None
    assert resolved.attention_heads.bias_weight == 1.0


def test_long_list_of_absent_heads_gives_a_bounded_answer() -> None:
    absent = {str(layer): [99] for layer in range(500)}

    result = check(job(attention_heads={"head_indices": absent}), whole_model())

    assert len(result.invalid) == 100
    assert {finding.code for finding in result.invalid} == {"bad_index"}
