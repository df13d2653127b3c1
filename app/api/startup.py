"""Open what a process needs, and close it in reverse order."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from app.api.rate_limits import limiter_of
from app.api.readiness import ReadinessMonitor
from app.api.state import Runtime
from app.api.turns import ProjectTurns
from app.api.watcher import JobWatcher
from app.catalog.registry import load_benchmarks, load_registry
from app.db.schema import require_current
from app.db.session import Database
from app.dispatch.gc.collector import Collector
from app.dispatch.maintenance import MaintenanceLoops
from app.integrations.hub import HubClient
from app.metrics import GcMetrics, HttpMetrics, StateCollector
from app.security.signing import DownloadSigner
from app.services.connections import hub_of, store_of
from app.services.context import ServiceContext
from app.services.hub_cache_keeper import HubCacheKeeper
from app.services.measures import measure_service
from app.services.model_intake import IntakeSettings
from app.services.secrets import box_of
from app.settings import Settings
from app.storage.objects import ObjectStore
from app.storage.s3 import PROMPT


@contextmanager
def open_runtime(
    settings: Settings,
    registry: CollectorRegistry,
    metrics: HttpMetrics,
    *,
    maintenance: bool,
) -> Iterator[Runtime]:
    """Open database, store and hub, and start the threads of the process.

    Raises
    ------
    Unavailable
        When the database has another schema than this release needs.
    """
    with ExitStack() as stack:
        database = Database(settings.resolved_database_url)
        stack.callback(database.dispose)
        require_current(database)
        store = store_of(settings, patience=PROMPT)
        # Its thread may wait: a store that is slow to delete must not stop it half way.
        collector = Collector(database, store_of(settings), on_freed=GcMetrics(registry).observe)
        hub = stack.enter_context(hub_of(settings))
        cache_keeper = HubCacheKeeper(settings.hub_cache_dir, settings.hub_cache_max_bytes)
        cache_keeper.start()
        stack.callback(cache_keeper.stop)
        loops = _start_loops(settings, database, collector, stack) if maintenance else None
        readiness = ReadinessMonitor(database, store, broker_ok=loops.broker_ok if loops else None)
        readiness.start()
        stack.callback(readiness.stop)
        watcher = JobWatcher(database)
        watcher.start()
        stack.callback(watcher.stop)
        registry.register(StateCollector(lambda: measure_service(database)))
        _serve_metrics_apart(settings, registry, stack)
        limiter = limiter_of(settings, database.clock)
        stack.callback(limiter.close)
        context = _context_of(settings, database, store, hub)
        signer = signer_of(settings)
        turns = ProjectTurns()
        yield Runtime(
            context, watcher, readiness, metrics, signer, limiter, turns, collector, loops
        )


def _context_of(
    settings: Settings, database: Database, store: ObjectStore, hub: HubClient
) -> ServiceContext:
    return ServiceContext(
        settings=settings,
        database=database,
        store=store,
        methods=load_registry(settings.extra_methods),
        benchmarks=load_benchmarks(),
        intake=intake_of(settings, hub),
        secrets=box_of(settings),
    )


def intake_of(settings: Settings, hub: HubClient) -> IntakeSettings:
    """Say which models are allowed."""
    return IntakeSettings(
        cache_dir=settings.hub_cache_dir,
        models_dir=settings.models_dir,
        hub=hub,
        hub_orgs=settings.hub_org_allowlist,
        max_total_bytes=settings.max_model_bytes,
    )


def signer_of(settings: Settings) -> DownloadSigner:
    """Make the signer of download links; without a secret key links end with the process."""
    if settings.secret_key is None:
        return DownloadSigner([secrets.token_hex(32)])
    keys = settings.secret_key.get_secret_value().split(",")
    return DownloadSigner([key.strip() for key in keys if key.strip()])


def _start_loops(
    settings: Settings, database: Database, collector: Collector, stack: ExitStack
) -> MaintenanceLoops | None:
    """Start the loops; without a broker there is nothing to dispatch to."""
    if settings.broker_url is None:
        return None
    loops = MaintenanceLoops(database, settings, collector=collector)
    loops.start()
    stack.callback(loops.stop)
    return loops


def _serve_metrics_apart(settings: Settings, registry: CollectorRegistry, stack: ExitStack) -> None:
    if settings.metrics_port is None:
        return
    server, thread = start_http_server(settings.metrics_port, registry=registry)
    stack.callback(thread.join)
    stack.callback(server.shutdown)
