"""Where the model of a request comes from, and the exact thing it was pinned to."""

from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict


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


ModelSource = HubSource | PathSource | VersionSource


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
    folder carry `name`, versions of our store `version_id`, and the `job_id` that made them with
    the `base_name` of the model that the chain of jobs began with.
    """

    type: Literal["hub", "path", "version"]
    files: list[PinnedFile]
    repo_id: NotRequired[str]
    commit: NotRequired[str]
    revision: NotRequired[str]
    restricted: NotRequired[bool]
    name: NotRequired[str]
    version_id: NotRequired[str]
    job_id: NotRequired[str]
    base_name: NotRequired[str]
