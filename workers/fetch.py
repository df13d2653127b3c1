"""Bring a pinned model into the attempt's folder, and prove that it is what was checked at POST."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from app.domain.errors import (
    DebiasError,
    Gone,
    JobErrorCode,
    JobFailure,
    ModelGated,
    ModelNotFound,
    NotFound,
    SecretUnreadable,
    StorageUnavailable,
    Unavailable,
    UriNotAllowed,
)
from app.domain.models import FileFact
from app.domain.sources import PinnedFile, PinnedModel
from app.integrations.hub import HubClient
from app.integrations.hub.cache import CommitCache
from app.integrations.hub.eviction import HubCache
from app.security.model_config import clean_file
from app.security.model_files import CONFIGS, is_allowed_file
from app.security.safetensors_check import read_header
from app.services.model_readers import FolderReader, ReadBlob, open_demo, open_folder
from workers.hub_download import DigestMismatch, HubDownloader, Progress, wait_quietly
from workers.runtime.faults import is_disk_full

log = structlog.get_logger()

_CHUNK_BYTES = 4 * 1024 * 1024
# Larger files of the hub cache are linked into the attempt's folder instead of copied.
_LINK_FROM_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FetchSources:
    """Where a worker can get models from; what is None is switched off.

    `hub_of` makes the client of the attempt's project out of the service's own. The cache of hub
    files is cut to `hub_cache_max_bytes` after each model; None: never.
    """

    hub_cache_dir: Path
    hub_cache_max_bytes: int | None = None
    models_dir: Path | None = None
    hub: HubClient | None = None
    hub_of: Callable[[HubClient], HubClient] = lambda hub: hub
    read_blob: ReadBlob | None = None
    pause: Callable[[float], None] = wait_quietly


def fetch_model(
    pinned: PinnedModel,
    target_dir: Path,
    *,
    sources: FetchSources,
    should_stop: Callable[[], bool],
    on_progress: Callable[[int, int], None],
) -> list[FileFact]:
    """Write the model's files into `target_dir`, read-only.

    Returns every file with the SHA-256 it has at the source; the config files themselves are
    written in their cleaned form. `on_progress(bytes_done, bytes_total)` never goes backwards.
    Raises `Stopped`, or `JobFailure` with what the user can do.
    """
    target_dir.mkdir(parents=True, exist_ok=True)
    total = sum(file["size"] for file in pinned["files"])
    progress = _counting(should_stop, on_progress, total)
    with _failures_explained():
        for file in pinned["files"]:
            if not is_allowed_file(file["path"]):
                raise JobFailure(
                    JobErrorCode.UNSAFE_MODEL_FORMAT,
                    f"The model's file {file['path']} is of a kind that is never fetched.",
                    "Send the job again, so that the model is checked anew.",
                )
        facts = _FETCHERS[pinned["type"]](pinned, target_dir, sources, progress)
        for file in pinned["files"]:
            _finish(file, target_dir / file["path"])
    return facts


def _counting(
    should_stop: Callable[[], bool], on_progress: Callable[[int, int], None], total: int
) -> Progress:
    done = shown = 0

    def gained(size: int) -> None:
        nonlocal done, shown
        done += size
        if min(done, total) > shown:
            shown = min(done, total)
            on_progress(shown, total)

    return Progress(should_stop, gained)


def _fetch_hub(
    pinned: PinnedModel, target_dir: Path, sources: FetchSources, progress: Progress
) -> list[FileFact]:
    if sources.hub is None:
        raise UriNotAllowed("Models of the hub are switched off by the operator.")
    hub = sources.hub_of(sources.hub)
    repo_id, commit = pinned["repo_id"], pinned["commit"]
    place: AbstractContextManager[Path] = nullcontext(target_dir)
    if not pinned.get("restricted", True):
        place = CommitCache(
            sources.hub_cache_dir, endpoint=hub.cache_scope, repo_id=repo_id, commit=commit
        ).in_use()
    facts = []
    with place as folder:
        downloader = HubDownloader(hub, folder, progress=progress, pause=sources.pause)
        for file in pinned["files"]:
            path, digest = downloader.fetch(repo_id, commit, file)
            if folder != target_dir:
                _take(path, target_dir / file["path"])
            facts.append(FileFact(file["path"], file["size"], digest))
    for lock in target_dir.glob("*.lock"):
        lock.unlink()
    _cut_cache(sources)
    return facts


def _cut_cache(sources: FetchSources) -> None:
    if sources.hub_cache_max_bytes is None:
        return
    evicted = HubCache(sources.hub_cache_dir).shrink(sources.hub_cache_max_bytes)
    if evicted.commits:
        log.info("hub_cache_cut", commits=evicted.commits, freed_bytes=evicted.freed_bytes)


def _take(cached: Path, target: Path) -> None:
    """Link or copy a file of the cache; cached files are read-only, and never change."""
    target.unlink(missing_ok=True)
    if cached.stat().st_size >= _LINK_FROM_BYTES:
        try:
            os.link(cached, target)
        except OSError as exc:
            if is_disk_full(exc):
                raise
        else:
            return
    shutil.copyfile(cached, target)


def _fetch_folder(
    pinned: PinnedModel, target_dir: Path, sources: FetchSources, progress: Progress
) -> list[FileFact]:
    # Copied, never linked: the folder belongs to the operator, and may change under a running job.
    reader = open_folder(sources.models_dir, pinned["name"])
    return [_copy_local(reader, file, target_dir, progress) for file in pinned["files"]]


def _copy_local(
    reader: FolderReader, file: PinnedFile, target_dir: Path, progress: Progress
) -> FileFact:
    name = file["path"]
    if name not in reader.files:
        raise _changed(f"{name} is no longer there")
    with reader.open(name) as source:
        _check_unchanged(source.fileno(), file)
        chunks = iter(lambda: source.read(_CHUNK_BYTES), b"")
        digest = _write(chunks, target_dir / name, progress)
        _check_unchanged(source.fileno(), file)
    if file["sha256"] not in (None, digest):
        raise _changed(f"{name} has other bytes")
    return FileFact(name, file["size"], digest)


def _check_unchanged(handle: int, file: PinnedFile) -> None:
    facts = os.fstat(handle)
    if facts.st_size != file["size"] or facts.st_mtime_ns != file.get("mtime_ns"):
        raise _changed(f"{file['path']} has another size or time stamp")


def _fetch_demo(
    pinned: PinnedModel, target_dir: Path, sources: FetchSources, progress: Progress
) -> list[FileFact]:
    """Copy a model of this installation, which may be of another release than the API's."""
    del sources
    reader = open_demo(pinned["name"])
    for file in pinned["files"]:
        if reader.files.get(file["path"]) != FileFact(file["path"], file["size"], file["sha256"]):
            raise JobFailure(
                JobErrorCode.MODEL_CHANGED,
                f"The demo model {pinned['name']} of this worker has another {file['path']} than "
                "the one that was checked when the job was accepted.",
                "The operator should bring the API and the workers to the same release.",
            )
        with reader.open(file["path"]) as source:
            chunks = iter(partial(source.read, _CHUNK_BYTES), b"")
            digest = _write(chunks, target_dir / file["path"], progress)
        if digest != file["sha256"]:
            raise _changed(f"{file['path']} has other bytes")
    return [FileFact(file["path"], file["size"], file["sha256"]) for file in pinned["files"]]


