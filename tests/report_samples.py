"""A plausible report of invented numbers, for tests of how reports are written."""

from dataclasses import replace
from functools import cache

import numpy as np

from app.catalog.method import MetricInfo
from workers.evaluation.bootstrap import summary_row
from workers.reports.bars import before_after_bars
from workers.reports.document import (
    Compliance,
    Controls,
    DataUse,
    Fact,
    FileHash,
    GenerationPair,
    GlossaryEntry,
    HeadlineNumber,
    MetricFinding,
    ReportDocument,
    Reproduce,
    Section,
    Statement,
    Table,
    Verification,
)
from workers.reports.forest import forest_plots
from workers.reports.group_rates import GroupRates, GroupValue
from workers.reports.pca_plot import PairActivations, Slot
from workers.reports.picture import Picture
from workers.reports.plots import (
    ControlDots,
    Curve,
    amplification_curves,
    controls_dots,
    mean_diff_bars,
)
from workers.runtime.context import SummaryRow

METRICS = {
    "bias_metric_parity": MetricInfo(
        name="bias_metric_parity",
        title="Internal difference, all components (absolute)",
        unit="mean absolute activation difference",
        ideal=0.0,
        lower_is_better=True,
        resampling_unit="pair",
    ),
    "bias_metric_relative": MetricInfo(
        name="bias_metric_relative",
        title="Relative internal difference",
        unit="share of mean activation",
        ideal=0.0,
        lower_is_better=True,
        resampling_unit="pair",
    ),
}


def sample_rows() -> tuple[SummaryRow, ...]:
    """Return rows of which some improve, some get worse and some do neither."""
    rng = np.random.default_rng(3)
    factors = {None: 0.97, "gender": 0.85, "race": 1.08, "nationality": 1.0}
    rows = []
    for metric, scale in (("bias_metric_parity", 0.03), ("bias_metric_relative", 0.4)):
        for group, factor in factors.items():
            before = rng.normal(scale, 0.1 * scale, 12)
            after = factor * before + rng.normal(0, 0.03 * scale, 12)
            rows.append(
                summary_row(
                    benchmark="activation difference",
                    metric=metric,
                    group=group,
                    before=before,
                    after=after,
                    unit="pair",
                    seed=1,
                    ideal=0.0,
                )
            )
    return tuple(rows)


def sample_activations(seed: int = 0) -> PairActivations:
    """Return nine aligned tokens of a pair that differs in its second token."""
    rng = np.random.default_rng(seed)
    tokens = ["The", "boy", "was", "a", "doctor", ".", "He", "was", "very"]
    rows = rng.normal(size=(9, 32))
    scale = np.array([0, 3, 0.6, 0.5, 1, 0.4, 0.8, 0.5, 0.4])[:, None]
    return PairActivations(
        tokens_1=tokens,
        tokens_2=["The", "girl", *tokens[2:]],
        rows_1=rows,
        rows_2=rows + scale * rng.normal(size=rows.shape),
        slots=[Slot([i], [i], differs=i == 1) for i in range(9)],
    )


def sample_rates() -> GroupRates:
    """Return selection rates of three groups, of which one is too small for a ratio."""
    return GroupRates(
        title="Invited to an interview",
        measure="Share of applicants who were invited.",
        best="highest",
        unit="applicant",
        is_selection_rate=True,
        min_units=30,
        groups=(
            GroupValue(group="women", n=200, before=0.30, after=0.45, ci95_after=(0.38, 0.52)),
            GroupValue(group="men", n=210, before=0.60, after=0.50),
            GroupValue(group="not stated", n=12, before=0.9, after=0.9),
        ),
    )


def sample_compliance() -> Compliance:
    """Return a sheet with all its parts."""
    return Compliance(
        scope=(Fact("Model", "a small language model"), Fact("Purpose as stated", "none")),
        measures=(Fact("Better or worse", "the interval excludes zero"),),
        not_measured=(Fact("Other languages", "Only English prompts were used."),),
        groups=(sample_rates(),),
        verification=(
            Verification(
                statement="The files are those of this report.",
                who="Anyone",
                how="Compare `sha256sum FILE` with the digests.",
            ),
        ),
    )


def sample_pictures(rows: tuple[SummaryRow, ...], layers: int = 12) -> tuple[Picture, ...]:
    """Return one picture of each common kind."""
    depth = np.linspace(0.02, 0.4, layers)
    curves = [
        Curve(component, "before", depth, 0.9 * depth, 1.1 * depth)
        for component in ("attention_output", "mlp_output")
    ]
    dots = [ControlDots("held-out pairs (n = 8)", 3.1, [-2.2, 0.4, 1.1, -0.3, 2.0], 1.2)]
    return (
        *forest_plots(
            rows,
            titles={name: info.title for name, info in METRICS.items()},
            units={name: info.unit for name, info in METRICS.items()},
        ),
        before_after_bars(rows[:1] + rows[4:5], titles={}),
        controls_dots(dots),
        mean_diff_bars("mlp_output", depth, 0.93 * depth, n_pairs=12),
        amplification_curves(curves, threshold=0.1, n_pairs=12),
    )


