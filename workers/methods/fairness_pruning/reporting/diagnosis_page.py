"""What the page of a job that only diagnoses says: the evidence in words."""

from typing import Any

from app.catalog.methods.fairness_pruning import METHOD
from workers.methods.fairness_pruning.measuring.pair_plan import SPLIT_LABELS
from workers.methods.fairness_pruning.reporting.compliance import data_used
from workers.methods.fairness_pruning.reporting.components import component_entry, component_list
from workers.methods.fairness_pruning.reporting.diagnosis_compliance import diagnosis_sheet
from workers.methods.fairness_pruning.reporting.diagnosis_report import (
    LIMITS,
    base_control_ratio,
    generations_of_base,
    language_of_base,
    overlap_entry,
)
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.reporting.glossary import GLOSSARY
from workers.methods.fairness_pruning.reporting.headline import ratio_number, ratio_pairs
from workers.methods.fairness_pruning.reporting.intervals import ratio_intervals
from workers.methods.fairness_pruning.reporting.model_names import model_name
from workers.methods.fairness_pruning.reporting.neuron_sections import neuron_sections
from workers.methods.fairness_pruning.reporting.page import references, reproduce_block
from workers.methods.fairness_pruning.reporting.page_sections import GROWTH_NOTE, subtitle_pairs
from workers.methods.fairness_pruning.reporting.report import amplification_entry
from workers.methods.fairness_pruning.reporting.warnings import pair_warnings
from workers.reports.component_names import component_label
from workers.reports.document import (
    Cell,
    Fact,
    GenerationPair,
    GlossaryEntry,
    HeadlineNumber,
    ReportDocument,
    Section,
    Table,
)
from workers.reports.picture import Picture
from workers.reports.wording import three_digits

# Words of an edit that a page without one does not use.
_OF_EDITS = frozenset({"Mechanical part", "Behavioural part", "Controls", "p"})
_GLOSSARY = (
    *(entry for entry in GLOSSARY if entry.term not in _OF_EDITS),
    GlossaryEntry(
        "Relative difference",
        "The difference divided by the mean size of the activations: it can be compared between "
        "layers, whose activations grow with depth.",
    ),
    GlossaryEntry(
        "Bias score of a neuron",
        "How far its values for the two prompts of a pair lie apart, as a mean over tokens and "
        "pairs. It is measured where the neuron gets its input or gives its output.",
    ),
    GlossaryEntry(
        "Jaccard index",
        "The share of two sets that is common to both: 0 for none, 1 for equal sets.",
    ),
)


def build_diagnosis_document(evidence: Evidence, pictures: tuple[Picture, ...]) -> ReportDocument:
    """Fill the report document of a model that was measured and not changed."""
    return ReportDocument(
        title=f"Diagnosis of {model_name(evidence)}",
        subtitle=f"Measured only, nothing was changed{subtitle_pairs(evidence)}",
        verdict=_verdict(evidence),
        tone="neutral",
        method=METHOD.name,
        headline=_headline(evidence),
        in_short=_in_short(evidence),
        changed=_measured(evidence),
        rows=evidence.rows,
        metrics={metric.name: metric for metric in METHOD.metrics},
        reproduce=reproduce_block(evidence),
        sections=_sections(evidence, [picture.name for picture in pictures]),
        generations=_generations(evidence),
        figures=pictures,
        warnings=tuple(pair_warnings(evidence)),
        limits=LIMITS,
        intended_use=(
            "To see where in this model a swapped word makes a difference, and to choose settings "
            "of an edit. It does not say whether the model treats people fairly.",
        ),
        data_used=data_used(evidence),
        glossary=_GLOSSARY,
        compliance=diagnosis_sheet(evidence),
        references=references(),
        compares=False,
    )


def _verdict(evidence: Evidence) -> str:
    """Say where the difference begins and how it compares with a neutral word."""
    found = amplification_entry(evidence)["before"]
    if found is None:
        return "No pair was measured."
    sentence: str = found["sentence"]
    return sentence


def _in_short(evidence: Evidence) -> tuple[str, ...]:
    """Tell the whole story in a few plain paragraphs; the verdict is not said again."""
    return (
        "This job showed a language model pairs of sentences that differ in one word: a "
        "demographic one, such as man and woman, or for comparison a neutral one. It measured how "
        "far apart the values inside the model lie for the two sentences of a pair, layer by "
        f"layer. Here it was {model_name(evidence)}. Nothing in the model was changed.",
        *_against_neutral(evidence),
        "All of this is about values inside the model. It shows where a swapped word makes a "
        "difference, and not whether that is unfair: the texts that the model writes were not "
        "judged.",
    )


def _against_neutral(evidence: Evidence) -> tuple[str, ...]:
    ratio = base_control_ratio(evidence)
    if ratio is None:
        return ()
    ends = ratio_intervals(evidence)["before"]
    demographic, neutral = ratio_pairs(evidence)
    interval = (
        "too few pairs for an interval"
        if ends is None
        else f"95 % interval {' to '.join(map(three_digits, ends))}"
    )
    return (
        f"Swapping the demographic word changes these values {three_digits(ratio)} times as much "
        f"as swapping a neutral word ({interval}; {demographic} demographic and {neutral} neutral "
        "pairs). The two kinds of pairs are other sentences, so this is a hint, no finding.",
    )