def _fetch_version(
    pinned: PinnedModel, target_dir: Path, sources: FetchSources, progress: Progress
) -> list[FileFact]:
    read_blob = sources.read_blob
    if read_blob is None:
        raise ValueError("a model version can only be fetched with read_blob")
    facts = []
    for file in pinned["files"]:
        chunks = _blob_chunks(read_blob, file)
        digest = _write(chunks, target_dir / file["path"], progress)
        if digest != file["sha256"]:
            raise JobFailure(
                JobErrorCode.INTERNAL,
                f"The stored bytes of {file['path']} do not have their digest.",
                "The operator should check the object store; the model has to be made again.",
            )
        facts.append(FileFact(file["path"], file["size"], digest))
    return facts


def _blob_chunks(read_blob: ReadBlob, file: PinnedFile) -> Iterator[bytes]:
    digest, size = file["sha256"], file["size"]
    if digest is None:
        raise ValueError(f"the version's file {file['path']} has no digest")
    for start in range(0, size, _CHUNK_BYTES):
        yield read_blob(digest, start, min(start + _CHUNK_BYTES, size))


def _write(chunks: Iterator[bytes], target: Path, progress: Progress) -> str:
    """Write `chunks` to `target` and return their SHA-256."""
    digest = hashlib.sha256()
    target.unlink(missing_ok=True)
    with target.open("wb") as file:
        for chunk in chunks:
            digest.update(chunk)
            file.write(chunk)
            progress.step(len(chunk))
    return digest.hexdigest()


