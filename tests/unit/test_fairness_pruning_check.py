"""What is refused before a job starts: amounts and pairs against one model's facts."""

from typing import Any

import pytest

from app.catalog.fairness_pruning.amount_words import amount_difference
from app.catalog.fairness_pruning.amounts import removal_counts
from app.catalog.fairness_pruning.check import check
from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.method import CheckResult
from app.domain.architectures import MlpDimensions
from app.domain.models import ModelFacts, TensorFact
from app.domain.native_tensors import expected_tensors

LAYERS, HIDDEN, NEURONS = 4, 8, 172
PAIR = {"prompt_1": "the boy ran", "prompt_2": "the girl ran"}


def encode(text: str) -> list[int]:
    """One token a word, led by a start token; equal words have equal ids."""
    return [1, *(sum(map(ord, word)) for word in text.split())]


def facts(neurons: int = NEURONS, *, layers: int = LAYERS, tokenizer: bool = True) -> ModelFacts:
    config = {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": HIDDEN,
        "intermediate_size": neurons,
        "max_position_embeddings": 64,
        "num_attention_heads": 2,
        "vocab_size": 8,
    }
    tensors = {
        name: TensorFact("F32", shape, "model.safetensors", 4)
        for name, shape in expected_tensors(config)
    }
    return ModelFacts(config, tensors, (), encode if tokenizer else None)


def run_check(model: ModelFacts | None = None, **fields: Any) -> CheckResult:
    config = FairnessPruningConfig.model_validate({"pairs": [PAIR], "fraction": 0.05, **fields})
    return check(config, model or facts())


def counts(neurons: int, **fields: Any) -> set[int]:
    config = FairnessPruningConfig.model_validate({"pairs": [PAIR], **fields})
    return set(removal_counts(config, MlpDimensions(2, HIDDEN, neurons)).values())


@pytest.mark.parametrize(
    ("fraction", "neurons", "removed"),
    [
        (0.002, 8192, 16),
        (0.29, 100, 29),  # int(29 / 100 * 100) is 28 in floats
        (0.58, 100, 58),  # and 57
        (0.07, 100, 7),
        (0.02, 172, 3),
        (0.05, 172, 8),
        (0.999, 40, 39),
        (0.0, 40, 0),
        (1e-05, 100_000, 1),
    ],
)
def test_fraction_is_taken_as_the_decimal_that_was_written(
    fraction: float, neurons: int, removed: int
) -> None:
    assert counts(neurons, fraction=fraction) == {removed}


@pytest.mark.parametrize(
    ("multiple", "direction", "kept"),
    [(16, "down", 8176), (64, "down", 8128), (128, "down", 8064), (32, "up", 8192)],
)
def test_kept_neurons_are_rounded_to_the_multiple(multiple: int, direction: str, kept: int) -> None:
    fields = {"round_to_multiple": multiple, "round_direction": direction}

    assert counts(8192, fraction=0.002, **fields) == {8192 - kept}


def test_rounding_down_keeps_at_least_one_multiple() -> None:
    assert counts(40, fraction=0.9, round_to_multiple=16) == {24}


def test_nothing_is_rounded_where_nothing_is_removed() -> None:
    assert counts(172, fraction=0.0, round_to_multiple=128) == {0}


def test_target_expansion_counts_from_the_hidden_size() -> None:
    assert counts(40, target_expansion=390.0) == {40 - 31}


def test_fraction_by_layer_leaves_other_layers_alone() -> None:
    assert counts(40, fraction_by_layer={"1": 0.1}) == {0, 4}


def test_valid_config_has_no_findings() -> None:
    assert run_check() == CheckResult()


GLOBAL: dict[str, Any] = {"scope": "global"}

