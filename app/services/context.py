"""What one process holds for all its requests."""

from dataclasses import dataclass

from app.catalog.registry import BenchmarkRegistry, MethodRegistry
from app.db.session import Database
from app.security.secrets import SecretBox
from app.services.model_intake import IntakeSettings
from app.settings import Settings
from app.storage.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """Settings, database, store, methods and the way to models: made once, shared by threads.

    `secrets` is None where the service has no secret key.
    """

    settings: Settings
    database: Database
    store: ObjectStore
    methods: MethodRegistry
    benchmarks: BenchmarkRegistry
    intake: IntakeSettings
    secrets: SecretBox | None
