"""Requests to the model hub over httpx."""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import httpx

from app.domain.errors import ModelGated, ModelNotFound, Unavailable
from app.integrations.hub.deadline import Deadline, too_slow
from app.integrations.hub.errors import not_a_hub, refusal, unreachable
from app.integrations.hub.listing import RepoListing, parse_listing
from app.integrations.hub.transport import explain, open_answer

_MAX_LISTING_BYTES = 32 * 1024 * 1024  # repositories with 10,000 files list in about 3 MB
_MAX_CONNECT_S = 2.0  # so that a host that drops packets leaves time to say so
# A download has no total time; a connection that gives nothing for this long is given up.
_DOWNLOAD_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
# Byte offsets and sizes must be those of the file, not of a compressed copy.
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "evenhand"}
# More requests at a time than the threads of the API make; a hung one holds its thread.
_MAX_INSPECTIONS = 64

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file of a repository at a commit."""

    repo_id: str
    commit: str
    path: str


class HubClient:
    """Reads repositories of one hub. Safe for use by several threads; open it after a fork.

    The token goes to the hub's own host only.
    """

    def __init__(
        self, endpoint: str, *, token: str | None = None, http: httpx.Client | None = None
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self.cache_scope = self.endpoint
        self._origin = _origin(httpx.URL(self.endpoint))
        self._token = token
        self._http = http or httpx.Client()
        self._inspections = ThreadPoolExecutor(_MAX_INSPECTIONS, thread_name_prefix="hub")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def for_owner(self, owner: str, *, token: str) -> Self:
        """Return a client that reads with a token of `owner`, over the same connections.

        What it reads is kept apart from what others read, even where the hub does not say that
        a repository is restricted. Only the original is to be closed.
        """
        client = copy.copy(self)
        client._token = token
        client.cache_scope = f"{self.endpoint}\n{owner}"
        return client

    def close(self) -> None:
        """Close the connections; requests that still hang find theirs closed and end."""
        self._inspections.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def describe(self, repo_id: str, revision: str, *, deadline: Deadline) -> RepoListing:
        """List a repository and resolve `revision` to a commit.

        Raises `ModelNotFound`, `ModelGated` or `Unavailable`.
        """
        url = f"{self.endpoint}/api/models/{repo_id}/revision/{quote(revision, safe='')}?blobs=true"
        repository = RepoFile(repo_id, revision, "")

        def read() -> bytes:
            with self._answer(url, {}, deadline, repository) as response:
                return _collect(response, _MAX_LISTING_BYTES, deadline)

        body = self._within(deadline, read)
        try:
            return parse_listing(json.loads(body))
        except (ValueError, RecursionError) as exc:
            raise not_a_hub("answers with something else than JSON") from exc

    def knows_token(self, *, deadline: Deadline) -> bool:
        """Ask the hub whether it accepts the token; raises `Unavailable` where it does not say."""
        nobody = RepoFile("", "", "")

        def read() -> bool:
            try:
                with self._answer(f"{self.endpoint}/api/whoami-v2", {}, deadline, nobody):
                    return True
            except ModelGated:
                return False
            except ModelNotFound as exc:
                raise not_a_hub("does not tell who a token belongs to, as mirrors do") from exc

        return self._within(deadline, read)

    def measure(self, file: RepoFile, *, deadline: Deadline) -> int | None:
        """Ask for the size of a file, where the listing has none."""

        def read() -> str:
            with self._answer(self._url(file), _range(0, 1), deadline, file) as response:
                if response.status_code == 206:
                    return str(response.headers.get("content-range", "")).rpartition("/")[2]
                return str(response.headers.get("content-length", ""))

        total = self._within(deadline, read)
        return int(total) if total.isascii() and total.isdigit() else None

    def read_range(self, file: RepoFile, start: int, end: int, *, deadline: Deadline) -> bytes:
        """Read the bytes from `start` up to, not including, `end` (fewer where the file ends)."""
        if start >= end:
            return b""

        def read() -> bytes:
            with self._answer(self._url(file), _range(start, end), deadline, file) as response:
                # A server may ignore the range and send all: then the start is dropped here.
                skip = 0 if response.status_code == 206 else start
                return _collect(response, end - start + skip, deadline)[skip:]

        return self._within(deadline, read)

    @contextmanager
    def download(self, file: RepoFile, *, start: int = 0) -> Iterator["Download"]:
        """Open a download from byte `start`; `Download.start` says where it really begins."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        with self._answer(self._url(file), headers, None, file) as response:
            yield Download(response, start if response.status_code == 206 else 0)

    def _url(self, file: RepoFile) -> str:
        return f"{self.endpoint}/{file.repo_id}/resolve/{file.commit}/{quote(file.path)}"

    def _within(self, deadline: Deadline, read: Callable[[], Result]) -> Result:
        """Give what `read` gives, or raise at the deadline whatever it hangs in.

        The timeouts of a connection do not bound a look-up of its name, nor an answer that comes
        byte by byte.
        """
        running = self._inspections.submit(read)
        try:
            return running.result(timeout=deadline.remaining_s())
        except TimeoutError as exc:
            running.cancel()
            raise too_slow(deadline.budget_s) from exc

    @contextmanager
    def _answer(
        self, url: str, headers: Mapping[str, str], deadline: Deadline | None, file: RepoFile
    ) -> Iterator[httpx.Response]:
        """Open the answer to a GET, or raise the error that a refusal stands for."""
        sent = {**_HEADERS, **headers}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        request = self._http.build_request("GET", url, headers=sent)
        budget_s = deadline.budget_s if deadline else _DOWNLOAD_TIMEOUT.read or 0.0
        try:
            with open_answer(
                self._http, request, timeout_of=lambda: _timeout(deadline)
            ) as response:
                self._raise_for_refusal(response, file)
                _raise_for_foreign(response, file)
                yield response
        except httpx.TimeoutException as exc:
            raise too_slow(budget_s) from exc
        except httpx.RequestError as exc:
            raise explain(exc) from exc

    def _raise_for_refusal(self, response: httpx.Response, file: RepoFile) -> None:
        if response.is_success:
            return
        by_hub = _origin(response.url) == self._origin
        if not by_hub and response.status_code in (401, 403):
            raise _refused_elsewhere(response.url.host, file)
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
        return self._response.iter_bytes()


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _range(start: int, end: int) -> dict[str, str]:
    return {"Range": f"bytes={start}-{end - 1}"}


