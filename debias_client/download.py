"""Fetch artifacts: resumable, verified, and never outside the directory asked for."""

import hashlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from threading import Event
from urllib.parse import quote

import httpx

from debias_client.errors import (
    ApiError,
    ConnectionFailed,
    DigestMismatch,
    UnexpectedAnswer,
    UnsafeName,
)
from debias_client.schemas import Artifact
from debias_client.transport import Transport

# Separators and streams of other systems, and characters that no file name needs.
_UNSAFE_CHARACTERS = re.compile(r"[\\:\x00-\x1f\x7f]")

# Names that other systems take for a device, whatever follows the dot.
_DEVICE = re.compile(r"(?i)(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")

_RANGE_START = re.compile(r"bytes (\d+)-")


class _Stopped(Exception):
    """Another file of the same download failed."""


class Downloader:
    """Fetches the artifacts of one job, several at a time."""

    def __init__(self, transport: Transport, *, parallel: int) -> None:
        self._transport = transport
        self._parallel = parallel
        self._stop = Event()

    def fetch_all(self, artifacts: Sequence[Artifact], directory: Path) -> tuple[Path, ...]:
        """Fetch `artifacts` below `directory`; the first failure ends all and is raised."""
        targets = plan_targets([artifact["name"] for artifact in artifacts], directory)
        with ThreadPoolExecutor(max_workers=self._parallel) as pool:
            futures = [
                pool.submit(self._fetch, artifact, target)
                for artifact, target in zip(artifacts, targets, strict=True)
            ]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return targets

    def _fetch(self, artifact: Artifact, target: Path) -> None:
        if _has_digest(target, artifact):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{artifact['sha256'][:16]}.part")
        if part.is_symlink():
            part.unlink()
        was_begun = part.exists()
        self._complete(part, artifact)
        if was_begun and not _has_digest(part, artifact):
            # The earlier beginning may be what is damaged: once more, from nothing.
            part.unlink()
            self._complete(part, artifact)
        if not _has_digest(part, artifact):
            part.unlink()
            raise DigestMismatch(artifact["name"])
        part.replace(target)

    def _complete(self, part: Path, artifact: Artifact) -> None:
        """Append to `part` until it has the announced size, over as many lines as it takes."""
        part.touch()
        attempt = 0
        while (begun_bytes := part.stat().st_size) < artifact["size_bytes"]:
            try:
                self._append(part, artifact, begun_bytes)
            except (ApiError, ConnectionFailed) as failure:
                # Only attempts that bring nothing count, so that a large file can outlast
                # any number of broken lines.
                attempt = 1 if part.stat().st_size > begun_bytes else attempt + 1
                if not self._transport.pause_before_retry(failure, attempt):
                    raise

    def _append(self, part: Path, artifact: Artifact, begun_bytes: int) -> None:
        headers = {"Accept-Encoding": "identity"}
        if begun_bytes:
            headers["Range"] = f"bytes={begun_bytes}-"
            headers["If-Range"] = f'"sha256:{artifact["sha256"]}"'
        path = f"/v1/artifacts/{quote(artifact['id'], safe='')}/content"
        with self._transport.stream(path, headers=headers) as response:
            start = _start_of(response)
            if start > begun_bytes:
                raise UnexpectedAnswer(f"{path} left out bytes {begun_bytes} to {start - 1}")
            self._write(response, part, artifact, start=start)

    def _write(
        self, response: httpx.Response, part: Path, artifact: Artifact, *, start: int
    ) -> None:
        have_bytes = start
        with part.open("r+b") as file:
            file.truncate(start)
            file.seek(start)
            for chunk in response.iter_bytes():
                if self._stop.is_set():
                    raise _Stopped
                have_bytes += len(chunk)
                if have_bytes > artifact["size_bytes"]:
                    # Not one byte beyond the announced size: the disk is the user's.
                    break
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if have_bytes > artifact["size_bytes"]:
            part.unlink()
            raise DigestMismatch(artifact["name"])
        if have_bytes < artifact["size_bytes"]:
            raise ConnectionFailed(f"{artifact['name']}: the line broke at byte {have_bytes}")


def _start_of(response: httpx.Response) -> int:
    """Give the position of the first byte of the body; 0 where the range was not heeded."""
    if response.status_code != httpx.codes.PARTIAL_CONTENT:
        return 0
    match = _RANGE_START.match(response.headers.get("Content-Range", ""))
    if match is None:
        raise UnexpectedAnswer("a partial answer does not say which bytes it holds")
    return int(match[1])


def plan_targets(names: Sequence[str], directory: Path) -> tuple[Path, ...]:
    """Give the path of each name below `directory`; raises `UnsafeName` for one that has none.

    Names that differ in case only are refused as well: many file systems hold one of them.
    """
    root = directory.resolve()
    taken: set[str] = set()
    targets = []
    for name in names:
        if name.casefold() in taken:
            raise UnsafeName(name)
        taken.add(name.casefold())
        targets.append(_target(name, root))
    return tuple(targets)


def _target(name: str, root: Path) -> Path:
    parts = name.split("/")
    # Other systems drop dots and spaces at an end, so that two names would be one file.
    if _UNSAFE_CHARACTERS.search(name) or any(
        not part or part[-1] in ". " or _DEVICE.fullmatch(part) for part in parts
    ):
        raise UnsafeName(name)
    target = root.joinpath(*parts)
    # A symbolic link that already lies in the directory must not lead out of it.
    if not target.parent.resolve().is_relative_to(root):
        raise UnsafeName(name)
    return target


def _has_digest(path: Path, artifact: Artifact) -> bool:
    with suppress(FileNotFoundError):
        if path.stat().st_size == artifact["size_bytes"]:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == artifact["sha256"]
    return False