def _finish(file: PinnedFile, path: Path) -> None:
    """Compare a weight file's header with that of POST, clean a config, and make it read-only."""
    if "header_sha256" in file:
        with path.open("rb") as weights:

            def read(start: int, end: int) -> bytes:
                weights.seek(start)
                return weights.read(end - start)

            header = read_header(read, path.stat().st_size, name=file["path"])
        if header.sha256 != file["header_sha256"]:
            raise _changed(f"the header of {file['path']} is another")
    if file["path"] in CONFIGS:
        content = clean_file(file["path"], path.read_bytes())
        path.unlink()
        path.write_bytes(content)
    path.chmod(0o444)


def _changed(what: str) -> JobFailure:
    return JobFailure(
        JobErrorCode.MODEL_CHANGED,
        f"The model changed after the job was accepted: {what}.",
        "Send the job again, so that the model as it is now is checked; leave its files alone "
        "until the job runs.",
    )


@contextmanager
def _failures_explained() -> Iterator[None]:
    """Turn what can go wrong here into the failure of the job."""
    try:
        yield
    except DigestMismatch as exc:
        raise JobFailure(
            JobErrorCode.MODEL_CHANGED,
            f"{exc} from the hub has other bytes than the hub's own listing says, twice.",
            "Try again later; if it stays so, the file is damaged on the hub: tell its owner.",
            retryable=True,
        ) from exc
    except DebiasError as exc:
        raise _failure_of(exc) from exc
    except OSError as exc:
        if not is_disk_full(exc):
            raise
        raise JobFailure(
            JobErrorCode.DISK_FULL,
            "The worker's disk is full; the model does not fit.",
            "Free space in the worker's scratch folder, or choose a smaller model.",
            retryable=True,
        ) from exc


def _failure_of(error: DebiasError) -> JobFailure:
    if isinstance(error, Unavailable | StorageUnavailable):
        hint = "Retry the job later; what was downloaded so far is kept."
        return JobFailure(JobErrorCode.DEPENDENCY_FAILED, error.detail, hint, retryable=True)
    codes: dict[type[DebiasError], JobErrorCode] = {
        ModelGated: JobErrorCode.MODEL_GATED,
        ModelNotFound: JobErrorCode.MODEL_NOT_FOUND,
        UriNotAllowed: JobErrorCode.MODEL_NOT_FOUND,
        NotFound: JobErrorCode.MODEL_NOT_FOUND,
        Gone: JobErrorCode.MODEL_NOT_FOUND,
        SecretUnreadable: JobErrorCode.SECRET_UNREADABLE,
    }
    code = codes.get(type(error), JobErrorCode.UNSAFE_MODEL_FORMAT)
    hint = "Correct the model or its access as the message says, then send the job again."
    return JobFailure(code, error.detail, hint)


Fetcher = Callable[[PinnedModel, Path, FetchSources, Progress], list[FileFact]]
_FETCHERS: dict[str, Fetcher] = {
    "hub": _fetch_hub,
    "path": _fetch_folder,
    "demo": _fetch_demo,
    "version": _fetch_version,
}
