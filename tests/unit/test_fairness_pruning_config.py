"""The config of Fairness Pruning: presets, amounts, built-in sets, and what is refused."""

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from app.catalog.fairness_pruning.config import EDIT_FIELDS, FairnessPruningConfig
from app.catalog.fairness_pruning.presets import AMOUNT_FIELDS
from app.catalog.fairness_pruning.resolve import resolve
from app.catalog.method import schema_of
from app.catalog.methods.fairness_pruning import METHOD
from app.catalog.pair_sets import load_pair_set, pair_set_names

PAIR = {"prompt_1": "The boy ran", "prompt_2": "The girl ran"}


def config(**fields: Any) -> FairnessPruningConfig:
    return FairnessPruningConfig.model_validate({"pairs": [PAIR], **fields})


def user_pairs(count: int) -> list[dict[str, Any]]:
    return [
        {"prompt_1": f"The boy {n}", "prompt_2": f"The girl {n}", "category": "gender"}
        for n in range(count)
    ]


def splits(pairs: list[dict[str, Any]], **fields: Any) -> dict[str, str | None]:
    resolved = resolve(config(pairs=pairs, **fields))
    return {
        name: pair.split for pair in resolved.pairs for name in (min(pair.prompt_1, pair.prompt_2),)
    }


def test_plain_defaults_use_the_formula_printed_in_the_article() -> None:
    plain = config()

    assert (plain.importance, plain.bias_weight, plain.fraction) == ("max_abs", 0.5, 0.002)
    assert (plain.token_reduction, plain.mode) == ("abs_then_mean", "prune")


def test_article_preset_is_expanded() -> None:
    article = config(preset="article")

    assert (article.importance, article.bias_weight, article.fraction) == ("ppm", 0.5, 0.002)
    assert article.token_reduction == "abs_then_mean"


def test_optipfair_preset_is_expanded() -> None:
    peer = config(preset="optipfair")

    assert (peer.importance, peer.bias_weight) == ("ppm", 0.8)
    assert peer.token_reduction == "mean_then_abs"


def test_explicit_field_overrides_the_preset() -> None:
    article = config(preset="article", importance="l2", fraction=0.05)

    assert (article.importance, article.fraction) == ("l2", 0.05)


@pytest.mark.parametrize(
    "amount",
    [
        {"fraction_by_layer": {"0": 0.1}},
        {"neurons_per_layer": 3},
        {"target_expansion": 200.0},
        {"neuron_indices": {"1": [4, 2]}},
    ],
)
def test_other_amount_takes_the_place_of_the_presets_fraction(amount: dict[str, Any]) -> None:
    assert config(preset="article", **amount).fraction is None


GLOBAL: dict[str, Any] = {"scope": "global"}
TWO_CATEGORIES = [
    {"prompt_1": "The boy sat", "prompt_2": "The girl sat", "category": "gender"},
    {"prompt_1": "The old man", "prompt_2": "The young man", "category": "age"},
]

