"""Free what has outlived its time, now instead of within the hour."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from app.api.deps import Administrator
from app.api.negotiation import accepts_json
from app.api.problems import problems
from app.dispatch.gc.collector import GcReport
from app.domain.errors import StorageUnavailable
from app.schemas.garbage import FreedBody, GarbageReport
from app.services.garbage import collect_garbage

router = APIRouter(prefix="/v1/admin", tags=["admin"], dependencies=[Depends(accepts_json)])
DryRun = Annotated[bool, Query(description="Only say what would be deleted.")]


@router.post(
    "/gc",
    operation_id="collectGarbage",
    summary="Collect garbage",
    responses=problems(StorageUnavailable),
)
def collect(caller: Administrator, dry_run: DryRun = False) -> GarbageReport:
    """Delete what retention gives up, over all projects. Every API process does so each hour."""
    report = collect_garbage(
        caller.runtime.collector, partial(caller.uow, write=True), dry_run=dry_run
    )
    return _body(report)


def _body(report: GcReport) -> GarbageReport:
    return GarbageReport(
        dry_run=report.dry_run,
        complete=report.complete,
        freed=[
            FreedBody(kind=kind, rows=freed.rows, size_bytes=freed.size_bytes)
            for kind, freed in report.freed.items()
        ],
        total_rows=report.total.rows,
        total_size_bytes=report.total.size_bytes,
    )
