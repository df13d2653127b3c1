"""Fixtures that every tier shares."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

pytest_plugins = ["tests.fixtures.database", "tests.fixtures.servers", "tests.fixtures.service"]

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real models, data and golden values: EVENHAND_SHARED, else `../shared`."""
    root = Path(os.environ.get("EVENHAND_SHARED", REPOSITORY.parent / "shared"))
    if not (root / "data").is_dir():
        message = f"no shared data at {root}: set EVENHAND_SHARED to the folder that holds data/"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return root / "data"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in captured output: processes of pytest-xdist send UTF-8 only."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report
