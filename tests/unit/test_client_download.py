"""How the client fetches artifacts: whole, verified, resumable and inside the directory."""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from debias_client import (
    ApiError,
    Client,
    ConnectionFailed,
    DigestMismatch,
    UnexpectedAnswer,
    UnsafeName,
)
from debias_client.download import plan_targets
from tests.scripted_service import (
    BASE_URL,
    Body,
    BrokenBody,
    FakeTime,
    json_answer,
    page,
    problem,
)

CONTENT = bytes(range(256)) * 40
Fault = Callable[[httpx.Request], httpx.Response | None]


def artifact(name: str, content: bytes, **overrides: object) -> dict[str, Any]:
    described = {
        "id": "art_" + base64.urlsafe_b64encode(name.encode()).decode().rstrip("="),
        "name": name,
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return described | overrides


class ArtifactService:
    """Serves artifacts with ranges; `faults` may answer a content request in its place."""

    def __init__(self, files: dict[str, bytes], *, faults: list[Fault] | None = None) -> None:
        self.contents = {artifact(name, data)["id"]: data for name, data in files.items()}
        self.listing = [artifact(name, data) for name, data in files.items()]
        self.faults = faults or []
        self.content_requests: list[httpx.Request] = []
        self.time = FakeTime()

    def client(self) -> Client:
        transport = httpx.MockTransport(self.answer)
        return Client(BASE_URL, transport=transport, clock=self.time.clock())

    def download(self, directory: Path) -> tuple[Path, ...]:
        return self.client().download("job_1", directory)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/jobs/job_1/artifacts":
            return page(*self.listing)
        self.content_requests.append(request)
        if self.faults and (answer := self.faults.pop(0)(request)) is not None:
            return answer
        return serve(request, self.contents[request.url.path.split("/")[3]])


def serve(request: httpx.Request, content: bytes) -> httpx.Response:
    etag = f'"sha256:{hashlib.sha256(content).hexdigest()}"'
    asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
    if asked is None or request.headers.get("If-Range", etag) != etag:
        return httpx.Response(200, content=content)
    start = int(asked[1])
    headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
    return httpx.Response(206, content=content[start:], headers=headers)


def break_after(count: int) -> Fault:
    """Break the line after `count` bytes of what was asked for."""

    def answer(request: httpx.Request) -> httpx.Response:
        whole = serve(request, CONTENT)
        kept = {k: v for k, v in whole.headers.items() if k == "content-range"}
        stream = BrokenBody([whole.content[:count]])
        return httpx.Response(whole.status_code, headers=kept, stream=stream)

    return answer


def give(answer: httpx.Response) -> Fault:
    return lambda request: answer


def part_of(directory: Path, name: str, content: bytes) -> Path:
    digest = hashlib.sha256(content).hexdigest()
    return directory / f".{name}.{digest[:16]}.part"


def files_below(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def test_all_artifacts_are_written_under_their_names(tmp_path: Path) -> None:
    files = {
        "report.json": b"{}",
        "checkpoint/model.safetensors": CONTENT,
        "plots/mean_diff.png": b"png",
        "empty.txt": b"",
    }

    paths = ArtifactService(files).download(tmp_path / "result")

    assert files_below(tmp_path / "result") == files
    assert paths == tuple(tmp_path / "result" / name for name in files)


def test_a_listing_of_several_pages_is_fetched_whole(tmp_path: Path) -> None:
    listing = [artifact("a", b"1"), artifact("b", b"2")]
    pages = [page(listing[0], next_cursor="c"), page(listing[1])]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/artifacts"):
            return pages.pop(0)
        return httpx.Response(200, content=b"1" if listing[0]["id"] in str(request.url) else b"2")

    Client(BASE_URL, transport=httpx.MockTransport(answer)).download("job_1", tmp_path)

    assert files_below(tmp_path) == {"a": b"1", "b": b"2"}


def test_artifacts_gives_their_descriptions() -> None:
    service = ArtifactService({"report.json": b"{}"})

    assert service.client().jobs.artifacts("job_1") == (artifact("report.json", b"{}"),)


def test_content_is_asked_for_uncompressed(tmp_path: Path) -> None:
    service = ArtifactService({"model": CONTENT})

    service.download(tmp_path)

    assert service.content_requests[0].headers["Accept-Encoding"] == "identity"


def test_a_broken_line_is_taken_up_where_it_broke(tmp_path: Path) -> None:
    service = ArtifactService({"model": CONTENT}, faults=[break_after(1000), break_after(500)])

    service.download(tmp_path)

    assert files_below(tmp_path) == {"model": CONTENT}
    ranges = [request.headers.get("Range") for request in service.content_requests]
    assert ranges == [None, "bytes=1000-", "bytes=1500-"]


def test_the_rest_is_asked_for_only_of_the_same_content(tmp_path: Path) -> None:
    service = ArtifactService({"model": CONTENT}, faults=[break_after(1000)])

    service.download(tmp_path)

    digest = hashlib.sha256(CONTENT).hexdigest()
    assert service.content_requests[1].headers["If-Range"] == f'"sha256:{digest}"'


def test_a_body_that_ends_early_is_taken_up(tmp_path: Path) -> None:
    short = httpx.Response(200, stream=Body([CONTENT[:300]]))
    service = ArtifactService({"model": CONTENT}, faults=[give(short)])

    service.download(tmp_path)

    assert files_below(tmp_path) == {"model": CONTENT}
    assert service.content_requests[1].headers["Range"] == "bytes=300-"


def test_bodies_that_end_before_the_first_byte_end_the_download(tmp_path: Path) -> None:
    empty = [give(httpx.Response(200, stream=Body([]))) for _ in range(9)]
    service = ArtifactService({"model": CONTENT}, faults=empty)

    with pytest.raises(ConnectionFailed, match="the line broke at byte 0"):
        service.download(tmp_path)

    assert len(service.content_requests) == 5


def test_lines_that_bring_bytes_may_break_any_number_of_times(tmp_path: Path) -> None:
    service = ArtifactService({"model": CONTENT}, faults=[break_after(500)] * 20)

    service.download(tmp_path)

    assert files_below(tmp_path) == {"model": CONTENT}


def test_lines_that_bring_nothing_end_the_download(tmp_path: Path) -> None:
    service = ArtifactService({"model": CONTENT}, faults=[give(problem(503, "unavailable"))] * 9)

    with pytest.raises(ApiError, match="unavailable"):
        service.download(tmp_path)

    assert len(service.content_requests) == 5


def test_retry_after_is_honoured_between_attempts(tmp_path: Path) -> None:
    busy = problem(429, "rate_limited", retry_after="9")
    service = ArtifactService({"model": CONTENT}, faults=[give(busy)])

    service.download(tmp_path)

    assert service.time.slept_s == [9]


def test_an_answer_that_ignores_the_range_replaces_what_was_begun(tmp_path: Path) -> None:
    whole = httpx.Response(200, content=CONTENT)
    service = ArtifactService({"model": CONTENT}, faults=[break_after(1000), give(whole)])

    service.download(tmp_path)

    assert files_below(tmp_path) == {"model": CONTENT}


def test_what_was_begun_is_dropped_when_the_whole_comes_and_breaks_earlier(tmp_path: Path) -> None:
    part_of(tmp_path, "model", CONTENT).write_bytes(b"x" * 1000)
    whole = httpx.Response(200, stream=BrokenBody([CONTENT[:300]]))
    service = ArtifactService({"model": CONTENT}, faults=[give(whole)])

    service.download(tmp_path)

    ranges = [request.headers["Range"] for request in service.content_requests]
    assert ranges == ["bytes=1000-", "bytes=300-"]


def test_a_partial_answer_that_leaves_bytes_out_is_refused(tmp_path: Path) -> None:
    headers = {"Content-Range": f"bytes 2000-{len(CONTENT) - 1}/{len(CONTENT)}"}
    late = httpx.Response(206, content=CONTENT[2000:], headers=headers)
    service = ArtifactService({"model": CONTENT}, faults=[break_after(1000), give(late)])

    with pytest.raises(UnexpectedAnswer, match="left out bytes 1000 to 1999"):
        service.download(tmp_path)


def test_a_later_call_continues_a_half_fetched_file(tmp_path: Path) -> None:
    part_of(tmp_path, "model", CONTENT).write_bytes(CONTENT[:4000])
    service = ArtifactService({"model": CONTENT})

    service.download(tmp_path)

    assert files_below(tmp_path) == {"model": CONTENT}
    assert service.content_requests[0].headers["Range"] == "bytes=4000-"


@pytest.mark.parametrize("begun", [b"x" * 100, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 5)])
def test_a_damaged_beginning_is_fetched_again(tmp_path: Path, begun: bytes) -> None:
    part_of(tmp_path, "model", CONTENT).write_bytes(begun)

    ArtifactService({"model": CONTENT}).download(tmp_path)

    assert files_below(tmp_path) == {"model": CONTENT}


def test_a_complete_file_is_not_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(CONTENT)
    service = ArtifactService({"model": CONTENT})

    service.download(tmp_path)

    assert service.content_requests == []


def test_a_file_of_other_content_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(CONTENT[::-1])

    ArtifactService({"model": CONTENT}).download(tmp_path)

    assert files_below(tmp_path) == {"model": CONTENT}


@pytest.mark.parametrize("sent", [CONTENT[::-1], CONTENT + b"more"], ids=["other", "longer"])
def test_bytes_with_the_wrong_digest_are_never_kept(tmp_path: Path, sent: bytes) -> None:
    wrong = httpx.Response(200, content=sent)
    service = ArtifactService({"model": CONTENT}, faults=[give(wrong)])

    with pytest.raises(DigestMismatch, match="model"):
        service.download(tmp_path)

    assert files_below(tmp_path) == {}


def test_wrong_bytes_leave_an_earlier_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"earlier")
    wrong = httpx.Response(200, content=CONTENT[::-1])
    service = ArtifactService({"model": CONTENT}, faults=[give(wrong)])

    with pytest.raises(DigestMismatch):
        service.download(tmp_path)

    assert files_below(tmp_path) == {"model": b"earlier"}


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def look(request: httpx.Request) -> None:
        seen.append(sorted(files_below(tmp_path)))

    service = ArtifactService({"model": CONTENT}, faults=[break_after(1000), look])

    service.download(tmp_path)

    assert seen == [[part_of(tmp_path, "model", CONTENT).name]]


