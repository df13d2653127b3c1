"""Measure an API with 10,000 queued jobs and 200 event streams.

.venv/bin/python -m bench.load [--database postgres|sqlite] [--quick] [--write]
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from bench.load.report import as_markdown, write_report
from bench.load.run import QUICK, Size, run_load

DATABASES = ("postgres", "sqlite")


def main() -> int:
    """Measure on the databases asked for; 1 when a goal was missed or a request failed."""
    arguments = parse_arguments()
    # Whoever ends this program ends the deployment with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    missed = 0
    for database in arguments.database or DATABASES:
        quick = " --quick" if arguments.quick else ""
        command = f"python -m bench.load --database {database}{quick}"
        with tempfile.TemporaryDirectory(prefix="load-") as folder:
            run = run_load(database, Path(folder), QUICK if arguments.quick else Size(), command)
        print(as_markdown(run), flush=True)
        missed += bool(run.missed)
        if arguments.write:
            write_report(run)
    return 1 if missed else 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--database", choices=DATABASES, action="append", help="default: both")
    parser.add_argument("--quick", action="store_true", help="a fifth of everything")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/load.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
