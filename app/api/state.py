"""What the application holds while it runs."""

from dataclasses import dataclass
from typing import TypedDict

from app.api.rate_limits import RateLimiter
from app.api.readiness import ReadinessMonitor
from app.api.turns import ProjectTurns
from app.api.watcher import JobWatcher
from app.dispatch.gc.collector import Collector
from app.dispatch.maintenance import MaintenanceLoops
from app.metrics import HttpMetrics
from app.security.signing import DownloadSigner
from app.services.context import ServiceContext


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything a request may use; `loops` is None on a replica without maintenance."""

    context: ServiceContext
    watcher: JobWatcher
    readiness: ReadinessMonitor
    metrics: HttpMetrics
    signer: DownloadSigner
    limiter: RateLimiter
    turns: ProjectTurns
    collector: Collector
    loops: MaintenanceLoops | None

    def nudge(self) -> None:
        """Let the maintenance loops act on what was just committed."""
        if self.loops is not None:
            self.loops.nudge()


class State(TypedDict):
    """State of the lifespan, seen by each request as `request.state`."""

    runtime: Runtime
