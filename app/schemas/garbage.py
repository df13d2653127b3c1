"""Bodies of a run of the garbage collector."""

from pydantic import Field

from app.schemas.base import ResponseBody


class FreedBody(ResponseBody):
    """What was deleted of one kind."""

    kind: str = Field(examples=["blobs"])
    rows: int = Field(description="Rows; of `unknown_objects` and `unfinished_writes`, objects.")
    size_bytes: int = Field(description="Bytes of the object store.")


class GarbageReport(ResponseBody):
    """What a run deleted, or with `dry_run` would delete, over all projects."""

    dry_run: bool
    complete: bool = Field(description="False where the time was up; the next run goes on.")
    freed: list[FreedBody]
    total_rows: int
    total_size_bytes: int
