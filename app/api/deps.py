"""Dependencies of routes: who is calling, with which scope, for which resource."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Header, Path, Request

from app.api.state import Runtime
from app.db.uow import UnitOfWork, unit_of_work
from app.domain.canonical import canonical_sha256
from app.domain.errors import BadRequest, InsufficientScope, NotFound, Unavailable
from app.domain.ids import IdPrefix, parse_id
from app.security.scopes import ALL_SCOPES, Principal, Scope
from app.services.context import ServiceContext
from app.services.idempotency import Ticket
from app.services.keys import authenticate
from app.services.projects import default_project_id

MAX_KEY_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated request."""

    principal: Principal
    runtime: Runtime
    request_id: str
    traceparent: str | None

    @property
    def context(self) -> ServiceContext:
        """What services need beside a transaction."""
        return self.runtime.context

    def uow(self, *, write: bool = False) -> AbstractContextManager[UnitOfWork]:
        """Open the transaction of this request."""
        return unit_of_work(
            self.context.database, self.principal, write=write, request_id=self.request_id
        )


class RequireScope:
    """Dependency that authenticates the caller and requires one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __call__(self, request: Request) -> Caller:
        """Return the caller, or refuse with 401 or 403."""
        runtime: Runtime = request.state.runtime
        principal = _principal(runtime, request.headers.get("authorization"))
        if principal.key_id is not None:
            # Set here and sent by the middleware: routes make their answers themselves.
            request.state.rate_limit = runtime.limiter.admit(principal.key_id, request.method)
        if not principal.has(self.scope):
            raise InsufficientScope(f"This needs a key with the scope {self.scope}.")
        return Caller(principal, runtime, request.state.request_id, request.state.traceparent)


def _principal(runtime: Runtime, authorization: str | None) -> Principal:
    database = runtime.context.database
    if runtime.context.settings.auth_mode == "keys":
        return authenticate(database, authorization)
    project_id = default_project_id(database)
    if project_id is None:
        raise Unavailable("The default project is not there yet: start the service once.")
    return Principal(project_id, None, ALL_SCOPES)


MethodsReader = Annotated[Caller, Depends(RequireScope(Scope.METHODS_READ))]
JobsReader = Annotated[Caller, Depends(RequireScope(Scope.JOBS_READ))]
JobsWriter = Annotated[Caller, Depends(RequireScope(Scope.JOBS_WRITE))]
ArtifactsReader = Annotated[Caller, Depends(RequireScope(Scope.ARTIFACTS_READ))]
KeysManager = Annotated[Caller, Depends(RequireScope(Scope.KEYS_MANAGE))]
SecretsManager = Annotated[Caller, Depends(RequireScope(Scope.SECRETS_MANAGE))]
AuditReader = Annotated[Caller, Depends(RequireScope(Scope.AUDIT_READ))]
Administrator = Annotated[Caller, Depends(RequireScope(Scope.ADMIN))]
AnyCaller = Annotated[Caller, Depends(RequireScope(Scope.PROFILE_READ))]


async def writers_turn(caller: JobsWriter) -> AsyncIterator[None]:
    """Let a request that checks a job wait, without a thread, for a turn of its project."""
    async with caller.runtime.turns.take(caller.principal.project_id):
        yield


async def readers_turn(caller: JobsReader) -> AsyncIterator[None]:
    """Do the same for a request that only reads."""
    async with caller.runtime.turns.take(caller.principal.project_id):
        yield


async def _job_id(job_id: Annotated[str, Path(description="`job_` and 26 characters.")]) -> UUID:
    return _parsed(IdPrefix.JOB, job_id)


async def _artifact_id(
    artifact_id: Annotated[str, Path(description="`art_` and 26 characters.")],
) -> UUID:
    return _parsed(IdPrefix.ARTIFACT, artifact_id)


async def _key_id(key_id: Annotated[str, Path(description="`key_` and 26 characters.")]) -> UUID:
    return _parsed(IdPrefix.KEY, key_id)


async def _project_id(
    project_id: Annotated[str, Path(description="`prj_` and 26 characters.")],
) -> UUID:
    return _parsed(IdPrefix.PROJECT, project_id)


async def _worker_id(
    worker_id: Annotated[str, Path(description="`wrk_` and 26 characters.")],
) -> UUID:
    return _parsed(IdPrefix.WORKER, worker_id)


def _parsed(prefix: IdPrefix, text: str) -> UUID:
    value = parse_id(prefix, text)
    if value is None:
        raise NotFound(f"There is nothing with this id here; it would look like {prefix}_...")
    return value


JobId = Annotated[UUID, Depends(_job_id)]
ArtifactId = Annotated[UUID, Depends(_artifact_id)]
KeyId = Annotated[UUID, Depends(_key_id)]
ProjectId = Annotated[UUID, Depends(_project_id)]
WorkerId = Annotated[UUID, Depends(_worker_id)]


async def _ticket(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(description="Repeats of a request with the same key do it once (kept 7 days)."),
    ] = None,
) -> Ticket | None:
    if idempotency_key is None:
        return None
    fits = 0 < len(idempotency_key) <= MAX_KEY_LENGTH
    if not (fits and idempotency_key.isascii() and idempotency_key.isprintable()):
        raise BadRequest("Idempotency-Key must be 1 to 255 printable ASCII characters.")
    body: dict[str, Any] = request.state.json_body or {}
    route = f"{request.method} {request.url.path}"
    return Ticket(idempotency_key, route[:100], canonical_sha256(body))


IdempotencyTicket = Annotated[Ticket | None, Depends(_ticket)]
