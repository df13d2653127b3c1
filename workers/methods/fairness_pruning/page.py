"""What report.html and the model card say: the evidence in words."""

from pathlib import PurePosixPath
from typing import Any

from app.catalog.methods.fairness_pruning import METHOD
from workers.methods.fairness_pruning.controls import IMPORTANCE_ONLY
from workers.methods.fairness_pruning.evidence import Evidence, group_outcomes
from workers.methods.fairness_pruning.glossary import GLOSSARY
from workers.methods.fairness_pruning.headline import (
    headline_numbers,
    overall_tone,
    verdict_sentence,
)
from workers.methods.fairness_pruning.language import language_entry
from workers.methods.fairness_pruning.metrics import PARITY, percent_reduction
from workers.methods.fairness_pruning.pair_plan import SPLIT_LABELS, SPLITS
from workers.methods.fairness_pruning.report import (
    LIMITS,
    generation_entries,
    neuron_map_entry,
    software_versions,
)
from workers.methods.fairness_pruning.run_controls import SELECTION
from workers.methods.fairness_pruning.warnings import warnings_of
from workers.reports.document import (
    Cell,
    Controls,
    Fact,
    FileHash,
    GenerationPair,
    ReportDocument,
    Reproduce,
    Table,
)
from workers.reports.picture import Picture
from workers.reports.wording import counted

_CONTROL_NOTE = (
    "Mean reduction of the parity metric on the neurons that stay. The claim rests on held-out "
    "pairs: the selection must beat every random draw and the least important neurons, and the "
    "interval of its lead over the mean of the random draws must exclude zero."
)
# The resolved spec itself is no request: the service writes it as one.
_REPEAT = """\
AUTHORIZATION="Authorization: Bearer $DEBIAS_API_KEY"
curl -sS "$DEBIAS_URL/v1/jobs/{job_id}/spec" -H "$AUTHORIZATION" > request.json
curl -sS "$DEBIAS_URL/v1/jobs" -H "$AUTHORIZATION" \\
  -H "Content-Type: application/json" -d @request.json"""
_MAX_TABLE_PAIRS = 200


def build_document(evidence: Evidence, pictures: tuple[Picture, ...]) -> ReportDocument:
    """Fill the report document."""
    return ReportDocument(
        title=f"Fairness Pruning of {model_name(evidence)}",
        subtitle=_subtitle(evidence),
        verdict=verdict_sentence(evidence),
        tone=overall_tone(evidence),
        method=METHOD.name,
        headline=headline_numbers(evidence),
        changed=_changed(evidence),
        rows=evidence.rows,
        metrics={metric.name: metric for metric in METHOD.metrics},
        reproduce=_reproduce(evidence),
        tables=_tables(evidence),
        controls=_controls(evidence),
        generations=_generations(evidence),
        figures=pictures,
        warnings=tuple(warnings_of(evidence)),
        limits=LIMITS,
        intended_use=(_intended_use(evidence),),
        glossary=GLOSSARY,
    )


def model_name(evidence: Evidence) -> str:
    """Name the base model as its source does; the output of a job by that job and its base."""
    source = evidence.ctx.provenance["model"]
    if isinstance(source, dict) and source.get("job_id"):
        base = source.get("base_name")
        made = f"output of {source['job_id']}"
        return f"{base} ({made})" if base else f"the {made}"
    for key in ("hub", "repo_id", "path", "name", "version_id"):
        if isinstance(source, dict) and source.get(key):
            return str(source[key])
    return "the base model"


def hub_name(evidence: Evidence) -> str | None:
    """Name of the base model on a hub, None where it is not from one."""
    source = evidence.ctx.provenance["model"]
    name = source.get("hub") or source.get("repo_id") if isinstance(source, dict) else None
    return str(name) if name else None


def _intended_use(evidence: Evidence) -> str:
    if not evidence.verdict.claim:
        return (
            "For study. This job does not show that the pairs' attributes matter less than in the "
            "base model, so nothing speaks for using the edited one in its place."
        )
    return (
        "As a drop-in replacement of the base model where the pairs' attributes should matter "
        "less, after an independent evaluation."
    )


def _subtitle(evidence: Evidence) -> str:
    counts = [
        counted(len(evidence.plan.columns(split)), SPLIT_LABELS[split].removesuffix("s"))
        for split in SPLITS
        if evidence.plan.columns(split)
    ]
    touched = [len(indices) for indices in evidence.removed.values() if indices]
    pairs = f"; {', '.join(counts)}" if counts else ""
    where = f"{len(touched)} of {len(evidence.removed)} layers"
    return f"{counted(sum(touched), 'neuron')} in {where}, mode {evidence.config.mode}{pairs}"


def _changed(evidence: Evidence) -> tuple[Fact, ...]:
    config, state = evidence.config, evidence.edit.state
    sizes = f"{state['intermediate_size_before']} to {state['intermediate_size_after']}"
    facts = [
        Fact("Mode", config.mode),
        Fact("Neurons of a layer", sizes),
        Fact("Fraction asked for", f"{100 * state['requested_fraction']:.4g} %"),
        Fact("Fraction changed", f"{100 * state['effective_fraction']:.4g} %"),
        Fact("Tensors changed", f"{len(state['tensors_changed'])}"),
        Fact("Importance", config.importance),
        Fact("Weight of bias", f"{config.bias_weight:g}"),
        Fact("Bias score", f"{config.bias_point}, {config.token_reduction}"),
    ]
    if config.preset is not None:
        facts.insert(0, Fact("Preset", config.preset))
    if state["padding_neurons"]:
        padding = sum(state["padding_neurons"].values())
        facts.append(Fact("Zero neurons added as padding", f"{padding}"))
    return tuple(facts)


