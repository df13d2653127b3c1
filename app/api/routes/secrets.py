"""Secrets of a project: set, list, delete. No answer holds a value."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from app.api.deps import SecretsManager
from app.api.negotiation import accepts_json
from app.api.problems import problems
from app.db.tables import ProjectSecret
from app.domain.errors import NotFound, RequestTimeout, TooLarge, UnsupportedMediaType
from app.schemas.base import Listing
from app.schemas.secrets import SecretBody, SecretRequest
from app.services import secrets

router = APIRouter(prefix="/v1/secrets", tags=["secrets"], dependencies=[Depends(accepts_json)])

SecretPath = Annotated[str, Path(max_length=63, description="`hub_token`.")]


@router.get(
    "",
    operation_id="listSecrets",
    summary="List secrets",
    responses=problems(),
)
def list_secrets(caller: SecretsManager) -> Listing[SecretBody]:
    """List which secrets the project has set; nobody can read their values."""
    with caller.uow() as u:
        return Listing(data=[_body(row) for row in secrets.list_secrets(u)])


@router.put(
    "/{name}",
    operation_id="setSecret",
    summary="Set a secret",
    responses=problems(NotFound, UnsupportedMediaType, TooLarge, RequestTimeout),
)
def set_secret(caller: SecretsManager, name: SecretPath, body: SecretRequest) -> SecretBody:
    """Keep a secret, encrypted, in place of the one there was.

    `hub_token` is sent to the model hub, and to nobody else, when a job of this project reads a
    model there; without one the service's own token is used.
    """
    value = body.value.get_secret_value()
    with caller.uow(write=True) as u:
        return _body(secrets.set_secret(u, caller.context.secrets, name, value))


@router.delete(
    "/{name}",
    status_code=204,
    operation_id="deleteSecret",
    summary="Delete a secret",
    responses=problems(NotFound),
)
def delete_secret(caller: SecretsManager, name: SecretPath) -> None:
    """Forget a secret; jobs that still wait for it fail with what to do."""
    with caller.uow(write=True) as u:
        secrets.delete_secret(u, name)


def _body(row: ProjectSecret) -> SecretBody:
    return SecretBody(name=row.name, created_at=row.created_at, updated_at=row.updated_at)
