"""Entry point of `debias`."""

import sys

EXTRAS = {"typer", "rich", "pydantic", "pydantic_settings", "structlog", "sqlalchemy", "celery"}


def main() -> None:
    """Run the command line, or say what has to be installed for it."""
    try:
        from app.cli.commands import create_cli
    except ModuleNotFoundError as exc:
        if exc.name not in EXTRAS:
            raise
        sys.exit(
            f"The package {exc.name!r} is missing: `debias` needs more than the client. Install "
            "`evenhand[api]` for the service, `evenhand[worker]` for the methods as well."
        )
    create_cli()()


if __name__ == "__main__":
    main()
