import json
import os
import signal
from uuid import uuid4

import psutil
import pytest
import redis

from app.dispatch.broker import (
    REDIS_OPTIONS,
    BrokerUnavailable,
    CeleryBroker,
    create_celery,
    queue_of,
)
from tests.servers import RedisServer, reserve_ports


def test_a_message_carries_job_and_dispatch_on_the_queue_of_its_class() -> None:
    with RedisServer() as address:
        broker = CeleryBroker(address.url, ("cpu", "gpu"))
        job_id = uuid4()

        broker.publish(job_id, dispatch=3, device_class="gpu")

        client = redis.Redis.from_url(address.url)
        message = json.loads(client.lindex(queue_of("gpu"), 0))
        broker.close()
    assert message["headers"]["argsrepr"] == repr((str(job_id), 3))


def test_a_refused_connection_fails_at_once() -> None:
    broker = CeleryBroker(f"redis://127.0.0.1:{reserve_ports(1)[0]}/0", ("cpu",))

    with pytest.raises(BrokerUnavailable):
        broker.publish(uuid4(), dispatch=1, device_class="cpu")
    assert broker.ping() is False


@pytest.mark.slow
@pytest.mark.timeout(REDIS_OPTIONS["socket_timeout"] * 4)
def test_a_frozen_broker_fails_within_the_socket_timeout() -> None:
    server = RedisServer()
    with server as address:
        broker = CeleryBroker(address.url, ("cpu",))
        broker.publish(uuid4(), dispatch=1, device_class="cpu")
        frozen = psutil.Process(server.pid).children()[0]
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            with pytest.raises(BrokerUnavailable):
                broker.publish(uuid4(), dispatch=2, device_class="cpu")
            assert broker.ping() is False
        finally:
            os.kill(frozen.pid, signal.SIGCONT)


def test_a_queue_that_nobody_declared_is_an_error() -> None:
    app = create_celery("memory://", device_classes=("cpu",))

    assert app.conf.task_create_missing_queues is False
    assert [queue.name for queue in app.conf.task_queues] == ["debias.cpu"]


def test_messages_are_acknowledged_early_and_never_redelivered() -> None:
    conf = create_celery("memory://", device_classes=("cpu",)).conf

    assert conf.task_acks_late is False
    assert conf.task_reject_on_worker_lost is False
    assert conf.task_publish_retry is False
    assert conf.accept_content == ["json"]