INVALID: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "less than one neuron": (
        {"fraction": 0.002},
        "nothing_to_prune",
        "/config/fraction",
        "0.005814",
    ),
    "less than one neuron by default": (
        {"fraction": 0.002},
        "nothing_to_prune",
        "/config/fraction",
        "`fraction` is 0.002 where no other amount is given",
    ),
    "less than one neuron beside heads": (
        {"attention_heads": {"heads_per_layer": 1}, "fraction": 0.002},
        "nothing_to_prune",
        "/config/fraction",
        "no neurons, give `fraction` 0",
    ),
    "less than one in one layer": (
        {"fraction": None, "fraction_by_layer": {"0": 0.1, "1": 0.001}},
        "nothing_to_prune",
        "/config/fraction_by_layer",
        "1/172",
    ),
    "target not below present size": (
        {"fraction": None, "target_expansion": 2150.0},
        "nothing_to_prune",
        "/config/target_expansion",
        "2150 %",
    ),
    "rounded up to all": (
        {"round_to_multiple": 256, "round_direction": "up"},
        "nothing_to_prune",
        "/config/fraction",
        "256",
    ),
    "all neurons": (
        {"fraction": None, "neurons_per_layer": 172},
        "prune_all",
        "/config/neurons_per_layer",
        "171",
    ),
    "target of nothing": (
        {"fraction": None, "target_expansion": 1.0},
        "prune_all",
        "/config/target_expansion",
        "172",
    ),
    "all neurons by index": (
        {"fraction": None, "neuron_indices": {"3": list(range(172))}},
        "prune_all",
        "/config/neuron_indices",
        "Layer 3",
    ),
    "unequal layers": (
        {"layers": [0, 1], "uneven": "error"},
        "uneven_layers",
        "/config/uneven",
        "from 0 to 8",
    ),
    "no such layer": ({"layers": [0, 4]}, "bad_index", "/config/layers", "layer 4"),
    "no such layer to plot": ({"plot_layers": [9]}, "bad_index", "/config/plot_layers", "0 to 3"),
    "no such layer by fraction": (
        {"fraction": None, "fraction_by_layer": {"7": 0.1}},
        "bad_index",
        "/config/fraction_by_layer",
        "layer 7",
    ),
    "no such neuron": (
        {"fraction": None, "neuron_indices": {"2": [5, 172]}},
        "bad_index",
        "/config/neuron_indices/2",
        "neuron 172",
    ),
    "no such layer to rank": ({**GLOBAL, "layers": [4]}, "bad_index", "/config/layers", "layer 4"),
    "less than one of the model": (
        {**GLOBAL, "fraction": 0.001},
        "nothing_to_prune",
        "/config/fraction",
        "1/688, 0.001454",
    ),
    "more than the model can lose": (
        {**GLOBAL, "fraction": None, "top_k": 685},
        "prune_all",
        "/config/top_k",
        "can lose 684",
    ),
    "more than one layer can lose": (
        {**GLOBAL, "fraction": 0.25, "layers": [2]},
        "prune_all",
        "/config/fraction",
        "can lose 171",
    ),
    "width that is no multiple before": (
        {**GLOBAL, "round_to_multiple": 16, "round_direction": "up"},
        "conflicting_fields",
        "/config/round_to_multiple",
        "no multiple of 16",
    ),
    "rounding beside a layer that keeps all": (
        {"layers": [0, 1], "round_to_multiple": 16},
        "conflicting_fields",
        "/config/round_to_multiple",
        "Layer 2 keeps all",
    ),
    "rule with one category left": (
        {
            **GLOBAL,
            "pairs": [
                {**PAIR, "category": "gender"},
                {"prompt_1": "a b", "prompt_2": "a b c", "category": "age"},
            ],
            "category_rule": "union",
            "on_length_mismatch": "skip",
        },
        "pair_length_mismatch",
        "/config/category_rule",
        "two or more categories",
    ),
    "identical tokens": (
        {"pairs": [PAIR, {"prompt_1": "a b", "prompt_2": "a  b"}]},
        "pair_identical",
        "/config/pairs/1",
        "same tokens",
    ),
    "unequal lengths": (
        {"pairs": [{"prompt_1": "a b", "prompt_2": "a b c"}], "on_length_mismatch": "error"},
        "pair_length_mismatch",
        "/config/pairs/0",
        "3 and 4 tokens",
    ),
    "nothing but an addition": (
        {"pairs": [PAIR, {"prompt_1": "a b", "prompt_2": "a b c"}]},
        "pair_length_mismatch",
        "/config/pairs/1",
        "beginning of the other",
    ),
    "all pairs skipped": (
        {"pairs": [{"prompt_1": "a b", "prompt_2": "a b c"}], "on_length_mismatch": "skip"},
        "pair_length_mismatch",
        "/config/pairs",
        "skipped",
    ),
    "longer than the model's positions": (
        {"pairs": [{"prompt_1": "a " * 64, "prompt_2": "b " * 64}]},
        "pair_too_long",
        "/config/pairs/0",
        "65 tokens",
    ),
    "longer than the limit": (
        {"control_pairs": [{"prompt_1": "a b c", "prompt_2": "a b d"}], "max_prompt_tokens": 3},
        "pair_too_long",
        "/config/control_pairs/0",
        "limit is 3",
    ),
    "identical held-out pair": (
        {"holdout_pairs": [{"prompt_1": "x", "prompt_2": "x"}]},
        "pair_identical",
        "/config/holdout_pairs/0",
        "same tokens",
    ),
    "more text than positions": (
        {"generation": {"max_new_tokens": 61}},
        "generation_too_long",
        "/config/generation/max_new_tokens",
        "65 tokens",
    ),
}


