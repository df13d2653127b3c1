import json
import os
import socket
import sqlite3
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from app.domain.errors import Unavailable
from app.security.scopes import TENANT
from app.services.embedded import EmbeddedService
from app.services.private_redis import PrivateRedis
from app.settings import Settings
from tests.servers import reserve_ports

BLOCK_TYPER = """
import sys
sys.modules["typer"] = None
from app.cli.main import main
main()
"""


def debias(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli.main", *arguments],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_secrets_are_masked_when_settings_are_shown(tmp_path: Path) -> None:
    done = debias("config", "show", DEBIAS_HOME=str(tmp_path), DEBIAS_SECRET_KEY="do-not-show-me")

    assert done.returncode == 0
    assert "DEBIAS_SECRET_KEY=" in done.stdout
    assert "do-not-show-me" not in done.stdout


def test_passwords_in_urls_are_masked_when_settings_are_shown(tmp_path: Path) -> None:
    done = debias(
        "config",
        "show",
        DEBIAS_HOME=str(tmp_path),
        DEBIAS_DATABASE_URL="postgresql+psycopg://me:do-not-show@db/x",
        DEBIAS_BROKER_URL="redis://:do-not-show@cache/0",
    )

    assert "postgresql+psycopg://me:" in done.stdout
    assert "do-not-show" not in done.stdout


def test_lists_are_shown_the_way_they_are_set(tmp_path: Path) -> None:
    done = debias(
        "config",
        "show",
        DEBIAS_HOME=str(tmp_path),
        DEBIAS_EXTRA_METHODS="",
        DEBIAS_HUB_ORG_ALLOWLIST="a,b",
    )

    assert "DEBIAS_EXTRA_METHODS=\n" in done.stdout
    assert "DEBIAS_HUB_ORG_ALLOWLIST=a,b\n" in done.stdout


def test_version_is_that_of_the_package() -> None:
    done = debias("--version")

    assert (done.returncode, done.stdout) == (0, f"{version('evenhand')}\n")


def test_a_wrong_setting_is_named_without_a_traceback() -> None:
    done = debias("config", "show", DEBIAS_LEASE_TTL_S="soon")

    assert done.returncode == 2
    assert "DEBIAS_LEASE_TTL_S" in done.stderr
    assert "Traceback" not in done.stderr


def test_methods_are_listed_with_their_version() -> None:
    done = debias("methods", DEBIAS_EXTRA_METHODS="app.catalog.testkit.fake")

    assert any(line.startswith("fake  1.0.0") for line in done.stdout.splitlines())


def test_a_key_can_be_made_once_the_database_is_there(tmp_path: Path) -> None:
    early = debias("keys", "create", "--name", "ci", DEBIAS_HOME=str(tmp_path))
    upgraded = debias("db", "upgrade", DEBIAS_HOME=str(tmp_path))
    made = debias("keys", "create", "--name", "ci", DEBIAS_HOME=str(tmp_path))

    assert early.returncode == 1
    assert "debias db upgrade" in early.stderr
    assert upgraded.returncode == 0
    assert made.stdout.startswith("dbk_")


def test_a_key_made_without_a_choice_of_scopes_does_not_reach_beyond_its_project(
    tmp_path: Path,
) -> None:
    debias("db", "upgrade", DEBIAS_HOME=str(tmp_path))
    debias("keys", "create", "--name", "ci", DEBIAS_HOME=str(tmp_path))

    with sqlite3.connect(tmp_path / "debias.db") as database:
        found = database.execute("SELECT scopes FROM api_keys WHERE name = 'ci'").fetchone()

    assert set(json.loads(found[0])) == {scope.value for scope in TENANT}


def test_an_unknown_scope_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    debias("db", "upgrade", DEBIAS_HOME=str(tmp_path))

    done = debias(
        "keys", "create", "--name", "ci", "--scope", "jobs:eat", DEBIAS_HOME=str(tmp_path)
    )

    assert done.returncode == 1
    assert "jobs:read" in done.stderr


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"DEBIAS_AUTH_MODE": "disabled"}, "without authentication"),
        ({"DEBIAS_SECRET_KEY": "short"}, "DEBIAS_SECRET_KEY"),
    ],
)
def test_listening_to_the_network_without_protection_is_refused(
    tmp_path: Path, environment: dict[str, str], words: str
) -> None:
    done = debias("serve", "--host", "0.0.0.0", DEBIAS_HOME=str(tmp_path), **environment)

    assert done.returncode == 1
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("role", ["serve", "api"])
def test_a_taken_port_is_refused_before_anything_is_started(tmp_path: Path, role: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        broker = {"DEBIAS_BROKER_URL": "redis://127.0.0.1:1/0"} if role == "api" else {}
        done = debias(role, "--port", port, DEBIAS_HOME=str(tmp_path / "home"), **broker)

    words = f"Port {port} of 127.0.0.1 is taken: choose another with --port.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", words)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_an_address_of_another_machine_is_refused(tmp_path: Path, host: str) -> None:
    secret = {"DEBIAS_SECRET_KEY": "k" * 32}
    done = debias("serve", "--host", host, DEBIAS_HOME=str(tmp_path / "home"), **secret)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Cannot listen on port 8000 of {host}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [("serve", "--port", "{port}"), ("db", "upgrade")])
def test_a_home_that_cannot_be_made_is_one_line(command: tuple[str, ...]) -> None:
    (port,) = reserve_ports(1)
    done = debias(*(part.format(port=port) for part in command), DEBIAS_HOME="/proc/home")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("/proc/home cannot be used")
    assert done.stderr.count("\n") == 1


def test_the_admin_key_is_shown_even_if_the_rest_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_redis: PrivateRedis) -> None:
        raise Unavailable("no Redis today")

    monkeypatch.setattr(PrivateRedis, "start", fail)
    shown: list[str] = []
    service = EmbeddedService(Settings(home=tmp_path), show_admin_key=shown.append)

    with pytest.raises(Unavailable), service:
        pass

    assert [key.partition("_")[0] for key in shown] == ["dbk"]


def test_the_doctor_looks_at_the_port_that_is_named(tmp_path: Path) -> None:
    (port,) = reserve_ports(1)

    done = debias("doctor", "--json", "--port", str(port), DEBIAS_HOME=str(tmp_path))

    assert f"Nothing answers at http://127.0.0.1:{port}." in done.stdout


@pytest.mark.parametrize("role", ["api", "worker"])
def test_a_role_without_a_broker_says_what_to_set(tmp_path: Path, role: str) -> None:
    done = debias(role, DEBIAS_HOME=str(tmp_path))

    assert done.returncode == 1
    assert "DEBIAS_BROKER_URL" in done.stderr


def test_a_worker_of_an_unknown_class_is_refused(tmp_path: Path) -> None:
    done = debias(
        "worker",
        "--classes",
        "gppu",
        DEBIAS_HOME=str(tmp_path),
        DEBIAS_BROKER_URL="redis://127.0.0.1:1/0",
    )

    assert done.returncode == 1
    assert "gppu" in done.stderr


def test_without_the_service_installed_the_command_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK_TYPER], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "evenhand[api]" in done.stderr
