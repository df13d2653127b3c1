"""Equal requests at once, over real sockets: one job, and the same answer for all."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from app.services import idempotency
from tests.integration.api.callers import JOB, Caller

CALLERS = 50
KEY = {"Idempotency-Key": "all-at-once"}


def post(url: str, caller: Caller, body: dict[str, object]) -> httpx.Response:
    headers = KEY | {"Authorization": f"Bearer {caller.key}"}
    return httpx.post(f"{url}/v1/jobs", json=body, headers=headers, timeout=60)


def test_fifty_equal_requests_at_once_make_one_job(live: str, caller: Caller) -> None:
    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(lambda _: post(live, caller, JOB), range(CALLERS)))

    assert [answer.status_code for answer in answers] == [202] * CALLERS
    # The same document; a database may give back its fields in another order.
    assert all(answer.json() == answers[0].json() for answer in answers)
    replayed = Counter(answer.headers.get("idempotency-replayed") for answer in answers)
    assert replayed == {None: 1, "true": CALLERS - 1}
    assert len(caller.get("/v1/jobs").json()["data"]) == 1


def test_the_same_key_with_another_body_is_refused(live: str, caller: Caller) -> None:
    post(live, caller, JOB)

    answer = post(live, caller, {**JOB, "seed": 1})

    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert len(caller.get("/v1/jobs").json()["data"]) == 1


def test_an_answer_lost_after_the_commit_is_given_to_the_repetition(
    live: str, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("app.api.creating._response", _lose)
        lost = post(live, caller, JOB)
    again = post(live, caller, JOB)

    assert lost.status_code == 500
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert [job["id"] for job in caller.get("/v1/jobs").json()["data"]] == [again.json()["id"]]


def test_a_crash_before_the_commit_leaves_neither_job_nor_key(
    live: str, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(idempotency, "replace", _lose)
        lost = post(live, caller, JOB)
    assert (lost.status_code, caller.get("/v1/jobs").json()["data"]) == (500, [])

    again = post(live, caller, JOB)

    assert (again.status_code, again.headers.get("idempotency-replayed")) == (202, None)


def _lose(*_: object, **__: object) -> None:
    raise RuntimeError("lost")
