"""Events, logs, metrics and evaluations over HTTP."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from app.api.watcher import MAX_WATCHES_PER_CALLER, JobWatcher
from app.domain.errors import Unavailable
from tests.integration.api.callers import Caller, job_uuid, some_principal
from tests.integration.api.runs import (
    finish,
    finished_job,
    start,
    write_evaluation,
    write_log,
    write_metric,
)

SSE = {"Accept": "text/event-stream"}


def read_stream(text: str) -> list[dict[str, str]]:
    """Split a server-sent event stream into its events."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    events = []
    for block in blocks:
        pairs = [
            line.partition(": ") for line in block.split("\n") if line.strip(":") and line[0] != ":"
        ]
        events.append({name: value for name, _, value in pairs})
    return [event for event in events if "event" in event]


class TestEvents:
    def test_numbers_have_no_gap(self, caller: Caller) -> None:
        job_id = finished_job(caller, {"report.json": b"{}"})

        page = caller.get(f"/v1/jobs/{job_id}/events").json()

        assert [event["seq"] for event in page["data"]] == list(range(1, len(page["data"]) + 1))
        assert page["data"][0]["type"] == "job.created"
        assert page["data"][-1]["type"] == "job.succeeded"
        assert page["has_more"] is False

    def test_pages_follow_each_other(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        first = caller.get(f"/v1/jobs/{job_id}/events?limit=2").json()

        after = first["next_after"]
        second = caller.get(f"/v1/jobs/{job_id}/events?after={after}").json()

        assert first["has_more"] is True
        assert after == 2
        assert second["data"][0]["seq"] == 3

    def test_stream_of_a_finished_job_ends_with_done(self, caller: Caller) -> None:
        job_id = finished_job(caller)

        answer = caller.get(f"/v1/jobs/{job_id}/events", headers=SSE)

        events = read_stream(answer.text)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        assert "retry: 3000" in answer.text
        assert events[-1] == {"event": "done", "data": '{"status": "succeeded"}'}
        assert events[-2]["event"] == "job.succeeded"
        assert json.loads(events[-2]["data"])["seq"] == int(events[-2]["id"])

    @pytest.mark.parametrize("way", ["header", "query"])
    def test_stream_resumes_after_the_last_id(self, caller: Caller, way: str) -> None:
        job_id = finished_job(caller)
        headers = SSE | ({"Last-Event-ID": "3"} if way == "header" else {})
        query = "?after=3" if way == "query" else ""

        answer = caller.get(f"/v1/jobs/{job_id}/events{query}", headers=headers)

        assert read_stream(answer.text)[0]["id"] == "4"

    def test_broken_last_event_id_is_refused(self, caller: Caller) -> None:
        job_id = finished_job(caller)

        answer = caller.get(f"/v1/jobs/{job_id}/events", headers=SSE | {"Last-Event-ID": "x"})

        assert answer.json()["code"] == "bad_request"

    def test_stream_of_an_unknown_job_is_not_found(self, caller: Caller) -> None:
        answer = caller.get("/v1/jobs/job_00000000000000000000000000/events", headers=SSE)

        assert answer.json()["code"] == "not_found"

    def test_stream_ends_without_done_when_the_database_is_gone(
        self, caller: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OperationalError("select", {}, Exception("gone"))

        job_id = finished_job(caller)
        monkeypatch.setattr("app.api.sse.read_events", fail)

        answer = caller.get(f"/v1/jobs/{job_id}/events", headers=SSE)

        assert answer.status_code == 200
        assert read_stream(answer.text) == []

    def test_head_of_a_stream_ends_at_once(self, caller: Caller) -> None:
        job_id = caller.create_job()["id"]

        answer = caller.request("HEAD", f"/v1/jobs/{job_id}/events", headers=SSE)

        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")


class TestLiveStream:
    def test_event_comes_while_the_stream_is_open(self, caller: Caller, live: str) -> None:
        job_id = caller.create_job()["id"]
        seen: list[str] = []
        headers = {**SSE, "Authorization": f"Bearer {caller.key}"}

        with httpx.stream(
            "GET", f"{live}/v1/jobs/{job_id}/events", headers=headers, timeout=30
        ) as answer:
            for line in answer.iter_lines():
                if not line.startswith("event: "):
                    continue
                seen.append(line.removeprefix("event: "))
                if seen[-1] == "job.queued":
                    start(caller, job_id)
                if seen[-1] == "job.claimed":
                    finish(caller, job_id)

        assert seen[-3:] == ["job.claimed", "job.succeeded", "done"]


class TestWatcher:
    def test_one_query_serves_all_watches(self, caller: Caller) -> None:
        first, second = (job_uuid(caller.create_job()["id"]) for _ in range(2))
        watcher = JobWatcher(caller.app.database)

        async def watch() -> tuple[int, int, int]:
            with (
                watcher.watch(first, some_principal()),
                watcher.watch(second, some_principal()),
                watcher.watch(first, some_principal()),
            ):
                fresh = watcher.run_once()
                idle = watcher.run_once()
                caller.post(f"/v1/jobs/{job_id}/cancel")
                return fresh, idle, watcher.run_once()

        job_id = caller.get("/v1/jobs?limit=1").json()["data"][0]["id"]

        assert asyncio.run(watch()) == (2, 0, 1)

    def test_change_wakes_the_watch(self, caller: Caller) -> None:
        job_id = caller.create_job()["id"]
        watcher = JobWatcher(caller.app.database)

        async def wait() -> bool:
            with watcher.watch(job_uuid(job_id), some_principal()) as watch:
                watcher.run_once()
                await watch.changed(5)
                await asyncio.to_thread(start, caller, job_id)
                await asyncio.to_thread(watcher.run_once)
                return await watch.changed(5)

        assert asyncio.run(wait())

    def test_caller_has_a_limit_of_streams(self, caller: Caller) -> None:
        job_id = job_uuid(caller.create_job()["id"])
        watcher = JobWatcher(caller.app.database)

        one, other = some_principal(), some_principal()

        async def open_many() -> None:
            watches: list[Any] = [watcher.watch(job_id, one) for _ in range(MAX_WATCHES_PER_CALLER)]
            for watch in watches:
                watch.__enter__()
            with pytest.raises(Unavailable) as error, watcher.watch(job_id, one):
                pass
            assert error.value.retry_after_s
            with watcher.watch(job_id, other):
                pass
            watches.pop().__exit__(None, None, None)
            with watcher.watch(job_id, one):
                pass

        asyncio.run(open_many())


class TestLogs:
    def test_lines_are_numbered_within_their_stream(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        write_log(caller, job_id, ["one", "two"])
        write_log(caller, job_id, ["out"], stream="stdout")

        lines = caller.get(f"/v1/jobs/{job_id}/logs").json()["data"]

        shown = [(line["stream"], line["line"], line["text"]) for line in lines]
        assert shown == [("log", 1, "one"), ("log", 2, "two"), ("stdout", 1, "out")]

    def test_pages_lose_no_line_of_a_stream_that_grows_late(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        write_log(caller, job_id, ["a1", "a2", "a3"])
        first = caller.get(f"/v1/jobs/{job_id}/logs?limit=2").json()
        write_log(caller, job_id, ["b1"], stream="stdout")
        write_log(caller, job_id, ["a4"], n=1, first_line=4)

        rest = caller.get(f"/v1/jobs/{job_id}/logs?after={first['next_after']}").json()

        assert first["has_more"] is True
        assert sorted(line["text"] for line in rest["data"]) == ["a3", "a4", "b1"]
        assert rest["has_more"] is False

    def test_level_filter_keeps_higher_ones(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        write_log(caller, job_id, ["quiet"], level="debug")
        write_log(caller, job_id, ["loud"], level="error", n=1, first_line=2)

        lines = caller.get(f"/v1/jobs/{job_id}/logs?level=warning").json()["data"]

        assert [line["text"] for line in lines] == ["loud"]

    def test_plain_text_is_raw(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        write_log(caller, job_id, ["one", "tw\u00f6"])

        answer = caller.get(f"/v1/jobs/{job_id}/logs", headers={"Accept": "text/plain"})

        assert answer.text == "one\ntw\u00f6\n"

    def test_broken_position_is_refused(self, caller: Caller) -> None:
        job_id = finished_job(caller)

        answer = caller.get(f"/v1/jobs/{job_id}/logs?after=%7B")

        assert answer.json()["code"] == "bad_request"

    def test_lines_deleted_by_retention_are_gone(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        write_log(caller, job_id, ["one"])
        caller.app.store.delete(f"logs/{job_id}/log/0")

        answer = caller.get(f"/v1/jobs/{job_id}/logs")

        assert (answer.status_code, answer.json()["code"]) == (410, "gone")


class TestMetrics:
    def test_value_that_is_not_finite_is_null_with_its_name(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        write_metric(caller, job_id, "loss", [1.5, "nan", "-inf"])

        (series,) = caller.get(f"/v1/jobs/{job_id}/metrics").json()["data"]

        values = [(point["value"], point["nonfinite"]) for point in series["points"]]
        assert values == [(1.5, None), (None, "nan"), (None, "-inf")]

    def test_thinned_curve_keeps_its_extremes(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        write_metric(caller, job_id, "loss", [float(k % 7) for k in range(100)] + [99.0, -5.0, 1.0])

        (series,) = caller.get(f"/v1/jobs/{job_id}/metrics?max_points=10").json()["data"]

        values = [point["value"] for point in series["points"]]
        assert len(values) <= 10
        assert (max(values), min(values)) == (99.0, -5.0)

    def test_names_and_filters(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        write_metric(caller, job_id, "loss", [3.0, 2.0, 1.0])
        write_metric(caller, job_id, "bias", [0.5])

        names = caller.get(f"/v1/jobs/{job_id}/metrics/names").json()["data"]
        (series,) = caller.get(f"/v1/jobs/{job_id}/metrics?name=loss&after_step=1").json()["data"]

        assert names == [
            {"name": "bias", "points": 1, "last_step": 0},
            {"name": "loss", "points": 3, "last_step": 2},
        ]
        assert [point["step"] for point in series["points"]] == [2]

    def test_csv_holds_no_formula(self, caller: Caller) -> None:
        job_id = finished_job(caller)
        write_metric(caller, job_id, "=cmd()", [-0.5, "inf"])

        answer = caller.get(f"/v1/jobs/{job_id}/metrics", headers={"Accept": "text/csv"})

        rows = answer.text.splitlines()
        assert rows[0] == "name,attempt,step,value,nonfinite,at"
        assert rows[1].startswith("'=cmd(),1,0,-0.5,,")
        assert rows[2].startswith("'=cmd(),1,1,,inf,")


def test_evaluations_show_stage_value_and_interval(caller: Caller) -> None:
    job_id = finished_job(caller)
    write_evaluation(caller, job_id, stage="before", value=0.5, ci_low=0.4, ci_high=0.6)
    write_evaluation(caller, job_id, stage="after", value=None, nonfinite="nan")

    rows = caller.get(f"/v1/jobs/{job_id}/evaluations").json()["data"]

    shown = {row["stage"]: (row["value"], row["nonfinite"], row["ci_low"]) for row in rows}
    assert shown == {"before": (0.5, None, 0.4), "after": (None, "nan", None)}


def test_attempts_show_outcome_and_host(caller: Caller) -> None:
    job_id = finished_job(caller)

    (attempt,) = caller.get(f"/v1/jobs/{job_id}/attempts").json()["data"]

    assert (attempt["number"], attempt["outcome"], attempt["host"]) == (1, "succeeded", "host")
