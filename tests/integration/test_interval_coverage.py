"""How often nominal 95 % intervals hold the truth, on small simulations."""

import numpy as np

from workers.evaluation.bootstrap import mean_interval


def test_percentile_interval_covers_the_mean_nominally_at_a_thousand_units():
    rng = np.random.default_rng(1)
    samples = rng.exponential(1.0, size=(300, 1000))

    ends = [mean_interval(s, rng=rng, n_resamples=500).ends for s in samples]

    # Standard error of coverage over 300 repetitions: 1.3 points; 95 % plus or minus four.
    covered = np.mean([low <= 1.0 <= high for low, high in ends])
    assert 0.90 <= covered <= 0.995


def test_few_units_make_the_percentile_interval_too_narrow():
    rng = np.random.default_rng(2)
    samples = rng.normal(0.0, 1.0, size=(300, 5))

    ends = [mean_interval(s, rng=rng, n_resamples=500).ends for s in samples]

    # The module says "about 80 %" at n = 5; the standard error here is 2.3 points.
    covered = np.mean([low <= 0.0 <= high for low, high in ends])
    assert 0.72 <= covered <= 0.90
