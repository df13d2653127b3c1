"""Where the model of a request comes from, and the exact thing it was pinned to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the model hub at a branch, tag, commit or `refs/pr/N`."""

    repo_id: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class PathSource:
    """A folder below the operator's models directory, named by plain segments."""

    name: str


@dataclass(frozen=True, slots=True)
class VersionSource:
    """A model version whose files are blobs of our own store."""

    version_id: str


@dataclass(frozen=True, slots=True)
class DemoSource:
    """A small model that comes with the package."""

    name: str


ModelSource = HubSource | PathSource | VersionSource | DemoSource


class PinnedFile(TypedDict):
    """One file of a pinned model, as JSON.

    `sha256` is the digest of the whole file where it was known at POST, `header_sha256` that of
    a safetensors header (its 8-byte length included), `mtime_ns` the time stamp of a local file.
    """

    path: str
    size: int
    sha256: str | None
    header_sha256: NotRequired[str]
    mtime_ns: NotRequired[int]


class PinnedModel(TypedDict):
    """A model source resolved to one unchanging thing; plain JSON, stored with the job.

    Hub models carry `repo_id`, `commit`, the `revision` that was asked for and whether the
    files are `restricted` (private or gated: never kept in a shared cache); models of a local
    folder and demo models carry `name`, versions of our store `version_id`, and the `job_id` that
    made them with the `base_name` of the model that the chain of jobs began with.
    """

    type: Literal["hub", "path", "version", "demo"]
    files: list[PinnedFile]
    repo_id: NotRequired[str]
    commit: NotRequired[str]
    revision: NotRequired[str]
    restricted: NotRequired[bool]
    name: NotRequired[str]
    version_id: NotRequired[str]
    job_id: NotRequired[str]
    base_name: NotRequired[str]


def shown_name(source: Mapping[str, Any]) -> str | None:
    """Name a pinned model, or one that was given by a reference, as its source does.

    The output of a job is named by that job and the model that its chain of jobs began with.
    None: nothing names it.
    """
    if source.get("job_id"):
        base = source.get("base_name")
        made = f"output of {source['job_id']}"
        return f"{base} ({made})" if base else f"the {made}"
    if source.get("type") == "demo":
        return f"demo model {source['name']}"
    keys = ("hub", "repo_id", "path", "name", "version_id")
    return next((str(source[key]) for key in keys if source.get(key)), None)
