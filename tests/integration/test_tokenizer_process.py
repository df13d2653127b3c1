"""A hostile tokenizer ends its own process and nothing else."""

import json
import subprocess
from typing import Any

import pytest

from app.integrations import tokenizer_process
from app.integrations.tokenizer import TextEncoder, TokenizerBroken, TokenizerFiles, load_encoder
from app.integrations.tokenizer_process import load_isolated_encoder

MODEL_CONFIG = {"model_type": "mistral"}
WORDS = {"type": "WordLevel", "vocab": {"[UNK]": 0, "one": 1, "two": 2}, "unk_token": "[UNK]"}


def tokenizer_files(**parts: Any) -> TokenizerFiles:
    content = {"version": "1.0", "added_tokens": [], "model": WORDS, **parts}
    return TokenizerFiles(json.dumps(content), {}, {}, {})


def grower(times: int) -> dict[str, Any]:
    """Make a normalizer that turns each `e` into 60, `times` times over."""
    step = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 60}
    return {"type": "Sequence", "normalizers": [step] * times}


@pytest.fixture
def hostile() -> TextEncoder:
    return load_isolated_encoder(tokenizer_files(normalizer=grower(6)), MODEL_CONFIG)


def test_ids_are_those_of_the_library_in_this_process() -> None:
    files = tokenizer_files(pre_tokenizer={"type": "Whitespace"})
    isolated = load_isolated_encoder(files, MODEL_CONFIG)
    direct = load_encoder(files, MODEL_CONFIG)

    assert isolated.encode("two one three") == direct.encode("two one three") == [2, 1, 0]
    assert isolated.largest_id == direct.largest_id


def test_text_that_grows_without_bound_is_refused(hostile: TextEncoder) -> None:
    with pytest.raises(TokenizerBroken, match="GiB"):
        hostile.encode("eeee")


def test_encoder_goes_on_after_a_text_that_ended_its_process(hostile: TextEncoder) -> None:
    with pytest.raises(TokenizerBroken):
        hostile.encode("eeee")

    assert hostile.encode("two") == [2]


def test_text_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    search = {"type": "Split", "pattern": {"Regex": "(a|a)*b$"}, "behavior": "Isolated"}
    files = tokenizer_files(pre_tokenizer={**search, "invert": False})
    encoder = load_isolated_encoder(files, MODEL_CONFIG)
    monkeypatch.setattr(tokenizer_process, "_ANSWER_TIMEOUT_S", 0.1)

    with pytest.raises(TokenizerBroken, match="failed, or took more"):
        encoder.encode("a" * 200 + "bc")  # 2**200 ways to match


def test_broken_file_is_refused_with_the_reason_of_the_library() -> None:
    with pytest.raises(TokenizerBroken, match="did not match any variant"):
        load_isolated_encoder(tokenizer_files(model={"type": "Dreams"}), MODEL_CONFIG)


def test_encoder_that_is_let_go_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    start = subprocess.Popen

    def remember(*arguments: Any, **options: Any) -> Any:
        started.append(start(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)
    load_isolated_encoder(tokenizer_files(), MODEL_CONFIG)

    assert [process.returncode for process in started] == [-9]
