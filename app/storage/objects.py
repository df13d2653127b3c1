"""Object storage on local files and on S3, behind one protocol.

obstore runs threads that do not survive a fork: a forked child that meets its parent's waits for
ever. So nothing here imports or touches obstore before the first operation: open a store
anywhere, but let the process that forks never use one.
"""

import errno
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from app.domain.errors import Gone, StorageUnavailable
from app.storage.keys import validate_key
from app.storage.local_files import (
    delete_file,
    make_private_directory,
    remove_empty_directories,
    unfinished_files,
    write_durably,
)
from app.storage.s3 import PATIENT, Patience, S3Location

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import LocalStore, MemoryStore, S3Store

    Client = LocalStore | MemoryStore | S3Store

STREAM_CHUNK_BYTES = 1 << 20
# Four parts of this size are in memory at once, and 10,000 of them, the most that S3 takes,
# hold the largest checkpoint in sight (160 GB).
PART_BYTES = 16 << 20
PART_CONCURRENCY = 4
# How long a client of ours should wait after the store's retries were used up.
RETRY_AFTER_S = 5


class ObjectMissing(Gone):
    """The bytes are no longer in the object store; what describes them is kept."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object."""

    key: str
    size_bytes: int
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A write that never ended; `name` means something to its store only."""

    name: str
    size_bytes: int


class ObjectStore(Protocol):
    """Bytes under keys. Trouble with the store itself raises StorageUnavailable."""

    def put_file(self, key: str, path: Path) -> None:
        """Store a file, replacing what the key held; durable and whole on return."""
        ...

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store bytes, replacing what the key held; durable and whole on return."""
        ...

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Read bytes `start` to `end`, exclusive, both within the object.

        Raises ObjectMissing if the key holds nothing; so does `stream`.
        """
        ...

    def stream(self, key: str, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Read the object or a part of it in chunks of about 1 MiB, from the first `next()` on."""
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """Describe the object, or give None if the key holds nothing."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Describe all objects below a prefix of whole segments, in no certain order."""
        ...

    def delete(self, key: str) -> None:
        """Delete the object if the key holds one."""
        ...

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete the objects of all these keys that hold one, in as few requests as can be."""
        ...

    def unfinished(self, *, before: datetime) -> Sequence[Unfinished]:
        """List what writers that were killed before that moment left behind unseen.

        Nothing on S3: its own lifecycle rule ends unfinished uploads, and no client lists them.
        """
        ...

    def tidy(self, left: Sequence[Unfinished], *, before: datetime) -> None:
        """Delete what `unfinished` has found, and directories that were empty at that moment."""
        ...

    def signed_url(self, key: str, *, expires_in_s: int) -> str | None:
        """Make a URL that reads the object from the store itself; None where it cannot."""
        ...


def open_store(
    url: str,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    force_path_style: bool = False,
    patience: Patience = PATIENT,
) -> ObjectStore:
    """Open the store at `file:///directory` or `s3://bucket/prefix`, without touching it yet.

    The keyword arguments are for S3; keys that are not given come from where the AWS tools look
    for them. Raises ValueError for any other URL.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path[:1] == "/" != parts.path:
        return FileStore(Path(unquote(parts.path)))
    if parts.scheme != "s3" or not parts.netloc:
        raise ValueError("the store URL must be file:///directory or s3://bucket/prefix")

    location = S3Location(
        bucket=parts.netloc,
        prefix=parts.path.strip("/"),
        endpoint_url=endpoint_url,
        region=region,
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        force_path_style=force_path_style,
        patience=patience,
    )
    return ObstoreStore(location.connect)


