"""A local stand-in of the model hub's HTTP interface, with the faults of real hubs.

It answers what the product asks: `/api/models/{repo}/revision/{rev}?blobs=true` and
`/{repo}/resolve/{commit}/{path}` with ranges; error headers are spelt as the hub spells them.
"""

import gzip
import hashlib
import json
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

GOOD_TOKEN = "hf_accepted"
OTHER_TOKEN = "hf_without_access"
_LFS_SUFFIXES = (".safetensors", ".bin")
DRIP_S = 0.02


@dataclass
class Repo:
    """One repository: its files, the commit of each revision, and who may read it."""

    files: dict[str, bytes]
    refs: dict[str, str]
    gated: str | bool = False
    private: bool = False


@dataclass
class Faults:
    """What goes wrong; each may be set while the server runs.

    `answers` are (status, headers) given to the next requests instead of the right ones, and
    `storage_answers` those of the storage behind the hub.
    `cut_after` breaks the next downloads, one entry each, after so many bytes. `page` is an HTML
    page that stands in for every answer. `drip` sends one byte, or one header with `drip_headers`,
    every `DRIP_S` until it is set. `length_off` is added to what Content-Length should be.
    `without_access_flags` lists a gated or private repository like any other; its files stay shut.
    """

    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    storage_answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    cut_after: list[int] = field(default_factory=list)
    hold: threading.Event | None = None
    ignore_ranges: bool = False
    without_commit_header: bool = False
    without_sizes: bool = False
    without_error_codes: bool = False
    without_owners: bool = False
    corrupt: set[str] = field(default_factory=set)
    listing: bytes | None = None
    page: bytes | None = None
    compress: bool = False
    drip: threading.Event | None = None
    drip_headers: bool = False
    length_off: int = 0
    without_access_flags: bool = False
    cookie: str | None = None


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    host: str
    path: str
    headers: Mapping[str, str]


