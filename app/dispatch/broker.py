"""The message broker: Celery's settings, and the producer that the dispatcher publishes with.

Celery only delivers. Whatever it loses, repeats or delays is made good by the claim in the
database, so every setting here prefers "fail fast and be sent again" over waiting.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol
from uuid import UUID

from celery import Celery
from kombu import Queue
from kombu.exceptions import OperationalError

from app.domain.errors import Unavailable

RUN_JOB_TASK = "evenhand.run_job"
QUEUE_PREFIX = "debias"

# Measured: with Redis frozen, a publish without these was still blocked after 40 s.
REDIS_OPTIONS = {
    "visibility_timeout": 3600,
    "socket_timeout": 5,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 25,
    "retry_on_timeout": False,
    # A producer's connection is opened inside the publish, which must not wait for a broker.
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
}
SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        # Late acknowledgement ran one task three times, twice at once (measured); the lease
        # finds dead workers instead.
        "task_acks_late": False,
        # A killed child would be given its message again at once: a loop.
        "task_reject_on_worker_lost": False,
        # A hoarded message is only a delay, but one that an idle worker could avoid.
        "worker_prefetch_multiplier": 1,
        "worker_disable_prefetch": True,
        # The fresh child imports torch before it reports itself alive.
        "worker_proc_alive_timeout": 120,
        # The outbox and the resend rule are the retry.
        "task_publish_retry": False,
        "broker_transport_options": REDIS_OPTIONS,
        "broker_connection_timeout": 3,
        # Worker and broker may start in any order.
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        # A full broker, or one that a fail-over has made a replica, is waited for like one that
        # is away; by default the worker would end, with its job.
        "broker_channel_error_retry": True,
        # Becomes True by default in Celery 6, and would kill jobs on a broker hiccup.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # Results are rows of our database; a result backend only grows.
        "task_ignore_result": True,
        "result_backend": None,
        # Never pickle.
        "task_serializer": "json",
        "accept_content": ["json"],
        # The run-time limit is the job's own.
        "task_time_limit": None,
        "task_soft_time_limit": None,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_enable_remote_control": True,
        # Drain is ours: Celery only stops consuming and waits for the child.
        "worker_soft_shutdown_timeout": 0,
        # Streams are captured per attempt; logging is structlog's.
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        # A typo in a queue name must fail.
        "task_create_missing_queues": False,
        "enable_utc": True,
        "timezone": "UTC",
    }
)
PING_TIMEOUT_S = 2
PROBE_KEY = f"{QUEUE_PREFIX}.probe"
PROBE_KEPT_S = 60


class BrokerUnavailable(Unavailable):
    """The broker did not take a message; the job stays queued and is sent again later."""


class Broker(Protocol):
    """Where the dispatcher hands over jobs."""

    def publish(self, job_id: UUID, *, dispatch: int, device_class: str) -> None:
        """Send one `run_job` message or raise `BrokerUnavailable` within seconds."""

    def ping(self) -> bool:
        """Tell whether the broker takes messages; never raises."""

    def close(self) -> None:
        """Give the connections back."""


def queue_of(device_class: str) -> str:
    """Name the queue of a device class."""
    return f"{QUEUE_PREFIX}.{device_class}"


def create_celery(broker_url: str, *, device_classes: tuple[str, ...]) -> Celery:
    """Make the Celery application, the same for producers and workers."""
    app = Celery("evenhand", broker=broker_url, set_as_current=False)
    app.conf.update(
        SETTINGS,
        task_queues=[Queue(queue_of(name), routing_key=queue_of(name)) for name in device_classes],
        task_default_queue=queue_of(device_classes[0]),
    )
    return app


class CeleryBroker:
    """Publishes over Celery and Redis. Safe for use by several threads."""

    def __init__(self, broker_url: str, device_classes: tuple[str, ...]) -> None:
        self._app = create_celery(broker_url, device_classes=device_classes)

    def publish(self, job_id: UUID, *, dispatch: int, device_class: str) -> None:
        """Send one `run_job` message.

        Raises
        ------
        BrokerUnavailable
            When the broker did not take it within the socket timeouts.
        """
        try:
            self._app.send_task(
                RUN_JOB_TASK,
                args=(str(job_id), dispatch),
                queue=queue_of(device_class),
                retry=False,
                ignore_result=True,
            )
        except (OperationalError, OSError) as exc:
            raise BrokerUnavailable(f"The broker did not take a message: {exc}") from exc

    def ping(self) -> bool:
        """Tell whether the broker takes messages; never raises."""
        options: dict[str, Any] = {**REDIS_OPTIONS, "socket_timeout": PING_TIMEOUT_S}
        try:
            with self._app.connection_for_write(transport_options=options) as connection:
                connection.ensure_connection(
                    max_retries=1, interval_start=0, timeout=PING_TIMEOUT_S
                )
                # A broker whose memory is full, or that is a replica, still answers a PING.
                connection.default_channel.client.set(PROBE_KEY, 1, ex=PROBE_KEPT_S)
        except Exception:  # whatever a client library raises here means "no"
            return False
        return True

    def close(self) -> None:
        """Give the connections back."""
        self._app.close()
