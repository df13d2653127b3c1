"""The compliance sheet: scope, data, measures, gaps, groups, and how to check everything."""

from collections.abc import Iterator, Sequence

from app.catalog.pair_sets import load_pair_set, pair_set_names
from workers.evaluation.bootstrap import MIN_UNITS_FOR_CLAIM
from workers.methods.fairness_pruning.measuring.metrics import PARITY
from workers.methods.fairness_pruning.measuring.pair_plan import (
    SPLIT_LABELS,
    SPLITS,
    UNLABELLED,
    PlannedPair,
    Split,
)
from workers.methods.fairness_pruning.reporting.components import parity_components
from workers.methods.fairness_pruning.reporting.edit_words import edit_sentence
from workers.methods.fairness_pruning.reporting.evidence import UNIT, Evidence
from workers.methods.fairness_pruning.reporting.model_names import origin_facts
from workers.methods.fairness_pruning.selecting.controls import IMPORTANCE_ONLY, MIN_HOLDOUT_PAIRS
from workers.reports.document import Compliance, DataUse, Fact, Verification
from workers.reports.group_rates import GroupRates, GroupValue
from workers.reports.wording import BORDERLINE_P, counted

# The attributes that CrowS-Pairs (Nangia and others, 2020) tells apart, in its spirit.
ATTRIBUTES = (
    "age",
    "disability",
    "gender",
    "nationality",
    "physical appearance",
    "race",
    "religion",
    "sexual orientation",
    "social class",
)
BENCHMARKS = "StereoSet, CrowS-Pairs, BBQ, WinoBias, BOLD and HolisticBias"
WITHOUT_INTERVAL = (
    "slope and rank correlation over depth, the onset, the overlap of sets of neurons, the "
    "mechanical part of a change, the loss under a control, and ratios of groups: they describe, "
    "and support no claim"
)
_DEMOGRAPHIC: tuple[Split, ...] = ("holdout", "selection")
_BUILT_IN_LICENCE = "Apache-2.0, as this software"
_NO_PERSON = "None: made from tables of words; first names are common ones of no particular person."
_OWN_TEXT = "Not checked: the text came with the request."


def compliance_sheet(evidence: Evidence) -> Compliance:
    """Fill the sheet."""
    return Compliance(
        scope=_scope(evidence),
        measures=_measures(evidence),
        not_measured=gaps(evidence),
        groups=tuple(group_rates(evidence)),
        verification=_verification(evidence),
    )


def data_used(evidence: Evidence) -> tuple[DataUse, ...]:
    """Say which pairs were used: those of built-in sets by set, the others together."""
    left = list(evidence.plan.pairs)
    found = []
    for name in pair_set_names():
        one = load_pair_set(name)
        keys = {
            frozenset((pair.prompt_1, pair.prompt_2))
            for part in (one.pairs, one.holdout_pairs, one.control_pairs)
            for pair in part
        }
        mine = [p for p in left if frozenset((p.prompt_1, p.prompt_2)) in keys]
        left = [p for p in left if p not in mine]
        if mine:
            found.append(
                DataUse(
                    name=f"Pair set {one.title} ({one.name}, version {one.version})",
                    role=f"measuring and choosing neurons. {one.description}",
                    amount=_amount(mine),
                    source="built in",
                    licence=_BUILT_IN_LICENCE,
                    personal_data=_NO_PERSON,
                )
            )
    if left:
        found.append(_own("Pairs of the request", "measuring and choosing neurons", _amount(left)))
    texts = evidence.config.calibration_texts
    if texts:
        found.append(_own("Calibration texts", "importance", counted(len(texts), "text")))
    return tuple(found)


def _own(name: str, role: str, amount: str) -> DataUse:
    return DataUse(
        name=name,
        role=role,
        amount=amount,
        source="the requester",
        licence="not stated",
        personal_data=_OWN_TEXT,
    )


def _amount(pairs: Sequence[PlannedPair]) -> str:
    counts = {split: sum(pair.split == split for pair in pairs) for split in SPLITS}
    return ", ".join(f"{n} {SPLIT_LABELS[split]}" for split, n in counts.items() if n)


