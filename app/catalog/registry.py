"""Find the methods: every module of `app.catalog.methods`, entry points, and extra modules."""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType

from app.catalog import methods as builtin_methods
from app.catalog.method import MethodDescriptor

ENTRY_POINT_GROUP = "evenhand.methods"


class MethodRegistry:
    """The methods on offer, by name and version. A registered `name@version` never changes."""

    def __init__(self, methods: Iterable[MethodDescriptor]) -> None:
        by_key: dict[tuple[str, str], MethodDescriptor] = {}
        for method in methods:
            if (method.name, method.version) in by_key:
                raise ValueError(f"method {method.name}@{method.version} is registered twice")
            by_key[method.name, method.version] = method
        self._by_key: Mapping[tuple[str, str], MethodDescriptor] = MappingProxyType(by_key)

    def newest(self) -> list[MethodDescriptor]:
        """The newest version of each method, by name."""
        newest = {m.name: m for m in sorted(self._by_key.values(), key=_precedence)}
        return [newest[name] for name in sorted(newest)]

    def find(self, name: str, version: str | None = None) -> MethodDescriptor | None:
        """The method of that name; a version may be given in full or as a prefix ("1", "1.2")."""
        fitting = [
            method
            for method in self._by_key.values()
            if method.name == name and (version is None or _fits(method.version, version))
        ]
        return max(fitting, key=_precedence, default=None)


def load_registry(extra_modules: Iterable[str] = ()) -> MethodRegistry:
    """Import every descriptor module and collect its `METHOD`."""
    names = [
        f"{builtin_methods.__name__}.{module.name}"
        for module in pkgutil.iter_modules(builtin_methods.__path__)
    ]
    found = [importlib.import_module(name).METHOD for name in (*names, *extra_modules)]
    found += [point.load() for point in entry_points(group=ENTRY_POINT_GROUP)]
    return MethodRegistry(found)


def _fits(version: str, asked: str) -> bool:
    return version == asked or version.startswith(f"{asked}.")


def _precedence(method: MethodDescriptor) -> tuple[bool, tuple[int, ...]]:
    """Order by semantic version, any version in use before any deprecated one."""
    return not method.deprecated, tuple(int(part) for part in method.version.split("."))
