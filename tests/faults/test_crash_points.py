import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("setting", "killed"),
    [(None, False), ("uploaded", True), ("uploaded:2", True), ("uploaded:1", False), ("x", False)],
)
def test_a_crash_point_kills_only_where_it_was_asked_for(setting: str | None, killed: bool) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "DEBIAS_FAULT"}
    if setting is not None:
        environment["DEBIAS_FAULT"] = setting
    program = "from app.crash_points import crash_point; crash_point('uploaded', 2)"

    code = subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode

    assert code == (-9 if killed else 0)
