import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import redis

from app.domain.clock import SystemClock
from app.services import supervision
from app.services.private_redis import PrivateRedis
from app.services.supervision import Keeper, Process

FOREVER = [sys.executable, "-c", "import threading; threading.Event().wait()"]


def starter(started: list[Process], command: list[str]) -> Callable[[], Process]:
    def start() -> Process:
        process = subprocess.Popen(command, start_new_session=True)
        started.append(process)
        return process

    return start


def test_a_process_that_dies_is_started_again_and_ended_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervision, "FIRST_PAUSE_S", 0.01)
    started: list[Process] = []
    second = threading.Event()
    start = starter(started, FOREVER)

    def start_and_tell() -> Process:
        process = start()
        if len(started) == 2:
            second.set()
        return process

    keeper = Keeper("test", start_and_tell, monotonic=SystemClock().monotonic)
    keeper.start()
    started[0].kill()

    assert second.wait(30)
    keeper.stop(timeout_s=10)
    assert [process.poll() is not None for process in started] == [True, True]


def test_what_a_process_started_ends_with_it() -> None:
    family = (
        "import subprocess, sys, threading;"
        "child = subprocess.Popen([sys.executable, '-c', 'import threading, signal;"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); threading.Event().wait()']);"
        "print(child.pid, flush=True); threading.Event().wait()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", family], start_new_session=True, stdout=subprocess.PIPE, text=True
    )
    keeper = Keeper("test", lambda: process, monotonic=SystemClock().monotonic)
    keeper.start()
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))

    keeper.stop(timeout_s=10)

    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_private_redis_answers_on_its_socket_and_ends_with_its_last_user(tmp_path: Path) -> None:
    lifeline, held = os.pipe()
    broker = PrivateRedis(tmp_path, lifeline)
    process = broker.start()
    answered = redis.Redis(unix_socket_path=broker.url.partition("://")[2]).ping()

    os.close(held)
    code = process.wait(30)
    broker.clean_up()
    os.close(lifeline)

    assert answered
    assert code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_redis_that_a_killed_service_left_is_ended_by_the_next(tmp_path: Path) -> None:
    lifeline, held = os.pipe()
    first = PrivateRedis(tmp_path, lifeline)
    old = first.start()
    second = PrivateRedis(tmp_path, lifeline)

    new = second.start()

    assert old.wait(30) == 0
    assert redis.Redis(unix_socket_path=second.url.partition("://")[2]).ping()
    os.close(held)
    new.wait(30)
    first.clean_up()
    second.clean_up()
    os.close(lifeline)


def test_a_process_that_only_has_the_old_number_is_left_alone(tmp_path: Path) -> None:
    bystander = subprocess.Popen(FOREVER)
    (tmp_path / "redis.pid").write_text(json.dumps({"pid": bystander.pid, "started": 1.0}))
    lifeline, held = os.pipe()
    broker = PrivateRedis(tmp_path, lifeline)

    process = broker.start()

    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    os.close(held)
    process.wait(30)
    broker.clean_up()
    os.close(lifeline)


def test_a_home_with_a_long_name_gets_its_socket_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / ("x" * 120)

    path = PrivateRedis(home, 0).url.partition("://")[2]

    assert len(path) < 104
    assert not path.startswith(str(tmp_path))
