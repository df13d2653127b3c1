"""Write the edited checkpoint: weights as streams, config, index and tokenizer files beside them.

The edit does not need the model in memory. Neurons are moved or zeroed as raw bytes, so whatever
is kept is bit-identical to the base; see `workers.models.streaming`.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.errors import JobErrorCode, JobFailure
from app.domain.models import FileFact
from app.domain.native_tensors import is_old_buffer
from app.security.model_files import CONFIG, WEIGHTS_INDEX, is_allowed_file, is_weight_file
from workers.methods.fairness_pruning.editing.edit_plan import EditPlan, plan_edit
from workers.methods.fairness_pruning.heads.edits import HeadRemoval
from workers.models.streaming import Edit, ShouldStop, edited_size, write_shard
from workers.models.tensor_files import CheckpointFiles, open_checkpoint

OnProgress = Callable[[int, int], None]

# Written anew: the config here, the card from the report. The base's card says nothing true of
# the edited model, and the hash of a copy would be wrong as soon as the new card is there.
_NOT_COPIED = frozenset({CONFIG, "README.md"})

# Room beyond the new files, for what else the disk must hold while they are written.
_SPACE_MARGIN = 1.05


@dataclass(frozen=True, slots=True)
class EditReport:
    """What was written, and what changed.

    `padding_neurons` counts the zero neurons appended to each layer that has some.
    """

    files: tuple[FileFact, ...]
    tensors_changed: tuple[str, ...]
    parameters_before: int
    parameters_after: int
    intermediate_size_before: int
    intermediate_size_after: int
    padding_neurons: dict[int, int]


def apply_edit(
    model_dir: Path,
    out_dir: Path,
    removed: Mapping[int, Sequence[int]],
    config: FairnessPruningConfig,
    *,
    should_stop: ShouldStop,
    on_progress: OnProgress,
    heads: HeadRemoval | None = None,
) -> EditReport:
    """Write the edited model to `out_dir`, which appears complete or not at all.

    It is written beside itself under a temporary name, synced, and renamed at the end. On
    `Stopped`, or a `JobFailure` (no room, or a model that does not fit), nothing is left behind.

    Parameters
    ----------
    model_dir, out_dir
        The base model as a transformers directory, only read; the directory to create.
    removed, config, heads
        As in `plan_edit`.
    should_stop, on_progress
        Asked before every block; told bytes done and in all.
    """
    checkpoint = open_checkpoint(model_dir)
    plan = plan_edit(checkpoint, removed, config, heads=heads)
    _require_space(out_dir.parent, _bytes_after(checkpoint, plan))
    partial = out_dir.with_name(f".{out_dir.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        files = _write_weights(
            checkpoint, partial, plan, should_stop=should_stop, on_progress=on_progress
        )
        files += _write_companions(checkpoint, partial, plan)
        _sync_folder(partial)
        partial.rename(out_dir)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _sync_folder(out_dir.parent)
    return _report(checkpoint, plan, files)


def _require_space(folder: Path, size_bytes: int) -> None:
    needed = int(size_bytes * _SPACE_MARGIN)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise JobFailure(
            code=JobErrorCode.DISK_FULL,
            message=f"The edited model needs {needed} bytes of disk, {free} are free.",
            hint="Free disk space on the worker, or move its scratch directory.",
            retryable=True,
            fields={"needed_bytes": needed, "free_bytes": free},
        )


def _write_weights(
    checkpoint: CheckpointFiles,
    folder: Path,
    plan: EditPlan,
    *,
    should_stop: ShouldStop,
    on_progress: OnProgress,
) -> list[FileFact]:
    files: list[FileFact] = []
    total = _bytes_after(checkpoint, plan)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        on_progress(min(done, total), total)

    for shard in checkpoint.shards:
        target = folder / shard.path.name
        files.append(
            write_shard(shard, target, plan.edits, should_stop=should_stop, on_bytes=on_bytes)
        )
    return files


def _write_companions(checkpoint: CheckpointFiles, folder: Path, plan: EditPlan) -> list[FileFact]:
    """Write config.json and the index, and copy tokenizer and generation files.

    Files of other weight formats hold the unedited model and stay behind.
    """
    files = [_write_config(checkpoint, folder, plan)]
    if checkpoint.index is not None:
        before, after = _parameters(checkpoint, {}), _parameters(checkpoint, plan.edits)
        metadata = {
            **checkpoint.index.get("metadata", {}),
            "total_size": _bytes_after(checkpoint, plan),
        }
        if "total_parameters" in metadata:
            metadata["total_parameters"] += after - before
        index = {**checkpoint.index, "metadata": metadata}
        files.append(_write_file(folder / WEIGHTS_INDEX, _json(index)))
    for path in sorted(checkpoint.folder.iterdir()):
        wanted = is_allowed_file(path.name) and not is_weight_file(path.name)
        if wanted and path.name not in _NOT_COPIED and path.is_file():
            files.append(_copy_file(path, folder / path.name))
    return files


def _write_config(checkpoint: CheckpointFiles, folder: Path, plan: EditPlan) -> FileFact:
    """Change the size fields and nothing else; unchanged sizes keep the file's very bytes."""
    if not plan.config_fields:
        return _copy_file(checkpoint.folder / CONFIG, folder / CONFIG)
    config = json.loads((checkpoint.folder / CONFIG).read_text(encoding="utf-8"))
    section = config
    for key in plan.layout.config_section:
        section = section[key]
    section.update(plan.config_fields)
    return _write_file(folder / CONFIG, _json(config))


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _copy_file(source: Path, target: Path) -> FileFact:
    # Intake limits files that are not weights to 64 MiB, so one fits in memory.
    return _write_file(target, source.read_bytes())


def _write_file(target: Path, content: bytes) -> FileFact:
    with target.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return FileFact(target.name, len(content), hashlib.sha256(content).hexdigest())


def _bytes_after(checkpoint: CheckpointFiles, plan: EditPlan) -> int:
    return sum(
        edited_size(tensor, plan.edits.get(tensor.name))
        for shard in checkpoint.shards
        for tensor in shard.tensors
    )


def _parameters(checkpoint: CheckpointFiles, edits: Mapping[str, Edit]) -> int:
    """Count what was trained: the causal masks of old files are a tenth of GPT-2, and constants."""
    return sum(
        edited_size(tensor, edits.get(tensor.name)) // tensor.item_bytes
        for shard in checkpoint.shards
        for tensor in shard.tensors
        if not is_old_buffer(tensor.name)
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _report(checkpoint: CheckpointFiles, plan: EditPlan, files: list[FileFact]) -> EditReport:
    return EditReport(
        files=tuple(sorted(files, key=lambda file: file.path)),
        tensors_changed=tuple(sorted(plan.edits)),
        parameters_before=_parameters(checkpoint, {}),
        parameters_after=_parameters(checkpoint, plan.edits),
        intermediate_size_before=plan.dimensions.neurons,
        intermediate_size_after=plan.neurons_after,
        padding_neurons=dict(plan.padding_neurons),
    )
