"""Content-addressed blobs, on a store in memory."""

import hashlib
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from app.storage.blobs import BlobCorrupt, BlobRef, fetch_file, is_stored, store_file
from app.storage.hashing import hash_file, repr_digest
from app.storage.keys import BlobAddress, parse_key
from app.storage.objects import ObjectMissing, ObstoreStore

DATA = b"weights"
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def store() -> ObstoreStore:
    return ObstoreStore(MemoryStore)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(DATA)
    return path


def stored(store: ObstoreStore, file: Path, project: str = "prj_1") -> BlobRef:
    return store_file(store, project, file, hash_file(file))


def test_a_file_is_stored_under_its_hash(store: ObstoreStore, file: Path) -> None:
    ref = stored(store, file)

    assert (ref.sha256, ref.size_bytes) == (SHA256, 7)
    assert parse_key(ref.key) == BlobAddress("prj_1", SHA256)
    assert b"".join(store.stream(ref.key)) == DATA


def test_no_two_uploads_have_the_same_key(store: ObstoreStore, file: Path) -> None:
    """So the late deletion of one never meets the other."""
    assert stored(store, file).key != stored(store, file).key


def test_projects_share_no_blobs(store: ObstoreStore, file: Path) -> None:
    other = stored(store, file, "prj_2")

    assert parse_key(other.key) == BlobAddress("prj_2", SHA256)


@pytest.mark.parametrize(("size_bytes", "found"), [(7, True), (6, False)])
def test_a_blob_is_stored_when_it_has_its_size(
    store: ObstoreStore, file: Path, size_bytes: int, found: bool
) -> None:
    ref = stored(store, file)

    assert is_stored(store, ref.key, size_bytes) is found


def test_what_nobody_stored_is_not_stored(store: ObstoreStore) -> None:
    assert not is_stored(store, "p/nothing", 0)


def test_a_fetched_file_is_the_stored_one(store: ObstoreStore, file: Path, tmp_path: Path) -> None:
    ref = stored(store, file)

    fetch_file(store, ref, tmp_path / "fetched")

    assert (tmp_path / "fetched").read_bytes() == DATA


def test_changed_bytes_are_not_delivered(store: ObstoreStore, file: Path, tmp_path: Path) -> None:
    ref = stored(store, file)
    store.put_bytes(ref.key, b"wEights")

    with pytest.raises(BlobCorrupt):
        fetch_file(store, ref, tmp_path / "fetched")

    assert list(tmp_path.iterdir()) == [file]


def test_a_missing_blob_leaves_no_file(store: ObstoreStore, file: Path, tmp_path: Path) -> None:
    ref = stored(store, file)
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
