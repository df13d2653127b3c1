"""What can go wrong for a user of the client."""

from dataclasses import dataclass


class ClientError(Exception):
    """Base of every error the client raises by itself."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with a request.

    `pointer` is an RFC 6901 JSON pointer into the body; for a query parameter it is None and
    `parameter` gives the name.
    """

    code: str
    message: str
    pointer: str | None = None
    parameter: str | None = None


class ApiError(ClientError):
    """The service refused or failed: a problem document with a stable `code`.

    `code` is `http_error` when the answer is no problem document, as from a proxy on the way.
    """

    def __init__(
        self,
        code: str,
        status: int,
        *,
        detail: str,
        errors: tuple[FieldError, ...] = (),
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        quoted_id = f" [request {request_id}]" if request_id else ""
        lines = [f"{code} ({status}): {detail}{quoted_id}"]
        lines += [f"{item.pointer or item.parameter}: {item.message}" for item in errors]
        super().__init__("\n".join(lines))
        self.code = code
        self.status = status
        self.detail = detail
        self.errors = errors
        self.request_id = request_id
        self.retry_after_s = retry_after_s


class ConnectionFailed(ClientError):
    """No complete answer came: no connection, a time-out, or a line that broke."""


class UnexpectedAnswer(ClientError):
    """The answer is not what the API documents; the address may be another service's."""


class WaitTimeout(ClientError, TimeoutError):
    """The job did not end in the time given. It goes on; wait again or cancel it."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"{job_id} did not end in the time given; it goes on")
        self.job_id = job_id


class DigestMismatch(ClientError):
    """The bytes of an artifact are not those the service announced; nothing was kept."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: the bytes received do not have the announced SHA-256")
        self.name = name


class UnsafeName(ClientError):
    """An artifact has a name that would be written outside the directory or over another."""

    def __init__(self, name: str) -> None:
        super().__init__(f"refused to write an artifact named {name!r}")
        self.name = name
