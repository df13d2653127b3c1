"""Run one server until it ends or its owner does; then nothing of it is left.

The owner holds the write end of this process's standard input. However the owner ends, kill -9
included, the pipe closes; then the server is stopped and its scratch directory removed. Started
as a script with the standard library alone, so that it is up in milliseconds.
"""

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

# How late the owner may learn that a server died while starting.
POLL_S = 0.1
# A fast shutdown of PostgreSQL takes 0.04 s; one that takes this long hangs.
STOP_GRACE_S = 5


def main() -> int:
    """Start the command, wait for its end or the owner's, return its exit status."""
    arguments = _parse_arguments()
    # Only the pipe decides. A handler, unlike SIG_IGN, is not inherited by the server.
    signal.signal(signal.SIGTERM, lambda *_: None)
    server = subprocess.Popen(
        arguments.command,
        cwd=arguments.scratch,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        user=arguments.uid,
        group=arguments.gid,
        extra_groups=None if arguments.uid is None else [],
    )
    while server.poll() is None:
        owner_spoke, _, _ = select.select([sys.stdin], [], [], POLL_S)
        if owner_spoke:
            _stop(server, signal.Signals[arguments.stop_signal])
            shutil.rmtree(arguments.scratch, ignore_errors=True)
            for path in arguments.remove:
                path.unlink(missing_ok=True)
    return server.returncode


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--stop-signal", default="SIGKILL")
    parser.add_argument("--remove", type=Path, action="append", default=[])
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    arguments.command = arguments.command[1:]  # without the "--" in front
    return arguments


def _stop(server: subprocess.Popen[bytes], stop_signal: signal.Signals) -> None:
    server.send_signal(stop_signal)
    try:
        server.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
