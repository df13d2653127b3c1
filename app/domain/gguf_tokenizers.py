"""Which tokenizers a GGUF file can describe, told from their parts.

A GGUF file holds a vocabulary, merges or scores, and the *name* of a way to split text. Readers
know the ways by name only. So a tokenizer is exportable where its parts are exactly those behind a
name; nothing is guessed, since a wrong name gives other ids without any error.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

SPACE = "\u2581"

# Split patterns as published with the models; each stands for a name that readers know.
_ENGLISH_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_PATH_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENGLISH_ENDINGS}|{_WORD}|\p{{N}}{{1,3}}{_TAIL}"
_QWEN2 = rf"{_ENGLISH_ENDINGS}|{_WORD}|\p{{N}}{_TAIL}"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}{_PATH_TAIL}"
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_ENGLISH_ENDINGS}?|{_LEAD}{_UPPER}+{_LOWER}*{_ENGLISH_ENDINGS}?"
    rf"|\p{{N}}{{1,3}}{_PATH_TAIL}"
)
# Pattern and `ignore_merges` (a word that is in the vocabulary is taken whole) to the name.
_SPLITS: Mapping[tuple[str, bool], str] = {
    (_LLAMA3, True): "llama-bpe",
    (_LLAMA3, False): "smaug-bpe",
    (_QWEN2, False): "qwen2",
    (_TEKKEN, True): "tekken",
    (_GPT4O, False): "gpt-4o",
}
_OPTIONS = (
    "byte_fallback",
    "continuing_subword_prefix",
    "dropout",
    "end_of_word_suffix",
    "ignore_merges",
)
_PLAIN = "gpt-2"
_DIGITS = "smollm"


class NotExportable(ValueError):
    """The tokenizer has a part that no GGUF reader knows; the message says which."""


class LoadedTokenizer(Protocol):
    """What is used of the library's `Tokenizer`."""

    model: Any
    normalizer: Any
    pre_tokenizer: Any

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Any:
        """Encode a text; the answer has `ids`."""


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """A loaded tokenizer: normalizer and pre-tokenizer as tokenizer.json spells them.

    `kind` is the type of its model, and `options` what is set of those. `frame` are the ids put
    before and after a text, and `special` maps the names `bos` and `eos` to their ids where the
    tokenizer has them.
    """

    kind: str
    options: Mapping[str, Any]
    vocab: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    normalizer: Mapping[str, Any] | None
    pre_tokenizer: Mapping[str, Any] | None
    frame: tuple[Sequence[int], Sequence[int]]
    special: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """How GGUF calls a tokenizer.

    `model` is `llama` (pieces with scores, unknown characters as bytes) or `gpt2` (merges on
    bytes), `pre` the name of the way to split text.
    """

    model: Literal["llama", "gpt2"]
    pre: str
    add_space_prefix: bool
    add_bos: bool
    add_eos: bool


def gguf_tokenizer(parts: TokenizerParts) -> GgufTokenizer:
    """Find what GGUF calls this tokenizer.

    Raises
    ------
    NotExportable
        With the part that no name stands for.
    """
    if parts.kind != "BPE":
        raise NotExportable(f"its model is {parts.kind}, not BPE")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if parts.options.get(option):
            raise NotExportable(f"its BPE model has the option {option}")
    add_bos, add_eos = _frame(parts)
    if parts.options.get("byte_fallback"):
        prefixed = _prefixes_space(parts)
        _check_scores(parts)
        return GgufTokenizer("llama", "default", prefixed, add_bos, add_eos)
    return GgufTokenizer("gpt2", _split_name(parts), False, add_bos, add_eos)


def read_parts(
    tokenizer: LoadedTokenizer,
    *,
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    special: Mapping[str, int | None],
) -> TokenizerParts:
    """Take a loaded tokenizer apart: the one that encodes, not what its file says."""
    framed = list(tokenizer.encode("a", add_special_tokens=True).ids)
    bare = list(tokenizer.encode("a", add_special_tokens=False).ids)
    starts = range(len(framed) - len(bare) + 1)
    first = next((n for n in starts if framed[n : n + len(bare)] == bare), 0)
    return TokenizerParts(
        kind=type(tokenizer.model).__name__,
        options={name: getattr(tokenizer.model, name, None) for name in _OPTIONS},
        vocab=vocab,
        merges=merges,
        normalizer=_spelled(tokenizer.normalizer),
        pre_tokenizer=_spelled(tokenizer.pre_tokenizer),
        frame=(framed[:first], framed[first + len(bare) :]),
        special=special,
    )


