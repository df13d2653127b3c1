"""What must not cross the fork from a worker to its child."""

import subprocess
import sys
from pathlib import Path

from app.db.schema import upgrade
from app.db.session import Database

MUST_STAY_OUT = ("torch", "transformers", "obstore", "sklearn")

IMPORTS = f"""
import sys
from app.cli.commands import create_cli
import workers.celery_app
create_cli()
print([name for name in {MUST_STAY_OUT!r} if name in sys.modules])
"""

FORK = """
import os, sys, threading
import psutil
from app.settings import Settings
from workers.celery_app import WorkerOptions, WorkerProcess

settings = Settings()
process = WorkerProcess(settings, WorkerOptions(classes=("cpu",), device="cpu"))
process.prepare()
process.create_app()
process.slot.report()
assert "obstore" not in sys.modules and "torch" not in sys.modules
held = [file.path for file in psutil.Process().open_files() if "debias.db" in file.path]
assert held == [], held
assert threading.active_count() == 1
child = os.fork()
if child == 0:
    process._init_child()
    store = process._runner.services.store
    store.put_bytes("proof", b"from the child")
    os._exit(0 if store.get_range("proof", 0, 4) == b"from" else 1)
_, status = os.waitpid(child, 0)
process.slot.report()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_the_parent_imports_neither_torch_nor_the_store_client() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[]"


def test_a_forked_child_can_use_store_and_database_and_its_parent_still_writes(
    tmp_path: Path,
) -> None:
    database = Database(f"sqlite:///{tmp_path}/debias.db")
    upgrade(database)
    (tmp_path / "objects").mkdir()
    environment = {
        "DEBIAS_HOME": str(tmp_path),
        "DEBIAS_BROKER_URL": "redis://127.0.0.1:1/0",
        "DEBIAS_WORKER_PRELOAD": "torch",
        "OMP_NUM_THREADS": "1",
    }

    done = subprocess.run(
        [sys.executable, "-c", FORK],
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    with database.read() as session:
        states = session.connection().exec_driver_sql("SELECT state FROM workers").fetchall()
    database.dispose()
    assert states == [("ready",)]
