"""The table of bad input: what is sent, and the code and the advice that come back."""

import base64
from dataclasses import dataclass, field
from typing import Any

from tests.integration.api.callers import JOB


@dataclass(frozen=True)
class Row:
    """One request and what it must be answered."""

    name: str
    status: int
    code: str
    advice: str
    body: Any = None
    pointer: str | None = None
    parameter: str | None = None
    path: str = "/v1/jobs"
    method: str = "POST"
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


def job(row: str, code: str, advice: str, pointer: str | None, /, **fields: Any) -> Row:
    """A row that changes fields of a good job."""
    body = {key: value for key, value in {**JOB, **fields}.items() if value is not ...}
    return Row(row, 422, code, advice, body=body, pointer=pointer)


def raw(name: str, status: int, code: str, advice: str, content: bytes, **more: Any) -> Row:
    """A row that sends bytes."""
    headers = {"Content-Type": "application/json", **more.pop("headers", {})}
    return Row(name, status, code, advice, content=content, headers=headers, **more)


def get(name: str, status: int, code: str, advice: str, path: str, **more: Any) -> Row:
    """A row that reads."""
    return Row(name, status, code, advice, path=path, method="GET", **more)


def nested(depth: int) -> bytes:
    return b'{"config": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


BRACKETS = base64.urlsafe_b64encode(b"[" * 1490).decode().rstrip("=")

