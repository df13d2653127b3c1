"""Write the tokenizer of a model into a GGUF file."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf

from app.domain.errors import JobErrorCode, JobFailure
from app.domain.gguf_tokenizers import (
    GgufTokenizer,
    NotExportable,
    gguf_tokenizer,
    merge_ranks,
    read_parts,
)
from workers.models.load import load_tokenizer

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer, taken apart: what GGUF calls it, its tokens and merges, special ids."""

    kind: GgufTokenizer
    vocab: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    added: Mapping[int, Any]
    special: Mapping[str, int | None]
    chat_template: str | None


def read_vocabulary(folder: Path) -> Vocabulary:
    """Load the tokenizer of a model directory as the engines do.

    Raises
    ------
    JobFailure
        The tokenizer does not load, or has a part that GGUF cannot describe.
    """
    tokenizer: Any = load_tokenizer(folder)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise _not_exportable("it is not of the tokenizers library")
    backend.no_truncation()
    backend.no_padding()
    model = json.loads(backend.to_str())["model"]
    vocab, merges = _vocab(model), [(left, right) for left, right in model.get("merges", ())]
    names = ("bos", "eos", "unk", "pad")
    special = {name: getattr(tokenizer, f"{name}_token_id") for name in names}
    try:
        kind = gguf_tokenizer(read_parts(backend, vocab=vocab, merges=merges, special=special))
    except NotExportable as exc:
        raise _not_exportable(str(exc)) from exc
    template = tokenizer.chat_template
    return Vocabulary(
        kind,
        vocab,
        merges,
        backend.get_added_tokens_decoder(),
        special,
        template if isinstance(template, str) else None,
    )


def _vocab(model: Mapping[str, Any]) -> dict[str, int]:
    # Kinds that GGUF has no place for may hold a list here; they are refused by their kind.
    return dict(model["vocab"]) if isinstance(model["vocab"], dict) else {}


def _not_exportable(reason: str) -> JobFailure:
    return JobFailure(
        JobErrorCode.UNSAFE_MODEL_FORMAT,
        f"The tokenizer cannot be written to GGUF: {reason}.",
        "Send the job again without gguf in outputs.formats.",
    )


def write_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary, size: int) -> None:
    """Write tokens, their types, and merges or scores.

    Parameters
    ----------
    size
        Rows of the embedding; ids that have no token are filled up with unused ones.
    """
    kind = vocabulary.kind
    tokens = token_texts(vocabulary, size)
    writer.add_tokenizer_model(kind.model)
    writer.add_tokenizer_pre(kind.pre)
    writer.add_token_list(tokens)
    if kind.model == "llama":
        writer.add_token_scores(_scores(vocabulary.merges, tokens))
    writer.add_token_types(_types(vocabulary, size))
    if kind.model == "gpt2":
        writer.add_token_merges([f"{left} {right}" for left, right in vocabulary.merges])
    _write_special(writer, vocabulary)
    if vocabulary.chat_template:
        writer.add_chat_template(vocabulary.chat_template)


def token_texts(vocabulary: Vocabulary, size: int) -> list[str]:
    """Give the text of every id below `size`.

    Raises
    ------
    JobFailure
        A token lies beyond.
    """
    largest = max((*vocabulary.vocab.values(), *vocabulary.added), default=-1)
    if largest >= size:
        raise _not_exportable(f"it has token id {largest}, but the embedding has {size} rows")
    texts = [f"[PAD{index}]" for index in range(size)]
    for text, index in vocabulary.vocab.items():
        texts[index] = text
    for index, token in vocabulary.added.items():
        texts[index] = token.content
    return texts


def _scores(merges: Sequence[tuple[str, str]], tokens: list[str]) -> list[float]:
    """Give each token the score that makes readers join pieces in the order of the merges.

    Tokens that no merge makes come last; their score decides nothing.
    """
    ranks = merge_ranks(merges)
    return [-float(ranks.get(token, len(ranks))) for token in tokens]


def _types(vocabulary: Vocabulary, size: int) -> list[int]:
    types = [int(gguf.TokenType.UNUSED)] * size
    sentencepiece = vocabulary.kind.model == "llama"
    for text, index in vocabulary.vocab.items():
        is_byte = sentencepiece and _BYTE.fullmatch(text)
        types[index] = int(gguf.TokenType.BYTE if is_byte else gguf.TokenType.NORMAL)
    for index, token in vocabulary.added.items():
        special = token.special
        types[index] = int(gguf.TokenType.CONTROL if special else gguf.TokenType.USER_DEFINED)
    unknown = vocabulary.special["unk"]
    if sentencepiece and unknown is not None:
        types[unknown] = int(gguf.TokenType.UNKNOWN)
    return types


def _write_special(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    for name, index in vocabulary.special.items():
        if index is not None:
            getattr(writer, f"add_{name}_token_id")(index)
    writer.add_add_bos_token(vocabulary.kind.add_bos)
    writer.add_add_eos_token(vocabulary.kind.add_eos)
    writer.add_add_space_prefix(vocabulary.kind.add_space_prefix)
