"""Run a thousand jobs while processes are killed, and check every promise at the end.

    .venv/bin/python -m bench.soak --jobs 1000 --deployment production --seed 0 [--write]

Exits with 1 when a promise was broken.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from bench.deployments import KINDS
from bench.documents import replace_section
from bench.soak.run import Soak
from bench.soak.summary import as_markdown


def main() -> int:
    """Run, print the summary, and say by the exit code whether every promise was kept."""
    arguments = parse_arguments()
    # Whoever ends this program ends the deployment with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        run = Soak(
            Path(folder),
            deployment=arguments.deployment,
            jobs=arguments.jobs,
            seed=arguments.seed,
            kill_every_s=arguments.kill_every,
        ).run()
    print(as_markdown(run))
    if arguments.write:
        replace_section("soak.md", run.deployment, as_markdown(run))
    return 1 if run.broken else 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--deployment", choices=KINDS, default="production")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kill-every", type=float, default=5.0, help="mean seconds")
    parser.add_argument("--write", action="store_true", help="put the summary into docs/soak.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
