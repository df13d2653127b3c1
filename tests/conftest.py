"""Fixtures that every tier shares."""

import os
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
