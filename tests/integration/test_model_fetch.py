"""Bringing pinned models to a worker: verified, resumed, cleaned, and never writable."""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from app.demo_models import DEMO_MODELS_DIR
from app.domain.errors import JobErrorCode, JobFailure
from app.domain.models import FileFact
from app.domain.sources import (
    DemoSource,
    HubSource,
    PathSource,
    PinnedFile,
    PinnedModel,
    VersionSource,
)
from app.integrations.hub import HubClient
from app.integrations.hub.eviction import HubCache
from app.services.model_intake import IntakeSettings, inspect_source
from tests.hub_stand_in import GOOD_TOKEN, HubStandIn
from tests.model_files import CONFIG, llama_folder, llama_shapes, safetensors, sharded_llama_folder
from workers.fetch import FetchSources, fetch_model
from workers.runtime.context import Stopped

LARGE = {**llama_shapes(), "model.extra.weight": [600, 1000]}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def hub() -> Iterator[HubStandIn]:
    with HubStandIn() as stand_in:
        yield stand_in


class Worker:
    """A worker with its cache, and the hub it reads from."""

    def __init__(self, hub: HubStandIn, folder: Path, *, token: str | None = None) -> None:
        self.client = HubClient(hub.endpoint, token=token, http=httpx.Client(trust_env=False))
        self.pauses: list[float] = []
        self.progress: list[tuple[int, int]] = []
        self._intake = IntakeSettings(folder / "intake", hub=self.client, budget_s=20.0)
        self.cache = folder / "cache"
        self.cache_max_bytes: int | None = None
        self.target = folder / "target"

    def pin(self, repo_id: str = "org/model") -> PinnedModel:
        return inspect_source(HubSource(repo_id), settings=self._intake).pinned

    def fetch(
        self,
        pinned: PinnedModel,
        *,
        target: Path | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[FileFact]:
        sources = FetchSources(
            self.cache, self.cache_max_bytes, hub=self.client, pause=self.pauses.append
        )
        return fetch_model(
            pinned,
            target or self.target,
            sources=sources,
            should_stop=should_stop,
            on_progress=lambda done, total: self.progress.append((done, total)),
        )


@pytest.fixture
def worker(hub: HubStandIn, tmp_path: Path) -> Iterator[Worker]:
    one = Worker(hub, tmp_path)
    with one.client:
        yield one


def test_files_arrive_with_their_digests(hub: HubStandIn, worker: Worker) -> None:
    files = sharded_llama_folder(2)
    hub.add("org/model", {**files, "pytorch_model.bin": b"x"})

    facts = worker.fetch(worker.pin())

    assert {fact.path: fact.sha256 for fact in facts} == {
        name: sha256(data) for name, data in files.items()
    }
    assert sorted(path.name for path in worker.target.iterdir()) == sorted(files)
    index = "model.safetensors.index.json"
    assert (worker.target / index).read_bytes() == files[index]


def test_files_cannot_be_written_by_accident(hub: HubStandIn, worker: Worker) -> None:
    hub.add("org/model", llama_folder(model__safetensors=safetensors(LARGE)))

    worker.fetch(worker.pin())

    modes = {stat.S_IMODE(path.stat().st_mode) for path in worker.target.iterdir()}
    assert modes == {0o444}


def test_config_is_written_in_its_cleaned_form(hub: HubStandIn, worker: Worker) -> None:
    config = b'{"auto_map": {"AutoModel": "a.B"}, "odd": 1, ' + llama_folder()["config.json"][1:]
    hub.add("org/model", llama_folder(config__json=config))

    facts = worker.fetch(worker.pin())

    assert json.loads((worker.target / "config.json").read_bytes()) == CONFIG
    assert {fact.path: fact.sha256 for fact in facts}["config.json"] == sha256(config)


def test_second_job_downloads_nothing(hub: HubStandIn, worker: Worker, tmp_path: Path) -> None:
    hub.add("org/model", llama_folder())
    pinned = worker.pin()
    worker.fetch(pinned)
    hub.seen.clear()

    worker.fetch(pinned, target=tmp_path / "second")

    assert hub.seen == []
    assert (tmp_path / "second" / "model.safetensors").exists()


def test_large_files_are_linked_from_the_cache(
    hub: HubStandIn, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.fetch._LINK_FROM_BYTES", 1_000_000)
    hub.add("org/model", llama_folder(model__safetensors=safetensors(LARGE)))

    worker.fetch(worker.pin())

    links = {path.name: path.stat().st_nlink for path in worker.target.iterdir()}
    assert links == {name: 1 + (name == "model.safetensors") for name in llama_folder()}


def test_broken_download_is_resumed(hub: HubStandIn, worker: Worker) -> None:
    weights = safetensors(LARGE, fill=3)
    hub.add("org/model", llama_folder(model__safetensors=weights))
    pinned = worker.pin()
    hub.seen.clear()
    hub.faults.cut_after = [1_000_000, 500_000]

    worker.fetch(pinned)

    ranges = [
        seen.headers.get("Range") for seen in hub.seen if seen.path.endswith("model.safetensors")
    ]
    assert ranges == [None, "bytes=1000000-", "bytes=1500000-"]
    assert (worker.target / "model.safetensors").read_bytes() == weights


def test_download_left_by_a_dead_worker_is_continued(
    hub: HubStandIn, worker: Worker, tmp_path: Path
) -> None:
    weights = safetensors(LARGE, fill=3)
    hub.add("org/model", llama_folder(model__safetensors=weights))
    pinned = worker.pin()

    def half_there() -> bool:
        parts = worker.cache.rglob("model.safetensors.part")
        return any(part.stat().st_size > len(weights) // 2 for part in parts)

    with pytest.raises(Stopped):
        worker.fetch(pinned, should_stop=half_there)
    (part,) = worker.cache.rglob("model.safetensors.part")
    kept = part.stat().st_size
    hub.seen.clear()

    worker.fetch(pinned, target=tmp_path / "second")

    assert 0 < kept < len(weights)
    (seen,) = [seen for seen in hub.seen if seen.path.endswith("model.safetensors")]
    assert seen.headers["Range"] == f"bytes={kept}-"
    assert (tmp_path / "second" / "model.safetensors").read_bytes() == weights


def test_server_without_ranges_starts_over(hub: HubStandIn, worker: Worker) -> None:
    weights = safetensors(LARGE, fill=3)
    hub.add("org/model", llama_folder(model__safetensors=weights))
    pinned = worker.pin()
    hub.faults.cut_after = [1_000_000]
    hub.faults.ignore_ranges = True

    worker.fetch(pinned)

    assert (worker.target / "model.safetensors").read_bytes() == weights


def test_progress_never_goes_backwards(hub: HubStandIn, worker: Worker) -> None:
    hub.add("org/model", llama_folder(model__safetensors=safetensors(LARGE)))
    pinned = worker.pin()
    hub.faults.cut_after = [1_000_000]
    hub.faults.ignore_ranges = True

    worker.fetch(pinned)

    total = sum(file["size"] for file in pinned["files"])
    done = [step for step, _ in worker.progress]
    assert done == sorted(set(done))
    assert worker.progress[-1] == (total, total)


def test_busy_hub_is_waited_for(hub: HubStandIn, worker: Worker) -> None:
    hub.add("org/model", llama_folder())
    pinned = worker.pin()
    hub.faults.answers = [(503, {"Retry-After": "7"}), (429, {"Retry-After": "900"})]

    worker.fetch(pinned)

    assert worker.pauses == [7, 30]


def test_hub_that_stays_busy_fails_the_attempt_only(hub: HubStandIn, worker: Worker) -> None:
    hub.add("org/model", llama_folder())
    pinned = worker.pin()
    hub.faults.answers = [(503, {})] * 20

    with pytest.raises(JobFailure) as failure:
        worker.fetch(pinned)

    assert failure.value.retryable
    assert failure.value.code is JobErrorCode.DEPENDENCY_FAILED


def test_hub_that_never_gets_any_further_is_given_up(hub: HubStandIn, worker: Worker) -> None:
    hub.add("org/model", llama_folder(model__safetensors=safetensors(LARGE)))
    pinned = worker.pin()
    hub.faults.cut_after = [100_000] * 50
    hub.faults.ignore_ranges = True

    with pytest.raises(JobFailure) as failure:
        worker.fetch(pinned)

    assert failure.value.code is JobErrorCode.DEPENDENCY_FAILED
    assert failure.value.retryable


def test_login_page_is_not_taken_for_the_model(hub: HubStandIn, worker: Worker) -> None:
    hub.add("org/model", llama_folder())
    pinned = worker.pin()
    hub.faults.page = b"<html>Sign in</html>"

    with pytest.raises(JobFailure, match="login page") as failure:
        worker.fetch(pinned)

    assert failure.value.code is JobErrorCode.DEPENDENCY_FAILED


def test_cache_is_cut_after_a_model_was_fetched(
    hub: HubStandIn, worker: Worker, tmp_path: Path
) -> None:
    hub.add("org/first", llama_folder())
    hub.add("org/second", llama_folder(README__md=b"# other"))
    worker.fetch(worker.pin("org/first"), target=tmp_path / "first")
    (first,) = HubCache(worker.cache).commits()
    worker.cache_max_bytes = int(1.5 * first.size_bytes)

    worker.fetch(worker.pin("org/second"), target=tmp_path / "second")

    assert [path.read_bytes() for path in worker.cache.rglob("README.md")] == [b"# other"]
    assert (tmp_path / "first" / "model.safetensors").exists()


def test_wrong_bytes_are_downloaded_once_more_and_then_refused(
    hub: HubStandIn, worker: Worker
) -> None:
    hub.add("org/model", llama_folder())
    pinned = worker.pin()
    hub.faults.corrupt = {"model.safetensors"}
    hub.seen.clear()

    with pytest.raises(JobFailure) as failure:
        worker.fetch(pinned)

    assert failure.value.code is JobErrorCode.MODEL_CHANGED
    assert sum(seen.path.endswith("model.safetensors") for seen in hub.seen) == 2
    assert not list(worker.cache.rglob("model.safetensors"))


def test_damaged_cache_is_repaired(hub: HubStandIn, worker: Worker, tmp_path: Path) -> None:
    hub.add("org/model", llama_folder())
    pinned = worker.pin()
    worker.fetch(pinned)
    (cached,) = worker.cache.rglob("model.safetensors")
    cached.chmod(0o644)
    cached.write_bytes(bytes(cached.stat().st_size))

    worker.fetch(pinned, target=tmp_path / "second")

    assert (tmp_path / "second" / "model.safetensors").read_bytes() == llama_folder()[
        "model.safetensors"
    ]


def test_jobs_that_need_the_same_model_share_one_download(
    hub: HubStandIn, worker: Worker, tmp_path: Path
) -> None:
    hub.add("org/model", llama_folder(model__safetensors=safetensors(LARGE)))
    pinned = worker.pin()
    hub.seen.clear()

    with ThreadPoolExecutor(3) as pool:
        targets = [tmp_path / str(number) for number in range(3)]
        list(pool.map(lambda target: worker.fetch(pinned, target=target), targets))

    assert len(hub.seen) == len(llama_folder())
    assert all((target / "model.safetensors").exists() for target in targets)


def test_storage_link_that_grew_old_is_asked_for_again(tmp_path: Path) -> None:
    with HubStandIn(with_storage=True) as hub:
        hub.add("org/model", llama_folder())
        worker = Worker(hub, tmp_path)
        with worker.client:
            pinned = worker.pin()
            hub.faults.storage_answers = [(403, {})]

            worker.fetch(pinned)

    assert (worker.target / "model.safetensors").read_bytes() == WEIGHTS


def test_gated_files_stay_out_of_the_shared_cache(hub: HubStandIn, tmp_path: Path) -> None:
    hub.add("org/model", llama_folder(), gated="manual")
    worker = Worker(hub, tmp_path, token=GOOD_TOKEN)

    with worker.client:
        worker.fetch(worker.pin())

    assert not worker.cache.exists()
    assert sorted(path.name for path in worker.target.iterdir()) == sorted(llama_folder())


def test_access_that_was_withdrawn_is_named(hub: HubStandIn, worker: Worker) -> None:
    hub.add("org/model", llama_folder())
    pinned = worker.pin()
    hub.repos["org/model"].gated = "manual"

    with pytest.raises(JobFailure) as failure:
        worker.fetch(pinned)

    assert failure.value.code is JobErrorCode.MODEL_GATED
    assert not failure.value.retryable


def test_repository_that_was_deleted_is_named(hub: HubStandIn, worker: Worker) -> None:
    hub.add("org/model", llama_folder())
    pinned = worker.pin()
    del hub.repos["org/model"]

    with pytest.raises(JobFailure) as failure:
        worker.fetch(pinned)

    assert failure.value.code is JobErrorCode.MODEL_NOT_FOUND


def test_file_kind_that_is_not_allowed_is_never_fetched(hub: HubStandIn, worker: Worker) -> None:
    hub.add("org/model", {**llama_folder(), "modeling.py": b"x"})
    pinned = worker.pin()
    pinned["files"].append(PinnedFile(path="modeling.py", size=1, sha256=None))
    hub.seen.clear()

    with pytest.raises(JobFailure) as failure:
        worker.fetch(pinned)

    assert failure.value.code is JobErrorCode.UNSAFE_MODEL_FORMAT
    assert hub.seen == []


class Folder:
    """A model below a models directory, and a worker that copies it."""

    def __init__(self, root: Path) -> None:
        self.models_dir = root / "models"
        self.model = self.models_dir / "tiny"
        self.target = root / "target"
        self.model.mkdir(parents=True)
        for name, data in llama_folder().items():
            (self.model / name).write_bytes(data)
        settings = IntakeSettings(root / "intake", models_dir=self.models_dir)
        self.pinned = inspect_source(PathSource("tiny"), settings=settings).pinned
        self.sources = FetchSources(root / "cache", models_dir=self.models_dir)

    def fetch(self) -> list[FileFact]:
        return fetch_model(
            self.pinned,
            self.target,
            sources=self.sources,
            should_stop=lambda: False,
            on_progress=lambda done, total: None,
        )

    def change(self, name: str, data: bytes, *, keep_time: bool = False) -> None:
        path = self.model / name
        times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        path.write_bytes(data)
        os.utime(path, ns=times if keep_time else (times[0], times[1] + 1_000_000))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_folder_is_copied_with_digests(folder: Folder) -> None:
    facts = folder.fetch()

    assert {fact.path: fact.sha256 for fact in facts} == {
        name: sha256(data) for name, data in llama_folder().items()
    }


def test_copy_shares_nothing_with_the_folder(folder: Folder) -> None:
    folder.fetch()

    assert {path.stat().st_nlink for path in folder.target.iterdir()} == {1}


def test_folder_keeps_its_modes(folder: Folder) -> None:
    before = {path.name: path.stat().st_mode for path in folder.model.iterdir()}

    folder.fetch()

    assert {path.name: path.stat().st_mode for path in folder.model.iterdir()} == before


WEIGHTS = llama_folder()["model.safetensors"]
CHANGES: dict[str, tuple[str, bytes, bool]] = {
    "touched": ("model.safetensors", WEIGHTS, False),
    "longer": ("model.safetensors", WEIGHTS + b"x", True),
    "other header": (
        "model.safetensors",
        WEIGHTS.replace(b"model.norm.weight", b"model.norn.weight"),
        True,
    ),
    "other config": ("config.json", llama_folder()["config.json"].replace(b"4", b"5"), True),
    "other tokenizer": (
        "tokenizer.json",
        llama_folder()["tokenizer.json"].replace(b"word3", b"word9"),
        True,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_since_the_job_was_accepted_fails_it(folder: Folder, change: str) -> None:
    name, data, keep_time = CHANGES[change]
    folder.change(name, data, keep_time=keep_time)

    with pytest.raises(JobFailure) as failure:
        folder.fetch()

    assert failure.value.code is JobErrorCode.MODEL_CHANGED
    assert name in failure.value.message
    assert "Send the job again" in failure.value.hint


def test_file_that_went_away_fails_the_job(folder: Folder) -> None:
    (folder.model / "tokenizer.json").unlink()

    with pytest.raises(JobFailure) as failure:
        folder.fetch()

    assert failure.value.code is JobErrorCode.MODEL_CHANGED


def test_full_disk_is_named(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workers.fetch._write", no_room)

    with pytest.raises(JobFailure) as failure:
        folder.fetch()

    assert failure.value.code is JobErrorCode.DISK_FULL


def pin_version(tmp_path: Path) -> tuple[PinnedModel, FetchSources, dict[str, bytes]]:
    blobs = {sha256(data): data for data in llama_folder().values()}

    def read_blob(digest: str, start: int, end: int) -> bytes:
        return blobs[digest][start:end]

    stored = [FileFact(name, len(data), sha256(data)) for name, data in llama_folder().items()]
    model = inspect_source(
        VersionSource("mv_1"),
        settings=IntakeSettings(tmp_path / "intake"),
        stored_files=stored,
        read_blob=read_blob,
    )
    return model.pinned, FetchSources(tmp_path / "cache", read_blob=read_blob), blobs


def fetch_version(pinned: PinnedModel, sources: FetchSources, target: Path) -> list[FileFact]:
    return fetch_model(
        pinned,
        target,
        sources=sources,
        should_stop=lambda: False,
        on_progress=lambda done, total: None,
    )


def test_version_is_streamed_from_our_store(tmp_path: Path) -> None:
    pinned, sources, _ = pin_version(tmp_path)

    fetch_version(pinned, sources, tmp_path / "target")

    assert (tmp_path / "target" / "model.safetensors").read_bytes() == WEIGHTS


def test_damaged_blob_is_named(tmp_path: Path) -> None:
    pinned, sources, blobs = pin_version(tmp_path)
    blobs[sha256(WEIGHTS)] = bytes(len(WEIGHTS))

    with pytest.raises(JobFailure, match=r"model\.safetensors"):
        fetch_version(pinned, sources, tmp_path / "target")


def test_models_directory_that_was_switched_off_is_named(folder: Folder) -> None:
    folder.sources = replace(folder.sources, models_dir=None)

    with pytest.raises(JobFailure, match="DEBIAS_MODELS_DIR"):
        folder.fetch()


def demo_model() -> PinnedModel:
    return inspect_source(
        DemoSource("tiny-llama"), settings=IntakeSettings(Path("/nowhere"))
    ).pinned


def fetch_demo(pinned: PinnedModel, target: Path) -> list[FileFact]:
    return fetch_model(
        pinned,
        target,
        sources=FetchSources(Path("/nowhere")),
        should_stop=lambda: False,
        on_progress=lambda done, total: None,
    )


def test_demo_model_is_copied_from_the_package(tmp_path: Path) -> None:
    pinned = demo_model()

    facts = fetch_demo(pinned, tmp_path)

    assert {fact.path: fact.sha256 for fact in facts} == {
        file["path"]: file["sha256"] for file in pinned["files"]
    }
    weights = tmp_path / "model.safetensors"
    assert weights.read_bytes() == (DEMO_MODELS_DIR / "tiny-llama" / weights.name).read_bytes()
    assert weights.stat().st_nlink == 1


def test_demo_model_of_another_release_is_refused(tmp_path: Path) -> None:
    pinned = demo_model()
    (weights,) = (file for file in pinned["files"] if file["path"] == "model.safetensors")
    weights["sha256"] = "0" * 64

    with pytest.raises(JobFailure) as caught:
        fetch_demo(pinned, tmp_path)

    assert caught.value.code == JobErrorCode.MODEL_CHANGED
    assert "same release" in (caught.value.hint or "")
