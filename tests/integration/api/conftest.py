"""The application, started once for each database; every test has a project of its own."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.db.session import Database
from app.logging import configure_logging
from app.main import create_app
from app.services.connections import store_of
from app.settings import Settings
from tests.fixtures.database import KINDS
from tests.hub_stand_in import HubStandIn
from tests.integration.api.callers import Caller, RunningApp
from tests.integration.api.live_server import LiveServer
from workers.testkit.models import write_tiny_model


@contextmanager
def run_app(settings: Settings) -> Iterator[RunningApp]:
    """Run the application without maintenance loops."""
    configure_logging("error", "json")
    database = Database(settings.resolved_database_url)
    app = create_app(settings, maintenance=False)
    with TestClient(app) as client:
        yield RunningApp(app, client, database, store_of(settings), settings)
    database.dispose()


def settings_for(home: Path, hub: HubStandIn, **changes: Any) -> Settings:
    """Settings of a test: the fake method, a folder with one tiny model, no real hub."""
    models = home / "models"
    if not models.exists():
        write_tiny_model(models / "tiny")
    values = {
        "home": home,
        "models_dir": models,
        "hub_endpoint": hub.endpoint,
        "secret_key": "k" * 40,
        "extra_methods": ("app.catalog.testkit.fake",),
        "rate_limit_read": 0,
        "rate_limit_write": 0,
        **changes,
    }
    return Settings(_env_file=None, **values)


@pytest.fixture(scope="session")
def hub() -> Iterator[HubStandIn]:
    with HubStandIn() as running:
        yield running


@pytest.fixture(scope="session", params=KINDS)
def app(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, hub: HubStandIn
) -> Iterator[RunningApp]:
    """The application on each database."""
    home = tmp_path_factory.mktemp(f"api-{request.param}")
    if request.param == "sqlite":
        shutil.copy2(request.getfixturevalue("migrated_sqlite"), home / "debias.db")
        with run_app(settings_for(home, hub)) as running:
            yield running
        return
    server, template = request.getfixturevalue("migrated_postgres")
    name = f"api_{secrets.token_hex(6)}"
    url = server.create_database(name, template=template).url
    with run_app(settings_for(home, hub, database_url=url)) as running:
        yield running
    server.drop_database(name)


@pytest.fixture
def caller(app: RunningApp) -> Caller:
    """A caller with all scopes in a project of its own."""
    return app.caller()


@pytest.fixture
def sqlite_settings(tmp_path: Path, migrated_sqlite: Path, hub: HubStandIn) -> Settings:
    """Settings of an application of this test's own, on SQLite."""
    shutil.copy2(migrated_sqlite, tmp_path / "debias.db")
    return settings_for(tmp_path, hub)


@pytest.fixture
def live(caller: Caller) -> Iterator[str]:
    server = LiveServer(caller)
    yield server.start()
    server.stop()
