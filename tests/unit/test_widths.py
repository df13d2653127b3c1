"""The width that an edited model stores, and what it is no longer fit for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.catalog.fairness_pruning.amounts import removal_counts
from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.widths import (
    WIDTH_NEEDS,
    Width,
    WidthOption,
    describe_width,
    stored_width,
)
from app.domain.architectures import MlpDimensions

PAIRS = [{"prompt_1": "The boy ran", "prompt_2": "The girl ran"}]


def config(**fields: Any) -> FairnessPruningConfig:
    return FairnessPruningConfig.model_validate({"pairs": PAIRS, **fields})


def width(neurons: int, **fields: Any) -> Width:
    dimensions = MlpDimensions(2, 64, neurons)
    chosen = config(**fields)
    return describe_width(chosen, dimensions, removal_counts(chosen, dimensions))


def global_width(counts: dict[int, int], neurons: int = 8192, **fields: Any) -> Width:
    chosen = config(scope="global", top_k=sum(counts.values()), **fields)
    return describe_width(chosen, MlpDimensions(len(counts), 64, neurons), counts)


def test_article_amount_on_its_model_keeps_16_and_loses_larger_multiples() -> None:
    article = width(8192, fraction=0.002)

    assert (article.base, article.stored) == (8192, 8176)
    assert article.lost == (32, 64, 128, 256)
    assert article.options == (
        WidthOption(32, 8160, 32 / 8192),
        WidthOption(64, 8128, 64 / 8192),
        WidthOption(128, 8064, 128 / 8192),
        WidthOption(256, 7936, 256 / 8192),
    )


def test_advice_names_widths_and_shares() -> None:
    advice = width(8192, fraction=0.002).advice

    assert advice is not None
    assert advice.endswith(".")
    assert advice.count(". ") == 1
    assert "8176 of 8192" in advice
    for part in (
        "GGUF",
        "GPTQ and AWQ",
        "tensor parallel",
        "64 gives 8128 (0.781 % removed)",
        "(1.56 % removed)",
    ):
        assert part in advice


def test_requested_and_effective_share_stand_side_by_side() -> None:
    rounded = width(8192, fraction=0.002, round_to_multiple=128)

    assert rounded.requested_fraction == pytest.approx(0.002)
    assert rounded.effective_fraction == 128 / 8192


@pytest.mark.parametrize(
    ("neurons", "fields"),
    [
        (8192, {"mode": "zero"}),
        (8192, {"mode": "scale", "scale_factor": 0.5}),
        (8192, {"fraction": 0.0}),
        (8192, {"layers": [1]}),
        (8192, {"fraction": 0.25}),
        (172, {"fraction": 0.05}),
        (40, {"fraction": 0.05}),
        (8192, {"fraction": 0.002, "round_to_multiple": 256}),
    ],
    ids=[
        "zero",
        "scale",
        "nothing removed",
        "padded to the base",
        "all multiples survive",
        "base is no multiple",
        "only 8 is lost",
        "rounded",
    ],
)
def test_nothing_is_said_where_nothing_of_consequence_is_lost(
    neurons: int, fields: dict[str, Any]
) -> None:
    assert width(neurons, **fields).advice is None


def test_lost_multiples_of_matrix_units_are_named_with_the_larger_ones() -> None:
    assert width(8192, fraction=0.01).lost == (8, 16, 32, 64, 128, 256)


def test_two_multiples_of_one_width_are_one_option() -> None:
    multiples = [option.multiple for option in width(8192, fraction=0.01).options]

    assert multiples == [32, 128, 256]  # 64 would keep the 8064 of 128


def test_a_rounding_that_cannot_be_is_not_offered() -> None:
    assert [option.multiple for option in width(256, fraction=0.5).options] == []
    assert [option.multiple for option in width(64, fraction=0.6).options] == [32]


def test_named_neurons_get_no_offer_of_rounding() -> None:
    named = config(neuron_indices={"0": [1], "1": [5]})

    described = describe_width(named, MlpDimensions(2, 64, 64), {0: 1, 1: 1})

    assert described.options == ()
    assert described.advice is not None
    assert "round_to_multiple" not in described.advice


def test_layer_that_loses_least_decides_the_stored_width() -> None:
    assert global_width({0: 300, 1: 16}).stored == 8176


@pytest.mark.parametrize("mode", ["zero", "scale"])
def test_a_model_with_zeros_keeps_its_width(mode: str) -> None:
    assert global_width({0: 300, 1: 16}, mode=mode).stored == 8192


def test_global_width_is_rounded_up_by_zero_neurons() -> None:
    rounded = global_width({0: 300, 1: 100}, round_to_multiple=64, round_direction="up")

    assert rounded.stored == 8128
    assert rounded.effective_fraction == 400 / (2 * 8192)


def test_advice_for_a_global_ranking_fills_up_and_removes_no_more() -> None:
    unrounded = global_width({0: 300, 1: 100})

    assert unrounded.options == (
        WidthOption(32, 8096, 400 / (2 * 8192)),
        WidthOption(64, 8128, 400 / (2 * 8192)),
    )
    assert unrounded.advice is not None
    assert "`round_direction` `up`" in unrounded.advice
    assert "64 gives 8128" in unrounded.advice


def test_advice_for_a_global_ranking_says_where_rounding_up_brings_the_old_width_back() -> None:
    # 11 zero neurons more would make 256 again, and no multiple of 32 lies between.
    described = global_width({0: 130, 1: 11}, neurons=256)

    assert described.options == ()
    assert described.advice is not None
    assert described.advice.endswith(
        "Where one is needed, `round_to_multiple` with `round_direction` `up` adds zero neurons, "
        "here up to the 256 of before: the model is then no smaller."
    )


def test_advice_where_only_the_old_width_is_a_multiple_is_mode_zero() -> None:
    advice = width(256, fraction=0.5).advice

    assert advice is not None
    assert advice.endswith("mode `zero` keeps the 256 neurons of before: no smaller width has it.")


@given(
    neurons=st.integers(2, 64).map(lambda n: 8 * n),
    counts=st.lists(st.integers(0, 15), min_size=1, max_size=4),
    multiple=st.sampled_from([None, 8, 16, 32]),
)
def test_stored_width_holds_every_kept_neuron_and_never_exceeds_the_base(
    neurons: int, counts: list[int], multiple: int | None
) -> None:
    rounding = {"round_to_multiple": multiple, "round_direction": "up"} if multiple else {}
    chosen = config(scope="global", top_k=1, **rounding)
    by_layer = dict(enumerate(counts))

    stored = stored_width(chosen, MlpDimensions(len(counts), 8, neurons), by_layer)

    assert neurons - min(counts) <= stored <= neurons
    assert stored == neurons or multiple is None or stored % multiple == 0


@given(
    neurons=st.integers(1, 600).map(lambda n: 32 * n),
    fraction=st.integers(1, 900).map(lambda n: n / 1000),
)
def test_every_option_is_what_that_rounding_would_store(neurons: int, fraction: float) -> None:
    described = width(neurons, fraction=fraction)

    for option in described.options:
        rounded = width(neurons, fraction=fraction, round_to_multiple=option.multiple)
        assert rounded.stored == option.width < neurons
        assert rounded.stored % option.multiple == 0
        assert rounded.effective_fraction == option.effective_fraction


def test_needs_are_those_that_a_config_can_round_to() -> None:
    for multiple in WIDTH_NEEDS:
        assert config(round_to_multiple=multiple).round_to_multiple == multiple
