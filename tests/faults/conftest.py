"""Deployments that fault tests disturb."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.rig import environment, running
from tests.server_addresses import RedisAddress
from tests.service import Service, common


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def separate(
    request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisAddress
) -> Iterator[Service]:
    """An API and one worker as processes of their own; the role `second` is another worker."""
    home = tmp_path / "home"
    home.mkdir()
    if request.param == "sqlite":
        shutil.copy2(request.getfixturevalue("migrated_sqlite"), home / "debias.db")
        url = f"sqlite:///{home}/debias.db"
        name = None
    else:
        server, template = request.getfixturevalue("migrated_postgres")
        name = f"frozen_{home.stat().st_ino}"
        url = server.create_database(name, template=template).url
    urls = {"DEBIAS_DATABASE_URL": url, "DEBIAS_BROKER_URL": redis_server.database_url(13)}
    worker = ["worker", "--classes", "cpu"]
    deployment = Service(
        home,
        common(home) | urls | environment(tmp_path),
        {"api": ["api", "--port", "{port}"], "worker": worker},
        prepare=[["db", "upgrade"]],
    )
    with running(deployment):
        deployment.roles["second"] = worker
        yield deployment
    if name is not None:
        server.drop_database(name)