def _spelled(part: Any) -> Mapping[str, Any] | None:
    # The state of a part, as the library pickles it, is its JSON.
    return None if part is None else dict(json.loads(part.__getstate__()))


def merge_ranks(merges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Give the rank of the first merge that makes each token."""
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    return ranks


def _frame(parts: TokenizerParts) -> tuple[bool, bool]:
    before, after = (list(ids) for ids in parts.frame)
    bos, eos = parts.special.get("bos"), parts.special.get("eos")
    if before not in ([], [bos]) or after not in ([], [eos]):
        raise NotExportable("it puts other tokens around a text than bos before and eos after it")
    return bool(before), bool(after)


def _steps(part: Mapping[str, Any] | None, key: str) -> list[Mapping[str, Any]]:
    if part is None:
        return []
    return list(part[key]) if part.get("type") == "Sequence" else [part]


def _split_name(parts: TokenizerParts) -> str:
    normalizers = [step.get("type") for step in _steps(parts.normalizer, "normalizers")]
    steps = _steps(parts.pre_tokenizer, "pretokenizers")
    if not steps or steps[-1].get("type") != "ByteLevel":
        raise NotExportable("it is neither byte-level BPE nor BPE with byte fallback")
    last = steps[-1]
    if last.get("add_prefix_space"):
        raise NotExportable("it puts a space before a text")
    ignores = bool(parts.options.get("ignore_merges"))
    name = _named_split(steps[:-1], uses_own=last.get("use_regex", True), ignores=ignores)
    # Readers leave text as it is. Qwen's tokenizers normalise to NFC, and readers agree with them
    # on text that is in that form already, as nearly all text is.
    allowed = [[], ["NFC"]] if name == "qwen2" else [[]]
    if normalizers not in allowed:
        raise NotExportable(f"it normalises text by {', '.join(map(str, normalizers))}")
    return name


def _named_split(steps: list[Mapping[str, Any]], *, uses_own: bool, ignores: bool) -> str:
    kinds = [step.get("type") for step in steps]
    if uses_own and not ignores:
        if not kinds:
            return _PLAIN
        if kinds == ["Digits"] and steps[0].get("individual_digits"):
            return _DIGITS
    if not uses_own and kinds == ["Split"]:
        name = _SPLITS.get((_pattern(steps[0]), ignores))
        if name is not None:
            return name
    raise NotExportable("no reader has a name for the way it splits text")


def _pattern(split: Mapping[str, Any]) -> str:
    plain = split.get("behavior") == "Isolated" and not split.get("invert")
    pattern = split.get("pattern")
    return str(pattern.get("Regex", "")) if plain and isinstance(pattern, Mapping) else ""


def _prefixes_space(parts: TokenizerParts) -> bool:
    """Read how a space becomes `SPACE`, and whether one is put before the text."""
    normal = _steps(parts.normalizer, "normalizers")
    split = _steps(parts.pre_tokenizer, "pretokenizers")
    kinds = [step.get("type") for step in normal]
    if not normal and [step.get("type") for step in split] == ["Metaspace"]:
        step = split[0]
        if step.get("replacement") == SPACE and step.get("split") is False:
            return bool(step.get("prepend_scheme") != "never")
    # A split at plain spaces finds none where they were all replaced before.
    idle = not split or (len(split) == 1 and split[0].get("pattern") == {"String": " "})
    replaces = bool(normal) and _replaces_space(normal[-1])
    if idle and replaces and kinds == ["Replace"]:
        return False
    if idle and replaces and kinds == ["Prepend", "Replace"] and normal[0].get("prepend") == SPACE:
        return True
    raise NotExportable("no reader has a name for the way it treats spaces")


def _replaces_space(step: Mapping[str, Any]) -> bool:
    return (
        step.get("type") == "Replace"
        and step.get("pattern") == {"String": " "}
        and step.get("content") == SPACE
    )


def _check_scores(parts: TokenizerParts) -> None:
    """See whether one score for each token says the same as the merges do.

    Readers join any two neighbours that form a token, the best score first. That is what the
    merges do if they hold every such pair, and all pairs that form a token stand together.
    """
    finished: set[str] = set()
    current = None
    for left, right in parts.merges:
        token = left + right
        if token != current:
            if token in finished:
                raise NotExportable("its merges cannot be told by one score for each token")
            finished.add(token)
            current = token
    known = set(parts.merges)
    for token in parts.vocab:
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in parts.vocab and right in parts.vocab and (left, right) not in known:
                raise NotExportable("its merges leave out pairs that readers of GGUF would join")
