"""The client against the real application over a real socket."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from debias_client import ApiError, Client, RetryPolicy
from tests.integration.api.callers import JOB, Caller
from tests.integration.api.runs import finish, finished_job, start

FILES = {"report.json": b'{"a": 1}', "checkpoint/model.safetensors": bytes(range(256)) * 4096}


@pytest.fixture
def client(caller: Caller, live: str) -> Iterator[Client]:
    with Client(live, caller.key) as opened:
        yield opened


class CutOnce(httpx.HTTPTransport):
    """Breaks the line in the middle of the first download of some length, and counts ranges."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[str] = []
        self._cut = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if not request.url.path.endswith("/content"):
            return response
        if "range" in request.headers:
            self.ranges.append(request.headers["range"])
        if not self._cut and int(response.headers["content-length"]) > 1000:
            self._cut = True
            response.stream = BrokenStream(response.stream)
        return response


class BrokenStream(httpx.SyncByteStream):
    """Gives one piece, then fails as a lost connection does."""

    def __init__(self, stream: object) -> None:
        assert isinstance(stream, httpx.SyncByteStream)
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield next(iter(self._stream))[:700]
        raise httpx.ReadError("the line broke")

    def close(self) -> None:
        self._stream.close()


def test_client_knows_who_it_is(client: Client, caller: Caller) -> None:
    assert client.me()["project"]["id"] == caller.shown_project


def test_repeated_create_with_a_key_makes_one_job(client: Client) -> None:
    first = client.jobs.create(JOB, idempotency_key="once")
    second = client.jobs.create(JOB, idempotency_key="once")

    assert first["id"] == second["id"]
    assert [job["id"] for job in client.jobs.list()] == [first["id"]]


def test_list_goes_through_all_pages(client: Client, caller: Caller) -> None:
    made = [caller.create_job(name=f"job {n}", labels={"n": "x"})["id"] for n in range(5)]

    listed = [job["id"] for job in client.jobs.list(page_size=2)]
    labelled = [job["id"] for job in client.jobs.list(label={"n": "x"}, status=["queued"])]

    assert listed == labelled == made[::-1]
    assert list(client.jobs.list(status=["failed"])) == []


def test_events_are_streamed_while_the_job_runs(client: Client, caller: Caller) -> None:
    job_id = client.jobs.create(JOB)["id"]
    seen = []

    for event in client.jobs.stream_events(job_id):
        seen.append(event["type"])
        if event["type"] == "job.queued":
            start(caller, job_id)
        if event["type"] == "job.claimed":
            finish(caller, job_id)

    changes = [kind for kind in seen if kind != "job.warning"]
    assert changes == ["job.created", "job.queued", "job.claimed", "job.succeeded"]


def test_wait_returns_the_finished_job(client: Client, caller: Caller) -> None:
    job_id = client.jobs.create(JOB)["id"]
    start(caller, job_id)
    finisher = threading.Timer(0.1, finish, (caller, job_id))
    finisher.start()

    job = client.jobs.wait(job_id, timeout_s=60)

    finisher.join()
    assert (job["status"], job["result"]["metrics"]["after"]) == ("succeeded", {"parity": 0.25})


def test_broken_download_goes_on_where_it_broke(caller: Caller, live: str, tmp_path: Path) -> None:
    job_id = finished_job(caller, FILES)
    line = CutOnce()
    policy = RetryPolicy(base_s=0.001)

    with Client(live, caller.key, transport=line, retry=policy) as client:
        paths = client.download(job_id, tmp_path)

    assert line.ranges == ["bytes=700-"]
    got = {str(path.relative_to(tmp_path.resolve())): path.read_bytes() for path in paths}
    assert {name: hashlib.sha256(data).digest() for name, data in got.items()} == {
        name: hashlib.sha256(data).digest() for name, data in FILES.items()
    }


def test_wrong_request_names_the_field(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        client.jobs.create({**JOB, "config": {"steps": -1}})

    assert (caught.value.code, caught.value.status) == ("config_invalid", 422)
    assert caught.value.errors[0].pointer == "/config/steps"
    assert caught.value.request_id


def test_unknown_job_is_not_found(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        client.jobs.get("job_00000000000000000000000000")

    assert caught.value.code == "not_found"


def test_wrong_key_is_unauthenticated(live: str) -> None:
    with Client(live, "dbk_wrong") as stranger, pytest.raises(ApiError) as caught:
        stranger.me()

    assert (caught.value.code, caught.value.status) == ("unauthenticated", 401)


def test_finished_job_cannot_be_cancelled(client: Client, caller: Caller) -> None:
    with pytest.raises(ApiError) as caught:
        client.jobs.cancel(finished_job(caller))

    assert caught.value.code == "invalid_state"


def test_methods_are_listed_and_read(client: Client) -> None:
    names = [method["name"] for method in client.methods.list()]

    assert "fairness_pruning" in names
    assert client.methods.get("fairness_pruning")["example_config"]
