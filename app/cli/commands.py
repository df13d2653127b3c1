"""The commands of `debias`. Each imports what it needs when it is called."""

import logging
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer
from pydantic import ValidationError

from app.domain.errors import DebiasError
from app.logging import configure_logging
from app.redaction import hide_values
from app.security.masking import mask_passwords
from app.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Limit = Annotated[str | None, typer.Option(help="A number, or none for no limit.")]
Number = Annotated[str | None, typer.Option(help="A number.")]
LOG_WIDTH = 110  # a table of results fits; rich would wrap at 80 where no terminal says more
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")]


def create_cli() -> typer.Typer:
    """Put the command line together."""
    cli = typer.Typer(
        name="debias",
        help="Evenhand: edits biased models and measures what became fairer, and at what cost.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    cli.callback()(_start)
    for name, command in (
        ("serve", serve),
        ("api", api),
        ("worker", worker),
        ("demo", demo),
        ("gc", collect_garbage),
        ("methods", methods),
        ("doctor", doctor),
    ):
        cli.command(name)(command)
    _add_groups(cli)
    return cli


def _add_groups(cli: typer.Typer) -> None:
    groups: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
        "db": ("The database.", {"upgrade": upgrade_database}),
        "projects": (
            "Projects and their limits.",
            {"ls": list_projects, "create": create_project, "set": change_project},
        ),
        "keys": ("API keys.", {"create": create_key}),
        "secrets": ("Secrets of projects.", {"rotate": rotate_secrets, "check": check_secrets}),
        "store": ("The object store.", {"verify": verify_store}),
        "cache": (
            "The cache of hub files on this machine.",
            {"ls": list_cache, "clear": clear_cache},
        ),
        "config": ("Settings.", {"show": show_config}),
    }
    for name, (explanation, commands) in groups.items():
        group = typer.Typer(help=explanation, no_args_is_help=True)
        for command_name, command in commands.items():
            group.command(command_name)(command)
        cli.add_typer(group, name=name)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        print(version("evenhand"))
        raise typer.Exit


def _start(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda wanted: _print_version(wanted=wanted),
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Offer the options of the command line as a whole."""


def serve(host: Host = "127.0.0.1", port: Port = 8000) -> None:
    """Run everything on this machine: API, worker, a private Redis, SQLite and files."""
    from app.cli.servers import run_embedded

    settings = load_settings()
    _run(lambda: run_embedded(settings, host, port))


def api(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    no_maintenance: Annotated[
        bool, typer.Option(help="Leave relay, dispatch and reaping to other replicas.")
    ] = False,
) -> None:
    """Run the API alone, against a database, a broker and a store of your own."""
    from app.cli.servers import run_api

    settings = load_settings()
    _run(lambda: run_api(settings, host, port, maintenance=not no_maintenance))


def worker(
    classes: Annotated[
        str | None, typer.Option(help="Device classes to serve, separated by commas.")
    ] = None,
    device: Annotated[str, typer.Option(help="Torch device: auto, cpu, cuda:0, ...")] = "auto",
    guardian_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run one worker: one device, one job at a time."""
    from app.cli.servers import run_worker

    settings = load_settings()
    chosen = tuple(classes.split(",")) if classes else settings.device_classes
    _run(lambda: run_worker(settings, chosen, device=device, guardian_fd=guardian_fd))


def demo(
    model: Annotated[
        Literal["smollm2", "tiny"],
        typer.Option(help="SmolLM2-135M, or the tiny Llama that comes with the package."),
    ] = "smollm2",
    output: Annotated[Path, typer.Option(help="Folder for the result.")] = Path("demo-output"),
) -> None:
    """Debias a real model from start to finish, and show what changed."""
    from app.cli.demo import DEMOS, run_demo

    raise typer.Exit(run_demo(DEMOS[model], output, _console()))


def methods() -> None:
    """List the debiasing methods."""
    from app.catalog.registry import load_registry

    for method in load_registry(load_settings().extra_methods).newest():
        print(f"{method.name}  {method.version}  {method.summary}")


def upgrade_database() -> None:
    """Bring the database to the schema of this release; an empty one gets a project and a key."""
    from app.cli import administration

    settings = load_settings()

    def upgrade() -> None:
        done = administration.upgrade_database(settings)
        print(f"The database is at schema {done.revision}.")
        if done.admin_key is not None:
            print(f"Admin key, shown this once: {done.admin_key}")

    _run(upgrade)


def create_key(
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Scope to grant; repeatable. Default: all but admin."),
    ] = None,
    project: Annotated[str | None, typer.Option(help="Project of the key.")] = None,
) -> None:
    """Make an API key, by default of the default project. It is printed once, stored nowhere."""
    from app.cli.administration import make_key

    settings = load_settings()
    _run(lambda: print(make_key(settings, name, scope or [], project=project)))


def list_projects() -> None:
    """List all projects with their limits and what they use of them."""
    from app.cli import projects

    settings = load_settings()
    _run(lambda: projects.list_projects(settings, _console()))


