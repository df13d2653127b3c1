"""Inspecting models of a local folder and of our own store."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.demo_models import DEMO_MODELS, DEMO_MODELS_DIR
from app.domain.errors import DebiasError, ModelNotFound, UnsafeModelFormat, UriNotAllowed
from app.domain.models import FileFact
from app.domain.sources import DemoSource, PathSource, VersionSource
from app.services.model_intake import InspectedModel, IntakeSettings, inspect_source
from app.services.model_readers import open_folder
from tests.model_files import llama_folder, llama_shapes, safetensors


def write_model(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    write_model(tmp_path / "models" / "tiny", llama_folder())
    return tmp_path / "models"


def inspect(models_dir: Path | None, name: str = "tiny") -> InspectedModel:
    settings = IntakeSettings(Path("/nowhere"), models_dir=models_dir)
    return inspect_source(PathSource(name), settings=settings)


def test_folder_is_read(models_dir: Path) -> None:
    model = inspect(models_dir)

    assert model.pinned["name"] == "tiny"
    assert {file["path"] for file in model.pinned["files"]} == set(llama_folder())
    assert model.facts.tensors.keys() == llama_shapes().keys()


def test_what_is_pinned_stays_while_nothing_changes(models_dir: Path) -> None:
    assert inspect(models_dir).pinned == inspect(models_dir).pinned


def test_what_is_pinned_changes_with_a_time_stamp(models_dir: Path) -> None:
    before = inspect(models_dir).pinned
    os.utime(models_dir / "tiny" / "model.safetensors", ns=(1, 1))

    assert inspect(models_dir).pinned != before


def test_bytes_of_a_folder_may_change(models_dir: Path) -> None:
    assert inspect(models_dir).content_key is None


def test_weights_themselves_are_not_hashed(models_dir: Path) -> None:
    (weights,) = [file for file in inspect(models_dir).pinned["files"] if "header_sha256" in file]

    assert weights["sha256"] is None


def test_paths_are_off_unless_set(models_dir: Path) -> None:
    with pytest.raises(UriNotAllowed, match="DEBIAS_MODELS_DIR") as error:
        inspect(None)

    assert [finding.pointer for finding in error.value.findings] == ["/model/path"]


@pytest.mark.parametrize("name", ["../models/tiny", "/etc", "", "tiny\0", "tiny/..", "a" * 300])
def test_path_with_tricks_is_refused(models_dir: Path, name: str) -> None:
    with pytest.raises(UriNotAllowed) as error:
        inspect(models_dir, name)

    assert error.value.findings[0].pointer == "/model/path"


@pytest.mark.parametrize("name", ["none", "tiny/config.json", "\u6a21" * 200])
def test_path_that_is_no_folder(models_dir: Path, name: str) -> None:
    with pytest.raises(ModelNotFound) as error:
        inspect(models_dir, name)

    assert error.value.findings[0].code == "path_not_found"


def test_error_shows_no_path_of_the_server(models_dir: Path) -> None:
    with pytest.raises(ModelNotFound) as error:
        inspect(models_dir, "none")

    assert str(models_dir) not in error.value.detail


def test_folder_linked_from_outside_is_refused(models_dir: Path, tmp_path: Path) -> None:
    write_model(tmp_path / "outside", llama_folder())
    (models_dir / "link").symlink_to(tmp_path / "outside")

    with pytest.raises(UriNotAllowed, match="link"):
        inspect(models_dir, "link")


def test_file_linked_from_outside_is_refused(models_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    (models_dir / "tiny" / "generation_config.json").symlink_to(tmp_path / "secret.json")

    with pytest.raises(UriNotAllowed, match=r"generation_config\.json is a link"):
        inspect(models_dir)


def test_links_within_the_models_directory_are_followed(models_dir: Path) -> None:
    blob = models_dir / "blob"
    weights = models_dir / "tiny" / "model.safetensors"
    weights.rename(blob)
    weights.symlink_to("../blob")

    assert inspect(models_dir).facts.tensors.keys() == llama_shapes().keys()


def test_link_to_nothing_counts_as_no_file(models_dir: Path) -> None:
    weights = models_dir / "tiny" / "model.safetensors"
    weights.unlink()
    weights.symlink_to("gone")

    with pytest.raises(UnsafeModelFormat, match="no weights"):
        inspect(models_dir)


def test_file_that_goes_away_while_it_is_read_is_named(models_dir: Path) -> None:
    reader = open_folder(models_dir, "tiny")
    (models_dir / "tiny" / "config.json").unlink()

    with pytest.raises(ModelNotFound, match=r"config\.json cannot be read"):
        reader.read("config.json", 0, 10)


def test_real_model_is_read(shared_data: Path) -> None:
    model = inspect(shared_data / "models", "stories260k-llama")

    assert model.facts.model_type == "llama"
    assert model.facts.parameter_count == 260_032
    assert model.warnings == ()


def test_version_of_our_store_is_read_by_its_blobs() -> None:
    files = {**llama_folder(), "optimizer.bin": b"x"}
    blobs = {hashlib.sha256(data).hexdigest(): data for data in files.values()}
    facts = [
        FileFact(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()
    ]

    model = inspect_source(
        VersionSource("mv_1"),
        settings=IntakeSettings(Path("/nowhere")),
        stored_files=facts,
        read_blob=lambda digest, start, end: blobs[digest][start:end],
    )

    assert (model.pinned["type"], model.pinned["version_id"]) == ("version", "mv_1")
    assert {file["path"]: file["sha256"] for file in model.pinned["files"]} == {
        fact.path: fact.sha256 for fact in facts if fact.path != "optimizer.bin"
    }


def test_damaged_folder_is_refused_as_a_hub_model_is(models_dir: Path) -> None:
    weights = models_dir / "tiny" / "model.safetensors"
    weights.write_bytes(safetensors(llama_shapes()) + b"x")

    with pytest.raises(UnsafeModelFormat) as error:
        inspect(models_dir)

    assert error.value.findings[0].code == "safetensors_hole"


@pytest.mark.parametrize("name", DEMO_MODELS)
def test_demo_model_is_pinned_by_the_digest_of_every_file(name: str) -> None:
    model = inspect_source(DemoSource(name), settings=IntakeSettings(Path("/nowhere")))

    assert (model.pinned["type"], model.pinned["name"]) == ("demo", name)
    assert {file["path"]: file["sha256"] for file in model.pinned["files"]} == {
        path: hashlib.sha256((DEMO_MODELS_DIR / name / path).read_bytes()).hexdigest()
        for path in ("README.md", *MODEL_FILES[name])
    }
    assert not any("mtime_ns" in file for file in model.pinned["files"])


MODEL_FILES = {
    "tiny-bert": (
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ),
    "tiny-llama": (
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ),
}


@pytest.mark.parametrize("name", ["tiny-lama", "", "..", "../services", "tiny-llama/"])
def test_only_listed_demo_models_are_read(name: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        inspect_source(DemoSource(name), settings=IntakeSettings(Path("/nowhere")))

    assert [finding.pointer for finding in caught.value.findings] == ["/model/demo"]


def test_demo_model_is_read_once_and_found_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = IntakeSettings(Path("/nowhere"))
    first = inspect_source(DemoSource("tiny-llama"), settings=settings)
    monkeypatch.setattr("app.services.model_intake._read_files", None)

    again = inspect_source(DemoSource("tiny-llama"), settings=settings)

    assert again == first


def test_folder_that_may_change_is_read_each_time(models_dir: Path) -> None:
    settings = IntakeSettings(Path("/nowhere"), models_dir=models_dir)
    inspect_source(PathSource("tiny"), settings=settings)
    (models_dir / "tiny" / "config.json").write_text("{}")

    with pytest.raises(DebiasError):
        inspect_source(PathSource("tiny"), settings=settings)


def test_version_is_read_each_time_so_that_a_lost_blob_is_noticed() -> None:
    files = llama_folder()
    blobs = {hashlib.sha256(data).hexdigest(): data for data in files.values()}
    facts = [
        FileFact(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()
    ]
    settings = IntakeSettings(Path("/nowhere"))

    def read() -> None:
        inspect_source(
            VersionSource("mv_1"),
            settings=settings,
            stored_files=facts,
            read_blob=lambda digest, start, end: blobs[digest][start:end],
        )

    read()
    blobs.clear()

    with pytest.raises(KeyError):
        read()
