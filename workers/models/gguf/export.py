"""Write a plain transformers checkpoint as one GGUF file."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from transformers import AutoConfig

from app.domain.errors import JobErrorCode, JobFailure
from app.domain.gguf_families import find_gguf_family
from workers.models.gguf.architecture import head_width, neuron_count, write_architecture
from workers.models.gguf.recipes import RECIPES
from workers.models.gguf.rotary import FREQUENCIES, frequency_factors
from workers.models.gguf.tensors import PlannedTensor, TensorStream, plan_tensors
from workers.models.gguf.vocabulary import read_vocabulary, write_vocabulary
from workers.models.streaming import ShouldStop
from workers.models.tensor_files import open_checkpoint

OnProgress = Callable[[int, int], None]

_FILE_TYPES = {
    gguf.GGMLQuantizationType.F32: gguf.LlamaFileType.ALL_F32,
    gguf.GGMLQuantizationType.F16: gguf.LlamaFileType.MOSTLY_F16,
    gguf.GGMLQuantizationType.BF16: gguf.LlamaFileType.MOSTLY_BF16,
}


@dataclass(frozen=True, slots=True)
class GgufReport:
    """What was written: number of tensors, bytes of the file, and neurons of each MLP."""

    tensors: int
    size_bytes: int
    neurons: int


def export_gguf(
    checkpoint: Path,
    target: Path,
    *,
    name: str,
    should_stop: ShouldStop,
    on_progress: OnProgress,
) -> GgufReport:
    """Write `checkpoint` to `target`, which appears complete or not at all.

    Weights are read a block at a time and keep their dtype; vectors become float32, as readers of
    GGUF expect. The same checkpoint gives the same bytes.

    Parameters
    ----------
    checkpoint
        Directory with config.json, safetensors and the tokenizer.
    target
        Path of the file; its folder is made.
    name
        What the file calls the model.
    should_stop, on_progress
        Asked before every block; told bytes written and bytes in all.

    Raises
    ------
    JobFailure
        The family, the tokenizer or a tensor has no place in GGUF.
    Stopped
        `should_stop` said so; nothing is left behind.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    try:
        report = _write(checkpoint, partial, name, should_stop, on_progress)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    return report


def _write(
    checkpoint: Path, path: Path, name: str, should_stop: ShouldStop, on_progress: OnProgress
) -> GgufReport:
    config = AutoConfig.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)
    family = find_gguf_family(config.model_type)
    if family is None:
        raise JobFailure(
            JobErrorCode.UNSAFE_MODEL_FORMAT,
            f"Models of type {config.model_type!r} cannot be exported to GGUF.",
            "Send the job again without gguf in outputs.formats.",
        )
    recipe = RECIPES[family.model_type]
    planned = plan_tensors(open_checkpoint(checkpoint), config, family, recipe)
    writer = gguf.GGUFWriter(path, family.architecture)
    try:
        writer.add_type(gguf.GGUFType.MODEL)
        writer.add_name(name)
        writer.add_file_type(_FILE_TYPES[_main_type(planned)])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        write_architecture(writer, config, recipe)
        write_vocabulary(writer, read_vocabulary(checkpoint), config.vocab_size)
        _write_tensors(writer, planned, _factors(config), should_stop, on_progress)
        writer.flush()
        os.fsync(writer.fout[0].fileno())
    finally:
        writer.close()
    return GgufReport(len(planned), path.stat().st_size, neuron_count(config))


def _factors(config: Any) -> npt.NDArray[np.float32] | None:
    return frequency_factors(config, head_width(config))


def _main_type(planned: list[PlannedTensor]) -> Any:
    """Name the dtype that most values of the matrices have."""
    sizes: dict[Any, int] = {}
    for item in planned:
        if len(item.shape) > 1:
            sizes[item.type] = sizes.get(item.type, 0) + item.size_bytes
    return max(sizes, key=lambda kind: sizes[kind])


def _write_tensors(
    writer: gguf.GGUFWriter,
    planned: list[PlannedTensor],
    factors: npt.NDArray[np.float32] | None,
    should_stop: ShouldStop,
    on_progress: OnProgress,
) -> None:
    single = gguf.GGMLQuantizationType.F32
    if factors is not None:
        writer.add_tensor_info(
            FREQUENCIES, factors.shape, np.dtype(np.float32), factors.nbytes, raw_dtype=single
        )
    for item in planned:
        writer.add_tensor_info(
            item.name, item.shape, np.dtype(np.float32), item.size_bytes, raw_dtype=item.type
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    if factors is not None:
        writer.write_tensor_data(factors)
    total, done = sum(item.size_bytes for item in planned), 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    for item in planned:
        writer.write_tensor_data(TensorStream(item, should_stop, on_bytes))
