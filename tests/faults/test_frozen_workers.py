"""A worker that was suspended past its lease comes back, changes nothing, and its child ends."""

from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from app.db.tables import EvaluationResult, JobCheckpoint, JobLogChunk, MetricPoint
from app.dispatch.timing import Timing
from tests.faults.disorder import frozen_between_writes
from tests.faults.rig import (
    LEASE_TTL_S,
    create,
    rows_of,
    snapshot,
    uuid_of,
    wait_for_end,
    wait_until,
    wait_until_gone,
)
from tests.service import Service, wait_for

TIMING = Timing.from_lease(LEASE_TTL_S)
# Two heartbeats as the design wants it, and what a loaded machine takes to start anything.
GONE_TIMEOUT_S = 2 * TIMING.heartbeat_s + 10


def everything(service: Service, job_id: str) -> dict[str, Any]:
    """All rows of the job that a stale process might write."""
    key = uuid_of(job_id)
    found = snapshot(service, job_id)
    with rows_of(service) as database, database.read() as session:
        for table in (JobCheckpoint, JobLogChunk, MetricPoint, EvaluationResult):
            count = sa.select(sa.func.count()).select_from(table).where(table.job_id == key)
            found[table.__tablename__] = session.execute(count).scalar_one()
    return found


@pytest.mark.parametrize(
    "phase",
    [
        "debiasing",
        pytest.param("evaluating_before", marks=pytest.mark.slow),
        pytest.param("evaluating_after", marks=pytest.mark.slow),
        pytest.param("packaging", marks=pytest.mark.slow),
    ],
)
def test_a_worker_frozen_in_any_phase_writes_nothing_when_it_comes_back(
    separate: Service, phase: str
) -> None:
    service = separate
    job_id = create(
        service, trouble="hang", trouble_phase=phase, trouble_step=2, trouble_times=1, log_lines=3
    )
    wait_until(service, job_id, status="running", phase=phase)
    # By its first checkpoint the next attempt knows that there was one before, and hangs no more.
    wait_for(
        lambda: everything(service, job_id)[JobCheckpoint.__tablename__],
        timeout_s=GONE_TIMEOUT_S,
        what="the first checkpoint",
    )
    parent = psutil.Process(service.processes["worker"].pid)
    children = parent.children(recursive=True)

    with frozen_between_writes(service, [parent, *children]):
        service.start_role("second")
        assert wait_for_end(service, job_id)["status"] == "succeeded"
        before = everything(service, job_id)
    wait_until_gone(children, timeout_s=GONE_TIMEOUT_S)

    assert everything(service, job_id) == before
    assert [outcome for _, outcome in before["attempts"]] == ["lost", "succeeded"]
    assert wait_for_end(service, create(service))["status"] == "succeeded"
