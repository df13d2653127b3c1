"""What a worker's parent does when it is told to stop in the middle of something."""

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


def test_a_stop_signal_inside_a_transaction_of_the_parent_does_not_block_it(
    tmp_path: Path,
) -> None:
    database = Database(f"sqlite:///{tmp_path}/debias.db")
    upgrade(database)
    database.dispose()
    environment = {"DEBIAS_HOME": str(tmp_path), "DEBIAS_BROKER_URL": "redis://127.0.0.1:1/0"}

    done = subprocess.run(
        [sys.executable, "-c", STOP_INSIDE_A_TRANSACTION],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.strip() == "[None, 'draining']", done.stderr
