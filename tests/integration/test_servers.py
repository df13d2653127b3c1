"""The test servers themselves: they answer, and nothing of them outlives its owner."""

import signal
import subprocess
import sys
from pathlib import Path

import obstore
import psutil
import psycopg
import pytest
import redis

from tests.server_addresses import PostgresAddress, RedisAddress, S3Address
from tests.servers import RedisServer, reserve_ports

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_copied_database_holds_the_rows_of_its_template(postgres_server: PostgresAddress) -> None:
    template = postgres_server.create_database("servers_template")
    with psycopg.connect(template.dsn) as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS n")

    copy = postgres_server.create_database("servers_copy", template="servers_template")

    with psycopg.connect(copy.dsn) as connection:
        assert connection.execute("SELECT n FROM t").fetchone() == (7,)
    postgres_server.drop_database("servers_copy")
    postgres_server.drop_database("servers_template")


def test_redis_databases_are_apart(redis_server: RedisAddress) -> None:
    with (
        redis.Redis.from_url(redis_server.database_url(14)) as one,
        redis.Redis.from_url(redis_server.database_url(15)) as other,
    ):
        one.set("servers", "1")

        assert other.get("servers") is None
        one.delete("servers")


def test_a_new_bucket_is_empty_and_takes_objects(s3_server: S3Address, s3_bucket: str) -> None:
    bucket = s3_server.bucket(s3_bucket.removeprefix("s3://"))

    assert obstore.list(bucket).collect() == []
    obstore.put(bucket, "a/b", b"bytes")
    assert bytes(obstore.get(bucket, "a/b").bytes()) == b"bytes"


def test_reserved_ports_differ() -> None:
    assert len(set(reserve_ports(50))) == 50


OWNER = """
import sys
from tests.servers import {kind}
server = {kind}()
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["PostgresServer", "RedisServer", "S3Server"])
def test_a_server_ends_with_its_killed_owner(kind: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(kind=kind)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    guard = psutil.Process(int(owner.stdout.readline()))
    family = [guard, *guard.children(recursive=True)]
    scratch = Path(guard.children()[0].cwd())

    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()

    _, alive = psutil.wait_procs(family, timeout=30)
    assert len(family) > 1
    assert alive == []
    assert not scratch.exists()


def test_stop_removes_the_files() -> None:
    server = RedisServer()
    server.start()
    scratch = Path(psutil.Process(server.pid).children()[0].cwd())

    server.stop()

    assert not scratch.exists()
