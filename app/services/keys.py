"""API keys: who is calling, make one, list them, revoke one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from app.db.repositories.keys import KeyRepository, find_key, note_key_use
from app.db.session import Database
from app.db.tables import ApiKey
from app.db.uow import UnitOfWork
from app.domain.clock import unix_ms
from app.domain.errors import (
    Finding,
    InsufficientScope,
    NotFound,
    Unauthenticated,
    ValidationFailed,
)
from app.domain.ids import new_id
from app.security.auth import NO_DIGEST, new_key, read_authorization, same_digest
from app.security.scopes import Principal, Scope

USE_NOTED_EVERY = timedelta(minutes=1)
"""`last_used_at` is exact to this much: a write for every request would serialise all of them."""

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
        row = find_key(session, presented.prefix if presented else "")
        now = database.now(session)
    matches = same_digest(
        row.secret_sha256 if row else NO_DIGEST, presented.sha256 if presented else NO_DIGEST
    )
    if row is None or presented is None or not matches or not _is_live(row, now):
        raise Unauthenticated(REFUSAL)
    if row.last_used_at is None or now - row.last_used_at >= USE_NOTED_EVERY:
        with database.write() as session:
            note_key_use(session, row.id, now=now)
    known = {scope.value for scope in Scope}
    scopes = frozenset(Scope(scope) for scope in row.scopes if scope in known)
    return Principal(row.project_id, row.id, scopes)


def create_key(
    u: UnitOfWork, *, name: str, scopes: Sequence[Scope], expires_at: datetime | None
) -> NewKey:
    """Make a key of the caller's project.

    Raises
    ------
    InsufficientScope
        When it would have a scope that the caller lacks.
    ValidationFailed
        When it would already have expired.
    """
    lacking = sorted(scope for scope in set(scopes) if not u.principal.has(scope))
    if lacking:
        raise InsufficientScope(f"A key cannot grant scopes it lacks itself: {', '.join(lacking)}.")
    if expires_at is not None and expires_at <= u.now:
        finding = Finding(
            "/expires_at", "in_the_past", "Give a time in the future, or leave it out."
        )
        raise ValidationFailed("The key would already have expired.", findings=[finding])
    return insert_key(u.keys, name=name, scopes=scopes, now=u.now, expires_at=expires_at)


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
    key = u.keys.get(key_id)
    if key is None:
        raise NotFound("There is no such key in this project.")
    return key


def revoke_key(u: UnitOfWork, key_id: UUID) -> None:
    """Revoke a key for good."""
    if not u.keys.revoke(key_id, now=u.now):
        raise NotFound("There is no such key in this project.")


def _is_live(row: ApiKey, now: datetime) -> bool:
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > now)
