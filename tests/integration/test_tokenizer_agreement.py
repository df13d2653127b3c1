"""Our encoder gives the ids of AutoTokenizer, on every class that the library rebuilds."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from app.integrations.tokenizer import TokenizerBroken, TokenizerFiles, load_encoder
from app.integrations.tokenizer_class import DECLARED_IN_ERROR, REGISTERED

CORPUS = [
    "The nurse said that she would come back later, and the engineer said he would too.",
    "A Black man walked down the street; the white woman didn't look at 1234 houses.",
    "Es war einmal ein König - naïve café résumé  with  two spaces.\nNew line\tand tab",
]
TEXTS = [
    *CORPUS,
    "",
    " leading space",
    "trailing space ",
    "we've I'LL 12345 678",
    "literal <s> and </s> and <unk> and <bos> <pad> <mask> [MASK] [SEP] <|endoftext|> tokens",
    "<s>start <extra_1> middle <extra_2>x",
    "漢字かな交じり文 🙂 é e\u0301",
    "   ",
]


def _train_byte_level(specials: list[str], *, bos: str | None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=specials,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return tokenizer


def _train_pieces(specials: list[str], *, bos: str | None, metaspace: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=500, special_tokens=specials, show_progress=False),
    )
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return tokenizer


def _train_word_pieces() -> Tokenizer:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=specials)
    )
    return tokenizer


SENTENCEPIECE = ["<unk>", "<s>", "</s>"]
GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "llama class rebuilt, with bos": (
        "llama",
        lambda: _train_pieces(SENTENCEPIECE, bos="<s>", metaspace=True),
        {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "add_bos_token": False},
    ),
    "llama class rebuilt, old behaviour": (
        "llama",
        lambda: _train_pieces(SENTENCEPIECE, bos="<s>", metaspace=False),
        {"tokenizer_class": "LlamaTokenizerFast", "legacy": True},
    ),
    "llama class without a prefix space": (
        "llama",
        lambda: _train_pieces(SENTENCEPIECE, bos=None, metaspace=False),
        {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False, "add_bos_token": True},
    ),
    "llama class declared for a byte-level file": (
        "llama",
        lambda: _train_byte_level(["<|endoftext|>"], bos="<|endoftext|>"),
        {"tokenizer_class": "LlamaTokenizer"},
    ),
    "llama with the generic class": (
        "llama",
        lambda: _train_byte_level(["<s>", "</s>"], bos="<s>"),
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "pad_token": "<pad>"},
    ),
    "llama with the GPT-2 class": (
        "llama",
        lambda: _train_byte_level(["<|endoftext|>"], bos=None),
        {"tokenizer_class": "GPT2Tokenizer", "additional_special_tokens": ["<extra_1>"]},
    ),
    "llama without tokenizer_config": (
        "llama",
        lambda: _train_pieces(SENTENCEPIECE, bos="<s>", metaspace=True),
        {},
    ),
    "mistral takes the file as it is": (
        "mistral",
        lambda: _train_pieces(SENTENCEPIECE, bos="<s>", metaspace=False),
        {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>"},
    ),
    "qwen2": (
        "qwen2",
        lambda: _train_byte_level(["<|endoftext|>"], bos=None),
        {"tokenizer_class": "Qwen2Tokenizer"},
    ),
    "qwen2 declares another class": (
        "qwen2",
        lambda: _train_byte_level(["<|endoftext|>"], bos=None),
        {"tokenizer_class": "LlamaTokenizer"},
    ),
    "qwen3 with declared added tokens": (
        "qwen3",
        lambda: _train_byte_level(["<|endoftext|>"], bos=None),
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "added_tokens_decoder": {
                "0": {"content": "<|endoftext|>", "special": True, "normalized": False},
                "400": {"content": "<extra_1>", "special": True, "normalized": False},
                "401": {"content": "<extra_2>", "special": False, "normalized": False},
            },
        },
    ),
    "gemma": (
        "gemma",
        lambda: _train_pieces(GEMMA, bos="<bos>", metaspace=False),
        {"tokenizer_class": "GemmaTokenizer"},
    ),
    "gemma2 without a mask in the vocabulary": (
        "gemma2",
        lambda: _train_pieces(GEMMA[:4], bos="<bos>", metaspace=False),
        {"tokenizer_class": "GemmaTokenizerFast"},
    ),
    "gemma2 without a class": (
        "gemma2",
        lambda: _train_pieces(GEMMA, bos="<bos>", metaspace=False),
        {},
    ),
    "gpt2": ("gpt2", lambda: _train_byte_level(["<|endoftext|>"], bos=None), {}),
    "bert": ("bert", _train_word_pieces, {"tokenizer_class": "BertTokenizer"}),
    "bert with case": ("bert", _train_word_pieces, {"do_lower_case": False}),
}


def _encoder(folder: Path) -> Any:
    def load(name: str) -> dict[str, Any]:
        path = folder / name
        return json.loads(path.read_text()) if path.exists() else {}

    files = TokenizerFiles(
        (folder / "tokenizer.json").read_text(),
        load("tokenizer_config.json"),
        load("special_tokens_map.json"),
        load("added_tokens.json"),
    )
    return load_encoder(files, load("config.json"))


def _auto(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


@pytest.mark.parametrize("case", CASES)
def test_ids_equal_those_of_auto_tokenizer(case: str, tmp_path: Path) -> None:
    model_type, train, tokenizer_config = CASES[case]
    train().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    if tokenizer_config:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    expected = _auto(tmp_path)

    encoder = _encoder(tmp_path)

    assert {text: encoder.encode(text) for text in TEXTS} == {
        text: expected(text)["input_ids"] for text in TEXTS
    }
    assert encoder.largest_id == max(expected.get_vocab().values())


def test_old_special_and_added_token_files_are_read(tmp_path: Path) -> None:
    tokenizer = _train_byte_level(["<|endoftext|>"], bos=None)
    tokenizer.add_tokens([AddedToken("<extra_2>")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"pad_token": "<extra_1>"}))
    (tmp_path / "added_tokens.json").write_text(
        json.dumps({"<extra_1>": 401, "<extra_2>": tokenizer.token_to_id("<extra_2>")})
    )
    expected = _auto(tmp_path)

    encoder = _encoder(tmp_path)

    assert [encoder.encode(text) for text in TEXTS] == [
        expected(text)["input_ids"] for text in TEXTS
    ]


@pytest.mark.parametrize("model", ["stories260k-llama", "minilm-mlm"])
def test_ids_of_real_models_equal_those_of_auto_tokenizer(model: str, shared_data: Path) -> None:
    folder = shared_data / "models" / model
    expected = _auto(folder)

    encoder = _encoder(folder)

    assert [encoder.encode(text) for text in TEXTS] == [
        expected(text)["input_ids"] for text in TEXTS
    ]


BROKEN = {
    "unknown model": {"model": {"type": "Dreams"}},
    "no model": {},
    "vocabulary of numbers": {"model": {"type": "BPE", "vocab": [1, 2], "merges": []}},
    "merges of one part": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}},
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("declared", ["LlamaTokenizer", "PreTrainedTokenizerFast"])
def test_broken_tokenizer_is_refused(content: dict[str, Any], declared: str) -> None:
    files = TokenizerFiles(json.dumps(content), {"tokenizer_class": declared}, {}, {})

    with pytest.raises(TokenizerBroken):
        load_encoder(files, {"model_type": "llama"})


def test_text_without_tokens_is_an_error_not_a_crash() -> None:
    words = {"type": "WordLevel", "vocab": {"known": 0}, "unk_token": "[UNK]"}
    content = {"version": "1.0", "added_tokens": [], "model": words}
    encoder = load_encoder(TokenizerFiles(json.dumps(content), {}, {}, {}), {"model_type": "llama"})

    with pytest.raises(TokenizerBroken):
        encoder.encode("unheard")


def test_registered_classes_are_those_of_the_library() -> None:
    from transformers.models.auto import tokenization_auto

    known = tokenization_auto.TOKENIZER_MAPPING_NAMES
    wrong = tokenization_auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS

    assert {name: known.get(name) for name in REGISTERED} == dict(REGISTERED)
    assert wrong & set(REGISTERED) == DECLARED_IN_ERROR
