"""How the client follows the events of a job and waits for its end."""

import json
from collections.abc import Iterator
from itertools import islice, pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from debias_client import ApiError, JobEvent, UnexpectedAnswer, WaitTimeout
from debias_client.sse import EventStreamParser, Message
from tests.scripted_service import (
    DONE,
    Body,
    ScriptedService,
    event,
    event_bytes,
    event_stream,
    json_answer,
    page,
    problem,
)

STREAM = (
    "\ufeffretry: 1500\r\n: hello\r\n\r\n"
    "id: 1\revent: job.queued\rdata: {\rdata: }\r\r"
    "id: 2\r\ndata:no space\r\ndata\r\n\r\n"
    "id: 3\nevent: job.warning\ndata: one\u2028line \u00e9\n\n"
    "event: done\n\n"
    "data: cut off"
).encode()
MESSAGES = [
    Message("job.queued", "{\n}", "1"),
    Message("message", "no space\n", "2"),
    Message("job.warning", "one\u2028line \u00e9", "3"),
    Message("done", "", "3"),
]


def job(status: str) -> httpx.Response:
    return json_answer({"id": "job_1", "status": status})


def sequence_numbers(events: list[JobEvent]) -> list[int]:
    return [item["seq"] for item in events]


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_the_parser_gives_the_same_messages_however_the_stream_is_cut(cuts: list[int]) -> None:
    parser = EventStreamParser()
    edges = [0, *sorted(cuts), len(STREAM)]

    found = [
        message for start, end in pairwise(edges) for message in parser.feed(STREAM[start:end])
    ]

    assert found == MESSAGES
    assert parser.reconnect_s == 1.5


def test_the_parser_gives_the_same_messages_byte_by_byte() -> None:
    parser = EventStreamParser()

    found = [message for byte in STREAM for message in parser.feed(bytes([byte]))]

    assert found == MESSAGES


@pytest.mark.parametrize("line", [b"retry: 1.5", b"retry: -1", b"retry:", b"retry: \xc2\xb2"])
def test_the_parser_ignores_a_reconnection_time_that_is_no_number(line: bytes) -> None:
    parser = EventStreamParser()

    parser.feed(line + b"\n\n")

    assert parser.reconnect_s is None


def test_the_parser_ignores_an_id_with_a_nul() -> None:
    (message,) = EventStreamParser().feed(b"id: 7\nid: 8\x00\ndata: x\n\n")

    assert message.last_id == "7"


def test_events_are_given_until_done() -> None:
    stream = event_stream(b": hello\n\n" + event_bytes(1), event_bytes(2, "job.succeeded"), DONE)
    service = ScriptedService([stream])

    events = list(service.client().jobs.stream_events("job_1"))

    assert [(item["seq"], item["type"]) for item in events] == [
        (1, "job.progress"),
        (2, "job.succeeded"),
    ]
    (request,) = service.requests
    assert request.url.path == "/v1/jobs/job_1/events"
    assert request.headers["Accept"] == "text/event-stream"
    assert "Last-Event-ID" not in request.headers


def test_nothing_after_done_is_given() -> None:
    service = ScriptedService([event_stream(event_bytes(1) + DONE + event_bytes(2))])

    events = list(service.client().jobs.stream_events("job_1"))

    assert sequence_numbers(events) == [1]


def test_the_stream_starts_after_the_number_given() -> None:
    service = ScriptedService([event_stream(event_bytes(8), DONE)])

    list(service.client().jobs.stream_events("job_1", after=7))

    assert service.requests[0].headers["Last-Event-ID"] == "7"


def test_a_broken_stream_is_taken_up_after_the_last_event() -> None:
    service = ScriptedService(
        [
            event_stream(event_bytes(1), event_bytes(2), b"id: 3\nda", breaks=True),
            event_stream(event_bytes(3), DONE),
        ]
    )

    events = list(service.client().jobs.stream_events("job_1"))

    assert sequence_numbers(events) == [1, 2, 3]
    assert service.requests[1].headers["Last-Event-ID"] == "2"
    assert service.time.slept_s == [3.0]


