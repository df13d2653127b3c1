"""The README and docs/ say what is so: commands, settings, paths, routes, bodies and links."""

import ast
import importlib
import importlib.util
import inspect
import itertools
import json
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import typer

import debias_client
from app.cli.commands import create_cli
from app.cli.reference import generated_files
from app.settings import Settings
from tests.documents import DOCUMENTS, REPOSITORY, Excerpt, anchors, blocks, inline_code, links
from tests.integration.api.callers import Caller

# Blocks in no language are drawings.
LANGUAGES = {"", "sh", "python", "json"}
# They need what the tests do not have: a Docker daemon, a shell that stays open, llama.cpp.
# tests/acceptance/test_readme.py runs what can be run.
PROGRAMS_OF_OTHERS = {"aws", "docker", "export", "llama-cli", "pip"}
MODEL_OF_TESTS = {"path": "tiny"}

in_each = pytest.mark.parametrize


def place(excerpt: Excerpt) -> str:
    return excerpt.place


def words_of(block: Excerpt) -> list[list[str]]:
    """The commands of a shell block, word by word, without comments."""
    text = block.text.replace("\\\n", " ")
    commands: list[list[str]] = []
    for word_list in _lines(text):
        while word_list and re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", word_list[0], re.DOTALL):
            check_variable(word_list.pop(0).partition("=")[0])
        if word_list:
            commands.append(word_list)
    return commands


def _lines(text: str) -> list[list[str]]:
    lines: list[list[str]] = []
    pending = ""
    for line in text.splitlines():
        pending += line + "\n"
        try:
            words = shlex.split(pending, comments=True)
        except ValueError:  # a quotation goes on in the next line
            continue
        lines.append(words)
        pending = ""
    assert not pending
    return lines


def check_variable(name: str) -> None:
    if name.startswith("DEBIAS_"):
        assert name.removeprefix("DEBIAS_").lower() in Settings.model_fields, name


def check_make(words: Sequence[str]) -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    variables = {word.partition("=")[0] for word in words if "=" in word}
    targets = re.findall(r"(?m)^([a-z-]+):", makefile)
    assert {word for word in words if "=" not in word} <= set(targets), words
    assert all(f"$({name})" in makefile for name in variables), words


def check_debias(words: Sequence[str]) -> None:
    """Walk down to the last command, which must know the options."""
    command: Any = typer.main.get_command(create_cli())
    rest = list(words)
    while rest and not rest[0].startswith("--") and hasattr(command, "commands"):
        name = rest.pop(0)
        assert name in command.commands, f"{command.name} has no command {name!r}"
        command = command.commands[name]
    given = list(itertools.takewhile(lambda word: not word.startswith("--"), rest))
    taken = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    assert len(given) <= len(taken), f"{command.name} takes no {given}"
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    unknown = {word for word in rest if word.startswith("--")} - known
    assert not unknown, f"{command.name} has no option {unknown}"


def check_python(words: Sequence[str]) -> None:
    assert words[0] == "-m", words
    assert importlib.util.find_spec(words[1]) is not None, words[1]


def check_curl(words: Sequence[str]) -> None:
    assert any(word.startswith("http://127.0.0.1:8000/v1/") for word in words), words


CHECKS: dict[str, Callable[[Sequence[str]], None]] = {
    "make": check_make,
    "debias": check_debias,
    "python": check_python,
    "curl": check_curl,
}


def check_command(words: Sequence[str]) -> None:
    program = words[0].rpartition("/")[2]
    if program not in PROGRAMS_OF_OTHERS:
        assert program in CHECKS, f"nothing checks the command {program!r}"
        CHECKS[program](words[1:])


@in_each("block", blocks(), ids=place)
def test_every_block_is_in_a_language_that_is_checked(block: Excerpt) -> None:
    assert block.language in LANGUAGES


@in_each("block", blocks("sh"), ids=place)
def test_commands_exist_with_their_options(block: Excerpt) -> None:
    for words in words_of(block):
        check_command(words)


@in_each(
    "code",
    [code for code in inline_code() if re.match(r"(make|debias|\S*python) \S", code.text)],
    ids=place,
)
def test_commands_in_the_text_exist_with_their_options(code: Excerpt) -> None:
    check_command(shlex.split(code.text))


@in_each("block", blocks("python"), ids=place)
def test_python_names_what_the_client_has(block: Excerpt) -> None:
    tree = ast.parse(block.text)

    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            assert {alias.name for alias in node.names} <= set(dir(module))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("client."):
            check_call(ast.unparse(node.func).split(".")[1:], node)


