"""Bodies of what a project has used."""

from typing import Literal

from pydantic import Field

from app.schemas.base import AwareMoment, QueryParameters, ResponseBody, Timestamp

MAX_DAYS = 366
GroupName = Literal["day", "method", "key"]


class UsageParameters(QueryParameters):
    """Which period to sum up, and by what."""

    from_: AwareMoment | None = Field(
        default=None, alias="from", description="Inclusive; default is 30 days before `to`."
    )
    to: AwareMoment | None = Field(default=None, description="Exclusive; default is now.")
    group_by: GroupName = "day"


class UsageRow(ResponseBody):
    """What was used; jobs and attempts count when they end."""

    jobs: dict[Literal["succeeded", "failed", "cancelled"], int] = Field(
        description="Jobs that ended, by how."
    )
    attempts: int
    wall_s: float = Field(description="Time of these attempts in all.")
    gpu_s: float = Field(description="The part of it that was on accelerators.")
    stored_bytes: int = Field(
        description="Artifacts of these jobs. Bytes that two of them share count twice here, once "
        "against the quota."
    )


class UsageGroupRow(UsageRow):
    """What was used on one day, by one method or with one key."""

    group: str | None = Field(
        description="Day in UTC, name of the method, or id of the key; null for jobs that were "
        "made without a key."
    )


class UsageBody(ResponseBody):
    """What a project used in a period."""

    from_: Timestamp = Field(alias="from", serialization_alias="from")
    to: Timestamp
    group_by: GroupName
    total: UsageRow
    data: list[UsageGroupRow]
