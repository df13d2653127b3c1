"""What every object store must do. A test class inherits it and gives the fixture `store`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.storage.objects import PART_BYTES, ObjectMissing, ObjectStore

MIB = 1 << 20
# Two parts and a bit, of a pattern that no whole number of parts repeats.
LARGE = (bytes(range(251)) * (2 * PART_BYTES // 251 + 999))[: 2 * PART_BYTES + 4321]


class ObjectStoreSuite:
    """Conformance of one kind of store, which starts empty for each test."""

    @pytest.fixture
    def store(self) -> ObjectStore:
        raise NotImplementedError

    def test_bytes_come_back(self, store: ObjectStore) -> None:
        store.put_bytes("a/b.bin", b"\x00\xff payload")

        assert b"".join(store.stream("a/b.bin")) == b"\x00\xff payload"

    @pytest.mark.parametrize("data", [b"", b"x", LARGE], ids=["empty", "small", "three parts"])
    def test_a_file_comes_back(self, store: ObjectStore, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "source"
        path.write_bytes(data)

        store.put_file("a/file", path)

        assert b"".join(store.stream("a/file")) == data
        assert path.read_bytes() == data

    def test_a_second_put_replaces_the_first(self, store: ObjectStore) -> None:
        store.put_bytes("a/b", b"first and longer")

        store.put_bytes("a/b", b"second")

        assert b"".join(store.stream("a/b")) == b"second"

    def test_put_of_a_missing_file_is_the_callers_error(
        self, store: ObjectStore, tmp_path: Path
    ) -> None:
        with pytest.raises(FileNotFoundError):
            store.put_file("a/b", tmp_path / "absent")

    def test_head_tells_key_and_size(self, store: ObjectStore) -> None:
        store.put_bytes("a/b", b"12345")

        info = store.head("a/b")

        assert info is not None
        assert (info.key, info.size_bytes) == ("a/b", 5)
        assert info.modified_at.tzinfo is not None

    def test_many_are_deleted_at_once_and_the_missing_are_no_error(
        self, store: ObjectStore
    ) -> None:
        keys = [f"a/{number}/x" for number in range(5)]
        for key in keys:
            store.put_bytes(key, b"1")
        store.put_bytes("a/kept", b"1")

        store.delete_many([*keys[:2], "a/never/was", *keys[2:]])
        store.delete_many([])

        assert [info.key for info in store.list("a")] == ["a/kept"]

    def test_head_of_nothing_is_none(self, store: ObjectStore) -> None:
        store.put_bytes("a/b/c", b"1")

        assert store.head("a/x") is None
        assert store.head("a/b") is None

    @pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 7), (9, 10), (0, 10)])
    def test_a_range_is_cut_exactly(self, store: ObjectStore, start: int, end: int) -> None:
        store.put_bytes("a/b", b"0123456789")

        assert store.get_range("a/b", start, end) == b"0123456789"[start:end]
        assert b"".join(store.stream("a/b", start=start, end=end)) == b"0123456789"[start:end]

    def test_a_stream_may_start_late_and_run_to_the_end(self, store: ObjectStore) -> None:
        store.put_bytes("a/b", b"0123456789")

        assert b"".join(store.stream("a/b", start=4)) == b"456789"

    def test_an_empty_part_streams_nothing(self, store: ObjectStore) -> None:
        store.put_bytes("a/b", b"0123456789")

        assert list(store.stream("a/b", start=4, end=4)) == []

    @pytest.mark.parametrize(
        "read",
        [lambda store: list(store.stream("a/b")), lambda store: store.get_range("a/b", 0, 1)],
        ids=["stream", "range"],
    )
    def test_reading_nothing_says_that_it_is_missing(
        self, store: ObjectStore, read: Callable[[ObjectStore], object]
    ) -> None:
        with pytest.raises(ObjectMissing):
            read(store)

    def test_list_finds_all_below_whole_segments(self, store: ObjectStore) -> None:
        for key in ("p/1/a", "p/1/b/c", "p/10/a", "q/1"):
            store.put_bytes(key, key.encode())

        assert {info.key for info in store.list("p/1")} == {"p/1/a", "p/1/b/c"}
        assert {info.key for info in store.list()} == {"p/1/a", "p/1/b/c", "p/10/a", "q/1"}
        assert {info.size_bytes for info in store.list("q")} == {3}

    def test_list_of_nothing_is_empty(self, store: ObjectStore) -> None:
        assert list(store.list("p/1")) == []

    def test_a_deleted_object_is_gone(self, store: ObjectStore) -> None:
        store.put_bytes("a/b", b"1")
        store.put_bytes("a/c", b"2")

        store.delete("a/b")

        assert store.head("a/b") is None
        assert [info.key for info in store.list("a")] == ["a/c"]

    def test_delete_of_nothing_is_done_already(self, store: ObjectStore) -> None:
        store.delete("a/b")

        assert store.head("a/b") is None

    @pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", ".", "a b", "a#1", "ä"])
    def test_an_unsafe_key_is_refused(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(ValueError, match="not a key"):
            store.put_bytes(key, b"1")
        with pytest.raises(ValueError, match="not a key"):
            store.head(key)


class StreamingStoreSuite(ObjectStoreSuite):
    """Conformance of a store whose objects need not fit into memory."""

    def test_a_large_stream_comes_in_small_chunks(self, store: ObjectStore) -> None:
        store.put_bytes("a/b", LARGE)

        sizes = [len(chunk) for chunk in store.stream("a/b")]

        assert sum(sizes) == len(LARGE)
        assert len(sizes) >= len(LARGE) // (2 * MIB)
