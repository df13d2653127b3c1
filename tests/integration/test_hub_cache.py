"""Eviction from the cache of hub files: the least recently used go, what is in use stays."""

import fcntl
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.integrations.hub.cache import PIN_NAME, CommitCache
from app.integrations.hub.eviction import LEFTOVER_AGE_S, Evicted, HubCache
from app.services.hub_cache_keeper import HubCacheKeeper

MIB = 1 << 20
HOLD = """
import sys
from pathlib import Path
from app.integrations.hub.cache import CommitCache
cache = CommitCache(Path(sys.argv[1]), endpoint="hub", repo_id=sys.argv[2], commit="0")
with cache.in_use():
    print("held", flush=True)
    sys.stdin.read()
"""


def commit(root: Path, name: str, *, used_at: int = 0, size: int = MIB) -> CommitCache:
    """Fill a commit, last used `used_at` seconds after the epoch."""
    cache = CommitCache(root, endpoint="hub", repo_id=name, commit="0")
    cache.put("model.safetensors", os.urandom(size))
    os.utime(cache.folder / PIN_NAME, (used_at, used_at))
    return cache


def kept(*caches: CommitCache) -> list[bool]:
    return [cache.folder.exists() for cache in caches]


def used_bytes(folder: Path) -> int:
    """What `du` says, without directories."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def test_least_recently_used_commits_go_until_the_size_fits(tmp_path: Path) -> None:
    new, old, middle = (commit(tmp_path, f"m{age}", used_at=age) for age in (30, 10, 20))

    evicted = HubCache(tmp_path).shrink(MIB + 8192)

    assert kept(old, middle, new) == [False, False, True]
    assert evicted.commits == 2
    assert used_bytes(tmp_path) <= MIB + 8192
    assert evicted.freed_bytes >= 2 * MIB


def test_cache_within_its_size_is_left_alone(tmp_path: Path) -> None:
    one = commit(tmp_path, "m")

    assert HubCache(tmp_path).shrink(2 * MIB) == Evicted()
    assert one.get("model.safetensors") is not None


def test_reading_is_a_use(tmp_path: Path) -> None:
    read, unread = commit(tmp_path, "a", used_at=10), commit(tmp_path, "b", used_at=20)
    read.get("model.safetensors")

    HubCache(tmp_path).shrink(MIB + 8192)

    assert kept(read, unread) == [True, False]


def test_commit_in_use_stays_whatever_the_size(tmp_path: Path) -> None:
    used, idle = commit(tmp_path, "a", used_at=10), commit(tmp_path, "b", used_at=20)

    with used.in_use():
        HubCache(tmp_path).shrink(0)
        assert kept(used, idle) == [True, False]

    HubCache(tmp_path).shrink(0)
    assert kept(used) == [False]


def test_file_linked_by_an_attempt_stays_and_frees_its_bytes_later(tmp_path: Path) -> None:
    cache = commit(tmp_path / "cache", "a")
    link = tmp_path / "scratch"
    os.link(cache.folder / "model.safetensors", link)

    assert HubCache(tmp_path / "cache").shrink(0) == Evicted()
    assert kept(cache) == [True]

    link.unlink()
    assert HubCache(tmp_path / "cache").shrink(0).freed_bytes >= MIB
    assert used_bytes(tmp_path) == 0


def test_pin_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    cache = commit(tmp_path, "held")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), "held"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert HubCache(tmp_path).shrink(0) == Evicted()
        holder.send_signal(signal.SIGKILL)

    assert HubCache(tmp_path).shrink(0).commits == 1
    assert kept(cache) == [False]


def test_room_is_made_one_commit_at_a_time(tmp_path: Path) -> None:
    caches = [commit(tmp_path, f"m{age}", used_at=age) for age in (1, 2, 3)]

    HubCache(tmp_path).make_room(lambda: used_bytes(tmp_path) - 5 * MIB // 2)

    assert kept(*caches) == [False, True, True]


def test_nothing_goes_where_all_of_it_would_not_be_enough(tmp_path: Path) -> None:
    caches = [commit(tmp_path, f"m{age}", used_at=age) for age in (1, 2, 3)]

    with caches[2].in_use():
        evicted = HubCache(tmp_path).make_room(lambda: used_bytes(tmp_path) - MIB // 2)

    assert evicted == Evicted()
    assert kept(*caches) == [True, True, True]


def test_old_leftovers_go_and_young_ones_stay(tmp_path: Path) -> None:
    cache = commit(tmp_path, "m")
    names = ("a.part", "a.lock", ".new-1", "b.part")
    for name in names:
        (cache.folder / name).write_bytes(b"x")
    now = (cache.folder / "a.part").stat().st_mtime
    os.utime(cache.folder / "b.part", (now + 100, now + 100))

    HubCache(tmp_path, wall_time=lambda: now + LEFTOVER_AGE_S + 50).remove_leftovers()

    left = {path.name for path in cache.folder.iterdir()}
    assert left == {"model.safetensors", PIN_NAME, "b.part"}


def test_old_part_of_a_running_download_stays(tmp_path: Path) -> None:
    cache = commit(tmp_path, "m")
    part = cache.folder / "a.part"
    part.write_bytes(b"x")
    os.utime(part, (0, 0))

    with cache.in_use():
        HubCache(tmp_path).remove_leftovers()

    assert part.exists()


def test_what_a_killed_eviction_left_is_removed(tmp_path: Path) -> None:
    cache = commit(tmp_path, "m")
    half_gone = cache.folder.with_name(".removed-1")
    cache.folder.rename(half_gone)

    HubCache(tmp_path).remove_leftovers()

    assert not half_gone.exists()


def test_commit_that_is_evicted_while_it_is_waited_for_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = commit(tmp_path, "m")
    lock, calls = fcntl.flock, itertools.count()

    def evicted_meanwhile(handle: int, how: int) -> None:
        if next(calls) == 0:
            cache.folder.rename(cache.folder.with_name(".removed-1"))
        lock(handle, how)

    monkeypatch.setattr("app.integrations.hub.cache.fcntl.flock", evicted_meanwhile)

    with cache.in_use() as folder:
        assert folder.exists()
        assert HubCache(tmp_path).shrink(0) == Evicted()


def _use_and_evict(root: Path, seed: int) -> None:
    """Write, pin and read commits while everybody evicts everything."""
    for turn in range(15):
        cache = CommitCache(root, endpoint="hub", repo_id=f"m{(seed + turn) % 2}", commit="0")
        with cache.in_use() as folder:
            mine = folder / f"{seed}-{turn}"
            mine.write_bytes(b"x" * 4096)
            HubCache(root).shrink(0)
            if mine.read_bytes() != b"x" * 4096:
                raise RuntimeError("a pinned commit was touched")
        cache.put("entry", b"y")
        cache.get("entry")


def test_processes_that_use_and_evict_at_once_lose_nothing_they_hold(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    racers = [context.Process(target=_use_and_evict, args=(tmp_path, n)) for n in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    assert [racer.exitcode for racer in racers] == [0] * 3
    HubCache(tmp_path).shrink(0)
    assert used_bytes(tmp_path) == 0


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[HubCacheKeeper]:
    running = HubCacheKeeper(tmp_path, MIB + 8192)
    running.start()
    yield running
    running.stop()


def test_api_cuts_its_cache(keeper: HubCacheKeeper, tmp_path: Path) -> None:
    old, new = commit(tmp_path, "a", used_at=1), commit(tmp_path, "b", used_at=2)

    assert keeper.run_once().commits == 1
    assert kept(old, new) == [False, True]
