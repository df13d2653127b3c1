"""Relay the outbox: act on the side effects that committed transactions asked for."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
import structlog
from sqlalchemy.orm import Session

from app.crash_points import crash_point
from app.db.session import Database
from app.db.tables import OutboxMessage
from app.dispatch.timing import Timing

log = structlog.get_logger()

BATCH_SIZE = 100
MAX_RETRY_S = 300


@dataclass(frozen=True, slots=True)
class Message:
    """One side effect to carry out."""

    id: UUID
    topic: str
    aggregate_id: UUID
    payload: Mapping[str, Any]
    attempts: int


Handler = Callable[[Sequence[Message]], None]


class Relay:
    """Claims due messages, acts on them outside any transaction, and marks them published.

    Acting inside the claiming transaction held SQLite's writer for 8 s and made heartbeats
    fail. A relay that dies between the two leaves the message to be taken again later, so
    handlers must be idempotent.

    Parameters
    ----------
    handlers
        By topic; each gets all messages of its topic of one batch, in the order written.
    """

    def __init__(
        self,
        database: Database,
        handlers: Mapping[str, Handler],
        *,
        timing: Timing,
        rng: random.Random | None = None,
    ) -> None:
        self._database = database
        self._handlers = handlers
        self._timing = timing
        self._rng = rng or random.Random()

    def run_once(self) -> int:
        """Relay one batch; return the number of messages taken."""
        messages = self._claim()
        if messages:
            crash_point("relaying")
        for topic, handler in self._handlers.items():
            batch = [message for message in messages if message.topic == topic]
            if batch:
                self._act(topic, handler, batch)
        return len(messages)

    def _claim(self) -> list[Message]:
        if self._database.is_sqlite and not self._any_due():
            return []  # an idle service does not take the lock of all writers
        with self._database.write() as session:
            now = self._database.now(session)
            rows = self._due(session, now, BATCH_SIZE)
            hidden_until = now + timedelta(seconds=self._timing.outbox_retry_s)
            for row in rows:
                row.available_at = hidden_until
            return [
                Message(row.id, row.topic, row.aggregate_id, row.payload, row.attempts)
                for row in rows
            ]

    def _any_due(self) -> bool:
        with self._database.read() as session:
            return bool(self._due(session, self._database.now(session), 1))

    def _due(self, session: Session, now: datetime, limit: int) -> list[OutboxMessage]:
        statement = (
            sa.select(OutboxMessage)
            .where(
                OutboxMessage.published_at.is_(None),
                OutboxMessage.available_at <= now,
                OutboxMessage.topic.in_(list(self._handlers)),
            )
            .order_by(OutboxMessage.available_at, OutboxMessage.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        return list(session.execute(statement).scalars())

    def _act(self, topic: str, handler: Handler, batch: list[Message]) -> None:
        try:
            handler(batch)
        except Exception as exc:
            log.exception("relay_failed", topic=topic, messages=len(batch))
            self._postpone(batch, exc)
            return
        with self._database.write() as session:
            session.execute(
                sa.update(OutboxMessage)
                .where(OutboxMessage.id.in_([message.id for message in batch]))
                .values(published_at=self._database.now(session), last_error=None)
            )

    def _postpone(self, batch: list[Message], exc: Exception) -> None:
        with self._database.write() as session:
            now = self._database.now(session)
            for message in batch:
                delay_s = min(MAX_RETRY_S, 2 ** min(message.attempts + 1, 10))
                delay_s *= self._rng.uniform(0.8, 1.2)
                session.execute(
                    sa.update(OutboxMessage)
                    .where(OutboxMessage.id == message.id)
                    .values(
                        attempts=message.attempts + 1,
                        available_at=now + timedelta(seconds=delay_s),
                        last_error=f"{type(exc).__name__}: {exc}"[:2000],
                    )
                )
