"""Encode text as transformers 5.24's AutoTokenizer would, with the `tokenizers` library alone.

AutoTokenizer does not simply load tokenizer.json: for some classes it rebuilds the pipeline and
takes only vocabulary, merges and post-processor from the file. What a check at POST says about
token counts must hold for the engine, so the same choice is made here. tests/integration compares
the two on every class rebuilt below.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from app.domain.gguf_tokenizers import NotExportable, gguf_tokenizer, read_parts
from app.integrations.tokenizer_class import tokenizer_class

_NAMED_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
# The split pattern of Qwen2's tokenizer class; a fact of the published models.
_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class TokenizerBroken(ValueError):
    """tokenizer.json, or a file beside it, is not what the library can load."""


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The files that decide how text is encoded; absent ones are empty.

    `text` is tokenizer.json as it is, the others are parsed.
    """

    text: str
    config: Mapping[str, Any]
    special_tokens: Mapping[str, Any]
    added_tokens: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """Text to token ids, special tokens included, and the largest id that can come out.

    `encode` raises `TokenizerBroken` where the tokenizer has no token for a part of the text.
    `gguf_obstacle` says what of the tokenizer has no place in a GGUF file, None for nothing.
    """

    encode: Callable[[str], list[int]]
    largest_id: int
    gguf_obstacle: Callable[[], str | None]


