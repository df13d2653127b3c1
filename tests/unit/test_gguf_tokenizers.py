"""What GGUF calls a tokenizer, and what it has no name for."""

from collections.abc import Sequence
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from app.domain.gguf_tokenizers import GgufTokenizer, NotExportable, gguf_tokenizer, read_parts

LETTERS = {letter: index for index, letter in enumerate("abc\u2581")}
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)


def bpe(
    *,
    vocab: dict[str, int] = LETTERS,
    merges: Sequence[tuple[str, str]] = (),
    normalizer: Any = None,
    split: Any = None,
    frame: str = "$A",
    **options: Any,
) -> GgufTokenizer:
    merged = {left + right: len(vocab) + n for n, (left, right) in enumerate(merges)}
    vocab = {**vocab, **merged}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(merges), **options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if split is not None:
        tokenizer.pre_tokenizer = split
    tokenizer.post_processor = processors.TemplateProcessing(
        single=frame, special_tokens=[("<s>", 90), ("</s>", 91), ("<x>", 92)]
    )
    special = {"bos": 90, "eos": 91}
    return gguf_tokenizer(read_parts(tokenizer, vocab=vocab, merges=merges, special=special))


def split_by(pattern: str, behavior: str = "isolated") -> Any:
    parts = [
        pre_tokenizers.Split(Regex(pattern), behavior),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    return pre_tokenizers.Sequence(parts)


@pytest.mark.parametrize(
    ("name", "ignore_merges"),
    [
        ("llama-bpe", True),
        ("smaug-bpe", False),
        ("qwen2", False),
        ("tekken", True),
        ("gpt-4o", False),
    ],
)
def test_split_patterns_have_the_name_that_a_reader_has_for_them(
    name: str, ignore_merges: bool
) -> None:
    pattern = GGUF_PRE_TOKENIZER_SPLITS[name]

    assert bpe(split=split_by(pattern), ignore_merges=ignore_merges).pre == name


def test_plain_byte_level_is_that_of_gpt2() -> None:
    assert bpe(split=BYTES) == GgufTokenizer("gpt2", "gpt-2", False, False, False)


def test_digits_one_by_one_are_that_of_smollm() -> None:
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTES])

    assert bpe(split=digits).pre == "smollm"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"split": split_by("a|b")}, "splits text"),
        ({"split": split_by(GGUF_PRE_TOKENIZER_SPLITS["qwen2"], "removed")}, "splits text"),
        ({"split": split_by(GGUF_PRE_TOKENIZER_SPLITS["qwen2"]), "ignore_merges": True}, "splits"),
        ({"split": pre_tokenizers.ByteLevel(add_prefix_space=True)}, "a space before"),
        ({"split": BYTES, "normalizer": normalizers.Lowercase()}, "Lowercase"),
        ({"split": BYTES, "normalizer": normalizers.NFC()}, "NFC"),
        ({"split": BYTES, "continuing_subword_prefix": "##"}, "continuing_subword_prefix"),
        ({"split": BYTES, "dropout": 0.1}, "dropout"),
        ({"split": BYTES, "frame": "<x> $A"}, "around a text"),
        ({"split": BYTES, "frame": "<s> $A <s>"}, "around a text"),
        ({"split": pre_tokenizers.Whitespace()}, "neither byte-level"),
        ({}, "neither byte-level"),
    ],
)
def test_parts_that_no_reader_has_a_name_for_are_refused(
    parts: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NotExportable, match=reason):
        bpe(**parts)


def test_a_model_that_is_not_bpe_is_refused() -> None:
    tokenizer = Tokenizer(models.Unigram([("a", 0.0)], unk_id=0))
    parts = read_parts(tokenizer, vocab={}, merges=[], special={})

    with pytest.raises(NotExportable, match="Unigram"):
        gguf_tokenizer(parts)


@pytest.mark.parametrize(
    ("frame", "flags"),
    [
        ("$A", (False, False)),
        ("<s> $A", (True, False)),
        ("$A </s>", (False, True)),
        ("<s> $A </s>", (True, True)),
    ],
)
def test_tokens_around_a_text_become_flags(frame: str, flags: tuple[bool, bool]) -> None:
    found = bpe(split=BYTES, frame=frame)

    assert (found.add_bos, found.add_eos) == flags


PREPENDING = normalizers.Sequence(
    [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
)


@pytest.mark.parametrize(
    ("parts", "prefixed"),
    [
        ({"normalizer": PREPENDING}, True),
        ({"normalizer": normalizers.Replace(" ", "\u2581")}, False),
        (
            {
                "normalizer": normalizers.Replace(" ", "\u2581"),
                "split": pre_tokenizers.Split(" ", "merged_with_previous"),
            },
            False,
        ),
        ({"split": pre_tokenizers.Metaspace(split=False)}, True),
        ({"split": pre_tokenizers.Metaspace(split=False, prepend_scheme="never")}, False),
    ],
)
def test_pieces_with_byte_fallback_are_called_llama(parts: dict[str, Any], prefixed: bool) -> None:
    found = bpe(byte_fallback=True, **parts)

    assert (found.model, found.add_space_prefix) == ("llama", prefixed)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"split": pre_tokenizers.Metaspace(split=True)},
        {"split": pre_tokenizers.Metaspace(replacement="_", split=False)},
        {"normalizer": normalizers.Replace(" ", "_")},
        {"normalizer": normalizers.Replace(" ", "\u2581"), "split": pre_tokenizers.Whitespace()},
    ],
)
def test_other_ways_to_treat_spaces_are_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(NotExportable, match="spaces"):
        bpe(byte_fallback=True, **parts)


def test_merges_that_leave_out_a_pair_cannot_be_scores() -> None:
    merges = [("a", "b"), ("b", "c"), ("ab", "c")]  # ("a", "bc") makes the same token

    with pytest.raises(NotExportable, match="leave out pairs"):
        bpe(byte_fallback=True, normalizer=PREPENDING, merges=merges)


def test_merges_of_one_token_in_two_places_cannot_be_scores() -> None:
    tokens = {**LETTERS, "ab": 10, "bc": 11, "abc": 12}
    merges = [("a", "b"), ("ab", "c"), ("b", "c"), ("a", "bc")]

    with pytest.raises(NotExportable, match="one score"):
        bpe(vocab=tokens, byte_fallback=True, normalizer=PREPENDING, merges=merges)
