"""Bodies of the audit log."""

from typing import Annotated

from pydantic import Field

from app.domain.audit import AuditAction, AuditActor
from app.schemas.base import AwareMoment, JsonObject, PageParameters, ResponseBody, Timestamp


class AuditParameters(PageParameters):
    """Which entries of the audit log to list; all filters must match."""

    action: list[AuditAction] = Field(default_factory=list, description="Repeatable: any of them.")
    key_id: Annotated[
        str | None, Field(max_length=64, description="What this key did: `key_...`.")
    ] = None
    created_after: Annotated[AwareMoment | None, Field(description="Inclusive.")] = None
    created_before: Annotated[AwareMoment | None, Field(description="Exclusive.")] = None


class ServiceAuditParameters(AuditParameters):
    """Which entries of all projects to list."""

    project: Annotated[
        str | None, Field(max_length=64, description="Only this project: `prj_...`.")
    ] = None


class AuditBody(ResponseBody):
    """One entry of the audit log: who did what to what."""

    id: str
    at: Timestamp
    action: AuditAction
    actor: AuditActor = Field(
        description="`key`: a key of this project; `operator`: an operator of the service; "
        "`local`: somebody on its machine."
    )
    key_id: str | None = Field(description="The key; null where it is not one of this project.")
    target: str | None = Field(description="Id or name of what was changed.")
    request_id: str | None
    details: JsonObject


class ServiceAuditBody(AuditBody):
    """One entry, with its project, as operators see it."""

    project: str
