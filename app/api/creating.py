"""Create something once: the frame of every POST that takes an idempotency key."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from starlette.responses import JSONResponse, Response

from app.api.deps import Caller
from app.db.uow import UnitOfWork
from app.services.idempotency import Answer, Ticket, answer_once, find_answer

PlanT = TypeVar("PlanT")


def create_once(
    caller: Caller,
    ticket: Ticket | None,
    *,
    prepare: Callable[[], PlanT],
    make: Callable[[UnitOfWork, PlanT], Answer],
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answer a repeated request from the store, else prepare, make and store in one transaction.

    `prepare` may take its time and talk to others: it runs outside of any transaction.
    """
    with caller.uow() as u:
        answer = find_answer(u, ticket)
    if answer is None:
        plan = prepare()
        with caller.uow(write=True) as u:
            answer = answer_once(u, ticket, lambda: make(u, plan))
        caller.runtime.nudge()
    return _response(answer, headers or {})


def _response(answer: Answer, headers: Mapping[str, str]) -> Response:
    sent = {**headers, "Location": answer.location}
    if answer.replayed:
        sent["Idempotency-Replayed"] = "true"
    return JSONResponse(answer.body, status_code=answer.status_code, headers=sent)