def sample_document(**changes: object) -> ReportDocument:
    """Return a whole report; `changes` replace fields."""
    return replace(_whole_document(), **changes)  # type: ignore[arg-type]


@cache
def _whole_document() -> ReportDocument:
    """Return the report with all its parts; its pictures take half a second."""
    rows = sample_rows()
    return ReportDocument(
        title="Fairness Pruning of a small language model",
        subtitle="Preset article, 1 % of the MLP neurons, 36 prompt pairs about gender and race",
        verdict="Internal differences fell for gender and rose for race; nothing else changed "
        "reliably, and the controls allow no claim beyond chance.",
        tone="mixed",
        method="fairness_pruning",
        headline=(
            HeadlineNumber(
                label="Gender", value="\N{MINUS SIGN}15.3 %", detail="n = 12 pairs", tone="better"
            ),
            HeadlineNumber(label="Race", value="+8.2 %", detail="n = 12 pairs", tone="worse"),
            HeadlineNumber(label="Parameters removed", value="0.13 %", detail="450 of 46 080"),
        ),
        changed=(
            Fact("Mode", "prune"),
            Fact("Neurons removed", "15 of 1536 in each of 30 layers"),
            Fact("Parameters", "134 515 008 → 133 737 408"),
            Fact("Bias weight", "0.5"),
        ),
        rows=rows,
        metrics=METRICS,
        in_short=("A method was applied to a model.", "It did less than 5 % of what was hoped."),
        findings=(
            MetricFinding(
                metric="bias_metric_parity",
                title="Internal difference",
                meaning="How far the two prompts of a pair lie apart.",
                direction="Lower is better.",
                results=(Statement("On 12 pairs: it got worse.", "worse"),),
            ),
        ),
        sections=(
            Section(
                title="Where it grows",
                text=("It grows in the last layers.",),
                figures=("amplification", "no_such_picture"),
            ),
        ),
        compliance=sample_compliance(),
        references=(Fact("The article", "https://example.org/article"),),
        reproduce=Reproduce(
            command="debias run -f job.yaml --wait",
            resolved_spec={"method": "fairness_pruning", "config": {"fraction": 0.01}, "seed": 7},
            provenance=(Fact("Method version", "1.0.0"), Fact("Spec hash", "3f" * 16)),
            files=(FileHash(path="model.safetensors", size_bytes=269_060_552, sha256="ab" * 32),),
            versions={"torch": "2.13.0", "evenhand": "0.1.0"},
        ),
        tables=(_pairs_table(),),
        controls=Controls(
            verdict="The selection is not distinguishable from random removal.",
            note="5 random draws and importance-only removal, 8 held-out pairs.",
            table=Table(
                title="Behavioural reduction, percent of the value before",
                columns=("Removal", "Held-out pairs", "Control pairs"),
                rows=(("this selection", 3.1, 1.0), ("random, mean of 5", 0.2, None)),
            ),
        ),
        generations=(
            GenerationPair(
                label="race, prompt 1",
                prompt="A man walked at night through the neighborhood. The officer thought he",
                before=" was a burglar, so he called for help and waited.",
                after=" was lost, so he asked whether he needed help.",
            ),
            GenerationPair(
                label="gender, prompt 1",
                group="1",
                prompt="The boy was a nurse and loved to",
                before=" help people.",
                after=" help people.",
            ),
            GenerationPair(
                label="gender, prompt 2",
                group="1",
                prompt="The girl was a nurse and loved to",
                before=" help people.",
                after=" heal people.",
                changed_at=2,
            ),
        ),
        figures=sample_pictures(rows),
        warnings=("Pair 3: position_shift = 1; part of its difference is positional.",),
        limits=(
            "The internal difference compares two versions of one model on one pair set. It is "
            "no benchmark of behaviour.",
            "Religion, disability and age were not measured.",
        ),
        intended_use=("Research on bias mitigation.",),
        data_used=(
            DataUse(
                name="gender pairs",
                role="selection",
                licence="Apache-2.0",
                amount="12 pairs",
                personal_data="None",
            ),
        ),
        glossary=(
            GlossaryEntry("Pair", "Two prompts that differ in one demographic word."),
            GlossaryEntry(
                "Internal difference",
                "How differently the model reacts inside to the two prompts of a pair.",
            ),
        ),
    )


def _pairs_table() -> Table:
    """Return the table of single pairs."""
    return Table(
        title="Pairs",
        columns=("Category", "Prompt 1", "Prompt 2", "Before", "After", "Change %"),
        rows=(
            ("gender", "The boy was a doctor", "The girl was a doctor", 0.12485, 0.12146, -2.72),
            ("race", "The white man felt", "The Black man felt", 0.209097, 0.210453, 0.65),
        ),
        note="Plain values of each pair; one pair alone supports no claim.",
    )
