"""What the first screen of a Fairness Pruning report says of a change."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.report_samples import sample_rows
from workers.methods.fairness_pruning.reporting import headline
from workers.methods.fairness_pruning.reporting.headline import (
    change_sentence,
    difference_number,
    may_be_called_debiased,
    overall_tone,
    perplexity_number,
)
from workers.methods.fairness_pruning.selecting.controls import (
    BEYOND_CHANCE,
    LIKE_RANDOM,
    NO_MORE_THAN_IMPORTANCE,
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
        "(+0.11 %; 95 % interval −0.50 % to +0.70 %; 8 pairs): "  # noqa: RUF001
        "not distinguishable from random removal."
    )


@pytest.mark.parametrize(("row", "change"), [(FALLEN, "fell by 5.00 %"), (GROWN, "grew by 5.00 %")])
def test_headline_of_a_reliable_change_names_its_direction(row, change):
    sentence = change_sentence(row, NO_MORE_THAN_IMPORTANCE, where=WHERE)

    assert sentence == (
        f"{SUBJECT} {change} on held-out pairs: the selection reduces it no more than "
        "removing the least important neurons."
    )


def test_a_claim_beside_an_unreliable_change_is_limited_to_the_neurons_that_stay():
    sentence = change_sentence(UNRELIABLE, BEYOND_CHANCE, where=WHERE)

    assert sentence.endswith(f": only on what stays in the model, {BEYOND_CHANCE}.")


def test_headline_without_an_interval_gives_the_number_of_pairs():
    row = replace(UNRELIABLE, ci95_delta=None, n=1)

    assert "(+0.11 %; 1 pair)" in change_sentence(row, LIKE_RANDOM, where=WHERE)


def test_tile_of_a_fall_has_a_true_minus_sign():
    number = difference_number(FALLEN, "holdout")

    assert number.value == "\N{MINUS SIGN}5.00 %"
    assert number.detail == "mean over 8 pairs"


def test_tile_of_an_unreliable_change_says_so():
    assert difference_number(UNRELIABLE, "holdout").detail == (
        "mean over 8 pairs; no reliable change"
    )


def test_tile_of_control_pairs_judges_nothing():
    row = replace(UNRELIABLE, ideal=None)

    assert difference_number(row, "control").detail == "mean over 8 pairs"


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
    assert number.detail == "12.35 before; higher is worse"


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