def test_expired_content_is_reported(tmp_path: Path) -> None:
    service = ArtifactService({"model": CONTENT}, faults=[give(problem(410, "gone"))])

    with pytest.raises(ApiError, match="gone"):
        service.download(tmp_path)


def test_the_first_failure_ends_the_download(tmp_path: Path) -> None:
    files = {f"file{number}": CONTENT for number in range(50)}
    service = ArtifactService(files, faults=[give(problem(410, "gone"))] * 50)

    with pytest.raises(ApiError, match="gone"):
        service.client().download("job_1", tmp_path, parallel=1)

    assert len(service.content_requests) < 50


def test_the_first_failure_ends_fetches_that_are_under_way(tmp_path: Path) -> None:
    under_way = Event()

    def endless() -> Iterator[bytes]:
        while True:
            yield b"x"
            under_way.set()

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/artifacts"):
            return page(artifact("endless", b"", size_bytes=2**40), artifact("gone", b"1"))
        if request.url.path.split("/")[3] == artifact("gone", b"1")["id"]:
            under_way.wait(30)
            return problem(410, "gone")
        return httpx.Response(200, stream=Body(endless()))

    with pytest.raises(ApiError, match="gone"):
        Client(BASE_URL, transport=httpx.MockTransport(answer)).download("job_1", tmp_path)


