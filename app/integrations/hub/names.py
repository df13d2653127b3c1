"""Spelling of repository ids and revisions, and what a pasted page address must have meant."""

import json
import re

from app.domain.errors import Finding
from app.domain.sources import HubSource

# service.md 12, Model intake.
_REPO_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")
_PAGE_HOSTS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/(.*)", re.IGNORECASE)
_ANY_URL = re.compile(r"https?://[^/]+/(.*)", re.IGNORECASE)
_PAGE_KINDS = frozenset({"tree", "blob", "resolve", "commit", "commits"})
_MAX_SHOWN = 200


def check_hub_source(source: HubSource) -> tuple[Finding, ...]:
    """Find what is wrong with the spelling of a hub source; pointers are into a job's body."""
    findings = []
    if not is_repo_id(source.repo_id):
        findings.append(Finding("/model/hub", "repo_id_invalid", _repo_message(source.repo_id)))
    if not is_revision(source.revision):
        message = (
            "A revision is a branch, a tag, a commit hash or refs/pr/N: letters, digits and ._/- "
            "only, without '..', up to 128 characters."
        )
        findings.append(Finding("/model/revision", "revision_invalid", message))
    return tuple(findings)


def is_repo_id(text: str) -> bool:
    """Whether `text` can be the id of a repository."""
    return _REPO_ID.fullmatch(text) is not None and ".." not in text and "--" not in text


def is_revision(text: str) -> bool:
    """Whether `text` can be the name of a revision."""
    return _REVISION.fullmatch(text) is not None and ".." not in text


def _repo_message(text: str) -> str:
    meant = _meant(text[:_MAX_SHOWN])
    if meant is None:
        return (
            'Give the id of a hub repository as "organisation/name": letters, digits and ._- only, '
            "without '..' or '--'."
        )
    repo_id, revision = meant
    shown = {"hub": repo_id} if revision is None else {"hub": repo_id, "revision": revision}
    return (
        f"Give the id, not an address, and the revision in a field of its own: {json.dumps(shown)}"
    )


def _meant(text: str) -> tuple[str, str | None] | None:
    """Guess id and revision from a pasted page address or from `name@revision`."""
    page = _PAGE_HOSTS.fullmatch(text) or _ANY_URL.fullmatch(text)
    revision: str | None
    if page:
        parts = page[1].split("?")[0].split("#")[0].strip("/").split("/")
        parts = parts[1:] if parts[0] == "models" else parts
        kind_at = next((i for i, part in enumerate(parts) if part in _PAGE_KINDS), len(parts))
        repo_id = "/".join(parts[: min(kind_at, 2)])
        revision = _page_revision(parts[kind_at + 1 :])
    else:
        repo_id, _, revision = text.partition("@")
    if not is_repo_id(repo_id) or repo_id == text:
        return None
    return repo_id, revision if revision and is_revision(revision) else None


def _page_revision(parts: list[str]) -> str | None:
    """Take the revision off a page address: one part, but refs/pr/N are three."""
    if not parts:
        return None
    if parts[0] == "refs":
        return "/".join(parts[:3])
    return parts[0].replace("%2F", "/")
