"""Do a keyed request once, and give the stored answer to every repetition."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from app.db.tables import IdempotencyKey
from app.db.uow import UnitOfWork
from app.domain.clock import unix_ms
from app.domain.errors import IdempotencyKeyReused
from app.domain.ids import new_id

KEPT = timedelta(days=7)
"""A debiasing job can outlive the customary 24 hours."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A keyed request: its key, its route and the hash of its canonical body."""

    key: str
    route: str
    request_sha256: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a creating request is answered.

    `stored_body` is kept for repetitions where it must differ: a secret is shown only once.
    """

    status_code: int
    body: dict[str, Any]
    location: str
    resource_id: UUID | None
    stored_body: dict[str, Any] | None = None
    replayed: bool = False


def find_answer(u: UnitOfWork, ticket: Ticket | None) -> Answer | None:
    """Return the stored answer to this request, None when it is a first one.

    Raises
    ------
    IdempotencyKeyReused
        When the key was used for another body or route.
    """
    row = u.idempotency.find(ticket.key, now=u.time) if ticket else None
    return _replay(row, ticket) if row is not None and ticket is not None else None


def answer_once(u: UnitOfWork, ticket: Ticket | None, make: Callable[[], Answer]) -> Answer:
    """Call `make` for a first request and store its answer in the same transaction."""
    if ticket is None:
        return make()
    row_id = u.idempotency.reserve(
        ticket.key,
        now=u.now,
        id=new_id(unix_ms(u.now)),
        route=ticket.route,
        request_sha256=ticket.request_sha256,
        expires_at=u.now + KEPT,
    )
    if row_id is None:
        return _stored_by_another(u, ticket)
    answer = make()
    u.idempotency.store(
        row_id,
        status_code=answer.status_code,
        response=answer.body if answer.stored_body is None else answer.stored_body,
        location=answer.location,
        resource_id=answer.resource_id,
    )
    return replace(answer, stored_body=None)


def _stored_by_another(u: UnitOfWork, ticket: Ticket) -> Answer:
    # By the time that the key was found taken at, which has not become later by asking again.
    row = u.idempotency.find(ticket.key, now=u.now)
    if row is None:
        raise RuntimeError("an idempotency key is taken, but its row is not there")
    return _replay(row, ticket)


def _replay(row: IdempotencyKey, ticket: Ticket) -> Answer:
    if (row.route, row.request_sha256) != (ticket.route, ticket.request_sha256):
        raise IdempotencyKeyReused(
            "This Idempotency-Key was used before with another body or route: "
            "repeat the same request, or take a new key."
        )
    return Answer(row.status_code, row.response, row.location or "", row.resource_id, replayed=True)