def _refused_elsewhere(host: str, file: RepoFile) -> Unavailable:
    if not file.path:
        return not_a_hub(f"redirects to {host}, which refuses us and is not sent the token")
    # The storage behind the hub refuses links that grew old; a new request gets new ones.
    return unreachable(f"its storage {host} refuses the link that the hub gave")


def _raise_for_foreign(response: httpx.Response, file: RepoFile) -> None:
    """Refuse what a proxy or a login page puts in place of a file, or of a part of it."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml") and not file.path.endswith(".html"):
        raise not_a_hub("answers with a web page")
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if response.status_code == 206 and encoding not in ("", "identity"):
        raise not_a_hub(f"compresses parts of files ({encoding[:20]}), which makes them useless")


def _timeout(deadline: Deadline | None) -> httpx.Timeout:
    if deadline is None:
        return _DOWNLOAD_TIMEOUT
    left = deadline.remaining_s()
    return httpx.Timeout(left, connect=min(left, _MAX_CONNECT_S))


def _collect(response: httpx.Response, limit: int, deadline: Deadline) -> bytes:
    """Read at most `limit` bytes, within the time that is left."""
    parts: list[bytes] = []
    missing = limit
    for chunk in response.iter_bytes():
        parts.append(chunk[:missing])
        missing -= len(parts[-1])
        if missing <= 0:
            break
        deadline.remaining_s()
    return b"".join(parts)
