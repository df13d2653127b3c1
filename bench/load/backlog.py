"""A backlog of queued jobs: rows as the service writes them, made without 10,000 requests."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from app.db.session import Database
from app.db.tables import Job
from app.db.transition import create_job
from app.domain.ids import IdPrefix, format_id
from bench.deployments import Tenant
from debias_client import Client

BATCH = 250
LABELS = ("nlp", "vision", "audit", "research")
BODY = {
    "kind": "debias",
    "model": {"demo": "tiny-llama"},
    "method": "fairness_pruning",
    "config": {"preset": "article", "fraction": 0.01, "pairs": ["race", "gender"]},
}
# Whatever of a row the request decides; the rest is written by `create_job`.
COPIED = (
    "kind", "method", "method_version", "spec", "resolved_spec", "spec_hash", "device_class",
    "estimate", "max_attempts", "max_runtime_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job of the backlog and whose it is."""

    id: str
    tenant: Tenant


def fill(
    database: Database, client: Client, tenants: Sequence[Tenant], count: int
) -> list[QueuedJob]:
    """Post one job, and write `count` more like it through the service's own `create_job`.

    Everything of a real job is there: the resolved spec of 19 KB, events, outbox messages. Names,
    labels and priorities vary; half of the jobs belong to the first project.
    """
    weights = [len(tenants), *[1] * (len(tenants) - 1)]
    client.jobs.create(BODY)
    columns = _columns_of_newest(database)
    rng = random.Random(0)
    made: list[QueuedJob] = []
    while len(made) < count:
        with database.write() as session:
            now = database.now(session)
            for number in range(len(made), min(count, len(made) + BATCH)):
                tenant = rng.choices(tenants, weights)[0]
                own = {
                    "project_id": tenant.project_id,
                    "name": f"load-{number:05d}",
                    "priority": rng.choice((0, 0, 0, -1)),
                    "seed": number,
                    "labels": {"team": rng.choice(LABELS)},
                }
                job = create_job(session, now=now, columns=columns | own)
                made.append(QueuedJob(format_id(IdPrefix.JOB, job.id), tenant))
    return made


def _columns_of_newest(database: Database) -> dict[str, Any]:
    with database.read() as session:
        newest = sa.select(Job).order_by(Job.id.desc()).limit(1)
        job = session.execute(newest).scalar_one()
        return {name: getattr(job, name) for name in COPIED}
