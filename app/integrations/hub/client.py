"""Requests to the model hub over httpx."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import quote

import httpx

from app.integrations.hub.deadline import Deadline, too_slow
from app.integrations.hub.errors import refusal, unreachable
from app.integrations.hub.listing import RepoListing, parse_listing

_MAX_LISTING_BYTES = 32 * 1024 * 1024  # repositories with 10,000 files list in about 3 MB
_MAX_CONNECT_S = 2.0  # so that a host that drops packets leaves time to say so
# A download has no total time; a connection that gives nothing for this long is given up.
_DOWNLOAD_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
# Byte offsets and sizes must be those of the file, not of a compressed copy.
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "evenhand"}


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file of a repository at a commit."""

    repo_id: str
    commit: str
    path: str


class HubClient:
    """Reads repositories of one hub. Safe for use by several threads; open it after a fork.

    The token goes to the hub's own host only: httpx drops it at a redirect to any other.
    """

    def __init__(
        self, endpoint: str, *, token: str | None = None, http: httpx.Client | None = None
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._origin = _origin(httpx.URL(self.endpoint))
        self._token = token
        self._http = http or httpx.Client()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def describe(self, repo_id: str, revision: str, *, deadline: Deadline) -> RepoListing:
        """List a repository and resolve `revision` to a commit.

        Raises `ModelNotFound`, `ModelGated` or `Unavailable`.
        """
        url = f"{self.endpoint}/api/models/{repo_id}/revision/{quote(revision, safe='')}?blobs=true"
        timeout = _timeout(deadline)
        with self._answer(url, {}, timeout, RepoFile(repo_id, revision, "")) as response:
            body = _collect(response, _MAX_LISTING_BYTES, deadline)
        try:
            return parse_listing(json.loads(body))
        except (ValueError, RecursionError) as exc:
            raise unreachable() from exc

    def measure(self, file: RepoFile, *, deadline: Deadline) -> int | None:
        """Ask for the size of a file, where the listing has none."""
        timeout = _timeout(deadline)
        with self._answer(self._url(file), {"Range": "bytes=0-0"}, timeout, file) as response:
            total = response.headers.get("content-range", "").rpartition("/")[2]
            if response.status_code != 206:
                total = response.headers.get("content-length", "")
            return int(total) if total.isascii() and total.isdigit() else None

    def read_range(self, file: RepoFile, start: int, end: int, *, deadline: Deadline) -> bytes:
        """Read the bytes from `start` up to, not including, `end` (fewer where the file ends)."""
        if start >= end:
            return b""
        headers = {"Range": f"bytes={start}-{end - 1}"}
        timeout = _timeout(deadline)
        with self._answer(self._url(file), headers, timeout, file) as response:
            # A server may ignore the range and send all: then the start is dropped here.
            skip = 0 if response.status_code == 206 else start
            return _collect(response, end - start + skip, deadline)[skip:]

    @contextmanager
    def download(self, file: RepoFile, *, start: int = 0) -> Iterator["Download"]:
        """Open a download from byte `start`; `Download.start` says where it really begins."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._answer(self._url(file), headers, _DOWNLOAD_TIMEOUT, file) as response:
            yield Download(response, start if response.status_code == 206 else 0)

    def _url(self, file: RepoFile) -> str:
        return f"{self.endpoint}/{file.repo_id}/resolve/{file.commit}/{quote(file.path)}"

    @contextmanager
    def _answer(
        self, url: str, headers: Mapping[str, str], timeout: httpx.Timeout, file: RepoFile
    ) -> Iterator[httpx.Response]:
        """Open the answer to a GET, or raise the error that a refusal stands for."""
        sent = {**_HEADERS, **headers}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        try:
            with self._http.stream(
                "GET", url, headers=sent, timeout=timeout, follow_redirects=True
            ) as response:
                self._raise_for_refusal(response, file)
                yield response
        except httpx.TimeoutException as exc:
            raise too_slow(timeout.read or 0.0) from exc
        except (httpx.TransportError, httpx.TooManyRedirects) as exc:
            raise unreachable() from exc

    def _raise_for_refusal(self, response: httpx.Response, file: RepoFile) -> None:
        if response.is_success:
            return
        by_hub = _origin(response.url) == self._origin
        if not by_hub and response.status_code in (401, 403):
            # The storage behind the hub refuses links that grew old; a new request gets new ones.
            raise unreachable()
        raise refusal(
            response,
            repo_id=file.repo_id,
            revision=file.commit,
            path=file.path or None,
            with_token=by_hub and self._token is not None,
        )


class Download:
    """A running download; iterate over `chunks()`."""

    def __init__(self, response: httpx.Response, start: int) -> None:
        self._response = response
        self.start = start

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes as they come; raises `Unavailable` where the connection breaks."""
        # Without a chunk size: httpx would hold back, and lose, what it has of a chunk by then.
        return self._response.iter_raw()


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _timeout(deadline: Deadline) -> httpx.Timeout:
    left = deadline.remaining_s()
    return httpx.Timeout(left, connect=min(left, _MAX_CONNECT_S))


def _collect(response: httpx.Response, limit: int, deadline: Deadline) -> bytes:
    """Read at most `limit` bytes, within the time that is left."""
    parts: list[bytes] = []
    missing = limit
    for chunk in response.iter_raw():
        parts.append(chunk[:missing])
        missing -= len(parts[-1])
        if missing <= 0:
            break
        deadline.remaining_s()
    return b"".join(parts)
