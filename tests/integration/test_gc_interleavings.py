"""Writers and collectors of the same bytes, their steps in any order that hypothesis thinks of."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from app.db.repositories.blobs import confirm_blobs
from app.db.repositories.outputs import NewPoint, insert_point
from app.db.tables import Blob, Job, JobCheckpoint
from app.db.transition import transition
from app.dispatch.gc.collector import Collector
from app.domain.states import Actor as By
from app.domain.states import JobStatus
from app.services.store_check import check_store
from app.storage.objects import ObjectInfo, Unfinished
from tests.clock import FakeClock
from tests.execution import TIMING, add_worker, claim, dispatch_one, queue_job
from tests.fixtures.database import make_project
from tests.retention import NO_GRACE
from tests.stepping import Actor, SteppedDatabase, stop_here
from workers.attempt.journal import Fenced, Journal
from workers.attempt.patient_store import PatientStore
from workers.attempt.services import project_key
from workers.heartbeat import StopSwitch

CONTENTS = (b"the one", b"the other one")
WRITERS, COLLECTORS = ("writer 0", "writer 1", "writer 2"), ("collector 0", "collector 1")
TO_THE_END = 100
WRITER_STEPS, COLLECTOR_STEPS = 7, 21
# Before them the collector looks at rows only.
FIRST_BLOB_STEP = 10
Moves = list[tuple[str, int]]
MOVES = st.lists(
    st.tuples(
        st.sampled_from([*WRITERS, *COLLECTORS, "release", "reap"]),
        st.sampled_from([1, 2, 3, 5, 8, TO_THE_END]),
    ),
    min_size=5,
    max_size=30,
)


class SteppedStore:
    """Objects in memory, with the time of the test; every call is a step."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.objects: dict[str, ObjectInfo] = {}
        self.data: dict[str, bytes] = {}

    def put_file(self, key: str, path: Path) -> None:
        self.put_bytes(key, path.read_bytes())

    def put_bytes(self, key: str, data: bytes) -> None:
        stop_here()
        self.objects[key] = ObjectInfo(key, len(data), self._clock.now())
        self.data[key] = data

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self.data[key][start:end]

    def stream(self, key: str, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        stop_here()
        yield self.data[key][start:end]

    def head(self, key: str) -> ObjectInfo | None:
        stop_here()
        return self.objects.get(key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        stop_here()
        return iter([info for key, info in self.objects.items() if key.startswith(prefix)])

    def delete(self, key: str) -> None:
        self.delete_many([key])

    def delete_many(self, keys: Sequence[str]) -> None:
        stop_here()
        for key in keys:
            self.objects.pop(key, None)

    def unfinished(self, *, before: datetime) -> Sequence[Unfinished]:
        del before
        return []

    def tidy(self, left: Sequence[Unfinished], *, before: datetime) -> None:
        pass

    def signed_url(self, key: str, *, expires_in_s: int) -> str | None:
        del key, expires_in_s
        return None


class World:
    """Writers of attempts, collectors, and who may interfere with them."""

    def __init__(self, folder: Path, template: Path) -> None:
        shutil.copy2(template, folder / "debias.db")
        self.clock = FakeClock()
        self.database = SteppedDatabase(f"sqlite:///{folder / 'debias.db'}", clock=self.clock)
        self.store = SteppedStore(self.clock)
        self.project = make_project(self.database)
        self.worker = add_worker(self.database)
        self.files = []
        for number, content in enumerate(CONTENTS):
            self.files.append(folder / str(number))
            self.files[-1].write_bytes(content)
        self.actors: dict[str, Actor] = {}
        self.turns = 0

    def move(self, name: str, steps: int) -> None:
        """Do one move of the schedule."""
        if name == "release":
            self.release()
        elif name == "reap":
            self.reap()
        else:
            actor = self._actor(name)
            for _ in range(steps):
                actor.go_on()
        self.clock.advance(1)

    def _actor(self, name: str) -> Actor:
        found = self.actors.get(name)
        if found is None or found.done:
            work: Callable[[], None] = self.collect
            if name in WRITERS:
                self.turns += 1
                queue_job(self.database, self.project)
                work = partial(self.write, self.files[self.turns % len(self.files)])
            found = self.actors[name] = Actor(work)
        return found

    def collect(self) -> None:
        Collector(self.database, self.store, periods=NO_GRACE).run_once()

    def write(self, path: Path) -> None:
        """Do what an attempt does with a file, from the claim to the end of the job."""
        dispatched = dispatch_one(self.database)
        assert dispatched is not None
        claimed = claim(self.database, *dispatched, self.worker)
        assert claimed is not None
        journal = Journal(self.database, claimed, TIMING)
        project = project_key(self.project)
        storage = PatientStore(self.store, project, StopSwitch(self.clock), journal=journal)
        with suppress(Fenced):  # reaped
            blob = storage.keep(path, "file")

            def succeed(session: Session, job: Job, now: datetime) -> None:
                confirm_blobs(session, job.project_id, [blob], now=now)
                insert_point(session, job, NewPoint("debiasing", None, blob, None, "1"), now=now)
                assert transition(
                    session,
                    job.id,
                    JobStatus.RUNNING,
                    JobStatus.SUCCEEDED,
                    By.WORKER,
                    now=now,
                )

            journal.close(succeed)

    def release(self) -> None:
        """Let nothing need what was stored so far."""
        with self.database.write() as session:
            session.execute(sa.update(JobCheckpoint).values(deleted_at=self.clock.now()))

    def reap(self) -> None:
        """Take the oldest attempt for dead; its process goes on and does not know."""
        with self.database.write() as session:
            running = sa.select(Job.id).where(Job.status == JobStatus.RUNNING).order_by(Job.id)
            job_id = session.execute(running.limit(1)).scalar_one_or_none()
            if job_id is not None:
                source, target = JobStatus.RUNNING, JobStatus.FAILED
                transition(session, job_id, source, target, By.REAPER, now=self.clock.now())

    def lost(self) -> list[str]:
        """Rows that somebody needs and whose bytes are not there."""
        with self.database.read() as session:
            needed = session.execute(
                sa.select(Blob.state, Blob.storage_key)
                .join(JobCheckpoint, JobCheckpoint.state_sha256 == Blob.sha256)
                .where(JobCheckpoint.deleted_at.is_(None))
            ).all()
        return [key for state, key in needed if state != "stored" or key not in self.store.objects]

    def finish(self) -> None:
        """Let everybody end."""
        while open_actors := [actor for actor in self.actors.values() if not actor.done]:
            for actor in open_actors:
                actor.go_on()
                self.clock.advance(1)


def play_in_a_new_world(moves: Moves, template: Path) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(folder), template)
        try:
            play(world, moves)
        finally:
            world.database.dispose()


FEW = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def thinned(steps: Iterable[int]) -> list[Any]:
    """Leave two of three cuts to the long tests: each is four lives of a service."""
    return [pytest.param(step, marks=pytest.mark.slow) if step % 3 else step for step in steps]


GARBAGE: Moves = [("writer 2", TO_THE_END), ("writer 2", TO_THE_END), ("release", 1)]
"""Both files are stored, and nothing needs them: what comes next meets what is to be collected."""


@pytest.mark.parametrize("first", thinned(range(1, WRITER_STEPS)))
def test_a_collector_between_any_two_steps_of_a_writer(first: int, migrated_sqlite: Path) -> None:
    whole = ("collector 0", TO_THE_END)
    cut = [("writer 0", first), whole, ("writer 0", TO_THE_END)]
    play_in_a_new_world([*GARBAGE, *cut], migrated_sqlite)
    play_in_a_new_world([whole, *cut], migrated_sqlite)


@pytest.mark.parametrize("first", thinned(range(FIRST_BLOB_STEP, COLLECTOR_STEPS)))
def test_a_writer_between_any_two_steps_of_a_collector(first: int, migrated_sqlite: Path) -> None:
    cut = [("collector 0", first), ("writer 0", TO_THE_END), ("writer 0", TO_THE_END)]
    play_in_a_new_world([*GARBAGE, *cut, ("collector 0", TO_THE_END)], migrated_sqlite)
    # One that is held up while another collects, and while the bytes come back.
    others = [("collector 1", TO_THE_END), ("writer 0", TO_THE_END), ("writer 0", TO_THE_END)]
    held_up = [("collector 0", first), *others, ("collector 0", TO_THE_END)]
    play_in_a_new_world([*GARBAGE, *held_up], migrated_sqlite)


def test_the_steps_are_as_many_as_are_cut(migrated_sqlite: Path, tmp_path: Path) -> None:
    world = World(tmp_path, migrated_sqlite)
    for name, steps in GARBAGE:
        world.move(name, steps)
    for name, expected in (("collector 0", COLLECTOR_STEPS), ("writer 0", WRITER_STEPS)):
        world.move(name, 1)
        steps = 1
        while not world.actors[name].done:
            world.actors[name].go_on()
            steps += 1
        assert steps == expected
    world.database.dispose()


@FEW
@given(moves=MOVES)
def test_no_order_of_steps_loses_bytes_or_leaves_any(moves: Moves, migrated_sqlite: Path) -> None:
    play_in_a_new_world(moves, migrated_sqlite)


@pytest.mark.slow
@settings(FEW, max_examples=300)
@given(moves=MOVES)
def test_none_of_many_orders_does(moves: Moves, migrated_sqlite: Path) -> None:
    play_in_a_new_world(moves, migrated_sqlite)


def play(world: World, moves: Moves) -> None:
    for name, steps in moves:
        world.move(name, steps)
        assert world.lost() == []
    world.finish()
    assert world.lost() == []
    world.clock.advance(1)
    world.collect()
    found = check_store(world.database, world.store, digests=True, grace=NO_GRACE.grace)
    assert (found.broken, found.orphans) == ((), ())
