"""`debias secrets`: everything under the first key, as often as one likes."""

import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.cli.secrets import print_check, print_rotation
from app.db.repositories.secrets import SecretRepository
from app.db.session import Database
from app.db.tables import ProjectSecret
from app.db.uow import unit_of_work
from app.domain.errors import Conflict, SecretUnreadable
from app.security.scopes import ALL_SCOPES, Principal
from app.security.secrets import SecretBox
from app.services import secret_rotation
from app.services.secret_rotation import count_secrets, rotate_secrets
from app.services.secrets import delete_secret, set_secret
from app.settings import Settings
from tests.fixtures.database import make_project

OLD, NEW, LOST = "o" * 40, "n" * 40, "l" * 40


def keep(database: Database, key: str) -> UUID:
    """Let a project set a secret while the service has this key."""
    project_id = make_project(database)
    principal = Principal(project_id, None, ALL_SCOPES)
    with unit_of_work(database, principal, write=True) as u:
        set_secret(u, SecretBox([key]), "hub_token", f"value-of-{project_id.hex}")
    return project_id


def opened(database: Database, project_id: UUID, key: str) -> str:
    with database.read() as session:
        row = session.execute(
            sa.select(ProjectSecret).where(ProjectSecret.project_id == project_id)
        ).scalar_one()
    return SecretBox([key]).open(row.ciphertext, project_id=project_id, name="hub_token")


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(
        _env_file=None, home=tmp_path, database_url=database_url, secret_key=f"{NEW}, {OLD}"
    )


def test_everything_ends_under_the_first_key(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_rotation, "PAGE", 2)
    projects = [keep(database, OLD) for _ in range(5)]
    keep(database, NEW)
    box = SecretBox([NEW, OLD])

    assert rotate_secrets(database, box) == 5
    assert rotate_secrets(database, box) == 0
    assert [opened(database, project, NEW) for project in projects] == [
        f"value-of-{project.hex}" for project in projects
    ]


def test_secret_of_a_lost_key_is_counted_and_left_alone(database: Database) -> None:
    lost, old = keep(database, LOST), keep(database, OLD)
    box = SecretBox([NEW, OLD])

    assert rotate_secrets(database, box) == 1
    count = count_secrets(database, box)

    assert (count.current, count.former, count.unreadable) == (1, 0, 1)
    assert opened(database, lost, LOST) == f"value-of-{lost.hex}"
    assert opened(database, old, NEW) == f"value-of-{old.hex}"


def test_copied_row_counts_as_unreadable(database: Database) -> None:
    source, target = keep(database, NEW), keep(database, NEW)
    with database.write() as session:
        ciphertext = sa.select(ProjectSecret.ciphertext).where(ProjectSecret.project_id == source)
        value = session.execute(ciphertext).scalar_one()
        session.execute(
            sa.update(ProjectSecret)
            .where(ProjectSecret.project_id == target)
            .values(ciphertext=value)
        )

    assert count_secrets(database, SecretBox([NEW])).unreadable == 1
    with pytest.raises(SecretUnreadable):
        opened(database, target, NEW)


def test_commands_say_how_many(
    database: Database, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(database, OLD)
    keep(database, OLD)

    assert print_check(settings) == 0
    assert "Under a former key: 2." in capsys.readouterr().out
    assert print_rotation(settings) == 0
    assert "under the first key: 2." in capsys.readouterr().out
    assert print_rotation(settings) == 0
    assert "under the first key: 0." in capsys.readouterr().out

    keep(database, LOST)
    assert print_check(settings) == 1
    assert "Under no key of DEBIAS_SECRET_KEY: 1." in capsys.readouterr().out


def test_commands_need_a_key(settings: Settings) -> None:
    with pytest.raises(Conflict, match="DEBIAS_SECRET_KEY"):
        print_check(settings.model_copy(update={"secret_key": None}))


def test_a_secret_is_not_deleted_while_it_is_being_changed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    project_id = keep(database, OLD)
    principal = Principal(project_id, None, ALL_SCOPES)
    began, change = threading.Event(), SecretRepository.change

    def delete() -> None:
        with unit_of_work(database, principal, write=True) as u:
            began.set()
            delete_secret(u, "hub_token")

    deleter = threading.Thread(target=delete)

    def change_late(self: SecretRepository, *args: Any, **options: Any) -> ProjectSecret:
        deleter.start()
        # Time enough to delete the row, were it not for the lock.
        deleter.join(0.3)
        return change(self, *args, **options)

    monkeypatch.setattr(SecretRepository, "change", change_late)
    with unit_of_work(database, principal, write=True) as u:
        set_secret(u, SecretBox([NEW]), "hub_token", "another value")
    deleter.join()

    assert began.is_set()
    with database.read() as session:
        assert session.execute(sa.select(ProjectSecret)).all() == []