def test_a_stream_that_the_service_closes_is_taken_up_after_the_time_it_asked_for() -> None:
    service = ScriptedService(
        [event_stream(b"retry: 500\n\n" + event_bytes(1)), event_stream(event_bytes(2), DONE)]
    )

    events = list(service.client().jobs.stream_events("job_1"))

    assert sequence_numbers(events) == [1, 2]
    assert service.time.slept_s == [0.5]


def test_an_event_sent_twice_is_given_once() -> None:
    service = ScriptedService(
        [event_stream(event_bytes(1), event_bytes(2)), event_stream(event_bytes(2), DONE)]
    )

    events = list(service.client().jobs.stream_events("job_1"))

    assert sequence_numbers(events) == [1, 2]


def test_comments_show_that_a_stream_is_alive() -> None:
    quiet = [event_stream(b": ping\n\n") for _ in range(10)]
    service = ScriptedService([*quiet, event_stream(event_bytes(1), DONE)])

    events = list(service.client().jobs.stream_events("job_1"))

    assert sequence_numbers(events) == [1]
    assert len(service.requests) == 11


@pytest.mark.parametrize(
    "refusal",
    [problem(503, "unavailable"), problem(406, "not_acceptable"), page(event(1))],
    ids=["no stream left", "not acceptable", "an answer that is no stream"],
)
def test_events_are_polled_for_where_no_stream_is_given(refusal: httpx.Response) -> None:
    polls = [
        *(job("running"), page(event(1)), page()),
        *(job("succeeded"), page(event(2), event(3)), page()),
    ]
    service = ScriptedService([refusal, *polls])

    events = list(service.client().jobs.stream_events("job_1"))

    assert sequence_numbers(events) == [1, 2, 3]
    _, first_job, *pages = service.requests
    assert first_job.url.params["wait"] == "5"
    asked = [request.url.params.get("after") for request in pages]
    assert asked == ["0", "1", None, "1", "3"]


def test_events_are_polled_for_when_streams_stay_silent() -> None:
    silent = [httpx.ReadTimeout("nothing came")] * 3
    service = ScriptedService([*silent, job("failed"), page(event(1)), page()])

    events = list(service.client().jobs.stream_events("job_1"))

    assert sequence_numbers(events) == [1]


def test_all_pages_of_an_ended_job_are_read() -> None:
    pages = [page(event(1), event(2)), page(event(3)), page()]
    service = ScriptedService([problem(503, "unavailable"), job("succeeded"), *pages])

    events = list(service.client().jobs.stream_events("job_1"))

    assert sequence_numbers(events) == [1, 2, 3]


def test_a_page_that_repeats_itself_is_read_no_further() -> None:
    pages = [page(event(1)), page(event(1))]
    service = ScriptedService([problem(503, "unavailable"), job("succeeded"), *pages])

    events = list(service.client().jobs.stream_events("job_1"))

    assert sequence_numbers(events) == [1]


@pytest.mark.parametrize("body", [{"items": []}, {"data": [{"type": "x"}]}])
def test_a_poll_that_gives_no_events_page_is_refused(body: dict[str, object]) -> None:
    answers = [problem(503, "unavailable"), job("running"), json_answer(body)]
    service = ScriptedService(answers)

    with pytest.raises(UnexpectedAnswer):
        list(service.client().jobs.stream_events("job_1"))


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refused_stream_is_reported(status: int) -> None:
    service = ScriptedService([problem(status, "some_code")])

    with pytest.raises(ApiError, match="some_code"):
        list(service.client().jobs.stream_events("job_1"))


@pytest.mark.parametrize("data", ["no json", "[]", '{"type": "x"}', '{"seq": "1"}'])
def test_an_event_without_number_is_refused(data: str) -> None:
    service = ScriptedService([event_stream(f"event: job.queued\ndata: {data}\n\n".encode())])

    with pytest.raises(UnexpectedAnswer):
        list(service.client().jobs.stream_events("job_1"))


