"""A running application and keyed callers of it, for the tests of the HTTP interface."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from fastapi import FastAPI
from starlette.testclient import TestClient

from app.db.repositories.keys import KeyRepository
from app.db.session import Database
from app.domain.ids import IdPrefix, format_id, parse_id
from app.security.scopes import GRANTABLE, Principal, Scope
from app.services.keys import insert_key
from app.settings import Settings
from app.storage.objects import ObjectStore
from tests.fixtures.database import make_project

JOB: dict[str, Any] = {"model": {"path": "tiny"}, "method": "fake"}


@dataclass(frozen=True)
class RunningApp:
    """The application, and the database and store behind it."""

    fastapi: FastAPI
    client: TestClient
    database: Database
    store: ObjectStore
    settings: Settings

    def caller(self, *, scopes: Sequence[Scope] = tuple(GRANTABLE), **project: object) -> "Caller":
        """Make a project of its own with one key."""
        project_id = make_project(self.database, **project)
        return Caller(self, project_id, make_key(self.database, project_id, scopes))


@dataclass(frozen=True)
class Caller:
    """A client with a key."""

    app: RunningApp
    project_id: UUID
    key: str
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Send a request with the key."""
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        return self.app.client.request(method, path, headers=headers, **options)

    def get(self, path: str, **options: Any) -> Any:
        """Send a GET."""
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> Any:
        """Send a POST."""
        return self.request("POST", path, **options)

    def create_job(self, **fields: Any) -> dict[str, Any]:
        """Create a job and return it."""
        answer = self.post("/v1/jobs", json={**JOB, **fields})
        assert answer.status_code == 202, answer.text
        body: dict[str, Any] = answer.json()
        return body

    @property
    def shown_project(self) -> str:
        """Id of the project as the store's keys name it."""
        return format_id(IdPrefix.PROJECT, self.project_id)

    def with_scopes(self, *scopes: Scope) -> "Caller":
        """Another key of the same project."""
        return Caller(
            self.app, self.project_id, make_key(self.app.database, self.project_id, scopes)
        )


def make_key(database: Database, project_id: UUID, scopes: Sequence[Scope]) -> str:
    """Insert a key and return its text."""
    with database.write() as session:
        now = database.now(session)
        name = f"key-{secrets.token_hex(3)}"
        keys = KeyRepository(session, project_id)
        return insert_key(keys, name=name, scopes=scopes, now=now).secret


def job_uuid(shown: str) -> UUID:
    """Read a job id."""
    value = parse_id(IdPrefix.JOB, shown)
    assert value is not None
    return value


def some_principal(project_id: UUID | None = None) -> Principal:
    """Somebody with a key of his own, of some project or of one of his own."""
    return Principal(project_id or uuid4(), uuid4(), frozenset())
