"""The tokenizer of a model at POST: load it, and hold its ids against the embedding."""

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.domain.canonical import canonical_sha256
from app.domain.errors import UnsafeModelFormat
from app.domain.models import TensorFact
from app.integrations.tokenizer import TextEncoder, TokenizerBroken, TokenizerFiles
from app.integrations.tokenizer_process import load_isolated_encoder
from app.security import model_files
from app.security.model_config import parse_config
from app.security.safetensors_check import LFS_POINTER_START, unsafe
from app.services.recent import Recent

TOKENIZER_FILES = (
    model_files.TOKENIZER,
    model_files.TOKENIZER_CONFIG,
    model_files.SPECIAL_TOKENS,
    model_files.ADDED_TOKENS,
)
# How the input embedding is called in the architectures on the hub.
_EMBEDDINGS = (
    "embed_tokens.weight",
    "word_embeddings.weight",
    "wte.weight",
    "embed_in.weight",
    "tok_embeddings.weight",
    "embeddings.token_embedding.weight",
    "shared.weight",
)
_NO_TOKENIZER = (
    "The model has no tokenizer.json. Text is encoded by the worker only, so token counts are "
    "not checked yet."
)

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class ModelTokenizer:
    """What can be asked of a model's tokenizer at POST; see `ModelFacts`."""

    encode: Encode
    gguf_obstacle: Callable[[], str | None]


class RememberedTexts:
    """The ids of texts encoded before: a pair set is sent again and again, 100 prompts at a time.

    Each question to an encoder's process costs 0.1 ms on both sides. What is kept is bounded by
    characters, since a text has at most a few ids for each; when it is full it begins anew.
    """

    def __init__(self, encode: Encode, max_characters: int = 200_000) -> None:
        self._encode = encode
        self._max_characters = max_characters
        self._ids: dict[str, list[int]] = {}
        self._characters = 0
        self._lock = threading.Lock()

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; two threads may ask for the same one."""
        known = self._ids.get(text)
        if known is not None:
            return list(known)
        ids = self._encode(text)
        with self._lock:
            if self._characters + len(text) > self._max_characters:
                self._ids, self._characters = {}, 0
            self._ids[text] = ids
            self._characters += len(text)
        return list(ids)


class EncoderCache:
    """The encoders used last, by the bytes of their files: building one can take a second."""

    def __init__(self, size: int = 4) -> None:
        self._recent: Recent[TextEncoder] = Recent(size)

    def get(self, key: str, load: Callable[[], TextEncoder]) -> TextEncoder:
        """Return the encoder kept under `key`, else load it; it remembers texts."""
        return self._recent.get(key, lambda: _remembering(load()))


def _remembering(loaded: TextEncoder) -> TextEncoder:
    return replace(loaded, encode=RememberedTexts(loaded.encode).encode)


def read_encoder(
    contents: Mapping[str, bytes],
    config: Mapping[str, Any],
    tensors: Mapping[str, TensorFact],
    *,
    cache: EncoderCache,
) -> tuple[ModelTokenizer | None, tuple[str, ...]]:
    """Load the tokenizer from the bytes of its files.

    Returns the tokenizer, None without a tokenizer.json, and warnings. Raises `UnsafeModelFormat`
    where a file is broken or a token lies beyond the embedding; so does the encoder, for a text
    that the tokenizer turns out to have no tokens for.
    """
    if model_files.TOKENIZER not in contents:
        return None, (_NO_TOKENIZER,)
    files = TokenizerFiles(
        _tokenizer_text(contents[model_files.TOKENIZER]),
        _parse(contents, model_files.TOKENIZER_CONFIG),
        _parse(contents, model_files.SPECIAL_TOKENS),
        _parse(contents, model_files.ADDED_TOKENS),
    )
    try:
        encoder = cache.get(_key(contents, config), lambda: load_isolated_encoder(files, config))
    except TokenizerBroken as exc:
        raise _broken(str(exc)) from exc
    _check_embedding(encoder.largest_id, tensors)

    def encode(text: str) -> list[int]:
        try:
            return encoder.encode(text)
        except TokenizerBroken as exc:
            raise _broken(str(exc)) from exc

    def gguf_obstacle() -> str | None:
        try:
            return encoder.gguf_obstacle()
        except TokenizerBroken as exc:
            raise _broken(str(exc)) from exc

    return ModelTokenizer(encode, gguf_obstacle), ()


def _key(contents: Mapping[str, bytes], config: Mapping[str, Any]) -> str:
    digests = [hashlib.sha256(contents.get(name, b"")).hexdigest() for name in TOKENIZER_FILES]
    return canonical_sha256([*digests, config.get("model_type"), config.get("tokenizer_class")])


def _parse(contents: Mapping[str, bytes], name: str) -> dict[str, Any]:
    return parse_config(contents[name], name=name) if name in contents else {}


def _tokenizer_text(data: bytes) -> str:
    # Not by the strict parser: with up to a million merges that costs seconds. The library checks
    # the structure.
    if data.startswith(LFS_POINTER_START):
        raise _broken("it is a Git LFS pointer, not the file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise _broken("it is not UTF-8 text") from exc


def _broken(reason: str) -> UnsafeModelFormat:
    return unsafe(
        "tokenizer_invalid",
        f"The tokenizer cannot be loaded ({model_files.TOKENIZER}: {reason}). Save it again with "
        "`tokenizer.save_pretrained`.",
    )


def _check_embedding(largest_id: int, tensors: Mapping[str, TensorFact]) -> None:
    rows = [
        tensor.shape[0]
        for name, tensor in tensors.items()
        if name.endswith(_EMBEDDINGS) and len(tensor.shape) == 2
    ]
    if rows and largest_id >= max(rows):
        raise unsafe(
            "vocabulary_beyond_embedding",
            f"The tokenizer has token id {largest_id}, but the embedding has {max(rows)} rows. "
            "Call `model.resize_token_embeddings(len(tokenizer))` and save the model again, or "
            "remove the added tokens.",
        )
