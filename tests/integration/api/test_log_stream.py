"""Logs that are followed: every line once, while it is written, until the job is finished."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.api.watcher import JobWatcher
from tests.integration.api.callers import Caller, job_uuid, some_principal
from tests.integration.api.runs import finish, finished_job, start, write_log

TEXT = {"Accept": "text/plain"}


def follow(caller: Caller, job_id: str, query: str = "", **headers: str) -> Any:
    return caller.get(f"/v1/jobs/{job_id}/logs?follow=true{query}", headers=headers)


def lines_of(answer: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def test_stream_of_a_finished_job_ends_with_its_last_line(caller: Caller) -> None:
    job_id = finished_job(caller)
    write_log(caller, job_id, [str(n) for n in range(300)])

    answer = follow(caller, job_id)

    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["cache-control"] == "no-store"
    assert [line["line"] for line in lines_of(answer)] == list(range(1, 301))


def test_stream_goes_on_after_the_line_a_client_saw_last(caller: Caller) -> None:
    job_id = finished_job(caller)
    write_log(caller, job_id, ["a1", "a2"])
    write_log(caller, job_id, ["b1"], stream="stdout")
    seen = lines_of(follow(caller, job_id))[0]

    rest = lines_of(follow(caller, job_id, f"&after={seen['next_after']}"))

    assert (seen["text"], [line["text"] for line in rest]) == ("a1", ["a2", "b1"])


def test_stream_keeps_the_level_filter(caller: Caller) -> None:
    job_id = finished_job(caller)
    write_log(caller, job_id, ["quiet"], level="debug")
    write_log(caller, job_id, ["loud"], level="error", n=1, first_line=2)

    lines = lines_of(follow(caller, job_id, "&level=error"))

    assert [line["text"] for line in lines] == ["loud"]


def test_plain_text_is_followed_raw(caller: Caller) -> None:
    job_id = finished_job(caller)
    write_log(caller, job_id, ["one", "two"])

    answer = follow(caller, job_id, **TEXT)

    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == "one\ntwo\n"


def test_stream_is_not_to_be_had_as_one_json_document(caller: Caller) -> None:
    answer = follow(caller, finished_job(caller), Accept="application/json")

    assert answer.json()["code"] == "not_acceptable"
    assert "application/x-ndjson" in answer.json()["detail"]


def test_logs_of_an_unknown_job_cannot_be_followed(caller: Caller) -> None:
    answer = follow(caller, "job_00000000000000000000000000")

    assert answer.json()["code"] == "not_found"


def test_head_of_a_followed_log_ends_at_once(caller: Caller) -> None:
    job_id = caller.create_job()["id"]

    answer = caller.request("HEAD", f"/v1/jobs/{job_id}/logs?follow=true")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/plain"])
def test_line_comes_while_the_job_runs(caller: Caller, live: str, accept: str) -> None:
    job_id = caller.create_job()["id"]
    start(caller, job_id)
    write_log(caller, job_id, ["first"])
    headers = {"Accept": accept, "Authorization": f"Bearer {caller.key}"}
    url = f"{live}/v1/jobs/{job_id}/logs?follow=true"
    seen = []

    with httpx.stream("GET", url, headers=headers, timeout=30) as answer:
        for line in answer.iter_lines():
            seen.append(line if accept == "text/plain" else json.loads(line)["text"])
            if seen[-1] == "first":
                write_log(caller, job_id, ["second"], n=1, first_line=2)
            if seen[-1] == "second":
                finish(caller, job_id)

    assert seen == ["first", "second"]


def test_new_lines_wake_only_those_who_follow_the_log(caller: Caller) -> None:
    job_id = caller.create_job()["id"]
    watcher = JobWatcher(caller.app.database)

    async def wait() -> tuple[bool, bool]:
        uuid = job_uuid(job_id)
        with (
            watcher.watch(uuid, some_principal()) as events,
            watcher.watch(uuid, some_principal(), with_logs=True) as log,
        ):
            watcher.run_once()
            await events.changed(5)
            await log.changed(5)
            await asyncio.to_thread(write_log, caller, job_id, ["one"])
            await asyncio.to_thread(watcher.run_once)
            return await log.changed(5), await events.changed(0)

    assert asyncio.run(wait()) == (True, False)
