"""API keys: who is calling, make one, list them, replace one, revoke one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from app.db.repositories.keys import KeyRepository, find_key, note_key_use
from app.db.session import Database
from app.db.tables import ApiKey
from app.db.uow import UnitOfWork
from app.domain.audit import AuditAction
from app.domain.clock import format_time, unix_ms
from app.domain.errors import (
    Finding,
    InsufficientScope,
    InvalidState,
    NotFound,
    QuotaExceeded,
    Unauthenticated,
    ValidationFailed,
)
from app.domain.ids import IdPrefix, format_id, new_id
from app.security.auth import NO_DIGEST, new_key, read_authorization, same_digest
from app.security.scopes import Principal, Scope
from app.services.audit import record

USE_NOTED_EVERY = timedelta(minutes=1)
"""`last_used_at` is exact to this much: a write for every request would serialise all of them."""

MAX_WORKING_KEYS = 100
"""Of one project: each key has limits of its own, which keys without number would undo."""

IRREPLACEABLE = (Scope.KEYS_MANAGE, Scope.ADMIN)
"""Scopes that a project cannot get back by itself once its last key with them is gone."""

REFUSAL = (
    "Send `Authorization: Bearer dbk_...` with an API key of this service "
    "that is neither expired nor revoked."
)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; its text is nowhere else."""

    row: ApiKey
    secret: str


def authenticate(database: Database, header: str | None) -> Principal:
    """Find out who sent this `Authorization` header.

    Raises
    ------
    Unauthenticated
        With one and the same message for a missing, wrong, expired and revoked key.
    """
    presented = read_authorization(header)
    with database.read() as session:
        found = find_key(session, presented.prefix if presented else "", time=database.time)
    matches = same_digest(
        found[0].secret_sha256 if found else NO_DIGEST,
        presented.sha256 if presented else NO_DIGEST,
    )
    if found is None or presented is None or not matches or not _is_live(*found):
        raise Unauthenticated(REFUSAL)
    row, now = found
    if row.last_used_at is None or now - row.last_used_at >= USE_NOTED_EVERY:
        with database.write() as session:
            note_key_use(session, row.id, now=now)
    return Principal(row.project_id, row.id, frozenset(known_scopes(row)))


def create_key(
    u: UnitOfWork, *, name: str, scopes: Sequence[Scope], expires_at: datetime | None
) -> NewKey:
    """Make a key of the caller's project.

    Raises
    ------
    InsufficientScope
        When it would have a scope that the caller lacks.
    ValidationFailed
        When it would already have expired, or would outlive the key it is made with.
    QuotaExceeded
        When the project has as many working keys as it may have.
    """
    _require_scopes(u, scopes)
    if expires_at is not None and expires_at <= u.now:
        raise _bad_expiry("in_the_past", "Give a time in the future, or leave it out.")
    limit = _callers_end(u)
    if limit is not None and (expires_at is None or expires_at > limit):
        raise _bad_expiry(
            "outlives_maker",
            f"Give a time no later than {format_time(limit)}, when the key in use expires.",
        )
    _require_room(u)
    made = insert_key(u.keys, name=name, scopes=scopes, now=u.now, expires_at=expires_at)
    _audit(u, AuditAction.KEY_CREATED, made.row, scopes=made.row.scopes)
    return made


def insert_key(
    keys: KeyRepository,
    *,
    name: str,
    scopes: Iterable[Scope],
    now: datetime,
    expires_at: datetime | None = None,
) -> NewKey:
    """Make a key; whoever calls has checked that it may be made."""
    secret = new_key()
    row = keys.add(
        id=new_id(unix_ms(now)),
        created_at=now,
        name=name,
        prefix=secret.prefix,
        secret_sha256=secret.sha256,
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
    )
    return NewKey(row, secret.text)


def list_keys(u: UnitOfWork, *, before: UUID | None, limit: int) -> Sequence[ApiKey]:
    """List live keys, newest first."""
    return u.keys.page(before=before, limit=limit)


def get_key(u: UnitOfWork, key_id: UUID) -> ApiKey:
    """Return a live key."""
    return _found(u.keys.get(key_id))


