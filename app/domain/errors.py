"""Errors that carry a code: one tree for HTTP problems, one class for failed jobs.

Each HTTP error class fixes its code, status and title; the API turns any of them into
`application/problem+json` in one handler, and `/problems/<code>` serves the class docstring.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Self

from app.domain.text import storable


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with a request body.

    `pointer` is an RFC 6901 JSON pointer into the body, `code` a stable identifier, and
    `message` a sentence that says what to do about it.
    """

    pointer: str
    code: str
    message: str


class DebiasError(Exception):
    """Base of every error that a client of the service can see."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    def __init__(
        self,
        detail: str,
        *,
        findings: Sequence[Finding] = (),
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Say what went wrong; `headers` go with the answer (`Allow`, `Content-Range`)."""
        super().__init__(detail)
        self.detail = detail
        self.findings = tuple(findings)
        self.retry_after_s = retry_after_s
        self.headers = dict(headers or {})


class BadRequest(DebiasError):
    """The request is malformed: its JSON, a header or a query parameter cannot be read."""

    code, status, title = "bad_request", 400, "Bad request"


class InvalidCursor(DebiasError):
    """The page cursor is broken, or was issued for other filters. Start again without one."""

    code, status, title = "invalid_cursor", 400, "Invalid cursor"


class InvalidRange(DebiasError):
    """The `Range` header is malformed. Send `bytes=<first>-<last>`."""

    code, status, title = "invalid_range", 400, "Invalid range"


class Unauthenticated(DebiasError):
    """The API key is missing, wrong, expired or revoked. Send `Authorization: Bearer dbk_...`."""

    code, status, title = "unauthenticated", 401, "Unauthenticated"


class InsufficientScope(DebiasError):
    """The API key is valid but lacks the scope named in the detail."""

    code, status, title = "insufficient_scope", 403, "Insufficient scope"


class ProjectSuspended(DebiasError):
    """The operator has suspended the project: it can be read, but starts no new jobs."""

    code, status, title = "project_suspended", 403, "Project suspended"


class NotFound(DebiasError):
    """No such resource in this project. A resource of another project looks just the same."""

    code, status, title = "not_found", 404, "Not found"


class MethodNotAllowed(DebiasError):
    """The resource exists but does not answer this HTTP method; see the `Allow` header."""

    code, status, title = "method_not_allowed", 405, "Method not allowed"


class NotAcceptable(DebiasError):
    """The `Accept` header excludes every representation of this resource."""

    code, status, title = "not_acceptable", 406, "Not acceptable"


class RequestTimeout(DebiasError):
    """The request arrived too slowly; the connection is closed. Send it again in one go."""

    code, status, title = "request_timeout", 408, "Request timeout"


class InvalidState(DebiasError):
    """The resource is in a state that does not allow this operation."""

    code, status, title = "invalid_state", 409, "Invalid state"


class Conflict(DebiasError):
    """The name is taken, or another request changed the resource first."""

    code, status, title = "conflict", 409, "Conflict"


class Gone(DebiasError):
    """The bytes were deleted by retention; the row that describes them is kept."""

    code, status, title = "gone", 410, "Gone"


class PreconditionFailed(DebiasError):
    """`If-Match` names a version that is no longer current. Read the resource again."""

    code, status, title = "precondition_failed", 412, "Precondition failed"


class TooLarge(DebiasError):
    """The request body is larger than the limit named in the detail."""

    code, status, title = "too_large", 413, "Too large"


class UnsupportedMediaType(DebiasError):
    """Send uncompressed `application/json`."""

    code, status, title = "unsupported_media_type", 415, "Unsupported media type"


class RangeNotSatisfiable(DebiasError):
    """The requested range lies outside the artifact; `Content-Range` gives its length."""

    code, status, title = "range_not_satisfiable", 416, "Range not satisfiable"


class ValidationFailed(DebiasError):
    """The body does not fit the schema; `errors` names each field and what to do."""

    code, status, title = "validation_failed", 422, "Validation failed"


class ConfigInvalid(DebiasError):
    """The method's config is wrong; `errors` names each field and what to do."""

    code, status, title = "config_invalid", 422, "Invalid method config"


class MethodModelIncompatible(DebiasError):
    """The method cannot work on this model; `errors` says why and what would fit."""

    code, status, title = "method_model_incompatible", 422, "Method and model do not fit"


class ModelNotFound(DebiasError):
    """The model, its revision or a file it needs does not exist where the source points."""

    code, status, title = "model_not_found", 422, "Model not found"


class ModelGated(DebiasError):
    """The hub does not let this service read the model without accepted terms and a token."""

    code, status, title = "model_gated", 422, "Model is gated"


