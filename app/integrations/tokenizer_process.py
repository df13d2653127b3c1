"""Run a stranger's tokenizer in a process of its own, with limits of memory and time.

The normalizers, patterns and templates of a tokenizer.json are a small program: a few replacements
in a row turn a word into gigabytes, and a pattern can search for hours. Either would end the whole
service; here it ends one process, which holds no secret and opens no file.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from app.integrations.tokenizer import TextEncoder, TokenizerBroken, TokenizerFiles, load_encoder

# Measured: 256,000 tokens with 580,000 merges, as large as vocabularies get, need 0.7 GiB of
# address space and load in 6 s on a busy machine. The rest is margin.
_MEMORY_BYTES = 2 * 2**30
_ANSWER_TIMEOUT_S = 20.0
# 4096 characters, the longest text of a request, are at most some 16,000 tokens.
_MAX_ANSWER_BYTES = 4 * 2**20
_GGUF_QUESTION = {"gguf": True}
_BEYOND_LIMITS = (
    f"reading it or encoding a prompt with it failed, or took more than {_ANSWER_TIMEOUT_S:.0f} s "
    f"or {_MEMORY_BYTES // 2**30} GiB"
)


def load_isolated_encoder(files: TokenizerFiles, model_config: Mapping[str, Any]) -> TextEncoder:
    """Do what `load_encoder` does, in a process that lives as long as the encoder.

    Loading and encoding raise `TokenizerBroken` too where a limit is passed. The process is then
    ended, and started again for the next text.
    """
    process = _EncoderProcess(files, model_config)
    return TextEncoder(process.encode, process.largest_id, process.gguf_obstacle)


class _EncoderProcess:
    def __init__(self, files: TokenizerFiles, model_config: Mapping[str, Any]) -> None:
        self._task = {"files": asdict(files), "model_config": dict(model_config)}
        self._lock = threading.Lock()  # one question at a time
        self._connection: Connection | None = None
        self._stop: weakref.finalize[..., _EncoderProcess] | None = None
        with self._lock:
            self.largest_id = int(self._start())

    def encode(self, text: str) -> list[int]:
        with self._lock:
            if self._connection is None:
                self._start()
            return [int(token) for token in self._ask(text)]

    def gguf_obstacle(self) -> str | None:
        with self._lock:
            if self._connection is None:
                self._start()
            answer = self._ask(_GGUF_QUESTION)
        return None if answer is None else str(answer)

    def _start(self) -> Any:
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own command line
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # the library writes a backtrace where memory ends
                pass_fds=(theirs.fileno(),),
            )
        self._connection = ours
        self._stop = weakref.finalize(self, _end, process, ours)
        return self._ask(self._task)

    def _ask(self, question: Any) -> Any:
        assert self._connection is not None  # noqa: S101 - for the type checker
        try:
            self._connection.send_bytes(json.dumps(question).encode())
            if not self._connection.poll(_ANSWER_TIMEOUT_S):
                raise TimeoutError
            answer = json.loads(self._connection.recv_bytes(_MAX_ANSWER_BYTES))
        except (OSError, EOFError) as exc:  # ended, timed out, or an answer of any length
            self._drop()
            raise TokenizerBroken(_BEYOND_LIMITS) from exc
        if "broken" in answer:
            raise TokenizerBroken(answer["broken"])
        return answer["value"]

    def _drop(self) -> None:
        self._connection = None
        if self._stop is not None:
            self._stop()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DEBIAS_")}
    return {**kept, "TOKENIZERS_PARALLELISM": "false"}


def _end(process: "subprocess.Popen[bytes]", connection: Connection) -> None:
    connection.close()
    process.kill()
    process.wait()


def _serve(connection: Connection) -> None:
    """Load the encoder of the first message, then answer every text with its ids.

    A question that is no text asks what stands against a GGUF file.
    """
    encoder: TextEncoder | None = None
    while True:
        question = json.loads(connection.recv_bytes())
        value: Any
        try:
            if encoder is None:
                files = TokenizerFiles(**question["files"])
                encoder = load_encoder(files, question["model_config"])
                value = encoder.largest_id
            elif question == _GGUF_QUESTION:
                value = encoder.gguf_obstacle()
            else:
                value = encoder.encode(question)
            answer = {"value": value}
        except TokenizerBroken as exc:
            answer = {"broken": str(exc)}
        connection.send_bytes(json.dumps(answer).encode())


def main() -> None:
    """Serve one parent, until it closes its end."""
    with contextlib.suppress(ValueError, OSError):  # not every system limits address space
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Connection(int(sys.argv[1])) as connection, contextlib.suppress(EOFError, OSError):
        _serve(connection)


if __name__ == "__main__":
    main()