def rotate_key(u: UnitOfWork, key_id: UUID, *, overlap_s: int) -> NewKey:
    """Replace a key by a new one that may do the same, and let the old one work on for a while.

    The new key lives as long as the old one was made for. A key that expires cannot prolong
    itself: rotated with itself, it keeps its end.

    Raises
    ------
    NotFound, InvalidState
        When there is no such key, it has expired, or it was replaced before.
    InsufficientScope
        When the key has a scope that the caller lacks.
    QuotaExceeded
        When both would work for a while, and the project has as many keys as it may have.
    """
    if overlap_s:
        _require_room(u)
    old = _found(u.keys.lock(key_id))
    scopes = known_scopes(old)
    _require_scopes(u, scopes)
    if old.replaced_by_id is not None:
        successor = format_id(IdPrefix.KEY, old.replaced_by_id)
        raise InvalidState(f"This key was already replaced by {successor}: rotate that one.")
    if not _is_live(old, u.now):
        raise InvalidState("This key has expired: make a new one.")
    ends = _successors_end(u, old)
    made = insert_key(u.keys, name=old.name, scopes=scopes, now=u.now, expires_at=ends)
    overlap_ends = u.now + timedelta(seconds=overlap_s)
    if old.expires_at is not None:
        overlap_ends = min(overlap_ends, old.expires_at)
    u.keys.replace(old.id, by=made.row.id, expires_at=overlap_ends)
    replaced_by = format_id(IdPrefix.KEY, made.row.id)
    _audit(u, AuditAction.KEY_ROTATED, old, replaced_by=replaced_by, overlap_s=overlap_s)
    return made


def revoke_key(u: UnitOfWork, key_id: UUID) -> None:
    """Revoke a key for good.

    Raises
    ------
    NotFound
        When there is no such key.
    InvalidState
        When nobody could make keys for this project after that.
    """
    u.project.lock()  # two managers must not revoke each other at once
    key = get_key(u, key_id)
    if _is_live(key, u.now) and key.replaced_by_id is None:
        _require_another_manager(u, key)
    u.keys.revoke(key_id, now=u.now)
    _audit(u, AuditAction.KEY_REVOKED, key)


def known_scopes(row: ApiKey) -> list[Scope]:
    """Read the scopes of a key; one that a later release knows gives nothing here."""
    known = {scope.value for scope in Scope}
    return [Scope(scope) for scope in row.scopes if scope in known]


def _require_scopes(u: UnitOfWork, scopes: Iterable[Scope]) -> None:
    lacking = sorted(scope for scope in set(scopes) if not u.principal.has(scope))
    if lacking:
        raise InsufficientScope(f"A key cannot grant scopes it lacks itself: {', '.join(lacking)}.")


def _require_room(u: UnitOfWork) -> None:
    u.project.lock()  # two requests must not both make the last one
    if u.keys.count_working(now=u.now) >= MAX_WORKING_KEYS:
        raise QuotaExceeded(
            f"The project has {MAX_WORKING_KEYS} working keys, which is all that it may have. "
            "Revoke one that is no longer needed, or rotate with an overlap of 0."
        )


def _require_another_manager(u: UnitOfWork, key: ApiKey) -> None:
    """Refuse to lose a power over the project that only an operator could give back."""
    others = {scope for scopes in u.keys.scopes_of_others(key.id, now=u.now) for scope in scopes}
    lost = [scope for scope in IRREPLACEABLE if scope in key.scopes and scope not in others]
    if lost:
        raise InvalidState(
            f"This is the last key of the project with the scope {lost[0]}. Make another one "
            "first; if this one has leaked, rotate it with an overlap of 0."
        )


def _callers_end(u: UnitOfWork) -> datetime | None:
    key = u.keys.get(u.principal.key_id) if u.principal.key_id else None
    return key.expires_at if key else None


def _successors_end(u: UnitOfWork, old: ApiKey) -> datetime | None:
    if old.expires_at is None:
        ends = None
    elif old.id == u.principal.key_id:
        return old.expires_at
    else:
        ends = u.now + (old.expires_at - old.created_at)
    limit = _callers_end(u)
    if limit is not None and (ends is None or ends > limit):
        raise InvalidState(
            f"The new key would outlive the key in use, which expires at {format_time(limit)}: "
            "rotate with a key that lives longer."
        )
    return ends


def _bad_expiry(code: str, message: str) -> ValidationFailed:
    finding = Finding("/expires_at", code, message)
    return ValidationFailed(message, findings=[finding])


def _found(key: ApiKey | None) -> ApiKey:
    if key is None:
        raise NotFound("There is no such key in this project.")
    return key


def _audit(u: UnitOfWork, action: AuditAction, key: ApiKey, **details: Any) -> None:
    shown = {"name": key.name, **details}
    record(u, action, target=format_id(IdPrefix.KEY, key.id), details=shown)


def _is_live(row: ApiKey, now: datetime) -> bool:
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > now)
