"""Add the GGUF file to the output of a job that has written its checkpoint."""

from collections.abc import Mapping
from typing import Any

from workers.models.gguf.export import export_gguf
from workers.runtime.context import Context

FILE = "gguf/model.gguf"
"""Name of the artifact."""

# Quantised formats pack at least this many neighbouring weights into one block.
_SMALLEST_BLOCK = 32


def add_gguf(ctx: Context) -> None:
    """Write `out_dir/gguf/model.gguf` from `out_dir/checkpoint`; again, where it is there already.

    Raises
    ------
    JobFailure
        The checkpoint has a part that GGUF has no place for.
    Stopped
        The attempt asked for it.
    """
    checkpoint = ctx.out_dir / "checkpoint"
    if not (checkpoint / "config.json").is_file():
        ctx.warn("gguf_not_written", "The job wrote no model, so it has no GGUF file either.")
        return

    def show(done: int, total: int) -> None:
        ctx.progress(done, total, "writing the GGUF file")

    report = export_gguf(
        checkpoint,
        ctx.out_dir / FILE,
        name=_name(ctx.provenance),
        should_stop=ctx.should_stop,
        on_progress=show,
    )
    if report.neurons % _SMALLEST_BLOCK:
        ctx.warn(
            "gguf_not_quantisable",
            f"The MLPs have {report.neurons} neurons, no multiple of {_SMALLEST_BLOCK}: the GGUF "
            "file runs as it is, but tools cannot quantise its down projections.",
        )


def _name(provenance: Mapping[str, Any]) -> str:
    """Name the model by its base and the method."""
    source: Mapping[str, Any] = provenance.get("model", {})
    fields = ("base_name", "repo_id", "name", "path")
    base = next((str(source[field]) for field in fields if source.get(field)), "model")
    return f"{base.rpartition('/')[2]}-{provenance.get('method', 'debiased')}"
