"""Secrets of projects: set, list, delete; read in one place, to make a client of the hub."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.orm import Session

from app.db.repositories.secrets import SecretRepository
from app.db.tables import ProjectSecret
from app.db.uow import UnitOfWork
from app.domain.audit import AuditAction
from app.domain.clock import unix_ms
from app.domain.errors import NotFound, Unavailable
from app.domain.ids import IdPrefix, format_id, new_id
from app.domain.secrets import SecretName
from app.integrations.hub import HubClient
from app.redaction import hide_value
from app.security.secrets import SecretBox
from app.services.audit import record
from app.services.secret_key import find_secret_keys
from app.settings import Settings


def box_of(settings: Settings) -> SecretBox | None:
    """Make the box that secrets are kept in; None without a secret key."""
    keys = find_secret_keys(settings)
    return SecretBox(keys) if keys else None


def set_secret(u: UnitOfWork, box: SecretBox | None, name: str, value: str) -> ProjectSecret:
    """Keep a secret of the project, in place of the one there was.

    Raises
    ------
    NotFound
        When there is no secret of this name.
    Unavailable
        When the service has no key to encrypt it with.
    """
    known = _known(name)
    sealed = _usable(box).seal(value, project_id=u.principal.project_id, name=known)
    u.project.lock()  # of two first values at once, one would meet the unique constraint
    row = u.secrets.get(known)
    if row is None:
        row = u.secrets.add(id=new_id(unix_ms(u.now)), name=known, ciphertext=sealed, now=u.now)
    else:
        row = u.secrets.change(row, sealed, now=u.now)
    record(u, AuditAction.SECRET_SET, target=known)
    return row


def list_secrets(u: UnitOfWork) -> Sequence[ProjectSecret]:
    """List the secrets of the project. Nothing shows a value."""
    return u.secrets.all()


def delete_secret(u: UnitOfWork, name: str) -> None:
    """Forget a secret of the project.

    Raises
    ------
    NotFound
        When it is not set.
    """
    u.project.lock()  # nor may it go between the look and the change of `set_secret`
    if not u.secrets.delete(_known(name)):
        raise NotFound(f"The secret {name} is not set in this project.")
    record(u, AuditAction.SECRET_DELETED, target=name)


def hub_of_project(
    hub: HubClient, session: Session, box: SecretBox | None, project_id: UUID
) -> HubClient:
    """Return a client that reads the hub as the project may: with its own token if it has one.

    The value goes into the client and nowhere else.

    Raises
    ------
    SecretUnreadable
        When no key decrypts the token.
    Unavailable
        When this process has no key at all.
    """
    row = SecretRepository(session, project_id).get(SecretName.HUB_TOKEN)
    if row is None:
        return hub
    token = _usable(box).open(row.ciphertext, project_id=project_id, name=row.name)
    hide_value(token)
    return hub.for_owner(format_id(IdPrefix.PROJECT, project_id), token=token)


def _known(name: str) -> SecretName:
    try:
        return SecretName(name)
    except ValueError:
        known = ", ".join(SecretName)
        raise NotFound(f"There is no secret of this name; there is {known}.") from None


def _usable(box: SecretBox | None) -> SecretBox:
    if box is None:
        raise Unavailable(
            "This process has no secret key, which secrets are encrypted with. The operator should "
            "give DEBIAS_SECRET_KEY to the API and to the workers.",
            retry_after_s=60,
        )
    return box
