"""Answers to requests for the bytes of an artifact."""

import hashlib

import pytest

from app.domain.errors import InvalidRange, PreconditionFailed, RangeNotSatisfiable
from app.storage.content import ContentPlan, content_response_plan

DATA = b"0123456789"
SHA256 = hashlib.sha256(DATA).hexdigest()
ETAG = f'"sha256:{SHA256}"'


def plan(file_name: str = "report.json", method: str = "GET", **headers: str) -> ContentPlan:
    return content_response_plan(
        {name.replace("_", "-"): value for name, value in headers.items()},
        size_bytes=len(DATA),
        sha256=SHA256,
        file_name=file_name,
        media_type="application/json",
        method=method,
    )


def test_a_plain_request_gets_all_bytes_and_what_verifies_them() -> None:
    answer = plan()

    assert (answer.status, answer.start, answer.end) == (200, 0, 10)
    assert answer.headers == {
        "ETag": ETAG,
        "Repr-Digest": "sha-256=:hNiYd/DUBB77a/kaFvAkjy/Vc+avBcGflr7bn4gveII=:",
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Type": "application/json",
        "Content-Length": "10",
        "Content-Disposition": "attachment; filename*=UTF-8''report.json",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox",
    }


def test_a_range_gets_206_with_its_own_length() -> None:
    answer = plan(range="bytes=2-4")

    assert (answer.status, answer.start, answer.end) == (206, 2, 5)
    assert answer.headers["Content-Range"] == "bytes 2-4/10"
    assert answer.headers["Content-Length"] == "3"
    assert answer.headers["ETag"] == ETAG


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"If_None_Match": ETAG}, 304),
        ({"If_None_Match": f"W/{ETAG}"}, 304),
        ({"If_None_Match": f'"other", {ETAG}'}, 304),
        ({"If_None_Match": "*"}, 304),
        ({"If_None_Match": '"other"'}, 200),
        ({"If_None_Match": ETAG, "Range": "bytes=99-"}, 304),
        ({"If_Match": ETAG, "If_None_Match": ETAG}, 304),
        ({"If_Match": ETAG}, 200),
        ({"If_Match": "*"}, 200),
        ({"If_Match": f'"other",{ETAG}', "Range": "bytes=1-2"}, 206),
        ({"Range": "bytes=1-2", "If_Range": ETAG}, 206),
        ({"Range": "bytes=1-2", "If_Range": '"other"'}, 200),
        ({"Range": "bytes=99-", "If_Range": '"other"'}, 200),
        ({"Range": "bytes=1-2,4-5"}, 200),
    ],
)
def test_preconditions_decide_the_status(asked: dict[str, str], status: int) -> None:
    assert plan(**asked).status == status


def test_304_has_no_body_and_no_length() -> None:
    answer = plan(if_none_match=ETAG)

    assert answer.start == answer.end
    assert set(answer.headers) == {"ETag", "Cache-Control"}


@pytest.mark.parametrize("if_match", ['"other"', f"W/{ETAG}", "", SHA256])
def test_if_match_of_other_bytes_fails(if_match: str) -> None:
    with pytest.raises(PreconditionFailed):
        plan(if_match=if_match)


def test_a_failed_if_match_comes_before_a_bad_range() -> None:
    with pytest.raises(PreconditionFailed):
        plan(if_match='"other"', range="bytes=x")


def test_a_range_outside_is_refused_with_the_length() -> None:
    with pytest.raises(RangeNotSatisfiable) as caught:
        plan(range="bytes=10-")

    assert caught.value.headers == {"Content-Range": "bytes */10"}


def test_a_malformed_range_is_refused() -> None:
    with pytest.raises(InvalidRange):
        plan(range="bytes=ten-")


def test_head_ignores_ranges() -> None:
    answer = plan(method="HEAD", range="bytes=99-")

    assert answer.status == 200
    assert answer.headers["Content-Length"] == "10"


@pytest.mark.parametrize(
    ("file_name", "offered"),
    [
        ("checkpoint/model.safetensors", "model.safetensors"),
        ("bericht über.html", "bericht%20%C3%BCber.html"),
        ("a'b\"c;d(1)*%.txt", "a%27b%22c%3Bd%281%29%2A%25.txt"),
        ("x\r\nSet-Cookie: a", "x%0D%0ASet-Cookie%3A%20a"),
    ],
)
def test_the_file_name_is_encoded_and_has_no_directories(file_name: str, offered: str) -> None:
    headers = plan(file_name=file_name).headers

    assert headers["Content-Disposition"] == f"attachment; filename*=UTF-8''{offered}"
