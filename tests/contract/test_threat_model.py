"""Every row of the threat model in SECURITY.md names a test that fails without its defence."""

import subprocess
import sys

import pytest

from tests.defences import (
    REMOVALS,
    REPOSITORY,
    Threat,
    copy_of_repository,
    is_needed,
    run_tests,
    take_out,
    threats,
)

THREATS = threats()
in_each_row = pytest.mark.parametrize("threat", THREATS, ids=lambda threat: threat.id)


def test_rows_are_numbered_without_a_gap() -> None:
    assert len(THREATS) >= 20
    assert [threat.id for threat in THREATS] == [f"T{n:02d}" for n in range(1, len(THREATS) + 1)]


def test_every_row_has_a_removal() -> None:
    assert list(REMOVALS) == [threat.id for threat in THREATS]


@in_each_row
def test_what_is_to_be_taken_out_is_there(threat: Threat) -> None:
    removal = REMOVALS[threat.id]

    assert removal.old in (REPOSITORY / removal.file).read_text(encoding="utf-8")


def test_every_test_is_collected() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, *(threat.test for threat in THREATS)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )

    assert found.returncode == 0, found.stdout[-2000:]
    assert not [threat.test for threat in THREATS if threat.test not in found.stdout]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tests_pass_with_all_defences() -> None:
    with copy_of_repository() as root:
        assert run_tests(root, *(threat.test for threat in THREATS)) == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@in_each_row
def test_test_fails_without_its_defence(threat: Threat) -> None:
    assert is_needed(threat)


def test_removal_that_fits_nothing_is_a_mistake() -> None:
    with copy_of_repository() as root, pytest.raises(LookupError):
        take_out(type(REMOVALS["T01"])("app/main.py", "no such text", ""), root)
