"""Who the caller is, and what its project may use."""

from dataclasses import dataclass

from app.db.tables import ApiKey, Project
from app.db.uow import UnitOfWork


@dataclass(frozen=True, slots=True)
class Profile:
    """The caller's key and project, and how much the project uses at present."""

    key: ApiKey | None
    project: Project
    waiting: int
    running: int


def get_profile(u: UnitOfWork) -> Profile:
    """Return the caller's profile."""
    key_id = u.principal.key_id
    return Profile(
        key=u.keys.get(key_id) if key_id else None,
        project=u.project.get(),
        waiting=u.project.count_waiting(),
        running=u.project.count_running(),
    )
