"""What is known about a model without reading its weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FileFact:
    """One file of a model: its plain name, size, and SHA-256 where already known."""

    path: str
    size_bytes: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class TensorFact:
    """One tensor as a safetensors header describes it (`dtype` in header spelling: F32, BF16)."""

    dtype: str
    shape: tuple[int, ...]
    file: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Config, tensor headers and tokenizer of a model: all that a check at POST may use.

    `encode` turns a text into token ids with special tokens, exactly as the engine will; it is
    None for a model without a tokenizer. `gguf_obstacle` says what in the tokenizer has no place
    in a GGUF file, None for nothing.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, TensorFact]
    files: tuple[FileFact, ...]
    encode: Callable[[str], list[int]] | None = None
    gguf_obstacle: Callable[[], str | None] | None = None

    @property
    def model_type(self) -> str:
        """The `model_type` of config.json, or an empty string."""
        return str(self.config.get("model_type", ""))

    @property
    def parameter_count(self) -> int:
        """Number of stored parameters (a tied head that is not stored counts once)."""
        total = 0
        for tensor in self.tensors.values():
            count = 1
            for size in tensor.shape:
                count *= size
            total += count
        return total

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size_bytes for file in self.files)