class HubStandIn:
    """A running stand-in; use it as a context manager.

    With `with_storage` weights are served by redirects to a second server on another port, as
    the hub does for large files. `prefix` is put before every path, as mirrors do, and `tls` makes
    the hub speak https; the storage speaks it only `with_storage="https"`.
    """

    def __init__(
        self,
        *,
        with_storage: bool | str = False,
        prefix: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults = Faults()
        self.seen: list[Seen] = []
        self.prefix = prefix
        self._server = _Server("hub", self, tls)
        storage_tls = tls if with_storage == "https" else None
        self._storage = _Server("storage", self, storage_tls) if with_storage else None

    def __enter__(self) -> Self:
        self._server.start()
        if self._storage:
            self._storage.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for waiting in (self.faults.hold, self.faults.drip):
            if waiting:
                waiting.set()
        self._server.stop()
        if self._storage:
            self._storage.stop()

    @property
    def endpoint(self) -> str:
        """Where the stand-in listens."""
        return f"{self._server.url}{self.prefix}"

    @property
    def storage_url(self) -> str | None:
        """Where weights are redirected to, if anywhere."""
        return self._storage.url if self._storage else None

    def add(self, repo_id: str, files: Mapping[str, bytes], **access: str | bool) -> str:
        """Add a repository, or a new commit on its main branch; return the commit."""
        content = repr(
            sorted((name, hashlib.sha256(data).digest()) for name, data in files.items())
        )
        commit = hashlib.sha1(f"{repo_id}{content}".encode()).hexdigest()
        self.repos[repo_id] = Repo(
            dict(files),
            {"main": commit, commit: commit},
            gated=access.get("gated", False),
            private=bool(access.get("private", False)),
        )
        return commit


class _Server:
    def __init__(self, name: str, hub: HubStandIn, tls: ssl.SSLContext | None) -> None:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(name, hub))
        self._http.daemon_threads = True
        if tls:
            # The handshake is left to the handler's thread, or one client could hold up all.
            self._http.socket = tls.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._http.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def _handler(name: str, hub: HubStandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        server_name = name
        stand_in = hub

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_name: str
    stand_in: HubStandIn

    def log_message(self, format: str, *args: object) -> None:
        """Keep test output clean."""

    def do_GET(self) -> None:
        hub, faults = self.stand_in, self.stand_in.faults
        hub.seen.append(Seen(self.server_name, self.path, httpx.Headers(self.headers.items())))
        if faults.hold:
            faults.hold.wait()
            self.close_connection = True
            return
        if faults.drip and faults.drip_headers:
            self._drip(b"HTTP/1.1 200 OK\r\n", b"X-Slow: 1\r\n")
            return
        if faults.page is not None:
            self._answer(200, faults.page, {"Content-Type": "text/html; charset=utf-8"})
            return
        answers = faults.answers if self.server_name == "hub" else faults.storage_answers
        if answers:
            status, headers = answers.pop(0)
            self._answer(status, b"", headers)
            return
        url = urlsplit(self.path)
        path = url.path.removeprefix(hub.prefix)
        if path == "/api/whoami-v2":
            self._name_owner()
        elif path.startswith("/api/models/"):
            self._list(path.removeprefix("/api/models/"), parse_qs(url.query))
        else:
            self._resolve(path)

    def _name_owner(self) -> None:
        if self.stand_in.faults.without_owners:
            self._answer(404, b"Not Found", {})
        elif self._token() in (GOOD_TOKEN, OTHER_TOKEN):
            self._answer(200, b'{"name": "evenhand"}', {"Content-Type": "application/json"})
        else:
            self._refuse(401, "", "Invalid username or password.")

    def _list(self, path: str, query: Mapping[str, list[str]]) -> None:
        repo_id, _, revision = path.partition("/revision/")
        repo = self._readable(repo_id)
        if repo is None:
            return
        commit = repo.refs.get(unquote(revision))
        if commit is None:
            self._refuse(404, "RevisionNotFound", "Invalid rev id: " + revision)
            return
        with_sizes = "blobs" in query and not self.stand_in.faults.without_sizes
        content = {
            "id": repo_id,
            "sha": commit,
            "gated": repo.gated and not self.stand_in.faults.without_access_flags,
            "private": repo.private and not self.stand_in.faults.without_access_flags,
            "siblings": [
                _sibling(name, data, with_sizes=with_sizes) for name, data in repo.files.items()
            ],
        }
        body = self.stand_in.faults.listing or json.dumps(content).encode()
        self._answer(200, body, {"Content-Type": "application/json"})

    def _resolve(self, path: str) -> None:
        repo_id, _, rest = path[1:].partition("/resolve/")
        revision, _, name = unquote(rest).partition("/")
        if self.server_name == "storage":
            self._send_file(self.stand_in.repos[repo_id].files[name], name)
            return
        repo = self._readable(repo_id)
        if repo is None:
            return
        if repo.gated and self._token() != GOOD_TOKEN:
            status = 401 if self._token() is None else 403
            self._refuse(status, "GatedRepo", f"Access to model {repo_id} is restricted.")
            return
        commit = repo.refs.get(revision)
        if commit is None:
            self._refuse(404, "RevisionNotFound", "Invalid rev id")
            return
        if name not in repo.files:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        headers = {} if self.stand_in.faults.without_commit_header else {"X-Repo-Commit": commit}
        storage = self.stand_in.storage_url
        if storage and name.endswith(_LFS_SUFFIXES):
            self._answer(302, b"", {**headers, "Location": f"{storage}{self.path}"})
            return
        self._send_file(repo.files[name], name, headers)

    def _readable(self, repo_id: str) -> Repo | None:
        repo, token = self.stand_in.repos.get(repo_id), self._token()
        if token not in (None, GOOD_TOKEN, OTHER_TOKEN):
            self._refuse(401, "", "Invalid credentials in Authorization header")
            return None
        if repo is None or (repo.private and token != GOOD_TOKEN):
            status = 401 if token is None else 404
            self._refuse(status, "RepoNotFound", "Repository not found")
            return None
        return repo

    def _token(self) -> str | None:
        value = self.headers.get("Authorization")
        return value.removeprefix("Bearer ") if value else None

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message}
        if code and not self.stand_in.faults.without_error_codes:
            headers["X-Error-Code"] = code
        self._answer(status, json.dumps({"error": message}).encode(), headers)

    def _send_file(self, data: bytes, name: str, headers: Mapping[str, str] = {}) -> None:
        faults = self.stand_in.faults
        if name in faults.corrupt:
            data = data[:-1] + bytes([data[-1] ^ 1])
        wanted = self.headers.get("Range")
        if wanted and not faults.ignore_ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last) + 1 if last else len(data), len(data))
            span = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
            self._answer(206, data[start:end], {**headers, **span})
        else:
            self._answer(200, data, headers)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        faults = self.stand_in.faults
        if faults.compress and body:
            body, headers = gzip.compress(body), {**headers, "Content-Encoding": "gzip"}
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if faults.cookie:
            self.send_header("Set-Cookie", f"{faults.cookie}; Path=/")
        self.send_header("Content-Length", str(len(body) + faults.length_off))
        self.end_headers()
        if faults.drip:
            self._drip(b"", b" ")
            return
        if faults.cut_after and status in (200, 206) and len(body) > faults.cut_after[0]:
            body = body[: faults.cut_after.pop(0)]
            self.close_connection = True
        self.wfile.write(body[: len(body) + min(faults.length_off, 0)])
        self.close_connection = self.close_connection or faults.length_off != 0

    def _drip(self, start: bytes, drop: bytes) -> None:
        drip = self.stand_in.faults.drip
        self.close_connection = True
        with suppress(OSError):  # the client went away
            self.wfile.write(start)
            while drip and not drip.wait(DRIP_S):
                self.wfile.write(drop)


def _sibling(name: str, data: bytes, *, with_sizes: bool) -> dict[str, object]:
    entry: dict[str, object] = {"rfilename": name}
    if with_sizes:
        entry["size"] = len(data)
        if name.endswith(_LFS_SUFFIXES):
            digest = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
    return entry
