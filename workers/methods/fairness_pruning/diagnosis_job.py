"""A job that only diagnoses: what it does in place of an edit, and what it leaves behind."""

from workers.methods.fairness_pruning.measuring.phase_data import pack_removed, stack_layers
from workers.methods.fairness_pruning.measuring.subject import read_shape
from workers.methods.fairness_pruning.reporting.diagnosis_page import build_diagnosis_document
from workers.methods.fairness_pruning.reporting.diagnosis_report import build_diagnosis_report
from workers.methods.fairness_pruning.reporting.evidence import gather
from workers.methods.fairness_pruning.reporting.layer_table import layer_table
from workers.methods.fairness_pruning.reporting.package import begin_step, method_result, write_json
from workers.methods.fairness_pruning.reporting.pictures import draw_pictures
from workers.methods.fairness_pruning.reporting.report import neuron_map_entry
from workers.methods.fairness_pruning.selecting.importance import importance_scores
from workers.reports.card import render_markdown
from workers.reports.html import render_html
from workers.reports.picture import write_picture
from workers.runtime.context import Context, MethodResult, PhaseOutput, raise_if_stopped


def rank_importance(ctx: Context, before: PhaseOutput) -> PhaseOutput:
    """Read from the stored weights how much each neuron matters; nothing is edited or loaded.

    The state has what a finished edit has, with nothing removed from any layer.
    """
    raise_if_stopped(ctx)
    shape = read_shape(ctx.model_dir)
    norms = before.arrays.get("activation_norms")
    ctx.progress(1, 1, "reading the importance of the neurons")
    importance = {}
    if shape.layout.is_editable:
        importance = importance_scores(
            ctx.model_dir,
            shape.layout,
            ctx.config.importance,
            activation_norms=None if norms is None else dict(enumerate(norms)),
            should_stop=ctx.should_stop,
        )
    nothing = pack_removed(dict.fromkeys(range(shape.dimensions.layers), ()))
    state = {"removed": nothing, "controls": {}, "warnings": [], "padding_neurons": {}}
    return PhaseOutput(state=state, arrays={"importance": stack_layers(importance)})


def write_diagnosis(
    ctx: Context, before: PhaseOutput, edit: PhaseOutput, after: PhaseOutput
) -> MethodResult:
    """Write report, page and pictures of the base model; there is no checkpoint."""
    evidence = gather(ctx, before, edit, after)
    begin_step(ctx, 1, "writing the numbers")
    write_json(ctx.out_dir / "report.json", build_diagnosis_report(evidence))
    parts = {"layers": layer_table(evidence)}
    if evidence.shape.layout.is_editable:
        parts["neuron_map"] = neuron_map_entry(evidence)
    for name, value in parts.items():
        if value is not None:
            write_json(ctx.out_dir / f"{name}.json", value)
    begin_step(ctx, 2, "drawing")
    pictures = draw_pictures(evidence)
    for picture in pictures:
        write_picture(picture, ctx.out_dir / "plots")
    begin_step(ctx, 3, "writing the report")
    document = build_diagnosis_document(evidence, pictures)
    (ctx.out_dir / "report.html").write_text(render_html(document), encoding="utf-8")
    (ctx.out_dir / "report.md").write_text(render_markdown(document, None), encoding="utf-8")
    return method_result(evidence)