def test_a_reader_may_leave_a_stream_early() -> None:
    service = ScriptedService([event_stream(event_bytes(1), event_bytes(2), event_bytes(3))])

    events = list(islice(service.client().jobs.stream_events("job_1"), 2))

    assert sequence_numbers(events) == [1, 2]


def test_get_with_a_wait_asks_for_it_and_allows_for_it_in_its_timeout() -> None:
    service = ScriptedService([job("running")])

    service.client().jobs.get("job_1", wait_s=30)

    (request,) = service.requests
    assert request.url.params["wait"] == "30"
    assert request.extensions["timeout"]["read"] == 60


def test_wait_polls_until_the_job_has_ended() -> None:
    service = ScriptedService([job("queued"), job("running"), job("succeeded")])

    ended = service.client().jobs.wait("job_1")

    assert ended["status"] == "succeeded"
    assert [request.url.params.get("wait") for request in service.requests] == [None, "30", "30"]


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
def test_wait_for_an_ended_job_asks_once(status: str) -> None:
    service = ScriptedService([job(status)])

    assert service.client().jobs.wait("job_1")["status"] == status


def test_polls_that_are_answered_at_once_keep_their_distance() -> None:
    service = ScriptedService([job("running")] * 4 + [job("succeeded")])

    service.client().jobs.wait("job_1")

    assert service.time.slept_s == [1.0, 1.0, 1.0]


def test_wait_gives_up_after_its_time() -> None:
    service = ScriptedService([job("running")] * 4)

    with pytest.raises(WaitTimeout, match="job_1") as raised:
        service.client().jobs.wait("job_1", timeout_s=2.5)

    assert isinstance(raised.value, TimeoutError)
    assert sum(service.time.slept_s) == 2.5


def test_wait_hands_each_event_on_and_gives_the_ended_job() -> None:
    service = ScriptedService([event_stream(event_bytes(1), event_bytes(2), DONE), job("failed")])
    events: list[JobEvent] = []

    ended = service.client().jobs.wait("job_1", on_event=events.append)

    assert sequence_numbers(events) == [1, 2]
    assert ended["status"] == "failed"


def test_wait_goes_on_when_the_job_was_retried_meanwhile() -> None:
    service = ScriptedService(
        [
            event_stream(event_bytes(1, "job.failed"), DONE),
            job("queued"),
            event_stream(event_bytes(2), DONE),
            job("succeeded"),
        ]
    )
    events: list[JobEvent] = []

    service.client().jobs.wait("job_1", on_event=events.append)

    assert sequence_numbers(events) == [1, 2]
    assert service.requests[2].headers["Last-Event-ID"] == "1"


def test_wait_on_a_silent_stream_gives_up_after_its_time() -> None:
    service = ScriptedService([])

    def stay_silent(request: httpx.Request) -> httpx.Response:
        service.time.sleep(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("nothing came")

    service.answers.append(stay_silent)

    with pytest.raises(WaitTimeout):
        service.client().jobs.wait("job_1", timeout_s=20, on_event=lambda event: None)

    assert service.time.slept_s == [20]


def test_wait_on_a_stream_of_comments_gives_up_after_its_time() -> None:
    service = ScriptedService([])

    def comments() -> Iterator[bytes]:
        while True:
            service.time.sleep(15)
            yield b": ping\n\n"

    headers = {"Content-Type": "text/event-stream"}
    service.answers.append(httpx.Response(200, headers=headers, stream=Body(comments())))

    with pytest.raises(WaitTimeout):
        service.client().jobs.wait("job_1", timeout_s=20, on_event=lambda event: None)

    assert service.time.slept_s == [15, 15]


def test_events_are_read_as_the_service_wrote_them() -> None:
    written = {**event(1, "job.warning"), "data": {"message": "ein Wort \u2013 zwei"}, "new": 1}
    stream = f"id: 1\nevent: job.warning\ndata: {json.dumps(written, ensure_ascii=False)}\n\n"
    service = ScriptedService([event_stream(stream.encode(), DONE)])

    assert list(service.client().jobs.stream_events("job_1")) == [written]
