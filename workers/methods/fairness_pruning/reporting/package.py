"""Phase four: write report, page, card and pictures, and return the result."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import metadata_load
from yaml import YAMLError

from workers.methods.fairness_pruning.measuring.metrics import METRICS
from workers.methods.fairness_pruning.measuring.pair_plan import SPLITS
from workers.methods.fairness_pruning.reporting.evidence import Evidence, gather
from workers.methods.fairness_pruning.reporting.headline import may_be_called_debiased
from workers.methods.fairness_pruning.reporting.layer_table import layer_table
from workers.methods.fairness_pruning.reporting.model_names import hub_name
from workers.methods.fairness_pruning.reporting.page import build_document
from workers.methods.fairness_pruning.reporting.pictures import draw_pictures
from workers.methods.fairness_pruning.reporting.report import build_report, neuron_map_entry
from workers.methods.fairness_pruning.reporting.warnings import cost_warnings
from workers.reports.card import CardHeader, render_markdown
from workers.reports.html import render_html
from workers.reports.picture import write_picture
from workers.runtime.context import Context, MethodResult, PhaseOutput, raise_if_stopped

_STEPS = 3
# Of the report, what a checkpoint must carry to say where it comes from and what it is.
_CHECKPOINT_PARTS = (
    "method",
    "model",
    "model_files",
    "config",
    "removed",
    "parameters",
    "intermediate_size",
    "padding_neurons",
    "attention_heads",
    "fraction",
    "verdict",
    "summary",
    "controls",
    "language",
    "warnings",
    "limits",
    "versions",
)


def write_package(
    ctx: Context, before: PhaseOutput, edit: PhaseOutput, after: PhaseOutput
) -> MethodResult:
    """Write everything that people read, and two side files into the checkpoint."""
    evidence = gather(ctx, before, edit, after)
    for code, message in cost_warnings(evidence):
        ctx.warn(code, message)
    begin_step(ctx, 1, "writing the numbers")
    report = build_report(evidence)
    write_json(ctx.out_dir / "report.json", report)
    for name, part in (("neuron_map", neuron_map_entry), ("layers", layer_table)):
        value = part(evidence)
        if value is not None:
            write_json(ctx.out_dir / f"{name}.json", value)
    begin_step(ctx, 2, "drawing")
    pictures = draw_pictures(evidence)
    for picture in pictures:
        write_picture(picture, ctx.out_dir / "plots")
    begin_step(ctx, 3, "writing the report")
    document = build_document(evidence, pictures)
    (ctx.out_dir / "report.html").write_text(render_html(document), encoding="utf-8")
    checkpoint = ctx.out_dir / "checkpoint"
    write_json(
        checkpoint / "debias_report.json", {k: report[k] for k in _CHECKPOINT_PARTS if k in report}
    )
    card = render_markdown(document, _card_header(evidence))
    (checkpoint / "README.md").write_text(card, encoding="utf-8")
    return method_result(evidence)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write strict JSON in one fixed form."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=1)
    path.write_text(f"{text}\n", encoding="utf-8")


def begin_step(ctx: Context, step: int, message: str) -> None:
    """Poll for a stop, then report a step of the packaging."""
    raise_if_stopped(ctx)
    ctx.progress(step, _STEPS, message)


def _card_header(evidence: Evidence) -> CardHeader:
    return CardHeader(
        base_model=hub_name(evidence),
        tags=("debiased", "fairness") if may_be_called_debiased(evidence) else (),
        licence=_licence(evidence.ctx.model_dir),
        pipeline_tag="text-generation",
    )


def _licence(model_dir: Path) -> str | None:
    """Read the licence from the base model's card; a card that cannot be read names none."""
    card = model_dir / "README.md"
    if not card.is_file():
        return None
    try:
        named = (metadata_load(card) or {}).get("license")
    except (ValueError, YAMLError):
        return None
    return named if isinstance(named, str) else None


def method_result(evidence: Evidence) -> MethodResult:
    """Means by metric; those of held-out and control pairs carry the split in their name.

    Without an edit nothing stands under "after".
    """
    after = {} if evidence.outcome is None else evidence.outcome.after
    stages: list[dict[str, float | None]] = []
    for metrics in (evidence.metrics_before, after):
        values: dict[str, float | None] = {}
        for split in SPLITS:
            means = evidence.stage_means(metrics, split)
            suffix = "" if split == "selection" else f".{split}"
            values |= {f"{name}{suffix}": means[name] for name in METRICS}
        stages.append({name: value for name, value in values.items() if value is not None})
    return MethodResult(before=stages[0], after=stages[1], summary=evidence.rows)
