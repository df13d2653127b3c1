"""Rules of the house that a linter does not know, checked on the syntax tree of the product."""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from fastapi import FastAPI
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.api.openapi import api_routes, required_scope
from app.api.problems import all_problems
from app.domain.errors import JobErrorCode
from app.main import create_app
from app.settings import Settings

REPOSITORY = Path(__file__).parents[2]
PRODUCT = ("app", "workers", "debias_client", "migrations")
# A migration is one long list by nature.
LENGTH_LIMITED = ("app", "workers", "debias_client")
MAX_ROUTE_LINES = 15
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 40

PUBLIC_ROUTES = {"/livez", "/readyz", "/version", "/metrics", "/problems/{code}"}
PUBLIC_BY_SIGNATURE = {"/downloads/{artifact_id}"}

CODE_LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}

BOUND_LATER = "sa.bindparam('project_id')"

# Functions over all projects: start-up, authentication, a checked signature, operators' work, and
# monitoring.
OVER_ALL_PROJECTS = {
    "keys.py": {"find_key", "live_keys", "note_key_use"},
    "projects.py": {
        "count_waiting_of_all",
        "_count_waiting_of_all",
        "find_project",
        "add_project",
        "page_of_projects",
    },
    "artifacts.py": {"find_artifact"},
    "audit.py": {"page_of_all"},
    "secrets.py": {"secrets_of_all", "reseal_secret"},
}
# Dispatch, attempts (whose project is that of the job they hold under a fence), retention, and
# monitoring.
SERVICE_WIDE = {
    "clock.py",
    "execution.py",
    "outputs.py",
    "operations.py",
    "workers.py",
    "blobs.py",
    "retention.py",
    "tallies.py",
    "inventory.py",
}

Finder = Callable[[ast.AST], bool]


