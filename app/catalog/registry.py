"""Find methods and benchmarks: every module of their packages, and what plugs in beside them."""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType, ModuleType
from typing import Any, Generic, Protocol, TypeVar

from app.catalog import benchmarks as builtin_benchmarks
from app.catalog import methods as builtin_methods
from app.catalog.benchmark import BenchmarkDescriptor
from app.catalog.method import MethodDescriptor

ENTRY_POINT_GROUP = "evenhand.methods"


class Versioned(Protocol):
    """What a registry must know of an entry."""

    @property
    def name(self) -> str:
        """Name, the same for all versions."""

    @property
    def version(self) -> str:
        """Semantic version."""

    @property
    def deprecated(self) -> bool:
        """Whether any other version is preferred."""


EntryT = TypeVar("EntryT", bound=Versioned)


class Registry(Generic[EntryT]):
    """What is on offer, by name and version. A registered `name@version` never changes."""

    def __init__(self, entries: Iterable[EntryT]) -> None:
        by_key: dict[tuple[str, str], EntryT] = {}
        for entry in entries:
            if (entry.name, entry.version) in by_key:
                raise ValueError(f"{entry.name}@{entry.version} is registered twice")
            by_key[entry.name, entry.version] = entry
        self._by_key: Mapping[tuple[str, str], EntryT] = MappingProxyType(by_key)

    def newest(self) -> list[EntryT]:
        """List the newest version of each entry, by name."""
        newest = {entry.name: entry for entry in sorted(self._by_key.values(), key=_precedence)}
        return [newest[name] for name in sorted(newest)]

    def find(self, name: str, version: str | None = None) -> EntryT | None:
        """Find an entry; its version may be given in full or as a prefix ("1", "1.2")."""
        fitting = [
            entry
            for entry in self._by_key.values()
            if entry.name == name and (version is None or _fits(entry.version, version))
        ]
        return max(fitting, key=_precedence, default=None)


class MethodRegistry(Registry[MethodDescriptor]):
    """The methods on offer."""


class BenchmarkRegistry(Registry[BenchmarkDescriptor]):
    """The benchmarks on offer."""


def load_registry(extra_modules: Iterable[str] = ()) -> MethodRegistry:
    """Import every module of a method and collect its `METHOD`."""
    names = [*_modules(builtin_methods), *extra_modules]
    found: list[Any] = [importlib.import_module(name).METHOD for name in names]
    found += [point.load() for point in entry_points(group=ENTRY_POINT_GROUP)]
    return MethodRegistry(found)


def load_benchmarks(package: ModuleType = builtin_benchmarks) -> BenchmarkRegistry:
    """Import every module of a benchmark and collect its `BENCHMARK`."""
    return BenchmarkRegistry(importlib.import_module(name).BENCHMARK for name in _modules(package))


def _modules(package: ModuleType) -> Iterator[str]:
    for module in pkgutil.iter_modules(package.__path__):
        yield f"{package.__name__}.{module.name}"


def _fits(version: str, asked: str) -> bool:
    return version == asked or version.startswith(f"{asked}.")


def _precedence(entry: Versioned) -> tuple[bool, tuple[int, ...]]:
    """Order by semantic version, any version in use before any deprecated one."""
    return not entry.deprecated, tuple(int(part) for part in entry.version.split("."))