def scope_facts(evidence: Evidence) -> tuple[Fact, ...]:
    """Say which model was looked at, why, and for which attributes."""
    provenance = evidence.ctx.provenance
    name = provenance["job_name"]
    # A request has no field for a purpose; a label of that name is one that its sender chose.
    purpose = provenance["resolved_spec"].get("labels", {}).get("purpose")
    weights = [
        f["sha256"]
        for f in provenance["model_files"]
        if f["path"].endswith(".safetensors") and f["sha256"]
    ]
    return (
        *origin_facts(evidence),
        Fact("Name of the job", str(name) if name else "none was given"),
        Fact("Purpose", str(purpose) if purpose else "not stated in the request"),
        Fact("Attributes looked at", ", ".join(_categories(evidence)) or "none was named"),
        Fact("Weights of the model, SHA-256", ", ".join(weights) or "not recorded"),
    )


def _scope(evidence: Evidence) -> tuple[Fact, ...]:
    after = [
        f.get("sha256") for f in evidence.edit.state["files"] if f["path"].endswith(".safetensors")
    ]
    return (
        *scope_facts(evidence),
        Fact("Weights after the edit, SHA-256", ", ".join(map(str, after)) or "none"),
        Fact("Edit", edit_sentence(evidence)),
    )


def metric_fact(evidence: Evidence) -> Fact:
    """Name everything that was measured."""
    return Fact(
        "Metrics",
        "difference between the activations for the two prompts of a pair: over the components "
        f"{parity_components(evidence)}; of the MLP outputs; of the attention outputs; and "
        "relative to the size of the activations. Beside them, perplexity on the prompts",
    )


def _measures(evidence: Evidence) -> tuple[Fact, ...]:
    held_out = len(evidence.plan.columns("holdout"))
    return (
        metric_fact(evidence),
        Fact(
            "Better or worse",
            (
                f"the 95 % interval of the paired change excludes zero, over at least "
                f"{MIN_UNITS_FOR_CLAIM} pairs; borderline where p is above {BORDERLINE_P:g}"
            ),
        ),
        Fact(
            "Claim against chance",
            (
                f"at least {MIN_HOLDOUT_PAIRS} held-out pairs (here {held_out}); a larger "
                "reduction than every random removal and than removal by importance; the "
                "intervals of the lead over the mean of the random ones and of the lead over "
                "removal by importance both exclude zero"
            ),
        ),
        Fact("Controls", _controls_run(evidence)),
        Fact("Without an interval", WITHOUT_INTERVAL),
        *group_facts(evidence),
        Fact("Pass or fail", "no threshold of acceptance was set by this report"),
    )


def _controls_run(evidence: Evidence) -> str:
    """Say which controls were run, and not which were asked for."""
    if evidence.controls:
        draws = sum(name != IMPORTANCE_ONLY for name in evidence.controls)
        return f"{draws} random removals and removal by importance"
    if not evidence.config.controls.enabled:
        return "none: switched off in the request"
    return "none was run: there was nothing to compare"


def group_facts(evidence: Evidence) -> Iterator[Fact]:
    """Say how groups are set beside each other; nothing where no table does so."""
    if any(group_rates(evidence)):
        yield Fact(
            "Groups",
            f"ratio of the lowest difference to that of the group, from {MIN_UNITS_FOR_CLAIM} "
            "pairs on; differences are no selection rates, so no ratio passes or fails",
        )