def test_nothing_is_fetched_when_one_name_is_unsafe(tmp_path: Path) -> None:
    service = ArtifactService({"fine": b"1", "../evil": b"2"})

    with pytest.raises(UnsafeName, match="evil"):
        service.download(tmp_path / "result")

    assert service.content_requests == []
    assert files_below(tmp_path) == {}


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../evil",
        "a/../../evil",
        "a/..",
        "/etc/passwd",
        "a//b",
        "a/",
        "./a",
        "..\\evil",
        "C:evil",
        "a\x00b",
        "a\nb",
        "... /evil",
    ],
)
def test_a_name_that_leads_out_of_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeName):
        plan_targets([name], tmp_path)


def test_two_names_for_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeName):
        plan_targets(["Report.json", "report.json"], tmp_path)


def test_a_link_in_the_directory_does_not_lead_out_of_it(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "result", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (root / "plots").symlink_to(elsewhere)

    with pytest.raises(UnsafeName):
        plan_targets(["plots/a.png"], root)


def test_a_link_in_place_of_the_part_file_is_not_written_through(tmp_path: Path) -> None:
    root, victim = tmp_path / "result", tmp_path / "victim"
    root.mkdir()
    victim.write_bytes(b"precious")
    part_of(root, "model", CONTENT).symlink_to(victim)

    ArtifactService({"model": CONTENT}).download(root)

    assert victim.read_bytes() == b"precious"
    assert files_below(root) == {"model": CONTENT}


def test_a_listing_that_is_no_page_is_refused(tmp_path: Path) -> None:
    transport = httpx.MockTransport(lambda request: json_answer({"items": []}))

    with pytest.raises(UnexpectedAnswer):
        Client(BASE_URL, transport=transport).download("job_1", tmp_path)
