"""Which files of a model may be fetched, and which of them are its weights."""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from app.domain.errors import Finding, MethodModelIncompatible, UnsafeModelFormat
from app.security.paths import is_plain_name
from app.security.safetensors_check import unsafe

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"
SINGLE_WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
# Files whose keys can select code; each is cleaned before a loader sees it.
CONFIGS = (CONFIG, "generation_config.json", "preprocessor_config.json", TOKENIZER_CONFIG)

# service.md 12, Model intake. Weights are added to these by name, once they are chosen.
_METADATA = (
    CONFIG,
    "generation_config.json",
    "preprocessor_config.json",
    TOKENIZER,
    TOKENIZER_CONFIG,
    SPECIAL_TOKENS,
    ADDED_TOKENS,
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.model",
    "chat_template.jinja",
    "README.md",
    "LICENSE*",
)
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_CODE_SUFFIXES = frozenset({".py", ".pyc", ".so", ".sh"})
_PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
_OTHER_WEIGHT_SUFFIXES = frozenset({".gguf", ".h5", ".msgpack", ".onnx", ".npz", ".tflite"})
_MAX_METADATA_BYTES = 64 * 1024 * 1024  # the largest published tokenizer.json is about 35 MB


@dataclass(frozen=True, slots=True)
class WeightChoice:
    """The weight files a loader would take: one file, or the shards of an index.

    `index` is None for a single file. `stale_index` says that an index lies beside a single
    file that is loaded instead of it.
    """

    index: str | None
    stale_index: bool = False


def is_allowed_file(name: str) -> bool:
    """Whether a model's file of this name may be fetched at all. Files in subfolders may not."""
    if not is_plain_name(name) or PurePosixPath(name).suffix.lower() in _CODE_SUFFIXES:
        return False
    return any(fnmatchcase(name, pattern) for pattern in (*_METADATA, *_WEIGHTS))


def is_weight_file(name: str) -> bool:
    """Whether the name is that of weights or of their index."""
    return any(fnmatchcase(name, pattern) for pattern in _WEIGHTS)


def check_metadata_size(name: str, size: int) -> None:
    """Refuse a metadata file too large to be one."""
    if size > _MAX_METADATA_BYTES:
        raise unsafe(
            "metadata_too_large",
            f"{name} has {size} bytes; {_MAX_METADATA_BYTES} is the limit for a file that is not "
            "weights. Check that the right file was uploaded.",
        )


def choose_weights(names: Collection[str]) -> WeightChoice:
    """Choose among the files of a model as transformers does: the single file before the index.

    Raises `UnsafeModelFormat` or `MethodModelIncompatible` where nothing loadable is there, and
    says what is there instead.
    """
    if CONFIG not in names and "adapter_config.json" not in names:
        raise unsafe(
            "config_missing",
            "The model has no config.json. Give a folder in the transformers layout "
            "(config.json, model.safetensors, tokenizer.json).",
        )
    if SINGLE_WEIGHTS in names:
        return WeightChoice(None, stale_index=WEIGHTS_INDEX in names)
    if WEIGHTS_INDEX in names:
        return WeightChoice(WEIGHTS_INDEX)
    if "adapter_config.json" in names:
        message = (
            "The repository holds an adapter only. Merge it into its base model "
            "(`model.merge_and_unload()`), save the result, and give that."
        )
        raise MethodModelIncompatible(
            message, findings=(Finding("/model", "adapter_checkpoint", message),)
        )
    raise _no_weights(names)


def _no_weights(names: Collection[str]) -> UnsafeModelFormat:
    by_suffix = {PurePosixPath(name).suffix.lower(): name for name in sorted(names, reverse=True)}
    if ".safetensors" in by_suffix:
        return unsafe(
            "weights_unnamed",
            f"The model has {by_suffix['.safetensors']}, but neither {SINGLE_WEIGHTS} nor "
            f"{WEIGHTS_INDEX}. Save it again with `save_pretrained`.",
        )
    pickles = sorted(_PICKLE_SUFFIXES & by_suffix.keys())
    if pickles:
        return unsafe(
            "unsafe_weights_only",
            f"The model has only pickle weights ({by_suffix[pickles[0]]}), which can run code "
            "when loaded. Convert it where you trust it: load it with transformers and call "
            "`model.save_pretrained(folder, safe_serialization=True)`.",
        )
    others = sorted(_OTHER_WEIGHT_SUFFIXES & by_suffix.keys())
    if others:
        return unsafe(
            "weights_format",
            f"The model has weights as {by_suffix[others[0]]} only. Give the repository of the "
            "original model, with safetensors weights.",
        )
    return unsafe(
        "weights_missing",
        f"The model has no weights. It needs {SINGLE_WEIGHTS}, or {WEIGHTS_INDEX} with its shards.",
    )
