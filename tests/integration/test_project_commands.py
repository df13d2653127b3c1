"""`debias projects` and keys for projects, on a database without an API."""

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli.commands import create_cli
from app.db.session import Database
from app.security.scopes import TENANT, Scope
from app.services.keys import authenticate


class CommandLine:
    """Runs commands on a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._environment = {"DEBIAS_HOME": str(home), "DEBIAS_LOG_LEVEL": "error"}

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(create_cli(), arguments, env=self._environment)

    def scopes_of(self, key: str) -> set[Scope]:
        database = Database(f"sqlite:///{self.home}/debias.db")
        try:
            return set(authenticate(database, f"Bearer {key.strip()}").scopes)
        finally:
            database.dispose()

    def query(self, statement: str) -> list[Any]:
        with sqlite3.connect(self.home / "debias.db") as connection:
            return connection.execute(statement).fetchall()


@pytest.fixture
def debias(tmp_path: Path, migrated_sqlite: Path) -> CommandLine:
    shutil.copy2(migrated_sqlite, tmp_path / "debias.db")
    return CommandLine(tmp_path)


def test_a_new_project_has_its_limits_and_a_key_that_works(debias: CommandLine) -> None:
    made = debias("projects", "create", "nlp", "--weight", "3", "--max-storage-bytes", "1000")

    assert made.exit_code == 0
    assert debias.scopes_of(made.stdout) == TENANT
    limits = debias.query("SELECT weight, max_storage_bytes FROM projects WHERE name = 'nlp'")
    assert limits == [(3.0, 1000)]


def test_limits_change_one_by_one_and_are_listed_with_their_use(debias: CommandLine) -> None:
    debias("projects", "create", "nlp", "--max-storage-bytes", "1000", "--max-queued", "7")

    changed = debias("projects", "set", "nlp", "--max-storage-bytes", "none", "--suspend")
    shown = debias("projects", "ls").stdout
    debias("projects", "set", "nlp", "--resume", "--rename", "text")

    assert changed.exit_code == 0
    assert "suspended" in shown
    assert "0 of 7" in shown
    found = debias.query(
        "SELECT max_storage_bytes, max_queued, suspended FROM projects WHERE name = 'text'"
    )
    assert found == [(None, 7, 0)]


def test_changes_are_in_the_audit_log_as_made_on_the_machine(debias: CommandLine) -> None:
    debias("projects", "create", "nlp")
    debias("projects", "set", "nlp", "--weight", "2")

    entries = debias.query(
        "SELECT action, actor, details FROM audit_log WHERE action LIKE 'project.%' ORDER BY id"
    )

    assert [entry[:2] for entry in entries] == [
        ("project.created", "local"),
        ("project.changed", "local"),
    ]
    assert json.loads(entries[1][2]) == {"weight": {"from": 1.0, "to": 2.0}}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("projects", "create", "nlp"), "already"),
        (("projects", "create", "No Spaces"), "name"),
        (("projects", "set", "nlp", "--weight", "0"), "weight"),
        (("projects", "set", "nlp", "--max-queued", "many"), "max-queued"),
        (("projects", "set", "nlp", "--weight", "none"), "weight"),
        (("projects", "set", "nobody", "--weight", "2"), "nobody"),
        (("projects", "set", "default", "--rename", "mine"), "keeps its name"),
        (("keys", "create", "--name", "x", "--project", "nobody"), "nobody"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    debias: CommandLine, arguments: tuple[str, ...], words: str
) -> None:
    debias("projects", "create", "nlp")
    before = debias.query("SELECT * FROM projects"), debias.query("SELECT * FROM api_keys")

    refused = debias(*arguments)

    assert refused.exit_code == 1
    assert words in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert (
        debias.query("SELECT * FROM projects"),
        debias.query("SELECT * FROM api_keys"),
    ) == before


def test_a_key_is_of_the_project_that_was_named(debias: CommandLine) -> None:
    debias("projects", "create", "nlp")
    key = debias("keys", "create", "--name", "spare", "--project", "nlp").stdout

    owner = debias.query(
        "SELECT p.name FROM api_keys k JOIN projects p ON p.id = k.project_id "
        "WHERE k.name = 'spare'"
    )

    assert owner == [("nlp",)]
    assert debias.scopes_of(key) == TENANT


def test_only_who_asks_for_admin_gets_it(debias: CommandLine) -> None:
    plain = debias("keys", "create", "--name", "plain").stdout
    powerful = debias("keys", "create", "--name", "powerful", "--scope", "admin").stdout

    assert Scope.ADMIN not in debias.scopes_of(plain)
    assert debias.scopes_of(powerful) == {Scope.ADMIN}
