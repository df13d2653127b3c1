"""What the hub says of a repository at one revision."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.errors import Unavailable
from app.integrations.hub.errors import not_a_hub

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository; `sha256` is known for files kept outside git (weights)."""

    path: str
    size: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class RepoListing:
    """A repository at a commit. `restricted` repositories (private, gated) are not cached."""

    commit: str
    restricted: bool
    files: tuple[HubFile, ...]


def is_commit(revision: str) -> bool:
    """Whether `revision` is a full commit hash, which can never come to mean anything else."""
    return _COMMIT.fullmatch(revision) is not None


def parse_listing(content: Any) -> RepoListing:
    """Read the hub's answer; raises `Unavailable` where it is not one."""
    if not isinstance(content, Mapping):
        raise _not_a_hub()
    commit, siblings = content.get("sha"), content.get("siblings")
    if not isinstance(commit, str) or not is_commit(commit) or not isinstance(siblings, list):
        raise _not_a_hub()
    files = tuple(_file(entry) for entry in siblings if isinstance(entry, Mapping))
    return RepoListing(commit, bool(content.get("gated") or content.get("private")), files)


def _file(entry: Mapping[str, Any]) -> HubFile:
    path, size, lfs = entry.get("rfilename"), entry.get("size"), entry.get("lfs")
    digest = lfs.get("sha256") if isinstance(lfs, Mapping) else None
    if not isinstance(path, str):
        raise _not_a_hub()
    return HubFile(
        path,
        size if type(size) is int and size >= 0 else None,
        digest if isinstance(digest, str) and _SHA256.fullmatch(digest) else None,
    )


def _not_a_hub() -> Unavailable:
    return not_a_hub("answers with something else than a listing of a repository")
