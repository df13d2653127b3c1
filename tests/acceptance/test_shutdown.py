"""A service that is told to stop does so at once, and its clients see a clean end."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service import Service, embedded
from workers.testkit.models import write_tiny_model

# uvicorn would wait 30 s for an open connection; a stream must not make it do so.
PROMPT_S = 25
JOB = {"model": {"path": "tiny"}, "method": "fake"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Service]:
    write_tiny_model(tmp_path / "models" / "tiny")
    service = embedded(
        tmp_path / "home",
        DEBIAS_MODELS_DIR=str(tmp_path / "models"),
        DEBIAS_DRAIN_TIMEOUT_S="5",
        DEBIAS_WORKER_PRELOAD="",
        DEBIAS_SECRET_KEY="",
    )
    try:
        yield service.start()
    finally:
        service.stop()


def read_to_the_end(url: str, accept: str, opened: threading.Event, ends: list[Any]) -> None:
    try:
        with httpx.stream("GET", url, headers={"Accept": accept}, timeout=60) as answer:
            for _ in answer.iter_raw():
                opened.set()
        ends.append("complete")
    except httpx.HTTPError as exc:
        ends.append(exc)
    opened.set()


@pytest.mark.parametrize(
    ("records", "accept"),
    [("events", "text/event-stream"), ("logs?follow=true", "application/x-ndjson")],
)
def test_stop_signal_ends_open_streams_cleanly_and_the_process_promptly(
    running: Service, tmp_path: Path, records: str, accept: str
) -> None:
    body = {**JOB, "config": {"wait_for": str(tmp_path / "never"), "log_lines": 1}}
    job = httpx.post(f"{running.url}/v1/jobs", json=body, timeout=30).raise_for_status().json()
    opened, ends = threading.Event(), list[Any]()
    url = f"{running.url}/v1/jobs/{job['id']}/{records}"
    reader = threading.Thread(target=read_to_the_end, args=(url, accept, opened, ends))
    reader.start()
    assert opened.wait(60)

    running.processes["serve"].send_signal(signal.SIGTERM)
    status = running.processes["serve"].wait(PROMPT_S)
    reader.join(5)

    assert status == 0, running.log_tail("serve")
    assert ends == ["complete"]


def test_generated_secret_is_kept_for_the_next_start(running: Service) -> None:
    kept = (running.home / "secret.key").read_text()

    running.stop()
    running.start()

    assert (running.home / "secret.key").read_text() == kept
    assert kept.strip()
