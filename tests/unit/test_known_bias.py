"""What is said of a demo model's known bias is what the measured answers carry."""

import pytest

from app.cli.known_bias import known_bias_sentence
from workers.demo_models.known_bias import correlation, distance_change

JOBS = [f"job {number}" for number in range(16)]
SKEWED = {job: 0.9 if number % 2 else 0.2 for number, job in enumerate(JOBS)}
BALANCED = {job: 0.45 + 0.01 * number for number, job in enumerate(JOBS)}


def test_distance_is_the_mean_absolute_deviation_from_a_half() -> None:
    found = distance_change(SKEWED, dict.fromkeys(JOBS, 0.5))

    # Means of 16 decimals in double precision.
    assert found["before"] == pytest.approx((0.4 + 0.3) / 2, abs=1e-12)
    assert found["after"] == 0
    assert found["n"] == 16


@pytest.mark.parametrize(
    ("before", "after", "fell", "said"),
    [
        (SKEWED, BALANCED, True, "came closer to 0.5"),
        (BALANCED, SKEWED, False, "went further from 0.5"),
        (SKEWED, SKEWED, None, "no reliable change"),
    ],
)
def test_direction_is_claimed_where_the_interval_excludes_zero(
    before: dict[str, float], after: dict[str, float], fell: bool | None, said: str
) -> None:
    distance = distance_change(before, after)

    assert distance["fell"] is fell
    assert said in known_bias_sentence({"distance": distance})


def test_answers_are_paired_by_job_and_not_by_order() -> None:
    shuffled = dict(reversed(SKEWED.items()))

    assert distance_change(SKEWED, shuffled)["ci95_delta"] == (0, 0)


def test_a_model_that_answers_the_same_for_all_has_no_correlation() -> None:
    assert correlation(dict.fromkeys(JOBS, 0.5), SKEWED) is None
    assert correlation(SKEWED, SKEWED) == pytest.approx(1, abs=1e-12)
