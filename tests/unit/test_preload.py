import importlib
from types import ModuleType
from typing import Any

import pytest

from app.settings import Settings
from workers import celery_app
from workers.celery_app import LLAMA_CLASSES, preload


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of modules whose import is asked for; none is imported but descriptors."""
    names: list[str] = []
    real = importlib.import_module

    def note(name: str, *arguments: Any) -> ModuleType:
        if name.startswith("app.catalog"):
            return real(name, *arguments)
        names.append(name)
        if name == "no_such_engine":
            raise ImportError(name)
        return ModuleType(name)

    monkeypatch.setattr(importlib, "import_module", note)
    return names


def settings(**fields: Any) -> Settings:
    return Settings(_env_file=None, **fields)


def test_by_default_a_child_imports_the_engines_on_offer(imported: list[str]) -> None:
    preload(settings(extra_methods="app.catalog.testkit.fake"))

    assert imported == [
        "workers.methods.fairness_pruning.engine",
        "workers.testkit.fake_method",
        LLAMA_CLASSES,
    ]


def test_modules_that_are_set_replace_the_default_and_must_exist(imported: list[str]) -> None:
    preload(settings(worker_preload="json"))
    assert imported == ["json"]

    with pytest.raises(ImportError):
        preload(settings(worker_preload="no_such_engine"))


def test_an_engine_that_cannot_be_imported_does_not_stop_the_others(
    imported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_app, "LLAMA_CLASSES", "no_such_engine")

    preload(settings())

    assert imported == ["workers.methods.fairness_pruning.engine", "no_such_engine"]
