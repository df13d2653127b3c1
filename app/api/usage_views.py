"""Use as response bodies."""

from typing import Any
from uuid import UUID

from app.domain.ids import IdPrefix, format_id
from app.schemas.usage import UsageBody, UsageGroupRow, UsageRow
from app.services.usage import UsageReport, Use


def usage_body(report: UsageReport) -> UsageBody:
    """Show what a project used."""
    return UsageBody.model_validate(
        {
            "from": report.period.since,
            "to": report.period.until,
            "group_by": report.group.value,
            "total": UsageRow(**_fields(report.total)),
            "data": [
                UsageGroupRow(group=_group(key), **_fields(use))
                for key, use in report.groups.items()
            ],
        }
    )


def _group(key: Any) -> str | None:
    return format_id(IdPrefix.KEY, key) if isinstance(key, UUID) else key


def _fields(use: Use) -> dict[str, Any]:
    return {
        "jobs": use.jobs,
        "attempts": use.attempts,
        "wall_s": round(use.wall_s, 3),
        "gpu_s": round(use.accelerator_s, 3),
        "stored_bytes": use.stored_bytes,
    }
