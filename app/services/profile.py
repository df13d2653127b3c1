"""Who the caller is, and what its project may use."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.db.tables import ApiKey, Project
from app.db.uow import UnitOfWork
from app.services.quotas import Quota, quotas_of


@dataclass(frozen=True, slots=True)
class Profile:
    """The caller's key and project, and how much the project uses at present."""

    key: ApiKey | None
    project: Project
    quotas: Mapping[str, Quota]


def get_profile(u: UnitOfWork) -> Profile:
    """Return the caller's profile."""
    key_id = u.principal.key_id
    project = u.project.get()
    return Profile(
        key=u.keys.get(key_id) if key_id else None,
        project=project,
        quotas=quotas_of(u, project),
    )
