"""The audit log of a project, and of all projects for operators."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from app.api.audit_views import audit_body, read_audit_filters, service_audit_body
from app.api.deps import Administrator, AuditReader
from app.api.negotiation import accepts_json
from app.api.pagination import cut, link_next, read_page
from app.api.problems import problems
from app.domain.errors import InvalidCursor
from app.schemas.audit import (
    AuditBody,
    AuditParameters,
    ServiceAuditBody,
    ServiceAuditParameters,
)
from app.schemas.base import Page
from app.services import audit

router = APIRouter(prefix="/v1", tags=["audit"], dependencies=[Depends(accepts_json)])


@router.get(
    "/audit-log",
    operation_id="listAuditLog",
    summary="List the audit log",
    responses=problems(InvalidCursor),
)
def list_audit_log(
    caller: AuditReader,
    request: Request,
    response: Response,
    parameters: Annotated[AuditParameters, Query()],
) -> Page[AuditBody]:
    """List who changed what in the project, newest first; entries never change."""
    page = read_page(parameters, "audit-log")
    filters = read_audit_filters(parameters)
    with caller.uow() as u:
        found = cut(audit.list_entries(u, filters, before=page.before, limit=page.fetch), page)
    link_next(request, response, found.next_cursor)
    data = [audit_body(row) for row in found.rows]
    return Page(data=data, has_more=bool(found.next_cursor), next_cursor=found.next_cursor)


@router.get(
    "/admin/audit-log",
    operation_id="listServiceAuditLog",
    summary="List the audit log of all projects",
    responses=problems(InvalidCursor),
)
def list_service_audit_log(
    caller: Administrator,
    request: Request,
    response: Response,
    parameters: Annotated[ServiceAuditParameters, Query()],
) -> Page[ServiceAuditBody]:
    """List who changed what in any project, newest first; for operators."""
    page = read_page(parameters, "admin/audit-log")
    filters = read_audit_filters(parameters)
    with caller.uow() as u:
        rows = audit.list_entries_of_all(u, filters, before=page.before, limit=page.fetch)
        found = cut(rows, page)
    link_next(request, response, found.next_cursor)
    data = [service_audit_body(row) for row in found.rows]
    return Page(data=data, has_more=bool(found.next_cursor), next_cursor=found.next_cursor)
