"""What report.html and the model card say: the evidence in words."""

from pathlib import PurePosixPath

from app.catalog.methods.fairness_pruning import METHOD
from workers.methods.fairness_pruning.heads.report import head_table
from workers.methods.fairness_pruning.measuring.metrics import PARITY
from workers.methods.fairness_pruning.measuring.pair_plan import SPLIT_LABELS, SPLITS
from workers.methods.fairness_pruning.reporting.compliance import compliance_sheet, data_used
from workers.methods.fairness_pruning.reporting.edit_words import changed_facts, in_short, subtitle
from workers.methods.fairness_pruning.reporting.evidence import Evidence, group_outcomes
from workers.methods.fairness_pruning.reporting.glossary import glossary
from workers.methods.fairness_pruning.reporting.headline import (
    headline_numbers,
    overall_tone,
    verdict_sentence,
)
from workers.methods.fairness_pruning.reporting.metric_texts import metric_findings
from workers.methods.fairness_pruning.reporting.model_names import model_name, requested_on
from workers.methods.fairness_pruning.reporting.page_sections import (
    control_label,
    page_sections,
    pair_table,
)
from workers.methods.fairness_pruning.reporting.report import (
    LIMITS,
    generation_entries,
    software_versions,
)
from workers.methods.fairness_pruning.reporting.warnings import (
    evidence_warnings,
    storage_warnings,
)
from workers.methods.fairness_pruning.selecting.controls import (
    LIKE_IMPORTANCE,
    LIKE_RANDOM,
    NO_CONTROLS,
    NO_MORE_THAN_IMPORTANCE,
    SELECTION_ONLY,
    worded,
)
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
from workers.reports.wording import above_resolution

_CONTROL_NOTE = (
    "A control takes out as many {parts}, chosen in another way, to see what that does; some of "
    "them may be those of the selection as well. Behavioural: by how much "
    "the difference shrank on what stays in the model; mechanical: by how much its mean shrank "
    "merely because the parts taken out no longer count. Negative means that it grew. A claim "
    "rests on held-out pairs alone: there, the selection must reduce the difference by more than "
    "every random draw and than the least important {parts}, and the intervals of its lead over "
    "the mean of the random draws and over the least important {parts} must both exclude zero."
)
# Wordings that are no sentence by themselves.
_VERDICTS = {
    NO_MORE_THAN_IMPORTANCE: (
        "The selection reduces the difference no more than removing the least important neurons."
    ),
    LIKE_IMPORTANCE: (
        "The selection is not distinguishable from removing the least important neurons."
    ),
    LIKE_RANDOM: "The selection is not distinguishable from random removal.",
    SELECTION_ONLY: "The change was measured on the selection pairs only: no claim can be made.",
    NO_CONTROLS: "No controls were run: no claim can be made.",
}
# The resolved spec itself is no request: the job writes it as one.
_REPEAT = """\
AUTHORIZATION="Authorization: Bearer $DEBIAS_API_KEY"
# Asks the service that holds this job; request.json is one of the job's files, too.
curl -sS "$DEBIAS_URL/v1/jobs/{job_id}/spec" -H "$AUTHORIZATION" > request.json
curl -sS "$DEBIAS_URL/v1/jobs" -H "$AUTHORIZATION" \\
  -H "Content-Type: application/json" -d @request.json"""


def build_document(evidence: Evidence, pictures: tuple[Picture, ...]) -> ReportDocument:
    """Fill the report document."""
    return ReportDocument(
        title=f"{METHOD.title} of {model_name(evidence)}",
        subtitle=subtitle(evidence),
        verdict=verdict_sentence(evidence),
        tone=overall_tone(evidence),
        method=METHOD.name,
        headline=headline_numbers(evidence),
        in_short=in_short(evidence),
        changed=(*changed_facts(evidence), *_storage_facts(evidence)),
        findings=metric_findings(evidence),
        rows=evidence.rows,
        metrics={metric.name: metric for metric in METHOD.metrics},
        sections=page_sections(evidence, [picture.name for picture in pictures]),
        tables=_tables(evidence),
        controls=_controls(evidence),
        generations=generations(evidence),
        figures=pictures,
        warnings=tuple(evidence_warnings(evidence)),
        limits=LIMITS,
        intended_use=(_intended_use(evidence),),
        data_used=data_used(evidence),
        glossary=glossary(evidence),
        compliance=compliance_sheet(evidence),
        reproduce=reproduce_block(evidence),
        references=references(),
    )


