"""An attempt that has much to say leaves room for the others' transactions."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import pairwise

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from app.db.repositories.execution import Claim
from app.db.session import Database
from app.db.tables import Job, MetricPoint
from tests.execution import TIMING, add_worker, claim_next, queue_job
from tests.fixtures.database import make_project
from workers.attempt.journal import METRICS_PER_WRITE, DatabaseUnreachable, Fenced, Journal

POINTS = 2 * METRICS_PER_WRITE + 7
COUNT = sa.select(sa.func.count()).select_from(MetricPoint)
Write = Callable[[Journal], int]


@pytest.fixture
def claimed(database: Database) -> Claim:
    queue_job(database, make_project(database))
    return claim_next(database, add_worker(database))


@pytest.fixture
def journal(database: Database, claimed: Claim) -> Journal:
    """A journal that holds more points than one transaction may write."""
    journal = Journal(database, claimed, TIMING)
    for step in range(POINTS):
        journal.metric("loss", float(step), step)
    return journal


def count_in(session: Session, _job: Job, _now: datetime) -> int:
    """Stand for a checkpoint or an outcome; tell how many points it is committed with."""
    return session.execute(COUNT).scalar_one()


def write(journal: Journal) -> int:
    return journal.write(count_in)


def close(journal: Journal) -> int:
    return journal.close(count_in)


def count_points(database: Database) -> int:
    with database.read() as session:
        return session.execute(COUNT).scalar_one()


@pytest.mark.parametrize("last", [write, close])
def test_many_points_are_written_in_portions_before_what_comes_after_them(
    database: Database, journal: Journal, last: Write
) -> None:
    totals = [0]

    def note(connection: Connection) -> None:
        totals.append(connection.execute(COUNT).scalar_one())

    sa.event.listen(database.engine, "commit", note)
    seen = last(journal)
    sa.event.remove(database.engine, "commit", note)

    assert max(after - before for before, after in pairwise(totals)) == METRICS_PER_WRITE
    assert (seen, totals[-1]) == (POINTS, POINTS)


@pytest.mark.parametrize("last", [write, close])
def test_no_portion_of_a_lost_job_is_written(
    database: Database, claimed: Claim, journal: Journal, last: Write
) -> None:
    with database.write() as session:
        session.execute(sa.update(Job).where(Job.id == claimed.job_id).values(fence=Job.fence + 1))

    with pytest.raises(Fenced):
        last(journal)

    assert count_points(database) == 0


@pytest.mark.parametrize("last", [write, close])
def test_an_outage_between_portions_loses_no_point(
    database: Database, journal: Journal, last: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    portions, begin = iter([True]), database.write

    def begin_once() -> AbstractContextManager[Session]:
        if not next(portions, False):
            raise sa.exc.OperationalError("BEGIN", {}, Exception("away"))
        return begin()

    with monkeypatch.context() as patched:
        patched.setattr(database, "write", begin_once)
        with pytest.raises(DatabaseUnreachable):
            last(journal)
    assert count_points(database) == METRICS_PER_WRITE

    assert last(journal) == POINTS


def test_a_closed_journal_with_many_points_refuses_another_write(
    database: Database, journal: Journal
) -> None:
    close(journal)
    for step in range(POINTS):
        journal.metric("late", 0.0, step)

    with pytest.raises(Fenced):
        write(journal)

    assert count_points(database) == POINTS
