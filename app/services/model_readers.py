"""One way to read a model's files, whether on the hub, in a folder or in our store."""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Protocol

import structlog

from app.demo_models import DEMO_MODELS, DEMO_MODELS_DIR
from app.domain.canonical import canonical_sha256
from app.domain.errors import Finding, ModelNotFound, UriNotAllowed
from app.domain.models import FileFact
from app.integrations.hub import Deadline, HubClient, HubFile, RepoFile, RepoListing, is_commit
from app.integrations.hub.cache import CommitCache
from app.security.model_files import is_allowed_file, is_weight_file
from app.security.paths import is_plain_name, resolve_below
from app.security.safetensors_check import unsafe
from app.storage.hashing import hash_file

log = structlog.get_logger()

ReadBlob = Callable[[str, int, int], bytes]

# The first request for a weight file: large enough for the header of most models.
_HEAD_BYTES = 256 * 1024
_LISTING = ".listing.json"
_CACHED_HEAD_SUFFIX = ".head"


class ModelReader(Protocol):
    """The files of one model, and ranges of their bytes.

    `files` holds every file at the top level, those too that may not be fetched: their names
    tell what is wrong with a model. `mtimes_ns` is empty except for local folders.
    """

    @property
    def files(self) -> Mapping[str, FileFact]:
        """Every file by its name."""

    @property
    def mtimes_ns(self) -> Mapping[str, int]:
        """Time stamps of local files."""

    @property
    def content_key(self) -> str | None:
        """Names these very bytes for all time and for everybody; None where nothing does."""

    def read(self, name: str, start: int, end: int) -> bytes:
        """Read the bytes of `name` from `start` up to, not including, `end`."""


