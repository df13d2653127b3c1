"""Keys as response bodies."""

from app.db.tables import ApiKey
from app.domain.ids import IdPrefix, format_id
from app.schemas.keys import KeyBody, NewKeyBody, ProfileBody, ProjectBody, QuotaUse
from app.security.scopes import Principal
from app.services.idempotency import Answer
from app.services.keys import NewKey
from app.services.profile import Profile


def key_body(row: ApiKey) -> KeyBody:
    """Show a key."""
    return KeyBody(
        id=format_id(IdPrefix.KEY, row.id),
        name=row.name,
        prefix=row.prefix,
        scopes=row.scopes,
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        replaced_by=format_id(IdPrefix.KEY, row.replaced_by_id) if row.replaced_by_id else None,
    )


def new_key_answer(made: NewKey) -> Answer:
    """Show a new key with its secret, but keep the answer for repetitions without it."""
    shown = key_body(made.row)
    body = NewKeyBody(**shown.model_dump(), secret=made.secret)
    kept = body.model_copy(update={"secret": None})
    return Answer(
        201,
        body.model_dump(mode="json"),
        f"/v1/api-keys/{shown.id}",
        made.row.id,
        stored_body=kept.model_dump(mode="json"),
    )


def profile_body(principal: Principal, profile: Profile) -> ProfileBody:
    """Show who is calling."""
    project = profile.project
    return ProfileBody(
        key=key_body(profile.key) if profile.key else None,
        project=ProjectBody(
            id=format_id(IdPrefix.PROJECT, project.id),
            name=project.name,
            suspended=project.suspended,
            retention_days=project.retention_days,
        ),
        scopes=sorted(principal.scopes),
        quotas={
            name: QuotaUse(limit=quota.limit, used=quota.used)
            for name, quota in profile.quotas.items()
        },
    )
