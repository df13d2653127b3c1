"""Deployments for measurements: servers from packages, several processes, projects with keys."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import sqlalchemy as sa

from app.db.repositories.keys import KeyRepository
from app.db.repositories.projects import add_project
from app.db.session import Database
from app.db.tables import Project
from app.domain.clock import unix_ms
from app.domain.ids import new_id
from app.security.scopes import GRANTABLE
from app.services.keys import insert_key
from app.settings import Settings
from tests.faults.rig import environment as short_periods
from tests.servers import PostgresServer, RedisServer, S3Server, reserve_ports
from tests.service import Service, embedded, production

KINDS = ("production", "embedded")
# A measurement sends more than one client may: what it measures is not the limiter.
OPEN = {
    "DEBIAS_AUTH_MODE": "keys",
    "DEBIAS_RATE_LIMIT_READ": "0",
    "DEBIAS_RATE_LIMIT_WRITE": "0",
    "DEBIAS_LOG_LEVEL": "warning",
    "DEBIAS_MAX_QUEUED_TOTAL": "100000",
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """A project and the key of its client."""

    project_id: UUID
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Shape:
    """How many processes a production deployment has; the embedded one has one of each."""

    apis: int = 1
    workers: int = 1


@contextmanager
def deployment(
    kind: str, folder: Path, *, shape: Shape = Shape(), **settings: str
) -> Iterator[Service]:
    """Start a deployment with the fake method, and stop it and its servers whatever happens."""
    with ExitStack() as stack:
        environment = short_periods(folder, **OPEN) | settings
        if kind == "embedded":
            service = embedded(folder / "home", **environment)
        else:
            service = production(folder / "home", _start_servers(stack), **environment)
            _add_processes(service, shape)
        stack.callback(service.stop)
        yield service.start()


@contextmanager
def api_alone(database: str, folder: Path, *, apis: int = 1, **settings: str) -> Iterator[Service]:
    """Start APIs and a broker on `postgres` or `sqlite`, without workers and at usual periods."""
    with ExitStack() as stack:
        if database == "postgres":
            urls = _start_servers(stack)
        else:
            urls = {"DEBIAS_BROKER_URL": stack.enter_context(RedisServer()).url}
        service = production(folder / "home", urls, **OPEN, **settings)
        _add_processes(service, Shape(apis=apis, workers=0))
        stack.callback(service.stop)
        service.start()
        for url in urls_of(service):
            service.wait_until_ready(url)
        yield service


def add_tenants(
    service: Service, names: Sequence[str], *, max_running: int = 16, max_queued: int = 100_000
) -> list[Tenant]:
    """Make projects with a key each, as an administrator does."""
    database = Database(settings_of(service).resolved_database_url)
    try:
        return [_add_tenant(database, name, max_running, max_queued) for name in names]
    finally:
        database.dispose()


def settings_of(service: Service) -> Settings:
    """Read the settings as the processes of the service do."""
    prefix = "DEBIAS_"
    given = {
        name.removeprefix(prefix).lower(): value
        for name, value in service.environment.items()
        if name.startswith(prefix) and value
    }
    return Settings(_env_file=None, **given)  # type: ignore[arg-type]


def urls_of(service: Service) -> list[str]:
    """Where the API processes of the service listen."""
    ports = [
        arguments[arguments.index("--port") + 1].format(port=service.port)
        for arguments in service.roles.values()
        if "--port" in arguments
    ]
    return [f"http://127.0.0.1:{port}" for port in ports]


def _start_servers(stack: ExitStack) -> dict[str, str]:
    postgres = stack.enter_context(PostgresServer())
    redis = stack.enter_context(RedisServer())
    store = stack.enter_context(S3Server())
    name = f"bench_{secrets.token_hex(4)}"
    return {
        "DEBIAS_DATABASE_URL": postgres.create_database(name).url,
        "DEBIAS_BROKER_URL": redis.url,
        "DEBIAS_STORE_URL": store.create_bucket(name.replace("_", "-")) + "/objects",
        "DEBIAS_S3_ENDPOINT_URL": store.endpoint_url,
        "DEBIAS_S3_REGION": store.region,
        "DEBIAS_S3_ACCESS_KEY_ID": store.access_key_id,
        "DEBIAS_S3_SECRET_ACCESS_KEY": store.secret_access_key,
    }


def _add_processes(service: Service, shape: Shape) -> None:
    worker = service.roles.pop("worker")
    for number in range(2, shape.apis + 1):
        (port,) = reserve_ports(1)
        service.roles[f"api-{number}"] = ["api", "--host", "127.0.0.1", "--port", str(port)]
    for number in range(1, shape.workers + 1):
        service.roles[f"worker-{number}"] = worker


def _add_tenant(database: Database, name: str, max_running: int, max_queued: int) -> Tenant:
    with database.write() as session:
        now = database.now(session)
        project = add_project(session, new_id(unix_ms(now)), name, now=now)
        session.execute(
            sa.update(Project)
            .where(Project.id == project.id)
            .values(max_running=max_running, max_queued=max_queued)
        )
        keys = KeyRepository(session, project.id)
        made = insert_key(keys, name="bench", scopes=GRANTABLE, now=now)
        return Tenant(project.id, name, made.secret)
