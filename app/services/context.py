"""What one process holds for all its requests."""

from dataclasses import dataclass, field

from app.catalog.method import CheckResult, MethodConfig
from app.catalog.registry import BenchmarkRegistry, MethodRegistry
from app.db.session import Database
from app.security.secrets import SecretBox
from app.services.model_intake import IntakeSettings
from app.services.recent import Recent
from app.settings import Settings
from app.storage.objects import ObjectStore

KEPT_CHECKS = 64


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """Settings, database, store, methods and the way to models: made once, shared by threads.

    `secrets` is None where the service has no secret key. `checks` keeps what methods said last of
    a config on a model: pipelines send the same again and again, and it is 2 ms of CPU for each.
    """

    settings: Settings
    database: Database
    store: ObjectStore
    methods: MethodRegistry
    benchmarks: BenchmarkRegistry
    intake: IntakeSettings
    secrets: SecretBox | None
    checks: Recent[tuple[MethodConfig, CheckResult]] = field(
        default_factory=lambda: Recent(KEPT_CHECKS)
    )