class FolderReader:
    """Reads a folder below the models directory; links may not lead out of that directory."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._paths: dict[str, Path] = {}
        self.files: dict[str, FileFact] = {}
        self.mtimes_ns: dict[str, int] = {}
        self.content_key: str | None = None
        root = root.resolve(strict=True)
        for entry in sorted(folder.iterdir()):
            if is_plain_name(entry.name):
                self._add(root, entry)

    def _add(self, root: Path, entry: Path) -> None:
        try:
            path = entry.resolve(strict=True)
        except (FileNotFoundError, RuntimeError):
            return  # a link to nothing, or to itself: the same as no file
        if not path.is_file():
            return
        if not path.is_relative_to(root):
            if is_allowed_file(entry.name):
                raise _not_allowed(
                    f"{entry.name} is a link that leads out of the models directory. Put the file "
                    "itself there."
                )
            return
        facts = path.stat()
        self._paths[entry.name] = path
        self.files[entry.name] = FileFact(entry.name, facts.st_size)
        self.mtimes_ns[entry.name] = facts.st_mtime_ns

    def read(self, name: str, start: int, end: int) -> bytes:
        """Read a range of a local file."""
        with self.open(name) as file:
            file.seek(start)
            return file.read(end - start)

    def open(self, name: str) -> BinaryIO:
        """Open a local file for reading; raises `ModelNotFound` where that fails."""
        try:
            # The path was resolved: a link in its place now was put there since.
            return os.fdopen(os.open(self._paths[name], os.O_RDONLY | os.O_NOFOLLOW), "rb")
        except OSError as exc:
            raise ModelNotFound(
                f"The model's file {name} cannot be read. Check that it is there, and that the "
                "service may read it."
            ) from exc


class VersionReader:
    """Reads the blobs of a model version of our store."""

    def __init__(self, files: Iterable[FileFact], read_blob: ReadBlob) -> None:
        self.files = {file.path: file for file in files}
        self.mtimes_ns: dict[str, int] = {}
        # Read each time: whether the store still has all of it belongs to the answer.
        self.content_key = None
        self._read_blob = read_blob

    def read(self, name: str, start: int, end: int) -> bytes:
        """Read a range of a blob."""
        digest = self.files[name].sha256
        if digest is None:
            raise ValueError(f"the version's file {name} has no digest")
        return self._read_blob(digest, start, end)


class HubReader:
    """Reads a repository of the hub at a commit, through the cache unless it is restricted."""

    def __init__(
        self,
        client: HubClient,
        repo_id: str,
        listing: RepoListing,
        *,
        cache: CommitCache | None,
        deadline: Deadline,
    ) -> None:
        self._client = client
        self._repo_id = repo_id
        self._commit = listing.commit
        self._cache = cache
        self._deadline = deadline
        self._heads: dict[str, bytes] = {}
        # What is restricted is kept nowhere.
        self.content_key = (
            None if cache is None else f"{client.cache_scope} {repo_id}@{listing.commit}"
        )
        self.mtimes_ns: dict[str, int] = {}
        self.files = {
            file.path: FileFact(file.path, self._size(file), file.sha256)
            for file in listing.files
            if is_plain_name(file.path)
        }

    def _size(self, file: HubFile) -> int:
        if file.size is not None:
            return file.size
        if not is_allowed_file(file.path):
            return 0  # never fetched: only its name matters
        size = self._client.measure(self._file(file.path), deadline=self._deadline)
        if size is None:
            raise unsafe("size_unknown", f"The hub does not say how large {file.path} is.")
        return size

    def _file(self, name: str) -> RepoFile:
        return RepoFile(self._repo_id, self._commit, name)

    def read(self, name: str, start: int, end: int) -> bytes:
        """Read a range near the start of a file; what was read is kept."""
        kept = name + _CACHED_HEAD_SUFFIX
        head = self._heads.get(name) or (self._cache.get(kept) if self._cache else None) or b""
        if len(head) < end:
            wanted = min(max(end, _HEAD_BYTES), self.files[name].size_bytes)
            wanted = wanted if is_weight_file(name) else self.files[name].size_bytes
            head += self._client.read_range(
                self._file(name), len(head), max(wanted, end), deadline=self._deadline
            )
            if self._cache:
                _keep(self._cache, kept, head)
        self._heads[name] = head
        return head[start:end]


def open_hub(
    client: HubClient, repo_id: str, revision: str, *, cache_dir: Path, deadline: Deadline
) -> tuple[HubReader, RepoListing]:
    """Resolve a revision and open its commit for reading.

    A full commit hash of a public repository that was seen before needs no request.
    """
    listing = _kept_listing(client, repo_id, revision, cache_dir)
    if listing is None:
        listing = client.describe(repo_id, revision, deadline=deadline)
    cache = None
    if not listing.restricted:
        cache = _cache(client, repo_id, listing.commit, cache_dir)
        _keep(cache, _LISTING, json.dumps(dataclasses.asdict(listing)).encode())
    return HubReader(client, repo_id, listing, cache=cache, deadline=deadline), listing


def _keep(cache: CommitCache, name: str, data: bytes) -> None:
    """Keep what was read. Without room for it the request goes on: the hub can be read again."""
    try:
        cache.put(name, data)
    except OSError as exc:
        log.warning("hub_cache_not_written", reason=str(exc))


def _cache(client: HubClient, repo_id: str, commit: str, cache_dir: Path) -> CommitCache:
    return CommitCache(cache_dir, endpoint=client.cache_scope, repo_id=repo_id, commit=commit)


def _kept_listing(
    client: HubClient, repo_id: str, revision: str, cache_dir: Path
) -> RepoListing | None:
    if not is_commit(revision):
        return None
    kept = _cache(client, repo_id, revision, cache_dir).get(_LISTING)
    if kept is None:
        return None
    try:
        content = json.loads(kept)
        files = tuple(HubFile(**file) for file in content["files"])
        return RepoListing(content["commit"], content["restricted"], files)
    except (ValueError, KeyError, TypeError):  # damaged on the disk, or of another release
        return None


def open_folder(models_dir: Path | None, name: str) -> FolderReader:
    """Open a folder below the models directory for reading."""
    if models_dir is None:
        raise _not_allowed(
            "Models by path are switched off. The operator can set DEBIAS_MODELS_DIR."
        )
    try:
        folder = resolve_below(models_dir, name)
    except OSError:  # not there, not readable, or a name too long for the file system
        raise _no_folder(name) from None
    except ValueError as exc:
        raise _not_allowed(f"The model path {exc}.") from exc
    try:
        return FolderReader(models_dir, folder)
    except OSError:  # not a folder, or not readable
        raise _no_folder(name) from None


def open_demo(name: str) -> FolderReader:
    """Open a model that comes with the package, every file with its digest.

    It has no time stamps: the API and the worker may read it from two installations.
    """
    if name not in DEMO_MODELS:
        message = f"There is no demo model {name!r}; there are {', '.join(sorted(DEMO_MODELS))}."
        raise ModelNotFound(message, findings=(Finding("/model/demo", "unknown_demo", message),))
    folder = DEMO_MODELS_DIR / name
    reader = FolderReader(DEMO_MODELS_DIR, folder)
    for file in list(reader.files.values()):
        written_ns = reader.mtimes_ns[file.path]
        digest = _digest_of(folder / file.path, file.size_bytes, written_ns)
        reader.files[file.path] = dataclasses.replace(file, sha256=digest)
    reader.mtimes_ns.clear()
    reader.content_key = canonical_sha256([[f.path, f.sha256] for f in reader.files.values()])
    return reader


@lru_cache(maxsize=256)
def _digest_of(path: Path, _size_bytes: int, _mtime_ns: int) -> str:
    """Hash a file of the package, once while its size and time stay as they are."""
    return hash_file(path).sha256


def _not_allowed(message: str) -> UriNotAllowed:
    finding = Finding("/model/path", "path_not_allowed", message)
    return UriNotAllowed(message, findings=(finding,))


def _no_folder(name: str) -> ModelNotFound:
    message = (
        f"There is no readable folder {name} below the models directory. Check the spelling; "
        "upper and lower case differ."
    )
    return ModelNotFound(message, findings=(Finding("/model/path", "path_not_found", message),))
