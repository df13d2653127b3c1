"""No file of a model can run code: not by our calls, the packages there are, or settings."""

import ast
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from workers.celery_app import CHILD_ENVIRONMENT

REPOSITORY = Path(__file__).parents[2]
PRODUCT = ("app", "workers", "debias_client", "migrations")
# Makes the models that are shipped, from files of this repository or of the hub's own library.
OUR_OWN_MODELS = "workers/demo_models/"
LOADERS = re.compile(r"(^|\.)(from_pretrained|pipeline)$")
TEMPLATES = re.compile(r"(^|\.)(from_string|apply_chat_template|render_jinja_template)$")
RUNNERS = ("os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "subprocess.getoutput")
Finder = Callable[[ast.Call], bool]


@cache
def calls() -> Sequence[tuple[str, ast.Call]]:
    return list(_calls())


def _calls() -> Iterator[tuple[str, ast.Call]]:
    for folder in PRODUCT:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield f"{path.relative_to(REPOSITORY)}:{node.lineno}", node


def keywords(call: ast.Call) -> dict[str | None, str]:
    return {word.arg: ast.unparse(word.value) for word in call.keywords}


def runs_a_shell(call: ast.Call) -> bool:
    given = keywords(call).get("shell", "False") != "False"
    return given or ast.unparse(call.func) in RUNNERS


def may_load_code(call: ast.Call) -> bool:
    """A loader of transformers that could reach for the network or for code of a repository."""
    given = keywords(call)
    return LOADERS.search(ast.unparse(call.func)) is not None and (
        given.get("trust_remote_code") != "False" or given.get("local_files_only") != "True"
    )


def renders_a_template_of_a_model(call: ast.Call) -> bool:
    return TEMPLATES.search(ast.unparse(call.func)) is not None


@pytest.mark.parametrize("finder", [runs_a_shell, may_load_code, renders_a_template_of_a_model])
def test_product_has_no_such_call(finder: Finder) -> None:
    found = [place for place, call in calls() if finder(call)]

    assert [place for place in found if not place.startswith(OUR_OWN_MODELS)] == []


@pytest.mark.parametrize(
    ("finder", "bad"),
    [
        (runs_a_shell, "subprocess.run(command, shell=True)"),
        (runs_a_shell, "os.system(command)"),
        (may_load_code, "AutoModel.from_pretrained(folder)"),
        (may_load_code, "AutoModel.from_pretrained(folder, trust_remote_code=False)"),
        (may_load_code, "pipeline('text-generation', model=folder)"),
        (renders_a_template_of_a_model, "tokenizer.apply_chat_template(messages)"),
        (renders_a_template_of_a_model, "environment.from_string(text)"),
    ],
)
def test_each_rule_finds_its_violation(finder: Finder, bad: str) -> None:
    call = ast.parse(bad).body[0].value  # type: ignore[attr-defined]

    assert finder(call)


def test_release_of_transformers_reads_no_code_from_a_config() -> None:
    """Before 5.3 `_attn_implementation_internal` fetched code in spite of `trust_remote_code`."""
    assert Version(version("transformers")) >= Version("5.3")
    pinned = re.findall(
        r"(?m)^transformers==(\S+)", (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")
    )
    assert [Version(text) >= Version("5.3") for text in pinned] == [True]


def test_package_that_fetches_kernels_is_neither_there_nor_pinned() -> None:
    constraints = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")

    assert importlib.util.find_spec("kernels") is None
    assert not re.search(r"(?m)^kernels\b", constraints)


def test_process_of_a_job_is_offline_for_the_libraries() -> None:
    assert CHILD_ENVIRONMENT["HF_HUB_OFFLINE"] == "1"
