"""Measure what an edit did to the bias that a demo model is known to have.

The table of the demo world says how likely each job is a woman's, and the model learned from text
that follows it. So P(she) after `the nurse` is the bias itself, not a stand-in for it as the
differences of activations are that a method works with.

Run as `python -m workers.demo_models.known_bias BEFORE AFTER OUTPUT`: two folders with a model, and
the JSON file to write.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workers.demo_models.measuring import Scorer, answers_to, text_perplexity
from workers.demo_models.probes import job_probes
from workers.evaluation.bootstrap import summary_row

BALANCED = 0.5
SHOWN_JOBS = ("builder", "pilot", "nurse", "secretary")
_SEED = 0


def main() -> None:
    """Compare the two models named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("before", "after", "output"):
        parser.add_argument(name, type=Path)
    chosen = parser.parse_args()
    found = compare(str(chosen.before), str(chosen.after))
    chosen.output.write_text(json.dumps(found, indent=2, allow_nan=False) + "\n")


def compare(before: str, after: str) -> dict[str, Any]:
    """Give the distance of P(she) from 0.5 in both models, over jobs; plain JSON.

    Parameters
    ----------
    before, after
        Folders of two demo models with one tokenizer, as plain transformers loads them.

    Returns
    -------
    dict
        `distance`: the mean over jobs of |P(she) - 0.5| in both models, where the P(she) of a job
        is a mean over contexts, and the change with its 95 % bootstrap interval, paired by job.
        `fell` is true or false where that interval excludes zero, and null otherwise. `jobs` has
        P(she) by job, beside the table's; `correlation` is that of each model with the table, null
        where the model answers the same for every job. `perplexity` is that of each model on
        stories not trained on: an edit that only blurs a model moves P(she) to 0.5, too.
    """
    probes = job_probes()
    table = {probe.person: probe.share for probe in probes}
    base, edited = Scorer(before), Scorer(after)
    first, second = answers_to(base, probes), answers_to(edited, probes)
    return {
        "contexts": len(probes) // len(table),
        "distance": distance_change(first, second),
        "correlation": {
            "before": correlation(first, table),
            "after": correlation(second, table),
        },
        "perplexity": {
            "before": text_perplexity(base, held_out=False),
            "after": text_perplexity(edited, held_out=False),
        },
        "shown_jobs": list(SHOWN_JOBS),
        "jobs": {
            job: {"table": table[job], "before": first[job], "after": second[job]} for job in table
        },
    }


def distance_change(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, Any]:
    """Compare the mean distance from 0.5 of two sets of answers to the same jobs."""
    row = summary_row(
        benchmark="demo_world",
        metric="distance_from_balance",
        before=[abs(share - BALANCED) for share in first.values()],
        after=[abs(second[job] - BALANCED) for job in first],
        unit="job",
        seed=_SEED,
        ideal=0.0,
        lower_is_better=True,
    )
    return {
        "n": row.n,
        "unit": row.unit,
        "before": row.before,
        "after": row.after,
        "delta": row.delta,
        "ci95_delta": row.ci95_delta,
        "fell": row.improved,
    }


def correlation(answers: Mapping[str, float], table: Mapping[str, float]) -> float | None:
    """Give Pearson's r of answers and table, None where all answers are the same."""
    given = np.array([answers[job] for job in table])
    if np.ptp(given) == 0:
        return None
    return float(np.corrcoef(given, list(table.values()))[0, 1])


if __name__ == "__main__":
    main()