def _tables(evidence: Evidence) -> tuple[Table, ...]:
    tables = [_pair_table(evidence)] if evidence.outcome is not None else []
    language = language_entry(evidence)
    if language is not None:
        tables.append(_language_table(language))
    overlap = neuron_map_entry(evidence)
    if overlap is not None and overlap["overlap"]:
        tables.append(_overlap_table(overlap))
    return tuple(tables)


def _pair_table(evidence: Evidence) -> Table:
    outcome, before = evidence.outcome, evidence.metrics_before[PARITY]
    if outcome is None:
        raise ValueError("no pair was measured")
    mechanical = outcome.mechanical(before)
    rows: list[tuple[Cell, ...]] = []
    for column, pair in enumerate(evidence.plan.measured[:_MAX_TABLE_PAIRS]):
        first, second = float(before[column]), float(outcome.after[PARITY][column])
        rows.append(
            (
                f"{pair.prompt_1} / {pair.prompt_2}",
                f"{pair.category}, {SPLIT_LABELS[pair.split]}",
                first,
                second,
                percent_reduction(first, second),
                float(mechanical[column]),
                float(outcome.behavioural[column]),
            )
        )
    shown = "" if len(rows) == len(evidence.plan.measured) else " The rest is in report.json."
    return Table(
        title="Pairs",
        columns=(
            "Prompts",
            "Group",
            "Before",
            "After",
            "Reduction %",
            "Mechanical",
            "Behavioural",
        ),
        rows=tuple(rows),
        note=f"Mean activation difference of six components (parity metric) by pair.{shown}",
    )


def _language_table(language: dict[str, Any]) -> Table:
    labels = {"before": "base model", "after": "edited model", **_CONTROL_LABELS}
    interval = language["ci95_loss_increase"]
    increase = (
        f" Increase of the loss by the edit, 95 % interval: {interval[0]:+.3f} to "
        f"{interval[1]:+.3f}."
        if interval
        else ""
    )
    return Table(
        title="Cost to the language",
        columns=("Model", "Loss per token", "Perplexity"),
        rows=tuple(
            (labels.get(name, name.replace("_", " ")), loss, language["perplexity"][name])
            for name, loss in language["loss"].items()
        ),
        note=(
            f"On the prompts of {language['n']} pairs, few and short: it shows damage, not "
            f"ability.{increase}"
        ),
    )


def _overlap_table(overlap: dict[str, Any]) -> Table:
    return Table(
        title="Neurons shared between categories",
        columns=("Categories", "Jaccard index", "Random sets", "Random sets, 95th percentile"),
        rows=tuple(
            (
                " and ".join(entry["categories"]),
                entry["pooled"]["jaccard"],
                entry["pooled"]["random_mean"],
                entry["pooled"]["random_95th_percentile"],
            )
            for entry in overlap["overlap"]
        ),
        note="The neurons that react most to each category, all layers pooled; 1 means equal sets.",
    )


def _controls(evidence: Evidence) -> Controls:
    verdict = evidence.verdict
    if not evidence.controls:
        return Controls(verdict=verdict.wording, claim=False)
    rows: list[tuple[Cell, ...]] = []
    for split in SPLITS:
        columns = evidence.plan.columns(split)
        if not columns:
            continue
        for name, values in group_outcomes(evidence, columns).items():
            label = _CONTROL_LABELS.get(name, name.replace("_", " "))
            group = f"{SPLIT_LABELS[split]} (n = {len(columns)})"
            rows.append((group, label, values["behavioural"], values["mechanical"], values[PARITY]))
    return Controls(
        verdict=verdict.wording,
        claim=verdict.claim,
        note=_CONTROL_NOTE,
        table=Table(
            title="The selection beside its controls",
            columns=("Pairs", "Removed neurons", "Behavioural", "Mechanical", "Parity after"),
            rows=tuple(rows),
        ),
    )


_CONTROL_LABELS = {SELECTION: "this selection", IMPORTANCE_ONLY: "least important only"}


def _generations(evidence: Evidence) -> tuple[GenerationPair, ...]:
    return tuple(
        GenerationPair(
            prompt=entry["prompt"],
            before=entry["before"]["continuation"],
            after=entry["after"]["continuation"],
            label=f"pair {entry['pair']}, {entry['category']}",
        )
        for entry in generation_entries(evidence)
    )


def _reproduce(evidence: Evidence) -> Reproduce:
    provenance = evidence.ctx.provenance
    files = tuple(
        FileHash(
            path=PurePosixPath(file["path"]).as_posix(),
            size_bytes=file["size_bytes"],
            sha256=file["sha256"],
        )
        for file in provenance["model_files"]
        if file["sha256"]
    )
    return Reproduce(
        command=_REPEAT.format(job_id=provenance["job_id"]),
        resolved_spec=provenance["resolved_spec"],
        provenance=(
            Fact("Method", f"{provenance['method']} {provenance['method_version']}"),
            Fact("Base model", model_name(evidence)),
            Fact("Seed", str(evidence.ctx.seed)),
            Fact("Device", evidence.ctx.device),
            Fact("Precision of the diagnosis", str(evidence.before.state["dtype"])),
        ),
        files=files,
        versions=software_versions(),
    )