def load_encoder(files: TokenizerFiles, model_config: Mapping[str, Any]) -> TextEncoder:
    """Build the encoder of a model that has a tokenizer.json.

    Raises `TokenizerBroken` with the library's reason where a file does not fit.
    """
    with _library_errors():
        content = json.loads(files.text)
        tokenizer = _build(files, content, model_config)
        largest_id = _largest_id(content["model"], tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode(text: str) -> list[int]:
        with _library_errors():
            return list(tokenizer.encode(text, add_special_tokens=True).ids)

    def gguf_obstacle() -> str | None:
        with _library_errors():
            return _gguf_obstacle(tokenizer, files, model_config)

    return TextEncoder(encode, largest_id, gguf_obstacle)


def _gguf_obstacle(
    tokenizer: Tokenizer, files: TokenizerFiles, model_config: Mapping[str, Any]
) -> str | None:
    # Read again when it is asked for: a vocabulary would otherwise stay in memory for nothing.
    content = json.loads(files.text)
    name = tokenizer_class(files.config, model_config, byte_level='"ByteLevel"' in files.text)
    settings = _settings(files, _DEFAULT_TOKENS.get(name, {}))
    special = {
        kind: tokenizer.token_to_id(_content(settings.get(f"{kind}_token")))
        for kind in ("bos", "eos")
    }
    model = content["model"]
    try:
        gguf_tokenizer(
            read_parts(tokenizer, vocab=_vocabulary(model), merges=_merges(model), special=special)
        )
    except NotExportable as exc:
        return str(exc)
    return None


@contextmanager
def _library_errors() -> Iterator[None]:
    """Turn the library's errors, plain `Exception`s and Rust panics, into `TokenizerBroken`."""
    try:
        yield
    except BaseException as exc:
        panicked = (
            type(exc).__module__ == "pyo3_runtime"
        )  # not an `Exception`: it would end a thread
        if not panicked and not isinstance(exc, Exception):
            raise
        reason = str(exc).partition("\n")[0][:200]
        raise TokenizerBroken(reason or type(exc).__name__) from exc


def _build(
    files: TokenizerFiles, content: Mapping[str, Any], model_config: Mapping[str, Any]
) -> Tokenizer:
    name = tokenizer_class(files.config, model_config, byte_level='"ByteLevel"' in files.text)
    rebuild = _REBUILT.get(name)
    settings = _settings(files, _DEFAULT_TOKENS.get(name, {}))
    if rebuild is None:
        tokenizer = Tokenizer.from_str(files.text)
    else:
        tokenizer = rebuild(content["model"], settings)
        frame = _post_processor(content)
        if frame is not None:
            tokenizer.post_processor = frame
    _add_tokens(tokenizer, list(_declared_tokens(files, content)), settings)
    if name == "BertTokenizer":
        tokenizer.post_processor = _bert_frame(tokenizer, settings)
    return tokenizer


def _post_processor(content: Mapping[str, Any]) -> Any:
    """Load the post-processor alone: with an empty vocabulary, which costs nothing."""
    empty = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
    frame = {**content, "model": empty, "added_tokens": []}
    return Tokenizer.from_str(json.dumps(frame)).post_processor


def _largest_id(model: Mapping[str, Any], tokenizer: Tokenizer) -> int:
    vocabulary = model["vocab"]
    ids = range(len(vocabulary)) if isinstance(vocabulary, list) else vocabulary.values()
    return max((*ids, *tokenizer.get_added_tokens_decoder()), default=-1)


def _settings(files: TokenizerFiles, defaults: Mapping[str, str]) -> dict[str, Any]:
    """Join what tokenizer_config.json, special_tokens_map.json and the class say."""
    settings: dict[str, Any] = {**defaults, **files.config}
    if "added_tokens_decoder" not in files.config:
        settings.update(files.special_tokens)
    return settings


def _declared_tokens(
    files: TokenizerFiles, content: Mapping[str, Any]
) -> Iterator[tuple[int, AddedToken]]:
    """Yield the added tokens in the order of their ids, each with the id it should have."""
    declared: dict[int, AddedToken] = {}
    if "added_tokens_decoder" in files.config:
        for index, token in files.config["added_tokens_decoder"].items():
            declared[int(index)] = AddedToken(**token)
    else:
        specials = {_content(files.special_tokens.get(name)) for name in _NAMED_TOKENS}
        for text, index in files.added_tokens.items():
            special = text in specials
            declared[index] = AddedToken(text, normalized=not special, special=special)
        for token in content.get("added_tokens", ()):
            fields = {key: value for key, value in token.items() if key != "id"}
            declared[token["id"]] = AddedToken(**fields)
    yield from sorted(declared.items(), key=lambda item: item[0])


def _add_tokens(
    tokenizer: Tokenizer, declared: list[tuple[int, AddedToken]], settings: Mapping[str, Any]
) -> None:
    """Add the declared tokens, then every named special token that is still unknown."""
    named = {key: value for key, value in settings.items() if key.endswith("_token")}
    specials = [_content(value) for value in named.values()]
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    specials += [
        _content(value) for value in (extra.values() if isinstance(extra, dict) else extra)
    ]
    known = {repr(token) for token in tokenizer.get_added_tokens_decoder().values()}
    tokens = []
    for _, token in declared:
        if repr(token) not in known:
            token.special = token.special or token.content in specials
            tokens.append(token)
    present = {token.content for token in tokens}
    present |= {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for content in specials:
        if content and content not in present:
            tokens.append(AddedToken(content, special=True))
            present.add(content)
    tokenizer.add_tokens(tokens)


def _content(value: Any) -> str:
    """Return the text of a token given as a string or a serialised AddedToken, else ""."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _vocabulary(model: Mapping[str, Any]) -> dict[str, int]:
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        return {entry[0]: index for index, entry in enumerate(vocabulary)}
    return dict(vocabulary)


def _merges(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs = (
        merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges", ())
    )
    return [(left, right) for left, right in pairs]


def _llama(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(
            vocab=_vocabulary(model), merges=_merges(model), fuse_unk=True, byte_fallback=True
        )
    )
    prefix = settings.get("add_prefix_space")
    scheme = "never" if prefix is False else "always" if settings.get("legacy") else "first"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="\u2581", prepend_scheme=scheme, split=False
    )
    return tokenizer


def _gemma(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE(
            vocab=_vocabulary(model),
            merges=_merges(model),
            fuse_unk=True,
            unk_token=_content(settings["unk_token"]),
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


def _qwen2(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=_vocabulary(model), merges=_merges(model)))
    tokenizer.normalizer = normalizers.NFC()
    prefix = settings.get("add_prefix_space") or False
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(_QWEN2_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False),
        ]
    )
    return tokenizer


def _gpt2(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=_vocabulary(model), merges=_merges(model)))
    prefix = settings.get("add_prefix_space") or False
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    return tokenizer


def _bert(model: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer(
        models.WordPiece(_vocabulary(model), unk_token=_content(settings["unk_token"]))
    )
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _bert_frame(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> processors.TemplateProcessing:
    first, last = _content(settings["cls_token"]), _content(settings["sep_token"])
    return processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (first, last)],
    )


_REBUILT: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Tokenizer]] = {
    "LlamaTokenizer": _llama,
    "GemmaTokenizer": _gemma,
    "Qwen2Tokenizer": _qwen2,
    "GPT2Tokenizer": _gpt2,
    "BertTokenizer": _bert,
}
_END = "<|endoftext|>"
# Special tokens a class sets where the files name none, in the order they would be added.
_DEFAULT_TOKENS: Mapping[str, Mapping[str, str]] = {
    "LlamaTokenizer": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "GemmaTokenizer": {
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
    "Qwen2Tokenizer": {"eos_token": _END, "unk_token": _END, "pad_token": _END},
    "GPT2Tokenizer": {"bos_token": _END, "eos_token": _END, "unk_token": _END},
    "BertTokenizer": {
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    },
}
