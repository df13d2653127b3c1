"""Bring a database to the schema this code knows, or refuse to run on another."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import migrations
from app.db.session import Database
from app.domain.errors import Unavailable

MIGRATIONS = Path(migrations.__file__).parent


@cache
def head_revision() -> str:
    """Return the revision this code was written for."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise RuntimeError("the migrations folder holds no revision")
    return head


def current_revision(database: Database) -> str | None:
    """Return the revision of the database, None for an empty one."""
    with database.engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(database: Database, revision: str = "head") -> None:
    """Migrate up to `revision`. An existing SQLite file is first copied aside."""
    if current_revision(database) == head_revision():
        return
    _copy_sqlite_aside(database)
    _run(database, command.upgrade, revision)


def downgrade(database: Database, revision: str) -> None:
    """Migrate down to `revision` (`base` empties the database)."""
    _run(database, command.downgrade, revision)


def require_current(database: Database) -> None:
    """Refuse to go on with a database whose schema is not this code's.

    Raises
    ------
    Unavailable
        With the command that mends it.
    """
    found, wanted = current_revision(database), head_revision()
    if found != wanted:
        raise Unavailable(
            f"The database is at schema {found or 'none'}, this release needs {wanted}: "
            "run `debias db upgrade` with this release, or start the release that fits."
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    moment = "%%(year)d_%%(month).2d_%%(day).2d_%%(hour).2d%%(minute).2d"
    config.set_main_option("file_template", f"{moment}-%%(rev)s_%%(slug)s")
    return config


def _run(database: Database, step: Callable[[Config, str], None], revision: str) -> None:
    config = _config()
    with database.engine.connect() as connection:
        if database.is_sqlite:
            # A table rebuild drops the old table, which would cascade with foreign keys on.
            connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
            connection.commit()
        config.attributes["connection"] = connection
        step(config, revision)
        connection.commit()
        if database.is_sqlite:
            _check_foreign_keys(connection)


def _check_foreign_keys(connection: sa.Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise RuntimeError(f"migration left {len(broken)} broken references, first: {broken[0]}")
    connection.exec_driver_sql("PRAGMA foreign_keys=ON")
    connection.commit()


def _copy_sqlite_aside(database: Database) -> None:
    name = database.engine.url.database if database.is_sqlite else None
    if not name or not Path(name).exists() or current_revision(database) is None:
        return
    with database.engine.connect() as connection:
        connection.exec_driver_sql("ROLLBACK")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.exec_driver_sql("BEGIN")
    shutil.copy2(name, f"{name}.before-{head_revision()}")
