"""Load a causal language model from a plain directory, and refuse what does not fit it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from app.domain.errors import JobErrorCode, JobFailure
from app.domain.native_tensors import is_old_buffer

ATTENTION_IMPLEMENTATION = "eager"
"""Passed explicitly, never read from the model's config. `eager` and `sdpa` both reproduce the
golden values of stories260K to 1e-5, but gemma2 has no `sdpa` (soft-capped scores), and prompts
are short enough for a whole score matrix."""

_MAX_FLOAT32_CPU_BYTES = 4 * 1024**3
_MAX_REASON_CHARACTERS = 300
# What the library raises on the config of a stranger: it computes with values of any type.
_BROKEN_INPUT = (
    OSError,
    ValueError,
    LookupError,
    RuntimeError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    StrictDataclassError,
)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A causal language model in eval mode, and the dtype it runs in."""

    model: Any
    dtype: str


def load_tokenizer(model_dir: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a local model directory.

    Raises
    ------
    JobFailure
        The directory has no usable tokenizer.
    """
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model_dir, local_files_only=True, trust_remote_code=False
        )
        tokenizer("text")  # reads settings that loading takes as they are
    except _BROKEN_INPUT as exc:
        raise JobFailure(
            JobErrorCode.UNSAFE_MODEL_FORMAT,
            f"The model has no tokenizer that loads without remote code: {_short(exc, model_dir)}",
            "Check config.json, tokenizer.json and tokenizer_config.json of the model.",
        ) from exc
    return tokenizer


def load_causal_lm(
    model_dir: Path,
    *,
    device: str,
    dtype: str,
    failure: JobErrorCode = JobErrorCode.UNSAFE_MODEL_FORMAT,
) -> LoadedModel:
    """Load a causal language model for measurement from a local directory.

    Parameters
    ----------
    dtype
        `float32`, `bfloat16`, `float16`, or `auto`: the checkpoint's dtype on an accelerator; on a
        CPU float32 where the weights then take at most 4 GiB, else bfloat16.
    failure
        Code of the failure when the weights do not fit the architecture: `unsafe_model_format`
        for an input, `reload_failed` for a checkpoint that this service wrote.

    Raises
    ------
    JobFailure
        The directory does not load, or has missing, unexpected or mismatched tensors.
    """
    chosen = resolve_dtype(model_dir, device=device, dtype=dtype)
    # Progress bars would fill the log of the job with carriage returns.
    disable_progress_bar()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            model_dir,
            dtype=_DTYPES[chosen],
            attn_implementation=ATTENTION_IMPLEMENTATION,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            # Reported below with both shapes; the library's own error advises this very switch.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except _BROKEN_INPUT as exc:
        message = f"The checkpoint does not load: {_short(exc, model_dir)}"
        raise _load_failure(failure, message) from exc
    _require_complete(report, failure)
    return LoadedModel(model=model.to(device).eval(), dtype=chosen)


def resolve_dtype(model_dir: Path, *, device: str, dtype: str) -> str:
    """Name the dtype to run in; see `load_causal_lm`."""
    if dtype != "auto":
        return dtype
    if not device.startswith("cpu"):
        config = json.loads((model_dir / "config.json").read_text())
        stored = str(config.get("dtype") or config.get("torch_dtype") or "float32")
        return stored if stored in _DTYPES else "float32"
    is_small = float32_bytes(model_dir) <= _MAX_FLOAT32_CPU_BYTES
    return "float32" if is_small else "bfloat16"


def float32_bytes(model_dir: Path) -> int:
    """Bytes that all stored weights take in float32, from the safetensors headers alone."""
    total = 0
    for path in sorted(model_dir.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        for name, tensor in header.items():
            if name != "__metadata__":
                total += 4 * int(torch.Size(tensor["shape"]).numel())
    return total


def _require_complete(report: dict[str, Any], failure: JobErrorCode) -> None:
    mismatched = sorted(report.get("mismatched_keys") or (), key=str)
    if mismatched:
        name, stored, expected = mismatched[0]
        message = (
            f"The tensor {name} has shape {list(stored)}, but config.json asks for "
            f"{list(expected)}; {len(mismatched)} of the tensors do not fit."
        )
        raise _load_failure(failure, message)
    unexpected = (str(key) for key in report.get("unexpected_keys") or ())
    found = {
        "missing_keys": sorted(str(key) for key in report.get("missing_keys") or ()),
        "unexpected_keys": sorted(key for key in unexpected if not is_old_buffer(key)),
    }
    for kind, keys in found.items():
        if keys:
            readable = kind.replace("_", " ")
            raise _load_failure(failure, f"The checkpoint has {readable}: {', '.join(keys[:5])}.")


def _short(error: Exception, model_dir: Path) -> str:
    """Shorten the library's message to its first sentence, and keep the local folder out of it."""
    lines = str(error).replace(str(model_dir), model_dir.name).strip().splitlines()
    if not lines:
        return type(error).__name__
    # "Validation error for field 'x':" has what is wrong on the line below.
    first = " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1])
    return first[:_MAX_REASON_CHARACTERS]


def _load_failure(code: JobErrorCode, message: str) -> JobFailure:
    if code is JobErrorCode.RELOAD_FAILED:
        return JobFailure(code, message, "Report this: the edited checkpoint must always load.")
    return JobFailure(code, message, "Check that weights and config.json are of the same model.")
