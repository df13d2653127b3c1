"""No string of a stranger becomes a path: the table of hostile names against each way in."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import DebiasError, JobFailure
from app.domain.models import FileFact
from app.domain.sources import PinnedModel
from app.integrations.hub import Deadline, HubFile, RepoListing
from app.integrations.hub.cache import CommitCache
from app.security.model_files import choose_weights, is_allowed_file
from app.security.paths import plain_segments, resolve_below
from app.security.safetensors_check import read_index
from app.services.model_readers import HubReader, VersionReader, open_demo, open_folder
from app.storage.content import content_response_plan
from app.storage.keys import log_key, validate_key
from app.storage.objects import open_store
from debias_client import UnsafeName
from debias_client.download import plan_targets
from tests.hostile_names import NAMES, SECRET, Sandbox, hostile_names, watching
from tests.model_files import llama_folder
from workers.fetch import FetchSources, fetch_model
from workers.runtime.results import read_manifest

REFUSALS = (DebiasError, JobFailure, UnsafeName, ValueError, FileNotFoundError)


TINY = llama_folder(README__md=None)


def make_sandbox(root: Path) -> Sandbox:
    made = Sandbox(root)
    made.outside.mkdir(parents=True)
    (made.outside / "secret").write_text(SECRET)
    tiny = made.inside / "tiny"
    tiny.mkdir(parents=True)
    for name, data in TINY.items():
        (tiny / name).write_bytes(data)
    (tiny / "README.md").symlink_to(made.outside / "secret")
    (made.inside / "link").symlink_to(made.outside)
    return made


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return make_sandbox(tmp_path)


def model_folder(sandbox: Sandbox, name: str) -> object:
    return sorted(open_folder(sandbox.inside, name).files)


def folder_below(sandbox: Sandbox, name: str) -> object:
    return resolve_below(sandbox.inside, name)


def demo(sandbox: Sandbox, name: str) -> object:
    return sorted(open_demo(name).files)


def hub_listing(sandbox: Sandbox, name: str) -> object:
    """A file name in the listing of a hub that lies."""
    listing = RepoListing("a" * 40, False, (HubFile(name, 1, None),))
    nobody: Any = None  # no client: nothing may be asked for
    files = HubReader(nobody, "o/n", listing, cache=None, deadline=Deadline(1)).files
    return [sandbox.inside / "model" / file for file in files if is_allowed_file(file)]


def index_file(sandbox: Sandbox, name: str) -> object:
    content = {"weight_map": {"tensor": f"{name}.safetensors", "other": name}}
    shards = {f"{name}.safetensors", name}
    index = read_index(json.dumps(content).encode(), name="index", present=shards)
    return [sandbox.inside / shard for shard in index.files]


def weights(sandbox: Sandbox, name: str) -> object:
    return choose_weights({"config.json", name, "model.safetensors"}).index


def fetched_file(sandbox: Sandbox, name: str) -> object:
    """A pinned file, as a row that was tampered with would name it."""
    pinned = PinnedModel(
        type="version", version_id="mv", files=[{"path": name, "size": 1, "sha256": "0" * 64}]
    )
    return fetch_model(
        pinned,
        sandbox.inside / "target",
        sources=FetchSources(sandbox.inside / "cache", read_blob=lambda *_: b"x"),
        should_stop=lambda: False,
        on_progress=lambda *_: None,
    )


def fetched_folder(sandbox: Sandbox, name: str) -> object:
    pinned = PinnedModel(
        type="path", name=name, files=[{"path": "config.json", "size": 1, "sha256": None}]
    )
    return fetch_model(
        pinned,
        sandbox.inside / "target",
        sources=FetchSources(sandbox.inside / "cache", models_dir=sandbox.inside),
        should_stop=lambda: False,
        on_progress=lambda *_: None,
    )


def version_file(sandbox: Sandbox, name: str) -> object:
    asked: list[str] = []

    def read_blob(digest: str, start: int, end: int) -> bytes:
        asked.append(digest)
        return b"x"

    VersionReader([FileFact(name, 1, "0" * 64)], read_blob).read(name, 0, 1)
    assert asked == ["0" * 64]
    return None


def hub_cache(sandbox: Sandbox, name: str) -> object:
    """Repository, commit and endpoint only ever reach the disk as a digest."""
    cache = CommitCache(sandbox.inside / "cache", endpoint=name, repo_id=name, commit=name)
    cache.put("config.json.head", b"x")
    return [cache.folder / "config.json.head"]


def manifest(sandbox: Sandbox, name: str) -> object:
    out = sandbox.inside / "out"
    out.mkdir()
    (out / "link").symlink_to(sandbox.outside)
    entry = {"name": name, "type": "model", "media_type": "a/b", "size_bytes": len(SECRET)}
    (out / "manifest.json").write_text(json.dumps({"files": [entry]}))
    return [path for _, path in read_manifest(out)]


def store_key(sandbox: Sandbox, name: str) -> object:
    store = open_store(f"file://{sandbox.inside / 'objects'}")
    with suppress(ValueError):
        store.put_bytes(name, b"x")
    return b"".join(store.stream(name))


def log_stream(sandbox: Sandbox, name: str) -> object:
    return validate_key(log_key("prj", "job", "att", name, 1))


def client_target(sandbox: Sandbox, name: str) -> object:
    return list(plan_targets([name], sandbox.inside))


def client_target_below_a_link(sandbox: Sandbox, name: str) -> object:
    return list(plan_targets([f"link/{name}"], sandbox.inside))


def file_name_of_a_download(sandbox: Sandbox, name: str) -> object:
    headers = content_response_plan(
        {}, size_bytes=0, sha256="0" * 64, file_name=name, media_type="a/b"
    ).headers
    offered = headers["Content-Disposition"].removeprefix("attachment; filename*=UTF-8''")
    assert offered.isascii()
    assert not set(offered) & set("/\\\r\n\0\";' ")
    return None


def segments(sandbox: Sandbox, name: str) -> object:
    return [sandbox.inside.joinpath(*plain_segments(name))]


WAYS_IN: tuple[Callable[[Sandbox, str], object], ...] = (
    model_folder,
    folder_below,
    demo,
    hub_listing,
    index_file,
    weights,
    fetched_file,
    fetched_folder,
    version_file,
    hub_cache,
    manifest,
    store_key,
    log_stream,
    client_target,
    client_target_below_a_link,
    file_name_of_a_download,
    segments,
)


@pytest.mark.parametrize("way_in", WAYS_IN, ids=lambda way_in: way_in.__name__)
def test_hostile_names_stay_inside_or_are_refused(
    tmp_path: Path, way_in: Callable[[Sandbox, str], object]
) -> None:
    wrong = {}
    for number, (label, name) in enumerate(hostile_names(f"{tmp_path}/ROOT").items()):
        sandbox = make_sandbox(tmp_path / str(number))
        aimed = name.replace("/ROOT", f"/{number}")
        if found := leak(sandbox, way_in, aimed):
            wrong[label] = found

    assert wrong == {}


def leak(sandbox: Sandbox, way_in: Callable[[Sandbox, str], object], name: str) -> object:
    """Let the name in and tell what it reached outside; None where it reached nothing."""
    before = sandbox.contents()
    found: object = None
    with watching(sandbox), suppress(*REFUSALS):
        found = way_in(sandbox, name)
    paths = [path for path in found if isinstance(path, Path)] if isinstance(found, list) else []
    led_out = [str(path) for path in paths if not is_inside(path, sandbox.inside)]
    changed = sandbox.contents() != before
    read = SECRET in repr(found)
    return (
        (sandbox.opened_outside, led_out, changed, read)
        if any((sandbox.opened_outside, led_out, changed, read))
        else None
    )


def is_inside(path: Path, root: Path) -> bool:
    """Whether the path lies below `root`, both as it is written and where links lead."""
    written = Path(os.path.normpath(path))
    return written.is_relative_to(root) and path.resolve().is_relative_to(root)


def test_table_is_long_enough() -> None:
    assert len(set(NAMES.values())) == len(NAMES) >= 60


def test_link_in_a_folder_of_a_model_does_not_lead_out(sandbox: Sandbox) -> None:
    with pytest.raises(DebiasError, match="leads out of the models directory"):
        open_folder(sandbox.inside, "tiny")


def test_a_name_that_is_fine_goes_through_every_way(sandbox: Sandbox) -> None:
    """Else a test of refusals would prove nothing."""
    (sandbox.inside / "tiny" / "README.md").unlink()

    assert "config.json" in open_folder(sandbox.inside, "tiny").files
    assert hub_listing(sandbox, "config.json") == [sandbox.inside / "model" / "config.json"]
    assert plan_targets(["a/b.json"], sandbox.inside) == (sandbox.inside / "a" / "b.json",)
    with pytest.raises(JobFailure, match="do not have their digest"):
        fetched_file(sandbox, "README.md")
