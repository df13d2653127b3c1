"""API keys, and who is calling."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from app.api.creating import create_once
from app.api.deps import AnyCaller, IdempotencyTicket, KeyId, KeysManager
from app.api.key_views import key_body, new_key_answer, profile_body
from app.api.negotiation import accepts_json
from app.api.pagination import cut, link_next, read_page
from app.api.problems import problems
from app.domain.errors import (
    IdempotencyKeyReused,
    InvalidCursor,
    InvalidState,
    NotFound,
    QuotaExceeded,
    RequestTimeout,
    TooLarge,
    UnsupportedMediaType,
)
from app.schemas.base import Page, PageParameters
from app.schemas.keys import KeyBody, KeyRequest, NewKeyBody, ProfileBody, RotateKeyRequest
from app.security.scopes import Scope
from app.services import keys
from app.services.profile import get_profile

router = APIRouter(prefix="/v1", tags=["keys"], dependencies=[Depends(accepts_json)])


@router.post(
    "/api-keys",
    status_code=201,
    operation_id="createApiKey",
    summary="Make an API key",
    response_model=NewKeyBody,
    responses=problems(
        UnsupportedMediaType, TooLarge, RequestTimeout, IdempotencyKeyReused, QuotaExceeded
    ),
)
def create_api_key(caller: KeysManager, body: KeyRequest, ticket: IdempotencyTicket) -> Response:
    """Make a key of the caller's project; its secret is in this answer and nowhere else."""
    scopes = [Scope(name) for name in body.scopes]
    return create_once(
        caller,
        ticket,
        prepare=lambda: None,
        make=lambda u, _: new_key_answer(
            keys.create_key(u, name=body.name, scopes=scopes, expires_at=body.expires_at)
        ),
    )


@router.get(
    "/api-keys",
    operation_id="listApiKeys",
    summary="List API keys",
    responses=problems(InvalidCursor),
)
def list_api_keys(
    caller: KeysManager,
    request: Request,
    response: Response,
    parameters: Annotated[PageParameters, Query()],
) -> Page[KeyBody]:
    """List the keys of the project that are not revoked, newest first."""
    page = read_page(parameters, "api-keys")
    with caller.uow() as u:
        found = cut(keys.list_keys(u, before=page.before, limit=page.fetch), page)
    link_next(request, response, found.next_cursor)
    data = [key_body(row) for row in found.rows]
    return Page(data=data, has_more=bool(found.next_cursor), next_cursor=found.next_cursor)


@router.get(
    "/api-keys/{key_id}",
    operation_id="getApiKey",
    summary="Read an API key",
    responses=problems(NotFound),
)
def get_api_key(caller: KeysManager, key_id: KeyId) -> KeyBody:
    """Read what is known of a key; its secret is not."""
    with caller.uow() as u:
        return key_body(keys.get_key(u, key_id))


@router.post(
    "/api-keys/{key_id}/rotate",
    status_code=201,
    operation_id="rotateApiKey",
    summary="Replace an API key",
    response_model=NewKeyBody,
    responses=problems(
        NotFound,
        InvalidState,
        UnsupportedMediaType,
        TooLarge,
        IdempotencyKeyReused,
        QuotaExceeded,
    ),
)
def rotate_api_key(
    caller: KeysManager,
    key_id: KeyId,
    ticket: IdempotencyTicket,
    body: RotateKeyRequest | None = None,
) -> Response:
    """Make a key that may do the same; the old one works on for `overlap_s` seconds.

    The new secret is in this answer and nowhere else. The key in use can be rotated too, but one
    that expires keeps its end: whoever finds it cannot prolong it.
    """
    overlap_s = (body or RotateKeyRequest()).overlap_s
    return create_once(
        caller,
        ticket,
        prepare=lambda: None,
        make=lambda u, _: new_key_answer(keys.rotate_key(u, key_id, overlap_s=overlap_s)),
    )


@router.delete(
    "/api-keys/{key_id}",
    status_code=204,
    operation_id="revokeApiKey",
    summary="Revoke an API key",
    responses=problems(NotFound, InvalidState),
)
def revoke_api_key(caller: KeysManager, key_id: KeyId) -> None:
    """Revoke a key for good, from the next request on; not the last that can manage keys."""
    with caller.uow(write=True) as u:
        keys.revoke_key(u, key_id)


@router.get("/me", operation_id="getMe", summary="Tell who is calling", responses=problems())
def get_me(caller: AnyCaller) -> ProfileBody:
    """Tell the caller's key, project, scopes, and quotas with their use."""
    with caller.uow() as u:
        return profile_body(caller.principal, get_profile(u))