def modules(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            yield path.relative_to(REPOSITORY), ast.parse(path.read_text())


def places(finder: Finder, *folders: str) -> list[str]:
    return [
        f"{path}:{node.lineno}"
        for path, tree in modules(*folders)
        for node in ast.walk(tree)
        if finder(node) and isinstance(node, ast.expr | ast.stmt)
    ]


def called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def writes_status(node: ast.AST) -> bool:
    """Find an assignment to a status, a new Job, or a statement that sets `jobs.status`."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(t, ast.Attribute) and t.attr == "status" for t in targets)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return bool(re.search(r"(?is)\bupdate\s+jobs\b.*\bset\b.*\bstatus\s*=", node.value))
    if called(node) in ("Job", "tables.Job"):
        return True
    return (
        called(node).endswith(".values")
        and re.search(r"(update|insert)\(Job\)", ast.unparse(node)) is not None
        and "status=" in {f"{word.arg}=" for word in getattr(node, "keywords", [])}
    )


def test_only_the_transition_module_writes_the_status_of_jobs() -> None:
    found = places(writes_status, "app", "workers")

    others = [place for place in found if not place.startswith("app/db/transition.py:")]
    assert len(found) >= 2
    assert others == []


def loads_code(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] in CODE_LOADERS for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] in CODE_LOADERS
    if not isinstance(node, ast.Call):
        return False
    trusting = any(
        word.arg in ("trust_remote_code", "allow_pickle") and ast.unparse(word.value) != "False"
        for word in node.keywords
    )
    return trusting or called(node) in ("torch.load", "eval", "exec", "builtins.eval")


def test_nothing_loads_pickles_or_runs_code_of_strangers() -> None:
    assert places(loads_code, *PRODUCT) == []


def makes_naive_time(node: ast.AST) -> bool:
    name = called(node)
    if name.endswith((".utcnow", ".utcfromtimestamp")):
        return True
    if name.endswith(("datetime.now", "datetime.fromtimestamp")):
        assert isinstance(node, ast.Call)
        needed = 1 if name.endswith(".now") else 2
        return len(node.args) + len(node.keywords) < needed
    if name in ("datetime", "datetime.datetime"):
        assert isinstance(node, ast.Call)
        return "tzinfo" not in {word.arg for word in node.keywords} and len(node.args) < 8
    return False


def test_no_time_is_naive() -> None:
    assert places(makes_naive_time, *PRODUCT) == []


def queries(node: ast.AST) -> bool:
    # Or executes one that was built before, which is a constant.
    pattern = r"\b(sa\.(select|update|delete|insert)|insert)\(|\bexecute\(_[A-Z]"
    return re.search(pattern, ast.unparse(node)) is not None


def unbound_queries() -> Iterator[str]:
    for path, tree in modules("app/db/repositories"):
        if path.name in SERVICE_WIDE:
            continue
        for top in tree.body:
            # What builds a constant cannot know the project: it leaves a parameter for it.
            bound = "self._project_id" if isinstance(top, ast.ClassDef) else BOUND_LATER
            functions = top.body if isinstance(top, ast.ClassDef) else [top]
            for function in functions:
                if not isinstance(function, ast.FunctionDef) or not queries(function):
                    continue
                allowed = OVER_ALL_PROJECTS.get(path.name, set())
                text = ast.unparse(function)
                if bound not in text and function.name not in allowed:
                    yield f"{path.name}:{function.name}"


def test_every_query_of_a_repository_is_bound_to_a_project() -> None:
    unbound = [place for place in unbound_queries() if not place.startswith("jobs.py:conditions")]

    assert unbound == []


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return create_app(Settings(_env_file=None))


def test_every_route_declares_a_scope_or_is_listed_as_public(app: FastAPI) -> None:
    unprotected = {route.path for route in api_routes(app) if required_scope(route) is None}

    assert unprotected == PUBLIC_ROUTES | PUBLIC_BY_SIGNATURE


def test_every_operation_is_under_v1_or_public(app: FastAPI) -> None:
    protected = [route.path for route in api_routes(app) if required_scope(route)]

    assert all(path.startswith("/v1/") for path in protected)


def test_routes_are_short() -> None:
    long = [
        f"{path}:{node.name}"
        for path, tree in modules("app/api/routes")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body[-1].end_lineno - node.body[1 if len(node.body) > 1 else 0].lineno  # type: ignore[operator]
        >= MAX_ROUTE_LINES
    ]

    assert long == []


@pytest.mark.parametrize(
    ("finder", "bad"),
    [
        (writes_status, "job.status = 'queued'"),
        (writes_status, "session.execute(sa.update(Job).values(status='queued'))"),
        (writes_status, "sa.text('UPDATE jobs SET fence = 1, status = 1')"),
        (loads_code, "from pickle import loads"),
        (loads_code, "torch.load(path)"),
        (loads_code, "AutoModel.from_pretrained(x, trust_remote_code=True)"),
        (makes_naive_time, "datetime.now()"),
        (makes_naive_time, "datetime(2026, 1, 1)"),
    ],
)
def test_each_rule_finds_its_violation(finder: Finder, bad: str) -> None:
    assert any(finder(node) for node in ast.walk(ast.parse(bad)))


def test_modules_are_short_enough_to_read_in_one_go() -> None:
    long = [
        str(path)
        for path, _ in modules(*LENGTH_LIMITED)
        if len((REPOSITORY / path).read_text().splitlines()) > MAX_MODULE_LINES
    ]

    assert long == []


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Length of a function without its docstring, which may be as long as it has to be."""
    first = function.body[0]
    docstring = 0
    if ast.get_docstring(function) is not None:
        docstring = (first.end_lineno or 0) - first.lineno + 1
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def test_functions_fit_on_one_screen() -> None:
    long = [
        f"{path}:{node.name}"
        for path, tree in modules(*LENGTH_LIMITED)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and code_lines(node) > MAX_FUNCTION_LINES
    ]

    assert long == []


def declared(*extras: str) -> set[str]:
    """Distributions that the project asks for, by extra; the base ones have no extra."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"]]
    for extra in extras:
        listed += project["optional-dependencies"][extra]
    return {canonicalize_name(Requirement(line).name) for line in listed}


def imported(*folders: str) -> Iterator[tuple[str, str]]:
    for path, tree in modules(*folders):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name.partition(".")[0], str(path)) for alias in node.names)
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.partition(".")[0], str(path)


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("debias_client", ()),
        ("app", ("api",)),
        ("migrations", ("api",)),
        ("workers", ("api", "worker", "demo")),
        ("tests", ("api", "worker", "demo", "test")),
        ("bench", ("api", "worker", "demo", "test")),
    ],
)
def test_every_package_that_is_imported_is_declared(folder: str, extras: tuple[str, ...]) -> None:
    distributions, asked_for = packages_distributions(), declared(*extras)
    # The bench puts its peer into an environment of its own: it is no dependency.
    own = {*PRODUCT, "tests", "bench", *({"optipfair"} if folder == "bench" else ())}

    undeclared = {
        (name, path)
        for name, path in imported(folder)
        if name not in sys.stdlib_module_names | own
        and not {canonicalize_name(d) for d in distributions.get(name, ())} & asked_for
    }

    assert undeclared == set()


def test_every_error_code_is_used() -> None:
    names = {
        ast.unparse(node)
        for path, tree in modules("app", "workers")
        if path != Path("app/domain/errors.py")
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    }

    unused = [code for code in JobErrorCode if f"JobErrorCode.{code.name}" not in names]
    assert unused == []
    assert [kind for kind in all_problems().values() if kind.__name__ not in names] == []