def check_call(path: Sequence[str], call: ast.Call) -> None:
    """Bind the call to the client's own signature."""
    with debias_client.Client("http://127.0.0.1:1") as client:
        target: Any = client
        for name in path:
            target = getattr(target, name)
        keywords = {word.arg: None for word in call.keywords if word.arg}
        inspect.signature(target).bind(*call.args, **keywords)


def bodies() -> list[tuple[str, dict[str, Any]]]:
    """Bodies of jobs in the documents: JSON blocks, data of curl, dictionaries in Python."""
    found = [(block.place, json.loads(block.text)) for block in blocks("json")]
    for block in blocks("sh"):
        for words in words_of(block):
            found += [(block.place, json.loads(text)) for text in _data_of(words)]
    for block in blocks("python"):
        found += [(block.place, body) for body in _dictionaries(ast.parse(block.text))]
    return found


def _data_of(words: Sequence[str]) -> list[str]:
    if words[0] != "curl":
        return []
    return [text for flag, text in itertools.pairwise(words) if flag in ("-d", "--data")]


def _dictionaries(tree: ast.Module) -> list[dict[str, Any]]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    creating = [call for call in calls if ast.unparse(call.func) == "client.jobs.create"]
    return [ast.literal_eval(call.args[0]) for call in creating]


@in_each(("origin", "body"), bodies(), ids=[origin for origin, _ in bodies()])
def test_bodies_of_jobs_are_accepted(origin: str, body: dict[str, Any], caller: Caller) -> None:
    # Models that come with the service are there in the tests, too.
    model = body["model"] if "demo" in body.get("model", {}) else MODEL_OF_TESTS

    done = caller.post("/v1/jobs?dry_run=true", json={**body, "model": model})

    assert done.status_code == 200, (origin, done.json())


@in_each(
    "code",
    [code for code in inline_code() if re.match(r"DEBIAS_[A-Z0-9_]+", code.text)],
    ids=place,
)
def test_settings_in_the_text_exist(code: Excerpt) -> None:
    check_variable(code.text.partition("=")[0])


FOLDERS = ("app", "workers", "migrations", "debias_client", "tests", "docs", "bench", "deploy")


@in_each(
    "code",
    [
        code
        for code in inline_code()
        if code.text.partition("/")[0] in FOLDERS and "/" in code.text and "<" not in code.text
    ],
    ids=place,
)
def test_paths_in_the_text_exist(code: Excerpt) -> None:
    assert (REPOSITORY / code.text).exists(), code.text


@in_each(
    "code",
    [code for code in inline_code() if re.match(r"((GET|POST) )?/[a-z]", code.text)],
    ids=place,
)
def test_routes_in_the_text_exist(code: Excerpt) -> None:
    document = json.loads((REPOSITORY / "openapi.json").read_text())
    routes = [re.sub(r"\{\w+\}", "[^/]+", path) for path in (*document["paths"], "/docs")]
    path = code.text.rpartition(" ")[2].partition("?")[0]

    assert any(re.fullmatch(route, path) for route in routes), path


@in_each(
    "link", [link for link in links() if not re.match(r"https?:|mailto:", link.text)], ids=place
)
def test_links_within_the_repository_resolve(link: Excerpt) -> None:
    target, _, anchor = link.text.partition("#")
    here = REPOSITORY / link.document

    path = (here.parent / target).resolve() if target else here
    assert path.exists(), link.text
    assert not anchor or anchor in anchors(path), link.text


@in_each("name", sorted(generated_files()))
def test_a_generated_file_is_what_the_code_says(name: str) -> None:
    assert (REPOSITORY / name).read_text() == generated_files()[name], (
        "run `python -m app.cli.reference`"
    )


def test_every_page_of_docs_can_be_reached_from_the_readme() -> None:
    reached = {REPOSITORY / "README.md"}
    for _ in DOCUMENTS:
        reached |= {
            (REPOSITORY / link.document).parent.joinpath(link.text.partition("#")[0]).resolve()
            for link in links()
            if REPOSITORY / link.document in reached
        }

    assert set((REPOSITORY / "docs").glob("*.md")) <= reached


def test_every_setting_says_what_it_is_for() -> None:
    silent = [name for name, field in Settings.model_fields.items() if not field.description]

    assert silent == []