class ObstoreStore:
    """An object store on top of an obstore client."""

    def __init__(self, connect: "Callable[[], Client]") -> None:
        self._connect = connect
        self._connected: tuple[int, Client] | None = None

    def put_file(self, key: str, path: Path) -> None:
        """Store a file, in parts where it is large."""
        size_bytes = path.stat().st_size
        with path.open("rb") as source:
            self._put(validate_key(key), source)
        self._check_size(key, size_bytes)

    def put_bytes(self, key: str, data: bytes) -> None:
        """Store bytes."""
        self._put(validate_key(key), io.BytesIO(data))
        self._check_size(key, len(data))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Read bytes `start` to `end`, exclusive."""
        import obstore

        with _store_errors():
            found = obstore.get_range(self._client(), validate_key(key), start=start, end=end)
            return bytes(found)

    def stream(self, key: str, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Read the object or a part of it in one request."""
        import obstore

        if start == end:
            return
        options: GetOptions = {}
        if end is not None:
            options = {"range": (start, end)}
        elif start:
            options = {"range": {"offset": start}}
        with _store_errors():
            found = obstore.get(self._client(), validate_key(key), options=options)
            yield from found.stream(min_chunk_size=STREAM_CHUNK_BYTES)

    def head(self, key: str) -> ObjectInfo | None:
        """Describe the object, or give None if the key holds nothing."""
        import obstore

        try:
            with _store_errors():
                return _info(obstore.head(self._client(), validate_key(key)))
        except ObjectMissing:
            return None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Describe all objects below a prefix of whole segments."""
        import obstore

        below = validate_key(prefix) if prefix else None
        with _store_errors():
            for page in obstore.list(self._client(), below, chunk_size=1000):
                yield from map(_info, page)

    def delete(self, key: str) -> None:
        """Delete the object if the key holds one."""
        import obstore

        # S3 is content with a missing object, the local store is not.
        with suppress(ObjectMissing), _store_errors():
            obstore.delete(self._client(), validate_key(key))

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete many objects, on S3 a thousand a request."""
        import obstore

        paths = [validate_key(key) for key in keys]
        if paths:
            with suppress(ObjectMissing), _store_errors():
                obstore.delete(self._client(), paths)

    def unfinished(self, *, before: datetime) -> Sequence[Unfinished]:
        """Give nothing: where there is something, it cannot be seen."""
        del before
        return []

    def tidy(self, left: Sequence[Unfinished], *, before: datetime) -> None:
        """Do nothing: there is nothing that `unfinished` has found."""

    def signed_url(self, key: str, *, expires_in_s: int) -> str | None:
        """Presign a GET where the store is S3."""
        import obstore
        from obstore.store import S3Store

        client = self._client()
        if not isinstance(client, S3Store):
            return None
        with _store_errors():
            return obstore.sign(
                client, "GET", validate_key(key), expires_in=timedelta(seconds=expires_in_s)
            )

    def _put(self, key: str, source: BinaryIO) -> None:
        import obstore

        try:
            with _store_errors():
                obstore.put(
                    self._client(),
                    key,
                    source,
                    chunk_size=PART_BYTES,
                    max_concurrency=PART_CONCURRENCY,
                )
        except ObjectMissing as exc:
            raise _unavailable("The bucket of the object store is gone.") from exc

    def _check_size(self, key: str, size_bytes: int) -> None:
        stored = self.head(key)
        if stored is None or stored.size_bytes != size_bytes:
            found = "nothing" if stored is None else f"{stored.size_bytes} bytes"
            raise _unavailable(f"The object store took {size_bytes} bytes and holds {found}.")

    def _client(self) -> "Client":
        if self._connected is None:
            with _store_errors():
                self._connected = (os.getpid(), self._connect())
        process_id, client = self._connected
        if process_id != os.getpid():
            raise RuntimeError("this object store was used before the fork: it would hang")
        return client


class FileStore(ObstoreStore):
    """An object store in a local directory, read through obstore and written durably by us."""

    def __init__(self, root: Path) -> None:
        super().__init__(self._open)
        self._root = root

    def _open(self) -> "LocalStore":
        from obstore.store import LocalStore

        make_private_directory(self._root)
        return LocalStore(self._root)

    def delete(self, key: str) -> None:
        """Delete the file, and the directories that are empty without it."""
        with suppress(ObjectMissing), _store_errors():
            delete_file(self._root / validate_key(key), self._root)

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete the files one by one."""
        for key in keys:
            self.delete(key)

    def unfinished(self, *, before: datetime) -> Sequence[Unfinished]:
        """List the temporary files of writers that were killed."""
        with _store_errors():
            found = unfinished_files(self._root, before=before.timestamp())
            return [Unfinished(str(path), size_bytes) for path, size_bytes in found]

    def tidy(self, left: Sequence[Unfinished], *, before: datetime) -> None:
        """Delete temporary files and empty directories."""
        with _store_errors():
            for file in left:
                Path(file.name).unlink(missing_ok=True)
            remove_empty_directories(self._root, before=before.timestamp())

    def _put(self, key: str, source: BinaryIO) -> None:
        with _store_errors():
            write_durably(self._root / key, source)


def _info(found: "ObjectMeta") -> ObjectInfo:
    return ObjectInfo(found["path"], found["size"], found["last_modified"])


@contextmanager
def _store_errors() -> Iterator[None]:
    """Turn the errors of obstore and of the file system into ours.

    Their texts hold paths and addresses; these stay in the cause, which only the log shows.
    """
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except FileNotFoundError as exc:
        raise ObjectMissing("The stored bytes are gone.") from exc
    except (PermissionError, PermissionDeniedError, UnauthenticatedError) as exc:
        raise _unavailable("The object store refuses this service.") from exc
    except OSError as exc:
        full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
        detail = "The object store is full." if full else "The object store does not answer."
        raise _unavailable(detail) from exc
    except BaseError as exc:
        raise _unavailable("The object store does not answer.") from exc


def _unavailable(detail: str) -> StorageUnavailable:
    return StorageUnavailable(detail, retry_after_s=RETRY_AFTER_S)