ROWS = [
    # The bytes of the body.
    raw("not json", 400, "bad_request", "JSON", b"{model: 1}"),
    raw("not utf-8", 400, "bad_request", "UTF-8", b'{"name": "\xff"}'),
    raw("not an object", 400, "bad_request", "object", b"[1]"),
    raw("nan", 400, "bad_request", "NaN", b'{"seed": NaN}'),
    raw("infinity", 400, "bad_request", "Infinity", b'{"seed": -Infinity}'),
    raw("duplicate key", 400, "bad_request", "twice", b'{"method": "a", "method": "b"}'),
    raw("deep", 400, "bad_request", "32", nested(40)),
    raw("very deep", 400, "bad_request", "deep", b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    raw("oversize", 413, "too_large", "1048576", b'{"name": "' + b"x" * 2**20 + b'"}'),
    raw(
        "gzip",
        415,
        "unsupported_media_type",
        "uncompressed",
        b"{}",
        headers={"Content-Encoding": "gzip"},
    ),
    raw(
        "form",
        415,
        "unsupported_media_type",
        "application/json",
        b"a=1",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    ),
    raw(
        "latin-1",
        415,
        "unsupported_media_type",
        "UTF-8",
        b"{}",
        headers={"Content-Type": "application/json; charset=latin-1"},
    ),
    raw("number beyond 64 bits", 400, "bad_request", "too large", b'{"seed": 1e999}'),
    raw(
        "nul in a name", 422, "validation_failed", "NUL", b'{"name": "a\\u0000b"}', pointer="/name"
    ),
    raw(
        "lone surrogate",
        422,
        "validation_failed",
        "surrogate",
        b'{"name": "\\ud800"}',
        pointer="/name",
    ),
    raw(
        "long array",
        422,
        "validation_failed",
        "10000",
        b'{"config": {"pairs": [' + b"1," * 10_000 + b"1]}}",
        pointer="/config/pairs",
    ),
    job(
        "too many keys",
        "validation_failed",
        "at most 1000 keys",
        "/config",
        config={str(n): n for n in range(1001)},
    ),
    job(
        "too many keys in all",
        "validation_failed",
        "at most 30000 keys in all",
        "",
        config={"a": [{str(n): n for n in range(1000)}] * 31},
    ),
    raw(
        "long text",
        422,
        "validation_failed",
        "4096",
        b'{"config": {"a": "' + b"x" * 5000 + b'"}}',
        pointer="/config/a",
    ),
    raw("no body", 422, "validation_failed", "body", b""),
    # Fields.
    job("unknown field", "validation_failed", "Did you mean 'method'?", "/metod", metod="fake"),
    job(
        "unknown nested field",
        "validation_failed",
        "Did you mean 'dtype'?",
        "/resources/dtyp",
        resources={"dtyp": "auto"},
    ),
    job("no model", "validation_failed", "Add the field 'model'", "/model", model=...),
    job("missing method", "validation_failed", "Add the field 'method'", "/method", method=...),
    job("number as text", "validation_failed", "whole number", "/seed", seed="5"),
    job("bool as number", "validation_failed", "not true", "/seed", seed=True),
    job("fraction as whole number", "validation_failed", "whole number", "/priority", priority=0.5),
    job("text as object", "validation_failed", "an object", "/config", config="steps=3"),
    job("null model", "validation_failed", "not null", "/model", model=None),
    job("negative seed", "validation_failed", "greater than or equal to 0", "/seed", seed=-1),
    job(
        "too many attempts",
        "validation_failed",
        "less than or equal to 5",
        "/retry/max_attempts",
        retry={"max_attempts": 6},
    ),
    job("unknown kind", "validation_failed", "'debias'", "/kind", kind="evaluate"),
    job(
        "unknown dtype",
        "validation_failed",
        "'bfloat16'",
        "/resources/dtype",
        resources={"dtype": "int8"},
    ),
    job(
        "unknown device class",
        "validation_failed",
        "cpu",
        "/resources/device_class",
        resources={"device_class": "tpu"},
    ),
    job(
        "run time over the limit",
        "validation_failed",
        "86400",
        "/resources/max_runtime_s",
        resources={"max_runtime_s": 10**6},
    ),
    job(
        "label value of a wrong type",
        "validation_failed",
        "text in quotes",
        "/labels/team",
        labels={"team": 5},
    ),
    job(
        "too many labels",
        "validation_failed",
        "32",
        "/labels",
        labels={f"k{k}": "v" for k in range(33)},
    ),
    job("label key of blanks", "validation_failed", "pattern", "/labels/a b", labels={"a b": "v"}),
    job("empty name", "validation_failed", "at least 1", "/name", name=""),
    # Headers and queries.
    Row(
        "bad idempotency key",
        400,
        "bad_request",
        "255",
        body=JOB,
        headers={"Idempotency-Key": "k" * 256},
    ),
    Row(
        "empty idempotency key",
        400,
        "bad_request",
        "Idempotency-Key",
        body=JOB,
        headers={"Idempotency-Key": ""},
    ),
    Row(
        "unacceptable",
        406,
        "not_acceptable",
        "application/json",
        body=JOB,
        headers={"Accept": "application/xml"},
    ),
    Row(
        "misspelt query",
        422,
        "validation_failed",
        "Did you mean 'dry_run'?",
        body=JOB,
        path="/v1/jobs?dryrun=true",
        parameter="dryrun",
    ),
    get(
        "number as a time",
        422,
        "validation_failed",
        "Give a time such as",
        "/v1/jobs?created_before=0.5",
        parameter="created_before",
    ),
    get(
        "number as the end of a period",
        422,
        "validation_failed",
        "Give a time such as",
        "/v1/usage?to=0.5",
        parameter="to",
    ),
    raw("null", 422, "validation_failed", "Send a JSON object", b"null"),
    get(
        "repeated parameter",
        400,
        "bad_request",
        "once",
        "/v1/jobs?limit=5&limit=6",
        parameter="limit",
    ),
    Row(
        "repeated parameter of a request with a body",
        400,
        "bad_request",
        "once",
        body=JOB,
        path="/v1/jobs?dry_run=true&dry_run=false",
        parameter="dry_run",
    ),
    get(
        "unknown log stream",
        422,
        "validation_failed",
        "'stdout', 'stderr' or 'log'",
        "/v1/jobs/job_00000000000000000000000000/logs?stream=out",
        parameter="stream",
    ),
    get("broken cursor", 400, "invalid_cursor", "without one", "/v1/jobs?cursor=%21"),
    get("foreign cursor", 400, "invalid_cursor", "without one", "/v1/jobs?cursor=eyJ2IjoxfQ"),
    get("page too long", 422, "validation_failed", "100", "/v1/jobs?limit=101", parameter="limit"),
    get(
        "unknown status",
        422,
        "validation_failed",
        "'queued'",
        "/v1/jobs?status=lost",
        parameter="status",
    ),
    get(
        "label without value",
        422,
        "validation_failed",
        "key:value",
        "/v1/jobs?label=team",
        parameter="label",
    ),
    get(
        "time without zone",
        422,
        "validation_failed",
        "zone",
        "/v1/jobs?created_after=2026-01-01T00:00:00",
        parameter="created_after",
    ),
    get(
        "wait too long",
        422,
        "validation_failed",
        "60",
        "/v1/jobs/job_00000000000000000000000000?wait=61",
        parameter="wait",
    ),
    *(
        get(
            f"time beyond the calendar in {name}",
            422,
            "validation_failed",
            "9999",
            f"/v1/jobs?{name}={moment}",
            parameter=name,
        )
        for name, moment in (
            ("created_after", "0001-01-01T00:00:00%2B23:00"),
            ("created_before", "9999-12-31T23:59:59-23:00"),
        )
    ),
    *(
        get(f"NUL in {path}", 422, "validation_failed", "NUL", f"{path}=a%00b", parameter=parameter)
        for path, parameter in (
            ("/v1/jobs?method", "method"),
            ("/v1/jobs?q", "q"),
            ("/v1/jobs/job_00000000000000000000000000/metrics?name", "name"),
        )
    ),
    get(
        "attempt beyond any number",
        422,
        "validation_failed",
        "2147483647",
        f"/v1/jobs/job_00000000000000000000000000/logs?attempt={2**70}",
        parameter="attempt",
    ),
    get(
        "log position of a thousand brackets",
        400,
        "bad_request",
        "start again",
        f"/v1/jobs/job_00000000000000000000000000/logs?after={BRACKETS}",
    ),
    get("wrong id prefix", 404, "not_found", "job_", "/v1/jobs/art_00000000000000000000000000"),
    get("broken id", 404, "not_found", "job_", "/v1/jobs/job_1"),
    get("slash at the end", 404, "not_found", "slash", "/v1/jobs/"),
    get("unknown route", 404, "not_found", "path", "/v1/jbos"),
    Row("wrong method", 405, "method_not_allowed", "GET", method="PUT", path="/v1/methods"),
    Row(
        "key without scopes",
        422,
        "validation_failed",
        "at least 1",
        path="/v1/api-keys",
        body={"name": "k", "scopes": []},
        pointer="/scopes",
    ),
    Row(
        "key with an unknown scope",
        422,
        "validation_failed",
        "'jobs:read'",
        path="/v1/api-keys",
        body={"name": "k", "scopes": ["jobs:all"]},
        pointer="/scopes/0",
    ),
    Row(
        "key that has expired",
        422,
        "validation_failed",
        "future",
        path="/v1/api-keys",
        body={"name": "k", "scopes": ["jobs:read"], "expires_at": "2020-01-01T00:00:00Z"},
        pointer="/expires_at",
    ),
    Row(
        "key that expires beyond the calendar",
        422,
        "validation_failed",
        "9999",
        path="/v1/api-keys",
        body={"name": "k", "scopes": ["jobs:read"], "expires_at": "9999-12-31T23:59:59-23:00"},
        pointer="/expires_at",
    ),
    Row(
        "key with a time without zone",
        422,
        "validation_failed",
        "timezone",
        path="/v1/api-keys",
        body={"name": "k", "scopes": ["jobs:read"], "expires_at": "2099-01-01T00:00:00"},
        pointer="/expires_at",
    ),
]
