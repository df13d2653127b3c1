"""Bodies of the system endpoints."""

from typing import Literal

from app.schemas.base import ResponseBody


class LivenessBody(ResponseBody):
    """The process answers."""

    status: Literal["alive"]


class ReadinessBody(ResponseBody):
    """Which parts can be used; `broker` is null where this process does not use one."""

    status: Literal["ready", "degraded", "unavailable"]
    database: bool
    database_schema: bool
    store: bool
    broker: bool | None


class VersionBody(ResponseBody):
    """What runs here."""

    version: str
    database_schema: str
    python: str