@pytest.mark.parametrize(
    ("fields", "code", "pointer", "told"), INVALID.values(), ids=INVALID.keys()
)
def test_config_that_does_not_fit_the_model_is_refused(
    fields: dict[str, Any], code: str, pointer: str, told: str
) -> None:
    result = run_check(**fields)

    assert result.incompatible == ()
    found = [(finding.code, finding.pointer, finding.message) for finding in result.invalid]
    assert any((code, pointer) == entry[:2] and told in entry[2] for entry in found), found


@pytest.mark.parametrize("neurons", [7, 172, 1000, 8192, 999_983])
def test_smallest_fraction_in_the_message_does_remove_a_neuron(neurons: int) -> None:
    (finding,) = run_check(facts(neurons), fraction=1e-07).invalid
    advised = float(finding.message.split("1/")[1].split(", ")[1].split()[0])

    assert counts(neurons, fraction=advised) == {1}


def test_fraction_of_zero_is_allowed_with_a_warning() -> None:
    result = run_check(fraction=0.0)

    assert result.invalid == ()
    assert result.warnings == ("No neuron is removed: the result equals the base model.",)


def test_rounding_that_takes_more_than_asked_for_gives_a_warning() -> None:
    warnings = run_check(facts(256), fraction=0.1, round_to_multiple=64).warnings

    assert warnings[0] == (
        "Layers store a multiple of 64 neurons (`round_to_multiple`, `round_direction` `down`): "
        "this takes 25 % of all neurons, not the 10 % asked for."
    )


def test_rounding_to_whole_neurons_alone_gives_no_warning() -> None:
    # 25.6 of 256 neurons are asked for, and 24 of 240 are a whole number.
    assert not any("asked for" in w for w in run_check(facts(256), fraction=0.1).warnings)
    rounded = run_check(facts(240), fraction=0.1, round_to_multiple=8).warnings
    assert not any("asked for" in warning for warning in rounded)


@pytest.mark.parametrize(
    ("rule", "removed", "told"),
    [
        ("union", 119, "top set of any category: this takes 17.3 % of all neurons, not the 10 %"),
        ("intersection", 18, "of every category: this takes 2.616 % of all neurons, not the 10 %"),
        ("union", 68, None),
    ],
)
def test_a_rule_of_categories_says_why_it_took_another_share(
    rule: str, removed: int, told: str | None
) -> None:
    pairs = [{**PAIR, "category": "gender"}, {**PAIR, "category": "age"}]
    config = FairnessPruningConfig.model_validate(
        {"pairs": pairs, "fraction": 0.1, "scope": "global", "category_rule": rule}
    )

    found = amount_difference(config, MlpDimensions(LAYERS, HIDDEN, NEURONS), removed)

    assert (found is None) if told is None else (found is not None and told in found)


def test_layer_subset_is_padded_with_a_warning() -> None:
    (warning,) = run_check(layers=[1]).warnings

    assert "no smaller than before" in warning


def test_unequal_token_counts_are_aligned_with_a_warning() -> None:
    (warning,) = run_check(pairs=[PAIR, {"prompt_1": "a b", "prompt_2": "a b c"}]).warnings

    assert warning.startswith("1 pair has")


def test_prompts_without_room_for_a_continuation_give_a_warning() -> None:
    (warning,) = run_check(generation={"max_length": 4}).warnings

    assert "max_length of 4" in warning


def test_pairs_need_a_tokenizer() -> None:
    (finding,) = run_check(facts(tokenizer=False)).incompatible

    assert finding.code == "tokenizer_missing"


def test_named_neurons_need_no_tokenizer() -> None:
    fields: dict[str, Any] = {"pairs": [], "fraction": None, "neuron_indices": {"0": [1]}}

    assert run_check(facts(tokenizer=False), **fields).incompatible == ()