def _storage_facts(evidence: Evidence) -> tuple[Fact, ...]:
    """Say what matters to whoever runs the model, and to nobody who only reads the results."""
    return tuple(
        Fact("For running the model", sentence.replace("`", ""))
        for sentence in storage_warnings(evidence)
    )


def references() -> tuple[Fact, ...]:
    """Give the sources of the method with their addresses."""
    return tuple(Fact(source.title, source.url) for source in METHOD.references)


def generations(evidence: Evidence) -> tuple[GenerationPair, ...]:
    """Give the continuations, the two prompts of a pair under one group."""
    return tuple(
        GenerationPair(
            prompt=entry["prompt"],
            before=entry["before"]["continuation"],
            after=entry["after"]["continuation"],
            label=f"{entry['category']}, {SPLIT_LABELS[entry['split']].removesuffix('s')}",
            group=str(entry["pair"]),
            changed_at=_counted_from_one(entry["first_difference"]),
        )
        for entry in generation_entries(evidence)
    )


def reproduce_block(evidence: Evidence) -> Reproduce:
    """Give all that is needed to repeat the job, and the digests of its files."""
    provenance = evidence.ctx.provenance
    listed = (
        ("Base model", provenance["model_files"]),
        ("Edited model", evidence.edit.state.get("files", ())),
    )
    files = tuple(
        FileHash(
            path=PurePosixPath(file["path"]).as_posix(),
            size_bytes=file["size_bytes"],
            sha256=file["sha256"],
            origin=origin,
        )
        for origin, entries in listed
        for file in entries
        if file["sha256"]
    )
    return Reproduce(
        command=_command(evidence),
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


def _command(evidence: Evidence) -> str:
    """Give the commands that repeat the job; a run without the service has no request to fetch."""
    job_id = str(evidence.ctx.provenance["job_id"])
    if requested_on(job_id) is None:
        return (
            "# Made without the service. To repeat it, take the same files, the same seed,\n"
            "# and the part `config` of report.json as the config of a new job."
        )
    return _REPEAT.format(job_id=job_id)


def _intended_use(evidence: Evidence) -> str:
    if evidence.nothing_changed:
        return "None of its own: the result is the base model, and can be used as that."
    if not evidence.verdict.claim:
        return (
            "For study. This job does not show that the pairs' attributes matter less than in the "
            "base model, so nothing speaks for using the edited one in its place."
        )
    return (
        "As a drop-in replacement of the base model where the pairs' attributes should matter "
        "less, after an independent evaluation."
    )


def _tables(evidence: Evidence) -> tuple[Table, ...]:
    tables = [pair_table(evidence)] if evidence.outcome is not None else []
    heads = head_table(evidence.edit)
    if heads is not None:
        tables.append(heads)
    return tuple(tables)


def _controls(evidence: Evidence) -> Controls:
    verdict, parts = evidence.verdict, evidence.edited_parts
    wording = _VERDICTS.get(verdict.wording, f"{verdict.wording[0].upper()}{verdict.wording[1:]}.")
    wording = worded(wording, parts)
    if not evidence.controls:
        return Controls(verdict=wording, claim=False)
    rows: list[tuple[Cell, ...]] = []
    for split in SPLITS:
        columns = evidence.plan.columns(split)
        if not columns:
            continue
        for name, values in group_outcomes(evidence, columns).items():
            group = f"{SPLIT_LABELS[split]} (n = {len(columns)})"
            after = values[PARITY]
            parts_of_change = (values["behavioural"], values["mechanical"])
            means = (*(above_resolution(part, of=after) for part in parts_of_change), after)
            rows.append((group, control_label(name), *means))
    return Controls(
        verdict=wording,
        claim=verdict.claim,
        note=_CONTROL_NOTE.format(parts=parts),
        table=Table(
            title="The selection beside its controls",
            columns=("Pairs", "Taken out", "Behavioural", "Mechanical", "Difference after"),
            rows=tuple(rows),
        ),
    )


def _counted_from_one(position: int | None) -> int | None:
    return None if position is None else position + 1
