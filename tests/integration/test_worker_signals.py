"""What a worker's parent does when it is told to stop in the middle of something."""

import shutil
import subprocess
import sys
from pathlib import Path

from app.db.schema import upgrade
from app.db.session import Database

STOP_INSIDE_A_TRANSACTION = """
from app.settings import Settings
from workers.celery_app import WorkerOptions, WorkerProcess

process = WorkerProcess(Settings(), WorkerOptions(classes=("cpu",), device="cpu"))
process.prepare()
said = []

def report(*, state=None):
    said.append(state)
    with process._database.write():
        if state is None:
            process._on_shutting_down()

process.slot.report = report
process.every_period()
print(said)
"""

ASKED_TO_DRAIN = """
import os
import signal

from app.settings import Settings
from workers.celery_app import WorkerOptions, WorkerProcess

process = WorkerProcess(Settings(), WorkerOptions(classes=("cpu",), device="cpu"))
process.prepare()
process.slot.report = lambda *, state=None: True
signal.signal(signal.SIGTERM, lambda *_: process._on_shutting_down())
sent, kill = [], os.kill
os.kill = lambda pid, number: (sent.append(int(number)), kill(pid, number))
process.every_period()
process.every_period()
print(sent)
"""


def test_a_stop_signal_inside_a_transaction_of_the_parent_does_not_block_it(
    tmp_path: Path,
) -> None:
    database = Database(f"sqlite:///{tmp_path}/debias.db")
    upgrade(database)
    database.dispose()

    done = run(STOP_INSIDE_A_TRANSACTION, tmp_path)

    assert done.stdout.strip() == "[None, 'draining']", done.stderr


def test_a_worker_asked_to_drain_sends_itself_one_stop_signal(
    tmp_path: Path, migrated_sqlite: Path
) -> None:
    shutil.copy2(migrated_sqlite, tmp_path / "debias.db")

    done = run(ASKED_TO_DRAIN, tmp_path)

    assert done.stdout.splitlines()[-1] == "[15]", done.stderr


def run(program: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"DEBIAS_HOME": str(home), "DEBIAS_BROKER_URL": "redis://127.0.0.1:1/0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
