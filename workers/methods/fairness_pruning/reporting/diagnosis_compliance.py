"""The compliance sheet of a job that only measured: that of an edit without what an edit needs."""

from workers.methods.fairness_pruning.reporting.compliance import (
    WITHOUT_INTERVAL,
    gaps,
    group_facts,
    group_rates,
    metric_fact,
    scope_facts,
    shared_checks,
)
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.reports.document import Compliance, Fact, Verification


def diagnosis_sheet(evidence: Evidence) -> Compliance:
    """Fill the sheet."""
    return Compliance(
        scope=(*scope_facts(evidence), Fact("Edit", "none: the model was read and not changed")),
        measures=(
            metric_fact(evidence),
            Fact(
                "Intervals",
                "95 % bootstrap intervals over pairs; they say how precise a mean is, and judge "
                "nothing",
            ),
            Fact("Without an interval", WITHOUT_INTERVAL),
            *group_facts(evidence),
            Fact("Pass or fail", "no threshold of acceptance was set by this report"),
        ),
        not_measured=(
            *gaps(evidence),
            Fact(
                "Causes",
                "That a neuron reacts to a word does not show that it causes anything; no neuron "
                "was taken out to see.",
            ),
        ),
        groups=tuple(group_rates(evidence)),
        verification=(
            *shared_checks(),
            Verification(
                statement="The model treats people fairly, or unfairly.",
                who="Nobody, from this report",
                how="This needs an evaluation of the use, with people who know it and its users.",
            ),
        ),
    )
