"""Prometheus metrics: requests of this process, and the state of the service from its rows."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.domain.retention import Freed
from app.services.measures import Sample

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class HttpMetrics:
    """Requests and streams of one process. The route label is the template, never the path."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "debias_http_requests_total",
            "Answered requests.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._duration = Histogram(
            "debias_http_request_duration_seconds",
            "Time from the first byte of a request to the last of its answer.",
            ["method", "route"],
            buckets=BUCKETS_S,
            registry=registry,
        )
        self.streams = Gauge("debias_sse_streams", "Open event streams.", registry=registry)

    def observe(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count one answer."""
        self._requests.labels(method, route, str(status)).inc()
        self._duration.labels(method, route).observe(duration_s)


class GcMetrics:
    """What this process has deleted from the object store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._bytes = Counter(
            "debias_gc_deleted_bytes_total",
            "Bytes of the object store that garbage collection has deleted.",
            ["kind"],
            registry=registry,
        )

    def observe(self, kind: str, freed: Freed) -> None:
        """Count one batch."""
        self._bytes.labels(kind).inc(freed.size_bytes)


class StateCollector(Collector):
    """Asks for the state of the service at each scrape."""

    def __init__(self, measure: Callable[[], Iterable[Sample]]) -> None:
        self._measure = measure

    def describe(self) -> Iterable[Metric]:
        """Describe nothing in advance, so that registering does not ask the database."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Turn samples into families of one name each."""
        families: dict[str, Metric] = {}
        for sample in self._measure():
            if sample.name not in families:
                families[sample.name] = _family(sample)
            families[sample.name].add_metric(  # type: ignore[attr-defined]
                list(sample.labels.values()), sample.value
            )
        yield from families.values()


def _family(sample: Sample) -> Metric:
    kind = CounterMetricFamily if sample.name.endswith("_total") else GaugeMetricFamily
    return kind(sample.name, sample.help, labels=list(sample.labels))