REFUSED: dict[str, tuple[dict[str, Any], str, tuple[str | int, ...]]] = {
    "unknown field": ({"fractoin": 0.1}, "extra_forbidden", ("fractoin",)),
    "unknown preset": ({"preset": "paper"}, "literal_error", ("preset",)),
    "no pairs": ({"pairs": []}, "pairs_required", ()),
    "pairs is a number": ({"pairs": 3}, "tuple_type", ("pairs",)),
    "unknown set": ({"pairs": "genders"}, "unknown_pair_set", ("pairs",)),
    "unknown set in a list": ({"pairs": ["gender", "x"]}, "unknown_pair_set", ("pairs",)),
    "names and pairs mixed": ({"pairs": ["gender", PAIR]}, "model_type", ("pairs", 0)),
    "too many pairs": ({"pairs": [PAIR] * 2001}, "too_long", ("pairs",)),
    "blank prompt": (
        {"pairs": [{"prompt_1": " \n", "prompt_2": "x"}]},
        "blank_prompt",
        ("pairs", 0, "prompt_1"),
    ),
    "prompt is a number": (
        {"pairs": [{"prompt_1": 1, "prompt_2": "x"}]},
        "string_type",
        ("pairs", 0, "prompt_1"),
    ),
    "half a pair": ({"pairs": [{"prompt_1": "x"}]}, "missing", ("pairs", 0, "prompt_2")),
    "held-out pair is also selected": (
        {"holdout_pairs": [{"prompt_1": PAIR["prompt_2"], "prompt_2": PAIR["prompt_1"]}]},
        "holdout_overlap",
        (),
    ),
    "all pairs held out": ({"pairs": [{**PAIR, "split": "holdout"}]}, "pairs_required", ()),
    "control pair with a split": (
        {"control_pairs": [{**PAIR, "split": "selection"}]},
        "conflicting_fields",
        (),
    ),
    "fraction is a boolean": ({"fraction": True}, "float_type", ("fraction",)),
    "fraction is text": ({"fraction": "0.1"}, "float_type", ("fraction",)),
    "fraction is NaN": ({"fraction": math.nan}, "finite_number", ("fraction",)),
    "fraction is infinite": ({"fraction": math.inf}, "finite_number", ("fraction",)),
    "fraction of one": ({"fraction": 1.0}, "less_than", ("fraction",)),
    "negative fraction": ({"fraction": -0.1}, "greater_than_equal", ("fraction",)),
    "no amount": ({"fraction": None}, "one_amount", ()),
    "two amounts": ({"fraction": 0.1, "neurons_per_layer": 2}, "one_amount", ()),
    "count is a boolean": ({"neurons_per_layer": True}, "int_type", ("neurons_per_layer",)),
    "count is a float": ({"neurons_per_layer": 2.0}, "int_type", ("neurons_per_layer",)),
    "NaN by layer": (
        {"fraction_by_layer": {"0": math.nan}},
        "finite_number",
        ("fraction_by_layer", "0"),
    ),
    "layer name": (
        {"fraction_by_layer": {"first": 0.1}},
        "int_type",
        ("fraction_by_layer", "first", "[key]"),
    ),
    "layer written 01": (
        {"fraction_by_layer": {"01": 0.1}},
        "int_type",
        ("fraction_by_layer", "01", "[key]"),
    ),
    "no neurons": ({"neuron_indices": {"0": []}}, "too_short", ("neuron_indices", "0")),
    "no layers of neurons": ({"neuron_indices": {}}, "too_short", ("neuron_indices",)),
    "neuron twice": ({"neuron_indices": {"0": [1, 1]}}, "bad_index", ()),
    "negative neuron": (
        {"neuron_indices": {"0": [-1]}},
        "greater_than_equal",
        ("neuron_indices", "0", 0),
    ),
    "neuron is a boolean": (
        {"neuron_indices": {"0": [True]}},
        "int_type",
        ("neuron_indices", "0", 0),
    ),
    "layer twice": ({"layers": [1, 1]}, "bad_index", ()),
    "layer is a boolean": ({"layers": [False]}, "int_type", ("layers", 0)),
    "layers and neurons": (
        {"layers": [0], "neuron_indices": {"0": [1]}},
        "conflicting_fields",
        (),
    ),
    "bias weight above one": ({"bias_weight": 1.5}, "less_than_equal", ("bias_weight",)),
    "bias weight is a boolean": ({"bias_weight": False}, "float_type", ("bias_weight",)),
    "hybrid without texts": ({"importance": "hybrid"}, "conflicting_fields", ()),
    "texts without hybrid": ({"calibration_texts": ["A boat."]}, "conflicting_fields", ()),
    "factor without scale": ({"scale_factor": 0.5}, "conflicting_fields", ()),
    "factor of one": ({"mode": "scale", "scale_factor": 1.0}, "less_than", ("scale_factor",)),
    "rounding without removal": (
        {"mode": "zero", "round_to_multiple": 8},
        "conflicting_fields",
        (),
    ),
    "odd multiple": ({"round_to_multiple": 12}, "literal_error", ("round_to_multiple",)),
    "direction alone": ({"round_direction": "up"}, "conflicting_fields", ()),
    "few draws": (
        {"controls": {"random_seeds": 2}},
        "greater_than_equal",
        ("controls", "random_seeds"),
    ),
    "two lengths": (
        {"generation": {"max_length": 50, "max_new_tokens": 10}},
        "one_length",
        ("generation",),
    ),
    "threshold of zero": (
        {"amplification": {"threshold": 0.0}},
        "greater_than",
        ("amplification", "threshold"),
    ),
    "unknown plot": ({"plots": ["violin"]}, "literal_error", ("plots", 0)),
    "plot twice": ({"plots": ["pca", "heatmap", "pca"]}, "repeated_entry", ()),
    "count over the model by layer": ({"top_k": 5}, "conflicting_fields", ()),
    "no neurons of the model": ({**GLOBAL, "top_k": 0}, "greater_than_equal", ("top_k",)),
    "two global amounts": ({**GLOBAL, "top_k": 5, "fraction": 0.1}, "one_amount", ()),
    "global count by layer": ({**GLOBAL, "neurons_per_layer": 5}, "conflicting_fields", ()),
    "global fraction by layer": (
        {**GLOBAL, "fraction_by_layer": {"0": 0.1}},
        "conflicting_fields",
        (),
    ),
    "global target": ({**GLOBAL, "target_expansion": 200.0}, "conflicting_fields", ()),
    "global scope of named neurons": (
        {**GLOBAL, "neuron_indices": {"0": [1]}},
        "conflicting_fields",
        (),
    ),
    "global weight of importance": ({**GLOBAL, "bias_weight": 0.5}, "conflicting_fields", ()),
    "global and even": ({**GLOBAL, "uneven": "error"}, "conflicting_fields", ()),
    "global width rounded down": ({**GLOBAL, "round_to_multiple": 64}, "conflicting_fields", ()),
    "rule by layer": (
        {"pairs": TWO_CATEGORIES, "category_rule": "union"},
        "conflicting_fields",
        (),
    ),
    "rule over one category": (
        {**GLOBAL, "pairs": TWO_CATEGORIES[:1], "category_rule": "union"},
        "conflicting_fields",
        (),
    ),
    "rule with an unnamed category": (
        {**GLOBAL, "pairs": [*TWO_CATEGORIES, PAIR], "category_rule": "intersection"},
        "conflicting_fields",
        (),
    ),
    "rule over a category that is held out": (
        {
            **GLOBAL,
            "pairs": [TWO_CATEGORIES[0], {**TWO_CATEGORIES[1], "split": "holdout"}],
            "category_rule": "union",
        },
        "conflicting_fields",
        (),
    ),
}