def _headline(evidence: Evidence) -> tuple[HeadlineNumber, ...]:
    found = amplification_entry(evidence)["before"]
    numbers = []
    if found is not None:
        onset, slope = found["onset"], found["slope"]
        where = "nowhere" if onset is None else f"layer {onset['layer']}"
        detail = f"first place above {100 * found['threshold']:g} % of the size of the activations"
        component = "" if onset is None else f", {component_label(onset['component'])}"
        numbers.append(HeadlineNumber(label="Onset", value=where, detail=f"{detail}{component}"))
        if slope is not None:
            rise = f"{100 * slope:+.3g}".replace("-", "\N{MINUS SIGN}")
            numbers.append(
                HeadlineNumber(
                    label="Change over depth",
                    value=f"{rise} points",
                    detail="of the relative difference of the MLP outputs, first to last layer",
                )
            )
    stages = {"before": base_control_ratio(evidence), "after": None}
    ratio = ratio_number(stages, ratio_intervals(evidence), ratio_pairs(evidence))
    if ratio is not None:
        numbers.append(ratio)
    return (*numbers, *_overlap_number(evidence))


def _overlap_number(evidence: Evidence) -> tuple[HeadlineNumber, ...]:
    overlap = overlap_entry(evidence)
    if overlap is None or len(overlap["pair_counts"]) < 2:
        return ()
    shared = overlap["shared_by_all"]
    return (
        HeadlineNumber(
            label="Neurons shared by all categories",
            value=str(shared["count"]),
            detail=f"{shared['random_mean']:.2g} expected of random sets, at most "
            f"{shared['random_95th_percentile']:.3g} in 95 of 100",
        ),
    )


def _measured(evidence: Evidence) -> tuple[Fact, ...]:
    """Say what was read of the model."""
    dimensions, components = evidence.shape.dimensions, component_entry(evidence)
    facts = [
        Fact("Layers", str(dimensions.layers)),
        Fact("Components read", component_list(components["recorded"])),
        Fact("Mean difference over components: mean of", component_list(components["in_parity"])),
    ]
    if components["has_neurons"]:
        facts.insert(1, Fact("Neurons of a layer", str(dimensions.neurons)))
    else:
        facts.append(
            Fact(
                "Neurons",
                "not scored: the MLP of this family has no neurons that can be told apart",
            )
        )
    language = language_of_base(evidence)
    if language is not None:
        perplexity = f"{language['perplexity']['before']:.4g}"
        facts.append(Fact("Perplexity on the prompts", perplexity))
    return tuple(facts)


def _sections(evidence: Evidence, pictures: list[str]) -> tuple[Section, ...]:
    """Answer one question in each section; those without an answer are left out."""

    def drawn(*starts: str) -> tuple[str, ...]:
        return tuple(name for name in pictures if name.startswith(starts))

    sections = (
        Section(
            title="How far the prompts of a pair lie apart",
            tables=(_metric_table(evidence),) if evidence.rows else (),
            figures=drawn("measured"),
        ),
        _growth_section(evidence, drawn("amplification", "mean_diff")),
        *neuron_sections(evidence, pictures),
    )
    return tuple(part for part in sections if part.tables or part.figures)


def _growth_section(evidence: Evidence, figures: tuple[str, ...]) -> Section:
    found = amplification_entry(evidence)["before"]
    return Section(
        title="How the difference changes with depth",
        text=(GROWTH_NOTE,),
        tables=() if found is None else (_growth_table(found),),
        figures=figures,
    )


def _generations(evidence: Evidence) -> tuple[GenerationPair, ...]:
    return tuple(
        GenerationPair(
            prompt=entry["prompt"],
            before=entry["before"]["continuation"],
            after=None,
            label=f"{entry['category']}, {SPLIT_LABELS[entry['split']].removesuffix('s')}",
            group=str(entry["pair"]),
        )
        for entry in generations_of_base(evidence)
    )


def _metric_table(evidence: Evidence) -> Table:
    titles = {metric.name: metric.title for metric in METHOD.metrics}
    rows: list[tuple[Cell, ...]] = []
    for row in evidence.rows:
        low, high = row.ci95_before or (None, None)
        rows.append((titles[row.metric], row.group, row.before, low, high, row.n))
    return Table(
        title="What was measured",
        columns=("Metric", "Pairs", "Mean", "95 % from", "to", "n"),
        rows=tuple(rows),
        note="Means over pairs with bootstrap intervals; 0 would mean no difference at all.",
    )


def _place(onset: dict[str, Any]) -> str:
    return f"layer {onset['layer']}, {component_label(onset['component'])}"


def _growth_table(found: dict[str, Any]) -> Table:
    """Put onset, slope and jump of the pairs beside those of the control pairs."""
    groups = [("demographic pairs", found)]
    if found["control"] is not None:
        groups.append(("neutral control pairs", found["control"]))
    rows: list[tuple[Cell, ...]] = []
    for name, values in groups:
        onset = values["onset"]
        by_pair = [entry for entry in values["onset_by_pair"] if entry is not None]
        rows.append(
            (
                name,
                "never" if onset is None else _place(onset),
                f"{len(by_pair)} of {len(values['onset_by_pair'])}",
                values["slope"],
                values["rank_correlation"],
                values["largest_jump"],
            )
        )
    return Table(
        title="How the difference changes with depth",
        columns=(
            "Pairs",
            f"First above {found['threshold']:g}",
            "Pairs that get there",
            "Change over depth",
            "Rank correlation",
            "Largest step up at layer",
        ),
        rows=tuple(rows),
        note="Relative difference over the tokens from the first changed one on. The change from "
        "the first layer to the last, along a fitted line and negative for a fall, the rank "
        "correlation with depth and the largest step are those of the MLP outputs.",
    )
