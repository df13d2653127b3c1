"""What the caller's project has used."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.api.deps import JobsReader
from app.api.negotiation import accepts_json
from app.api.problems import problems
from app.api.usage_views import usage_body
from app.db.repositories.usage import UsageGroup
from app.schemas.usage import UsageBody, UsageParameters
from app.services.usage import report_usage

router = APIRouter(prefix="/v1", tags=["keys"], dependencies=[Depends(accepts_json)])


@router.get(
    "/usage",
    operation_id="getUsage",
    summary="Sum up what was used",
    responses=problems(),
)
def get_usage(caller: JobsReader, parameters: Annotated[UsageParameters, Query()]) -> UsageBody:
    """Sum up jobs, attempts, their time and what they stored, by day, method or key."""
    group = UsageGroup(parameters.group_by)
    with caller.uow() as u:
        return usage_body(report_usage(u, group, since=parameters.from_, until=parameters.to))
