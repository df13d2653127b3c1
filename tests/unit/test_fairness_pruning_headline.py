"""What the first screen of a Fairness Pruning report says of a change."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.report_samples import sample_rows
from workers.methods.fairness_pruning.reporting import headline
from workers.methods.fairness_pruning.reporting.headline import (
    behavioural_sentence,
    change_sentence,
    difference_number,
    may_be_called_debiased,
    overall_tone,
    perplexity_number,
    ratio_number,
)
from workers.methods.fairness_pruning.selecting.controls import (
    BEYOND_CHANCE,
    LIKE_RANDOM,
    NO_MORE_THAN_IMPORTANCE,
    SELECTION_ONLY,
    Verdict,
)

WHERE = "held-out pairs"
SUBJECT = "The difference inside the model between the two prompts of a pair"
# A change of +0.11 % whose interval holds zero.
UNRELIABLE = replace(
    sample_rows()[0],
    before=0.2,
    after=0.20022,
    delta=0.00022,
    ci95_delta=(-0.001, 0.0014),
    improved=None,
    n=8,
)
FALLEN = replace(
    UNRELIABLE, after=0.19, delta=-0.01, ci95_delta=(-0.015, -0.005), improved=True
)  # fmt: skip
GROWN = replace(UNRELIABLE, after=0.21, delta=0.01, ci95_delta=(0.005, 0.015), improved=False)


def language(low, *, n=8):
    """Return what a report says of the loss, with an increase of at least `low`."""
    return {
        "n": n,
        "perplexity": {"before": 12.345678, "after": 15.5},
        "ci95_loss_increase": (low, 0.3),
    }


def test_headline_of_an_interval_with_zero_names_no_direction():
    sentence = change_sentence(UNRELIABLE, LIKE_RANDOM, where=WHERE)

    assert sentence == (
        f"{SUBJECT} did not change reliably on held-out pairs "
        "(total change +0.110 %; 95 % interval −0.500 % to +0.700 %; 8 pairs): "  # noqa: RUF001
        "not distinguishable from random removal."
    )


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (FALLEN, "fell on held-out pairs (total change -5.00 %; 95 % interval -7.50 % to -2.50 %"),
        (GROWN, "grew on held-out pairs (total change +5.00 %; 95 % interval +2.50 % to +7.50 %"),
    ],
)
def test_headline_of_a_reliable_change_has_the_form_of_any_other(row, told):
    sentence = change_sentence(row, NO_MORE_THAN_IMPORTANCE, where=WHERE)

    assert sentence.replace("\N{MINUS SIGN}", "-") == (
        f"{SUBJECT} {told}; 8 pairs): removing the least important neurons does at least as well."
    )


@pytest.mark.parametrize("n", [2, 4])
def test_headline_of_few_pairs_has_no_interval_and_says_why(n):
    sentence = change_sentence(replace(GROWN, improved=None, n=n), SELECTION_ONLY, where=WHERE)

    assert sentence == (
        f"{SUBJECT} was compared on held-out pairs (total change +5.00 %; too few pairs ({n}) to "
        f"tell): {SELECTION_ONLY}."
    )


def test_the_part_that_the_controls_judge_is_named_with_interval_and_rank():
    verdict = Verdict(
        BEYOND_CHANCE,
        claim=True,
        n_holdout=8,
        selection=0.04,
        random=(0.01, 0.02),
        importance_only=0.03,
    )

    sentence = behavioural_sentence(FALLEN, verdict, (0.03, 0.05))

    assert sentence.replace("\N{MINUS SIGN}", "-") == (
        "The behavioural part of the change, on which this verdict rests, is -20.0 % (95 % "
        "interval -25.0 % to -15.0 %), the largest of 4 removals (this selection, 2 random, 1 by "
        "importance)."
    )


def test_a_claim_beside_an_unreliable_change_is_limited_to_the_neurons_that_stay():
    sentence = change_sentence(UNRELIABLE, BEYOND_CHANCE, where=WHERE)

    assert sentence.endswith(f": only on what stays in the model, {BEYOND_CHANCE}.")


def test_headline_without_an_interval_gives_the_number_of_pairs():
    row = replace(UNRELIABLE, ci95_delta=None, n=1)

    assert "(total change +0.110 %; too few pairs (1) to tell)" in change_sentence(
        row, LIKE_RANDOM, where=WHERE
    )


def test_tile_of_a_fall_has_a_true_minus_sign():
    number = difference_number(FALLEN, "holdout")

    assert number.value == "\N{MINUS SIGN}5.00 %"
    assert number.detail.replace("\N{MINUS SIGN}", "-") == (
        "total change; 95 % interval -7.50 % to -2.50 %; mean over 8 pairs"
    )


def test_tile_of_few_pairs_has_no_interval():
    number = difference_number(replace(FALLEN, n=2, improved=None), "holdout")

    assert number.detail == "total change; too few pairs (2) to tell"


def test_tile_of_an_unreliable_change_says_so():
    assert difference_number(UNRELIABLE, "holdout").detail.endswith(
        "mean over 8 pairs; no reliable change"
    )


def test_tile_of_control_pairs_judges_nothing():
    row = replace(UNRELIABLE, ideal=None)

    assert difference_number(row, "control").detail.endswith("; mean over 8 pairs")


@pytest.mark.parametrize(
    ("found", "tone"),
    [
        (language(0.1), "worse"),
        (language(-0.1), "neutral"),
        (language(0.1, n=4), "neutral"),
        ({**language(0.1), "ci95_loss_increase": None}, "neutral"),
    ],
    ids=["above zero", "with zero", "too few pairs", "no interval"],
)
def test_perplexity_is_marked_only_where_the_loss_grew_reliably(found, tone):
    number = perplexity_number(found)

    assert (number.value, number.tone) == ("15.5", tone)
    assert number.detail.startswith("12.3 before; higher is worse; ")


def test_perplexity_has_its_interval_and_pairs():
    assert perplexity_number(language(0.1)).detail == (
        "12.3 before; higher is worse; increase of the loss, 95 % interval +0.100 to +0.300; "
        "8 pairs"
    )
    assert perplexity_number(language(0.1, n=2)).detail.endswith("; too few pairs (2) to tell")


@pytest.mark.parametrize(
    ("ratio", "ends", "pairs", "value", "detail"),
    [
        (
            {"before": 1.98765, "after": 0.86449},
            {"before": (1.5, 2.5), "after": (0.7123, 1.0499)},
            (8, 9),
            "0.864",
            "1.99 before; 95 % interval 0.712 to 1.05; 8 demographic and 9 neutral pairs",
        ),
        (
            {"before": 1234.5, "after": None},
            {"before": None, "after": None},
            (8, 2),
            "1230",
            "8 demographic and 2 neutral pairs; too few for an interval",
        ),
    ],
    ids=["edit", "diagnosis of few pairs"],
)
def test_ratio_has_three_digits_its_interval_and_pairs(ratio, ends, pairs, value, detail):
    number = ratio_number(ratio, ends, pairs)

    assert number.value == value
    assert number.detail == f"{detail}; 1 means no more than a neutral word"


@pytest.mark.parametrize(
    ("rows", "loss", "tone"),
    [
        ((FALLEN,), language(-0.1), "better"),
        ((FALLEN,), language(0.1), "mixed"),
        ((FALLEN, GROWN), language(-0.1), "mixed"),
        ((UNRELIABLE,), language(0.1), "worse"),
        ((UNRELIABLE,), None, "neutral"),
    ],
    ids=["gain", "gain at a price", "gain and loss", "price alone", "nothing reliable"],
)
def test_a_gain_at_the_price_of_language_is_mixed_at_best(monkeypatch, rows, loss, tone):
    monkeypatch.setattr(headline, "language_entry", lambda _: loss)
    evidence = SimpleNamespace(
        nothing_changed=False, rows=rows, verdict=SimpleNamespace(claim=True)
    )

    assert overall_tone(evidence) == tone


@pytest.mark.parametrize(
    ("claim", "rows", "allowed"),
    [
        (True, (FALLEN,), True),
        (True, (FALLEN, GROWN), False),
        (False, (FALLEN,), False),
        (True, (FALLEN, replace(GROWN, group="race, selection pairs")), True),
    ],
    ids=["claim", "one worse", "no claim", "worse where it was chosen"],
)
def test_a_model_is_called_debiased_only_with_a_claim_and_nothing_worse(claim, rows, allowed):
    groups = [("holdout", FALLEN.group, [0]), ("selection", "race, selection pairs", [1])]
    evidence = SimpleNamespace(rows=rows, groups=groups, verdict=SimpleNamespace(claim=claim))

    assert may_be_called_debiased(evidence) is allowed
