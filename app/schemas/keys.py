"""Bodies of API keys."""

from typing import Annotated, Literal

from pydantic import Field, Strict, StringConstraints

from app.schemas.base import AwareMoment, RequestBody, ResponseBody, Timestamp
from app.security.scopes import Scope

ScopeName = Literal[
    "methods:read",
    "jobs:read",
    "jobs:write",
    "jobs:priority",
    "artifacts:read",
    "keys:manage",
    "secrets:manage",
    "audit:read",
    "admin",
]

MAX_OVERLAP_S = 7 * 24 * 3600


class KeyRequest(RequestBody):
    """A key to make."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    scopes: list[ScopeName] = Field(min_length=1, max_length=len(Scope))
    expires_at: Annotated[AwareMoment | None, Strict(strict=False)] = None


class RotateKeyRequest(RequestBody):
    """How to replace a key."""

    overlap_s: int = Field(
        default=24 * 3600,
        ge=0,
        le=MAX_OVERLAP_S,
        description="How long the old key still works: 0 for one that has leaked.",
    )


class KeyBody(ResponseBody):
    """A key, without its secret."""

    id: str
    name: str
    prefix: str = Field(description="The part of the key after `dbk_`, to recognise it by.")
    scopes: list[str]
    created_at: Timestamp
    expires_at: Timestamp | None
    last_used_at: Timestamp | None
    replaced_by: str | None = Field(
        default=None, description="The key that this one was rotated to; it ends at `expires_at`."
    )


class NewKeyBody(KeyBody):
    """A key that was just made. `secret` is shown this once: null when the answer is replayed."""

    secret: str | None = Field(examples=["dbk_8Kq2mZ0x_..."])


class QuotaUse(ResponseBody):
    """One quota of the project and what is used of it; `limit` is null where there is none."""

    limit: int | None
    used: int


class ProjectBody(ResponseBody):
    """The project a key belongs to."""

    id: str
    name: str
    suspended: bool = Field(description="Whether new jobs are refused; reading goes on.")
    retention_days: int = Field(description="How long artifacts are kept.")


class ProfileBody(ResponseBody):
    """Who the caller is and what it may use; `key` is null with authentication off."""

    key: KeyBody | None
    project: ProjectBody
    scopes: list[str]
    quotas: dict[str, QuotaUse]