@pytest.mark.parametrize(("fields", "code", "where"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_config_is_refused_at_its_field(
    fields: dict[str, Any], code: str, where: tuple[str | int, ...]
) -> None:
    with pytest.raises(ValidationError) as refusal:
        config(**fields)

    assert (code, where) in [(error["type"], error["loc"]) for error in refusal.value.errors()]


def test_pairs_may_be_left_out_when_neurons_are_named() -> None:
    named = FairnessPruningConfig.model_validate({"neuron_indices": {"0": [3]}})

    assert named.pairs == ()


def test_built_in_set_brings_its_held_out_and_control_pairs() -> None:
    gender = load_pair_set("gender")
    expanded = config(pairs="gender")

    assert [pair.prompt_1 for pair in expanded.pairs] == [p.prompt_1 for p in gender.pairs]
    assert len(expanded.holdout_pairs) == len(gender.holdout_pairs) > 0
    assert len(expanded.control_pairs) == len(gender.control_pairs) > 0
    assert {pair.category for pair in expanded.pairs} == {"gender"}


def test_all_built_in_sets_can_run_in_one_job() -> None:
    together = resolve(config(pairs=list(pair_set_names())))

    assert {pair.category for pair in together.pairs} >= {"gender", "race"}
    assert together.neuron_map is True


def test_given_control_pairs_replace_those_of_the_set() -> None:
    assert config(pairs="gender", control_pairs=[]).control_pairs == ()


def test_set_name_in_control_pairs_stands_for_its_control_pairs() -> None:
    prompts = [pair.prompt_1 for pair in config(control_pairs="gender").control_pairs]

    assert prompts == [pair.prompt_1 for pair in load_pair_set("gender").control_pairs]


def test_fifth_of_ten_pairs_is_held_out() -> None:
    assert list(splits(user_pairs(10)).values()).count("holdout") == 2


def test_nine_pairs_are_all_for_selection() -> None:
    assert set(splits(user_pairs(9)).values()) == {"selection"}


def test_holdout_does_not_depend_on_order_of_pairs_or_prompts() -> None:
    pairs = user_pairs(20)
    turned = [
        {"prompt_1": p["prompt_2"], "prompt_2": p["prompt_1"], "category": p["category"]}
        for p in reversed(pairs)
    ]

    assert splits(pairs) == splits(turned)


def test_repeated_pair_is_in_one_split_only() -> None:
    pairs = user_pairs(12)

    assert splits(pairs) == splits(pairs + pairs)


def test_nothing_is_held_out_of_pairs_when_held_out_pairs_are_given() -> None:
    other = [{"prompt_1": "A man sat", "prompt_2": "A woman sat"}]

    assert set(splits(user_pairs(10), holdout_pairs=other).values()) == {"selection"}


def test_split_chosen_by_the_user_stands() -> None:
    pairs = user_pairs(12)
    pairs[0]["split"] = "holdout"

    assert list(splits(pairs).values()).count("holdout") == 1


def test_resolved_pairs_keep_the_users_order() -> None:
    resolved = resolve(config(pairs=user_pairs(15)))

    assert [pair.prompt_1 for pair in resolved.pairs] == [f"The boy {n}" for n in range(15)]


@pytest.mark.parametrize(
    "fields",
    [
        {"pairs": "race", "preset": "optipfair"},
        {"pairs": user_pairs(11), "neuron_indices": {"2": [1]}},
        {"generation": {"max_new_tokens": 7}},
        {"fraction_by_layer": {"0": 0.25, "2": 0.5}},
        {"pairs": ["gender", "race"], "diagnose_only": True, "preset": "article"},
        {"pairs": ["gender", "race"], **GLOBAL, "category_rule": "intersection"},
        {"preset": "optipfair", **GLOBAL, "top_k": 9, "mode": "zero"},
        {**GLOBAL, "round_to_multiple": 8, "round_direction": "up", "layers": [1]},
    ],
)
def test_resolving_again_changes_nothing_even_after_json(fields: dict[str, Any]) -> None:
    resolved = resolve(config(**fields))
    reread = FairnessPruningConfig.model_validate(json.loads(resolved.model_dump_json()))

    assert resolve(resolved) == resolved
    assert resolve(reread) == resolved


@pytest.mark.parametrize("preset", [None, "article", "optipfair"])
def test_global_scope_ranks_by_bias_alone_whatever_the_preset_weighs(preset: str | None) -> None:
    assert config(preset=preset, **GLOBAL).bias_weight == 1.0


def test_global_scope_keeps_the_importance_that_ranks_its_control() -> None:
    assert config(preset="article", **GLOBAL).importance == "ppm"


def test_number_of_neurons_takes_the_place_of_the_presets_fraction() -> None:
    whole = config(preset="article", top_k=64, **GLOBAL)

    assert (whole.top_k, whole.fraction) == (64, None)


@pytest.mark.parametrize("rule", ["pooled", "intersection", "union"])
def test_every_category_rule_is_valid_with_two_categories(rule: str) -> None:
    assert config(**GLOBAL, pairs=TWO_CATEGORIES, category_rule=rule).category_rule == rule


@pytest.mark.parametrize("preset", [None, "article", "optipfair"])
def test_diagnosis_alone_has_no_amount(preset: str | None) -> None:
    diagnosis = config(preset=preset, diagnose_only=True)

    assert all(getattr(diagnosis, name) is None for name in AMOUNT_FIELDS)


EDIT_OPTIONS: dict[str, Any] = {
    "fraction": 0.002,
    "fraction_by_layer": {"0": 0.1},
    "neurons_per_layer": 3,
    "target_expansion": 200.0,
    "top_k": 5,
    "neuron_indices": {"0": [1]},
    "mode": "zero",
    "scale_factor": 0.5,
    "uneven": "error",
    "round_to_multiple": 16,
    "round_direction": "up",
    "layers": [0],
    "scope": "global",
    "category_rule": "union",
    "controls": {"enabled": False},
    "attention_heads": {"heads_per_layer": 1},
}


@pytest.mark.parametrize(("field", "value"), EDIT_OPTIONS.items())
def test_option_of_an_edit_is_refused_by_name_in_a_diagnosis(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refusal:
        config(diagnose_only=True, **{field: value})

    (error,) = refusal.value.errors()
    assert (error["type"], error["ctx"]) == ("conflicting_fields", {"field": field})


def test_no_option_of_an_edit_is_forgotten() -> None:
    assert set(EDIT_OPTIONS) == set(EDIT_FIELDS)


def test_diagnosis_needs_pairs() -> None:
    with pytest.raises(ValidationError, match="pairs_required"):
        FairnessPruningConfig.model_validate({"diagnose_only": True})


def test_example_config_is_valid() -> None:
    assert resolve(FairnessPruningConfig.model_validate(METHOD.example_config)).pairs


def test_schema_describes_every_field() -> None:
    schema = schema_of(METHOD)
    parts = [schema, *schema["$defs"].values()]

    for part in parts:
        for name, field in part["properties"].items():
            assert field.keys() >= {"title", "description", "examples"}, name


def test_categories_are_limited_since_all_are_compared_with_all() -> None:
    pairs = [{**PAIR, "prompt_1": f"word {n}", "category": f"c{n}"} for n in range(51)]

    with pytest.raises(ValidationError, match="51 categories; give at most 50"):
        FairnessPruningConfig.model_validate({"pairs": pairs})
    assert len(FairnessPruningConfig.model_validate({"pairs": pairs[1:]}).pairs) == 50