def gaps(evidence: Evidence) -> tuple[Fact, ...]:
    """Say what was not measured."""
    categories = {name.lower() for name in _categories(evidence)}
    others = [name for name in ATTRIBUTES if name not in categories]
    seen = ", ".join(_categories(evidence)) or "no named attribute"
    return (
        Fact("Other attributes", f"The pairs vary {seen}. Not varied: {', '.join(others)}."),
        Fact(
            "Other groups of the same attribute",
            "Only groups whose words stand in the pairs were looked at.",
        ),
        Fact(
            "Intersections",
            "Each pair swaps one word. How attributes act together, as for older women, was not "
            "measured.",
        ),
        Fact("Other languages", "Only the language of the prompts was measured."),
        Fact(
            "What the model writes",
            "Stereotypes, insults and refusals in generated text were not measured; the "
            "continuations in this report are a few examples.",
        ),
        Fact("Bias benchmarks", f"{BENCHMARKS} were not run."),
        Fact(
            "Decisions",
            "No decision about people was made or simulated, so there are no selection rates and "
            "no error rates by group.",
        ),
        Fact(
            "Tasks and ability",
            "Use in an application, LAMBADA, BoolQ and other tests of ability were not run.",
        ),
        Fact(
            "Other uses of the model",
            "Fine-tuned, quantised or instructed versions were not measured.",
        ),
    )


def group_rates(evidence: Evidence) -> Iterator[GroupRates]:
    """Give one table for each set of demographic pairs with two or more categories."""
    rows = {row.group: row for row in evidence.rows if row.metric == PARITY}
    for split in _DEMOGRAPHIC:
        label = SPLIT_LABELS[split]
        named = [
            (name.removesuffix(f", {label}"), rows[name])
            for part, name, columns in evidence.groups
            if part == split and columns != evidence.plan.columns(part)
        ]
        if len(named) > 1:
            yield GroupRates(
                title=f"Categories on {label}",
                measure=(
                    "Mean activation difference over components, with 95 % intervals; lower is "
                    "better, so the ratio is that of the lowest value to the group's."
                ),
                best="lowest",
                unit=UNIT,
                min_units=MIN_UNITS_FOR_CLAIM,
                groups=tuple(
                    GroupValue(
                        group=name,
                        n=row.n,
                        before=row.before,
                        after=row.after,
                        ci95_before=row.ci95_before,
                        ci95_after=row.ci95_after,
                    )
                    for name, row in named
                ),
                note=f"Groups of fewer than {MIN_UNITS_FOR_CLAIM} pairs have no ratio.",
            )


def _verification(evidence: Evidence) -> tuple[Verification, ...]:
    changed = 0 if evidence.nothing_changed else len(evidence.edit.state["tensors_changed"])
    return (
        shared_checks()[0],
        Verification(
            statement=f"{counted(changed, 'tensor')} changed, and no other.",
            who="Anyone who has both models",
            how=(
                "Open both with the library safetensors and compare the tensors by name; the "
                "changed ones and the removed neurons are listed in report.json."
            ),
        ),
        *shared_checks()[1:],
        Verification(
            statement="The model is fairer in its use.",
            who="Nobody, from this report",
            how="This needs an evaluation of the use, with people who know it and its users.",
        ),
    )


def shared_checks() -> tuple[Verification, ...]:
    """Say how to check what every report states: its files first, then its numbers."""
    return (
        Verification(
            statement="The files are those of this report.",
            who="Anyone who has the files",
            how="Compare `sha256sum FILE` with the list of digests below.",
        ),
        Verification(
            statement="The same request gives the same result.",
            who="Anyone with access to the service that holds this job",
            how=(
                "Run the command below. The file request.json that it fetches can also be sent to "
                "another service of the same version that has the model. On a CPU the files are "
                "the same bytes; on a GPU the last digits of measured values may differ."
            ),
        ),
        Verification(
            statement="The means, intervals and verdicts follow from the values of the pairs.",
            who="Anyone with report.json",
            how=(
                "Take the values of each pair from it, those under each control included, and "
                "repeat the statistics with any tool; its part `statistics` says how each "
                "resample was drawn."
            ),
        ),
        Verification(
            statement="The pictures show these numbers and no others.",
            who="Anyone with the folder plots",
            how="Each picture has a JSON file of the same name that holds all that is drawn.",
        ),
    )


def _categories(evidence: Evidence) -> list[str]:
    """Attributes that demographic pairs vary, in alphabetical order."""
    names = {pair.category for pair in evidence.plan.measured if pair.split != "control"}
    return sorted(names - {UNLABELLED})
