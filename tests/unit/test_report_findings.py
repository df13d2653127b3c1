"""One sentence for a result: gains and losses in the same words."""

from dataclasses import replace

import pytest

from app.catalog.method import MetricInfo
from tests.report_samples import METRICS, sample_rows
from workers.reports.findings import direction_of, result_of

BETTER = replace(
    sample_rows()[0],
    before=0.2,
    after=0.19,
    delta=-0.01,
    ci95_delta=(-0.015, -0.005),
    improved=True,
    n=8,
    p_value=0.01,
)
WORSE = replace(BETTER, after=0.21, delta=0.01, ci95_delta=(0.005, 0.015), improved=False)
UNRELIABLE = replace(WORSE, ci95_delta=(-0.005, 0.025), improved=None)


def told(row):
    return result_of(row, METRICS, where="held-out pairs")


def plain(text):
    return text.replace("\N{MINUS SIGN}", "-")


def test_gain_is_told_with_direction_numbers_and_interval():
    found = told(BETTER)

    assert plain(found.text) == (
        "On 8 held-out pairs: it got better. It fell from 0.200 to 0.190 "
        "(-5.0 %; 95 % interval of the change -0.0150 to -0.0050)."
    )
    assert found.tone == "better"


def test_loss_is_told_as_plainly_as_a_gain():
    found = told(WORSE)

    assert plain(found.text) == (
        "On 8 held-out pairs: it got worse. It rose from 0.200 to 0.210 "
        "(+5.0 %; 95 % interval of the change +0.0050 to +0.0150)."
    )
    assert found.tone == "worse"


def test_change_whose_interval_holds_zero_is_neither():
    found = told(UNRELIABLE)

    assert "no reliable change, 0.200 before and 0.210 after" in found.text
    assert "got" not in found.text
    assert found.tone == "neutral"


def test_equal_values_are_no_change():
    found = told(replace(UNRELIABLE, after=0.2, delta=0.0, ci95_delta=(0.0, 0.0)))

    assert found.text == "On 8 held-out pairs: no change, 0.200 before and after."


def test_few_units_have_no_interval_and_the_reason_instead():
    found = told(replace(UNRELIABLE, n=3, ci95_delta=(0.005, 0.015)))

    assert found.text == (
        "On 3 held-out pairs: 0.200 before and 0.210 after (+5.0 %; too few pairs (3) to tell)."
    )


def test_verdict_that_the_p_value_does_not_share_is_only_just_one():
    assert "it got better, but only just (p = 0.06)" in told(replace(BETTER, p_value=0.06)).text


def test_neutral_words_are_not_judged():
    found = told(replace(WORSE, ideal=None, improved=None))

    assert found.text.endswith("neutral words, so neither good nor bad.")
    assert found.tone == "neutral"


@pytest.mark.parametrize(
    ("ideal", "lower", "sentence"),
    [
        (0.0, True, "Lower is better; the ideal is 0."),
        (None, False, "Higher is better."),
        (50.0, None, "Nearer to the ideal is better; the ideal is 50."),
        (None, None, "No value is better than another."),
    ],
)
def test_direction_is_one_sentence(ideal, lower, sentence):
    info = MetricInfo(
        name="m", title="t", unit="u", ideal=ideal, lower_is_better=lower, resampling_unit="pair"
    )

    assert direction_of(info) == sentence