def test_incompatible_model_hides_findings_about_the_config() -> None:
    broken = ModelFacts({"model_type": "unheard_of"}, {}, (), encode)
    result = run_check(broken, fraction=0.002)

    assert [finding.code for finding in result.incompatible] == ["unsupported_architecture"]
    assert result.invalid == ()


def test_long_list_of_bad_pairs_is_cut() -> None:
    result = run_check(pairs=[{"prompt_1": "a", "prompt_2": " a"}] * 500)

    assert len(result.invalid) == 100


def test_repeated_pair_is_told_whichever_prompt_comes_first() -> None:
    swapped = {"prompt_1": PAIR["prompt_2"], "prompt_2": PAIR["prompt_1"]}

    (warning,) = run_check(pairs=[PAIR, swapped]).warnings

    assert "1 of 2" in warning


def test_pair_of_two_categories_is_no_repetition() -> None:
    pairs = [{**PAIR, "category": "gender"}, {**PAIR, "category": "age"}]

    assert run_check(pairs=pairs).warnings == ()


def test_scaling_by_nothing_is_told() -> None:
    (warning,) = run_check(mode="scale").warnings

    assert "mode `zero`" in warning


def test_counts_by_layer_of_a_global_ranking_are_unknown() -> None:
    with pytest.raises(ValueError, match="ranking"):
        counts(40, **GLOBAL)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"fraction": 0.05}, "no smaller than before if a layer loses none"),
        ({"fraction": None, "top_k": 3}, "some layers lose none"),
        ({"fraction": 0.05, "layers": [0, 1]}, "some layers lose none"),
    ],
    ids=["enough for all layers", "fewer neurons than layers", "fewer layers"],
)
def test_global_scope_tells_before_the_job_that_layers_are_filled_up(
    fields: dict[str, Any], told: str
) -> None:
    (warning,) = run_check(**GLOBAL, **fields).warnings

    assert "known only after scoring" in warning
    assert told in warning


@pytest.mark.parametrize("mode", ["zero", "scale"])
def test_no_layer_is_filled_up_where_shapes_stay(mode: str) -> None:
    factor: dict[str, Any] = {"scale_factor": 0.5} if mode == "scale" else {}

    assert run_check(**GLOBAL, mode=mode, **factor).warnings == ()


@pytest.mark.parametrize(("rule", "told"), [("intersection", "at most 34"), ("union", "or more")])
def test_number_of_a_category_rule_is_told_as_a_bound(rule: str, told: str) -> None:
    pairs = [{**PAIR, "category": name} for name in ("gender", "age")]

    (warning,) = run_check(**GLOBAL, mode="zero", pairs=pairs, category_rule=rule).warnings

    assert told in warning


def test_global_fraction_of_zero_is_allowed_with_a_warning() -> None:
    (warning,) = run_check(**GLOBAL, fraction=0.0).warnings

    assert warning == "No neuron is removed: the result equals the base model."


def test_width_that_quantisers_cannot_use_is_told_before_the_job() -> None:
    (warning,) = run_check(facts(256), fraction=0.05).warnings

    assert "store 244 of 256 neurons" in warning


def test_diagnosis_says_nothing_of_amounts() -> None:
    assert run_check(fraction=None, diagnose_only=True) == CheckResult()


def test_layer_to_plot_is_checked_in_a_diagnosis_too() -> None:
    (finding,) = run_check(fraction=None, diagnose_only=True, plot_layers=[9]).invalid

    assert (finding.code, finding.pointer) == ("bad_index", "/config/plot_layers")


def test_layers_of_experts_have_no_neuron_map() -> None:
    config = FairnessPruningConfig.model_validate(
        {"pairs": [PAIR], "diagnose_only": True, "neuron_map": True}
    )
    sizes = {"num_hidden_layers": 1, "hidden_size": HIDDEN, "intermediate_size": 16}
    names = {f"model.layers.0.{name}.weight" for name in ("input_layernorm", "self_attn.q_proj")}
    tensors = {name: TensorFact("F32", (HIDDEN,), "model.safetensors", 4) for name in names}
    model = ModelFacts({"model_type": "mixtral", **sizes}, tensors, (), encode)

    assert check(config.model_copy(update={"neuron_map": False}), model) == CheckResult()
    told = check(config, model)
    assert told.invalid == ()
    assert [warning[:28] for warning in told.warnings] == ["There will be no neuron map:"]
