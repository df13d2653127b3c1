"""What a key may do, and who is asking."""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class Scope(StrEnum):
    """One permission. A route names the one it needs."""

    METHODS_READ = "methods:read"
    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    JOBS_PRIORITY = "jobs:priority"
    ARTIFACTS_READ = "artifacts:read"
    KEYS_MANAGE = "keys:manage"
    SECRETS_MANAGE = "secrets:manage"
    AUDIT_READ = "audit:read"
    ADMIN = "admin"
    PROFILE_READ = "profile:read"


ALL_SCOPES = frozenset(Scope)

EVERY_KEY = frozenset({Scope.PROFILE_READ})
"""Scopes that no key can be without: a key may always ask what it is."""

GRANTABLE = ALL_SCOPES - EVERY_KEY
"""Scopes that a key is given one by one."""

TENANT = GRANTABLE - {Scope.ADMIN}
"""Scopes inside one project: what the key of a tenant, or one made without a choice, gets."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request acts for: one project, through one key (None with authentication off)."""

    project_id: UUID
    key_id: UUID | None
    scopes: frozenset[Scope]

    def has(self, scope: Scope) -> bool:
        """Tell whether this principal may do what `scope` covers."""
        return scope in self.scopes or scope in EVERY_KEY
