"""Content-addressed blobs, on a store in memory."""

import hashlib
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from app.storage.blobs import BlobCorrupt, BlobRef, fetch_file, store_file
from app.storage.hashing import hash_file, repr_digest
from app.storage.objects import ObjectMissing, ObstoreStore

DATA = b"weights"
SHA256 = hashlib.sha256(DATA).hexdigest()


class CountingStore(ObstoreStore):
    """Counts what is uploaded."""

    def __init__(self) -> None:
        super().__init__(MemoryStore)
        self.uploads: list[str] = []

    def put_file(self, key: str, path: Path) -> None:
        self.uploads.append(key)
        super().put_file(key, path)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(DATA)
    return path


def test_a_file_is_stored_under_its_hash(store: CountingStore, file: Path) -> None:
    ref = store_file(store, "prj_1", file)

    assert ref == BlobRef(SHA256, 7, f"p/prj_1/blobs/sha256/{SHA256[:2]}/{SHA256[2:4]}/{SHA256}")
    assert b"".join(store.stream(ref.key)) == DATA


def test_the_same_bytes_are_uploaded_once(store: CountingStore, file: Path) -> None:
    first = store_file(store, "prj_1", file)

    assert store_file(store, "prj_1", file) == first
    assert len(store.uploads) == 1


def test_projects_share_no_blobs(store: CountingStore, file: Path) -> None:
    store_file(store, "prj_1", file)

    other = store_file(store, "prj_2", file)

    assert other.key in store.uploads
    assert len(store.uploads) == 2


def test_a_blob_of_the_wrong_size_is_uploaded_again(store: CountingStore, file: Path) -> None:
    ref = store_file(store, "prj_1", file)
    store.put_bytes(ref.key, DATA[:3])

    store_file(store, "prj_1", file)

    assert b"".join(store.stream(ref.key)) == DATA


def test_a_fetched_file_is_the_stored_one(store: CountingStore, file: Path, tmp_path: Path) -> None:
    ref = store_file(store, "prj_1", file)

    fetch_file(store, ref, tmp_path / "fetched")

    assert (tmp_path / "fetched").read_bytes() == DATA


def test_changed_bytes_are_not_delivered(store: CountingStore, file: Path, tmp_path: Path) -> None:
    ref = store_file(store, "prj_1", file)
    store.put_bytes(ref.key, b"wEights")

    with pytest.raises(BlobCorrupt):
        fetch_file(store, ref, tmp_path / "fetched")

    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_blob_leaves_no_file(store: CountingStore, file: Path, tmp_path: Path) -> None:
    ref = store_file(store, "prj_1", file)
    store.delete(ref.key)

    with pytest.raises(ObjectMissing):
        fetch_file(store, ref, tmp_path / "fetched")

    assert list(tmp_path.iterdir()) == [file]


def test_a_file_is_hashed_with_its_size(file: Path) -> None:
    digest = hash_file(file)

    assert (digest.sha256, digest.size_bytes) == (SHA256, 7)


def test_repr_digest_has_the_form_of_the_standard() -> None:
    """The example of RFC 9530, appendix B.1."""
    sha256 = hashlib.sha256(b'{"hello": "world"}\n').hexdigest()

    assert repr_digest(sha256) == "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