class UnsafeModelFormat(DebiasError):
    """The model has no safetensors weights, or its files are damaged or could run code."""

    code, status, title = "unsafe_model_format", 422, "Unsafe model format"


class UriNotAllowed(DebiasError):
    """The source is switched off, or points outside what the operator allows."""

    code, status, title = "uri_not_allowed", 422, "Source not allowed"


class SecretUnreadable(DebiasError):
    """A secret of the project cannot be decrypted any more. Set it again."""

    code, status, title = "secret_unreadable", 422, "Secret unreadable"


class IdempotencyKeyReused(DebiasError):
    """The same `Idempotency-Key` was used before with another body or route."""

    code, status, title = "idempotency_key_reused", 422, "Idempotency key reused"


class QuotaExceeded(DebiasError):
    """A project quota is used up; the detail names it and its value."""

    code, status, title = "quota_exceeded", 429, "Quota exceeded"


class RateLimited(DebiasError):
    """Too many requests; wait for `Retry-After` seconds."""

    code, status, title = "rate_limited", 429, "Rate limited"


class Internal(DebiasError):
    """A defect of the service. Quote the request id when reporting it."""

    code, status, title = "internal", 500, "Internal error"


class QueueFull(DebiasError):
    """The service holds as many queued jobs as it accepts; try again after `Retry-After`."""

    code, status, title = "queue_full", 503, "Queue full"


class Unavailable(DebiasError):
    """A part the request needs (database, model hub) does not answer at present."""

    code, status, title = "unavailable", 503, "Unavailable"


class StorageUnavailable(DebiasError):
    """The object store does not answer at present."""

    code, status, title = "storage_unavailable", 503, "Storage unavailable"


class JobErrorCode(StrEnum):
    """Why a job failed. The same codes appear in `job.error.code` and in the client.

    `explanation` says what a code means; the error itself says what happened and what to do.
    """

    explanation: str

    def __new__(cls, code: str, explanation: str) -> Self:
        """Make a member that equals its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.explanation = explanation
        return member

    MODEL_NOT_FOUND = (
        "model_not_found",
        "The model that was there at POST is gone, or is no longer allowed.",
    )
    MODEL_GATED = "model_gated", "The hub no longer lets the service's token read the model."
    SECRET_UNREADABLE = (
        "secret_unreadable",
        "The project's hub token cannot be decrypted: the service's secret key was changed.",
    )
    MODEL_CHANGED = (
        "model_changed",
        "The bytes of the model are not those that were checked at POST.",
    )
    UNSAFE_MODEL_FORMAT = (
        "unsafe_model_format",
        "Files of the model are damaged, or of a form that is not loaded.",
    )
    UNSUPPORTED_ARCHITECTURE = (
        "unsupported_architecture",
        "The loaded model is not built as its config says.",
    )
    CONFIG_INVALID = (
        "config_invalid",
        "The config does not fit, in a way that shows only when the job runs.",
    )
    OOM_DEVICE = "oom_device", "The device ran out of memory."
    OOM_HOST = "oom_host", "The worker's machine, or its container, ran out of memory."
    DISK_FULL = "disk_full", "The worker's disk is full."
    TIMEOUT = "timeout", "The attempt took longer than it may, or made no progress for too long."
    WORKER_LOST = "worker_lost", "The process that ran the job ended, or was not heard of."
    NUMERICAL_FAILURE = (
        "numerical_failure",
        "A value that must be finite is not: an activation, a weight or a metric.",
    )
    RELOAD_FAILED = "reload_failed", "The edited checkpoint does not load; it is not kept."
    QUOTA_EXCEEDED = (
        "quota_exceeded",
        "What the job made does not fit into the storage quota of its project.",
    )
    UPLOAD_FAILED = "upload_failed", "The outputs could not be stored."
    DEPENDENCY_FAILED = "dependency_failed", "The model hub or the store did not answer."
    INTERNAL = "internal", "A defect of the service; the job's log has the traceback."


@dataclass(slots=True)
class JobFailure(Exception):
    """Raised inside an attempt to end it with a typed error.

    `message` says what happened, `hint` what the user can do. `retryable` marks failures that
    another attempt may not meet (a lost connection), as against those it will (a bad config).
    """

    code: JobErrorCode
    message: str
    hint: str
    retryable: bool = False
    fields: dict[str, str | int | float] = field(default_factory=dict)

    def __str__(self) -> str:
        # Engines quote model files and prompts; a traceback must not carry what no log can.
        return f"{self.code}: {storable(self.message)}"