def create_project(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits, dots, dashes.")],
    weight: Number = None,
    max_running: Number = None,
    max_queued: Number = None,
    max_storage_bytes: Limit = None,
    max_gpu_s_per_day: Limit = None,
    retention_days: Number = None,
) -> None:
    """Make a project and print its first key, which has all scopes but admin."""
    from app.cli import projects

    settings = load_settings()
    limits = {
        "weight": weight,
        "max_running": max_running,
        "max_queued": max_queued,
        "max_storage_bytes": max_storage_bytes,
        "max_gpu_s_per_day": max_gpu_s_per_day,
        "retention_days": retention_days,
    }
    _run(lambda: projects.create_project(settings, name, limits))


def change_project(
    name: Annotated[str, typer.Argument(help="The project to change.")],
    rename: Annotated[str | None, typer.Option(help="Its new name.")] = None,
    weight: Number = None,
    max_running: Number = None,
    max_queued: Number = None,
    max_storage_bytes: Limit = None,
    max_gpu_s_per_day: Limit = None,
    retention_days: Number = None,
    suspended: Annotated[
        bool | None, typer.Option("--suspend/--resume", help="Whether it takes new jobs.")
    ] = None,
) -> None:
    """Change a project; options that are not given leave their limit as it is."""
    from app.cli import projects

    settings = load_settings()
    changes = {
        "name": rename,
        "weight": weight,
        "max_running": max_running,
        "max_queued": max_queued,
        "max_storage_bytes": max_storage_bytes,
        "max_gpu_s_per_day": max_gpu_s_per_day,
        "retention_days": retention_days,
        "suspended": None if suspended is None else str(suspended),
    }
    _run(lambda: projects.change_project(settings, name, changes))


def rotate_secrets() -> None:
    """Encrypt all secrets of projects under the first key of DEBIAS_SECRET_KEY; repeatable."""
    from app.cli.secrets import print_rotation

    settings = load_settings()
    _run(lambda: print_rotation(settings))


def check_secrets() -> None:
    """Say which of the keys of DEBIAS_SECRET_KEY the secrets of projects still need."""
    from app.cli.secrets import print_check

    settings = load_settings()
    _run(lambda: print_check(settings))


def collect_garbage(
    dry_run: Annotated[bool, typer.Option(help="Only say what would be deleted.")] = False,
) -> None:
    """Delete what retention gives up, as every API process does each hour."""
    from app.cli.storage import print_garbage

    settings = load_settings()
    # Its record of a run says the same as the table.
    logging.getLogger("app.dispatch.gc").setLevel(logging.WARNING)
    _run(lambda: print_garbage(settings, dry_run=dry_run))


def verify_store(
    digests: Annotated[bool, typer.Option(help="Read every blob and check its SHA-256.")] = False,
) -> None:
    """Compare the rows of the database with the objects of the store."""
    from app.cli.storage import print_check

    settings = load_settings()
    _run(lambda: print_check(settings, digests=digests))


def show_config() -> None:
    """Print the settings in effect, with secrets masked."""
    for name, value in load_settings().model_dump().items():
        print(f"DEBIAS_{name.upper()}={mask_passwords(_as_set(value))}")


def _as_set(value: object) -> str:
    """Write a value the way it is set: nothing for none, lists with commas."""
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for all checks.")] = 60.0,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port of this machine that the API runs on."),
    ] = None,
) -> None:
    """Look at every part of the service, and say what is wrong and what to do about it."""
    from app.cli.doctor import diagnose

    settings = load_settings()
    if port is not None:
        settings = settings.model_copy(update={"public_url": f"http://127.0.0.1:{port}"})
    console = _console()
    _run(lambda: diagnose(settings, console, as_json=as_json, timeout_s=timeout))


def list_cache() -> None:
    """List the models in the cache, the least recently used first."""
    from app.cli import cache

    settings = load_settings()
    _run(lambda: cache.list_cache(settings, _console()))


def clear_cache() -> None:
    """Remove all cached models that no job uses at present."""
    from app.cli import cache

    settings = load_settings()
    _run(lambda: cache.clear_cache(settings, _console()))


def _console() -> "Console":
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=LOG_WIDTH)


def load_settings() -> Settings:
    """Read the settings and set up logging; end with a message where a setting is wrong."""
    try:
        settings = Settings()
    except ValidationError as exc:
        for error in exc.errors():
            name = "_".join(str(part) for part in error["loc"]).upper()
            typer.echo(f"DEBIAS_{name}: {error['msg']}", err=True)
        raise typer.Exit(2) from exc
    hide_values(settings.secret_values)
    configure_logging(settings.log_level, settings.log_format)
    # It says which database it was given each time somebody asks for the schema.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    return settings


def _run(action: Callable[[], int | None]) -> NoReturn:
    """End with the action's status; an error that a user can mend is one line, no traceback."""
    try:
        status = action()
    except DebiasError as exc:
        typer.echo(exc.detail, err=True)
        raise typer.Exit(1) from exc
    raise typer.Exit(status or 0)
