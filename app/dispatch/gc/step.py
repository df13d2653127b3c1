"""What the steps of the collector have in common."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from app.db.repositories.retention import ProjectRetention
from app.db.session import Database
from app.domain.retention import Freed, Horizon
from app.storage.objects import ObjectStore

# Rows of one transaction: few enough that nobody waits for it.
BATCH = 200


@dataclass(frozen=True, slots=True)
class Round:
    """What one run of the collector works with."""

    database: Database
    store: ObjectStore
    horizon: Horizon
    retentions: tuple[ProjectRetention, ...]


class Step(Protocol):
    """One kind of garbage. Steps hold nothing between runs and may run twice at once."""

    @property
    def kind(self) -> str:
        """Name of the kind, in reports and metrics."""
        ...

    def measure(self, work: Round) -> Freed:
        """Say what `collect` would delete, and delete nothing."""
        ...

    def collect(self, work: Round) -> Iterator[Freed]:
        """Delete in batches; a caller may stop after any of them."""
        ...
