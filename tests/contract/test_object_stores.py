"""The object stores against their conformance suite, and what only one of them does."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from app.domain.errors import StorageUnavailable
from app.storage.objects import ObjectStore, ObstoreStore, open_store
from tests.contract.object_store_suite import ObjectStoreSuite, StreamingStoreSuite
from tests.server_addresses import S3Address
from tests.servers import reserve_ports


def open_s3(server: S3Address, url: str) -> ObjectStore:
    return open_store(
        url,
        endpoint_url=server.endpoint_url,
        region=server.region,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        force_path_style=True,
    )


class TestMemoryStore(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> ObjectStore:
        from obstore.store import MemoryStore

        return ObstoreStore(MemoryStore)


class TestFileStore(StreamingStoreSuite):
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "made" / "by the store"

    @pytest.fixture
    def store(self, root: Path) -> ObjectStore:
        return open_store(root.as_uri())

    def test_files_and_directories_are_private(self, store: ObjectStore, root: Path) -> None:
        old = os.umask(0)
        try:
            store.put_bytes("a/b/c", b"1")
        finally:
            os.umask(old)

        modes = {stat.S_IMODE(path.stat().st_mode) for path in (root / "a", root / "a" / "b")}
        assert modes == {0o700}
        assert stat.S_IMODE((root / "a/b/c").stat().st_mode) == 0o600

    def test_a_failed_write_leaves_the_old_bytes_and_nothing_else(
        self, store: ObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.put_bytes("a/b", b"old")

        def fail(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)

        with pytest.raises(StorageUnavailable, match="full"):
            store.put_bytes("a/b", b"new")
        assert (root / "a/b").read_bytes() == b"old"
        assert [path.name for path in (root / "a").iterdir()] == ["b"]

    def test_what_a_crash_left_unfinished_is_not_listed(
        self, store: ObjectStore, root: Path
    ) -> None:
        store.put_bytes("a/b", b"1")
        (root / "a" / "c#123456").write_bytes(b"half")

        assert [info.key for info in store.list("a")] == ["a/b"]

    def test_bytes_are_synced_before_they_get_their_name(
        self, store: ObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.put_bytes("a/before", b"")
        real, seen = os.fsync, list[tuple[bool, bool]]()

        def record(descriptor: int) -> None:
            is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            seen.append((is_directory, (root / "a/b").exists()))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", record)
        store.put_bytes("a/b", b"1")

        assert seen == [(False, False), (True, True)]

    def test_a_deletion_takes_empty_directories_along(self, store: ObjectStore, root: Path) -> None:
        for key in ("a/b/c/1", "a/b/2", "a/d/3"):
            store.put_bytes(key, b"1")

        store.delete("a/b/c/1")
        assert sorted(path.name for path in (root / "a").iterdir()) == ["b", "d"]
        assert not (root / "a/b/c").exists()
        store.delete_many(["a/b/2", "a/d/3"])

        assert list(root.iterdir()) == []

    def test_what_killed_writers_left_is_found_by_its_age(
        self, store: ObjectStore, root: Path
    ) -> None:
        store.put_bytes("a/b", b"1")
        old, young = root / "a" / "b#1", root / "a" / "b#2"
        old.write_bytes(b"123")
        young.write_bytes(b"1")
        (root / "empty" / "too").mkdir(parents=True)
        before = datetime(2020, 1, 2, tzinfo=UTC)
        for path in (old, root / "empty" / "too", root / "empty"):
            os.utime(path, (before.timestamp() - 1,) * 2)

        left = store.unfinished(before=before)
        store.tidy(left, before=before)

        assert [file.size_bytes for file in left] == [3]
        assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == [
            "a",
            "a/b",
            "a/b#2",
        ]

    def test_writers_and_deleters_of_one_directory_do_not_meet(
        self, store: ObjectStore, root: Path
    ) -> None:
        """Whoever deletes the last file takes away the directory that another writes into."""
        with ThreadPoolExecutor(4) as pool:

            def write_and_delete(number: int) -> None:
                for _ in range(100):
                    store.put_bytes(f"a/b/{number}", b"1")
                    store.delete(f"a/b/{number}")

            list(pool.map(write_and_delete, range(4)))

        assert list(root.iterdir()) == []

    def test_it_signs_no_urls(self, store: ObjectStore) -> None:
        store.put_bytes("a/b", b"1")

        assert store.signed_url("a/b", expires_in_s=60) is None

    def test_a_root_that_is_a_file_is_unavailable(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        store = open_store((tmp_path / "file").as_uri())

        with pytest.raises(StorageUnavailable):
            store.put_bytes("a/b", b"1")


class TestS3Store(StreamingStoreSuite):
    @pytest.fixture
    def store(self, s3_server: S3Address, s3_bucket: str) -> ObjectStore:
        return open_s3(s3_server, f"{s3_bucket}/some/prefix")

    def test_two_prefixes_of_a_bucket_are_apart(
        self, store: ObjectStore, s3_server: S3Address, s3_bucket: str
    ) -> None:
        store.put_bytes("a/b", b"1")

        assert list(open_s3(s3_server, f"{s3_bucket}/other").list()) == []
        assert [info.key for info in open_s3(s3_server, s3_bucket).list()] == ["some/prefix/a/b"]

    def test_list_goes_on_past_one_page(self, store: ObjectStore) -> None:
        for number in range(1005):
            store.put_bytes(f"many/{number}", b"")

        assert len(list(store.list("many"))) == 1005

    def test_a_signed_url_reads_the_object_and_nothing_else(self, store: ObjectStore) -> None:
        store.put_bytes("a/b", b"secret bytes")
        store.put_bytes("a/c", b"other bytes")

        url = store.signed_url("a/b", expires_in_s=60)

        assert url is not None
        assert httpx.get(url, trust_env=False).content == b"secret bytes"
        assert httpx.get(url.replace("a/b", "a/c"), trust_env=False).status_code == 403
        assert httpx.delete(url, trust_env=False).status_code == 403

    def test_wrong_credentials_are_told_apart_from_silence(
        self, s3_server: S3Address, s3_bucket: str
    ) -> None:
        stranger = S3Address(s3_server.endpoint_url, s3_server.access_key_id, "wrong")

        with pytest.raises(StorageUnavailable, match="refuses"):
            open_s3(stranger, s3_bucket).put_bytes("a/b", b"1")

    def test_a_server_that_is_down_is_unavailable_and_says_when_to_retry(self) -> None:
        (port,) = reserve_ports(1)
        nobody = S3Address(f"http://127.0.0.1:{port}", "key", "secret")

        with pytest.raises(StorageUnavailable) as caught:
            open_s3(nobody, "s3://bucket").head("a/b")

        assert caught.value.retry_after_s
        assert str(port) not in caught.value.detail


@pytest.mark.parametrize(
    "url", ["", "/data", "file:relative", "file://host/a", "file:///", "gs://b", "s3://"]
)
def test_other_store_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="store URL"):
        open_store(url)


@pytest.mark.parametrize(
    ("endpoint_url", "force_path_style", "start"),
    [
        ("https://s3.example.com", True, "https://s3.example.com/bucket/prefix/a/b?"),
        ("https://s3.example.com/", False, "https://bucket.s3.example.com/prefix/a/b?"),
        (None, True, "https://s3.eu-west-1.amazonaws.com/bucket/prefix/a/b?"),
        (None, False, "https://bucket.s3.eu-west-1.amazonaws.com/prefix/a/b?"),
    ],
)
def test_the_bucket_stands_in_the_path_or_in_the_host(
    endpoint_url: str | None, force_path_style: bool, start: str
) -> None:
    store = open_store(
        "s3://bucket/prefix",
        endpoint_url=endpoint_url,
        region="eu-west-1",
        access_key_id="key",
        secret_access_key="secret",
        force_path_style=force_path_style,
    )

    url = store.signed_url("a/b", expires_in_s=60)

    assert url is not None
    assert url.startswith(start)


def test_opening_a_store_loads_no_client() -> None:
    """The process that forks may open a store for its children, but start no threads."""
    script = (
        "import sys; from app.storage.objects import open_store; import app.storage.blobs;"
        "open_store('file:///nowhere'); open_store('s3://bucket');"
        "sys.exit('obstore' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_store_used_before_a_fork_refuses_the_child(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    store.put_bytes("a/b", b"1")

    child = os.fork()
    if child == 0:
        try:
            store.head("a/b")
        except RuntimeError:
            os._exit(7)
        os._exit(0)

    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
