"""`debias doctor`: each thing that can be wrong is named, with what to do."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from rich.console import Console

from app.cli.doctor import as_document, diagnose, show, worst
from app.db.schema import downgrade
from app.db.session import Database
from app.db.tables import Worker
from app.integrations.hub.cache import CommitCache
from app.redaction import hide_value
from app.services.doctor import Finding, Level, run_checks
from app.services.doctor import devices as device_checks
from app.services.doctor.broker import _judge, check_broker
from app.services.doctor.checks import CHECKS
from app.services.doctor.database import _clock, check_database, check_workers
from app.services.doctor.devices import check_devices, judge_devices
from app.services.doctor.disk import check_disk, check_home
from app.services.doctor.findings import ok
from app.services.doctor.hub import PROBE_REPO, check_hub
from app.services.doctor.ports import check_api
from app.services.doctor.secret import check_secret, check_settings
from app.services.doctor.store import check_store
from app.settings import Settings
from tests.clock import FakeClock
from tests.execution import add_worker, queue_job
from tests.fixtures.database import make_project
from tests.hub_stand_in import GOOD_TOKEN, HubStandIn
from tests.model_files import llama_folder
from tests.server_addresses import PostgresAddress, RedisAddress, S3Address

CLOSED_PORT = 1  # nobody listens there
GOOD_KEY = "kJ8vQ2mXr5tZ1wLp9sYc4bNf7dHg3eAu"


def settings(home: Path, **values: Any) -> Settings:
    return Settings(_env_file=None, home=home, **values)


def bad(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def only(findings: Iterable[Finding], level: Level, words: str) -> Finding:
    """The one finding that is not well; it says what it should, and what to do."""
    (finding,) = bad(findings)
    assert finding.level is level
    assert words in f"{finding.message} {finding.hint}"
    assert finding.hint
    return finding


class Listener:
    """Something that listens and gives one answer, but for /readyz."""

    def __init__(
        self, *, status: int = 200, text: str = "{}", ours: bool = False, ready: int | None = None
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Keep test output clean."""

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response((ready or status) if self.path == "/readyz" else status)
                if ours:
                    self.send_header("X-Request-Id", "1")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def do_GET(self) -> None:
                self.answer()

            def do_PUT(self) -> None:
                self.answer()

            def do_DELETE(self) -> None:
                self.answer()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


# Settings and secrets


def test_misspelt_setting_is_named_with_the_one_that_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBIAS_HUBTOKEN", "x")

    only(check_settings(settings(tmp_path)), Level.WARNING, "Did you mean DEBIAS_HUB_TOKEN?")


def test_service_without_keys_is_named(tmp_path: Path) -> None:
    found = check_settings(settings(tmp_path, auth_mode="disabled"))

    only(found, Level.WARNING, "DEBIAS_AUTH_MODE=keys")


def test_password_in_an_address_is_not_shown(tmp_path: Path) -> None:
    found = check_settings(settings(tmp_path, database_url="postgresql+psycopg://me:secret@db/x"))

    assert "secret" not in str(list(found))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("short", "has 5 characters"),
        ("a" * 40, "easy to guess"),
        ("secretsecretsecretsecretsecretsecret", "easy to guess"),
        (f"{GOOD_KEY},old", "Secret key 2 of 2 has 3"),
    ],
)
def test_weak_secret_key_is_a_problem(tmp_path: Path, key: str, words: str) -> None:
    found = check_secret(settings(tmp_path, secret_key=SecretStr(key)))

    only(found, Level.PROBLEM, words)


@pytest.mark.parametrize("key", [GOOD_KEY, "0123456789abcdef" * 2])
def test_strong_secret_key_is_well(tmp_path: Path, key: str) -> None:
    assert bad(check_secret(settings(tmp_path, secret_key=SecretStr(key)))) == []


def test_deployment_without_a_secret_key_is_named(tmp_path: Path) -> None:
    assert bad(check_secret(settings(tmp_path))) == []
    found = check_secret(settings(tmp_path, broker_url="redis://host"))
    only(found, Level.WARNING, "DEBIAS_SECRET_KEY")


# Home and disk


def test_private_home_is_well(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)

    assert bad(check_home(settings(tmp_path))) == []
    assert bad(check_home(settings(tmp_path / "later"))) == []


def test_home_that_others_may_read_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    only(check_home(settings(tmp_path)), Level.WARNING, f"chmod 700 {tmp_path}")


def test_home_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    only(check_home(settings(file)), Level.PROBLEM, "is no folder")
    only(check_home(settings(file / "below")), Level.PROBLEM, "cannot be written")


def test_too_little_scratch_is_a_problem(tmp_path: Path) -> None:
    found = check_disk(settings(tmp_path, scratch_min_free_bytes=2**60))

    only(found, Level.PROBLEM, "DEBIAS_SCRATCH_MIN_FREE_BYTES")


# Database and workers


@pytest.fixture
def current(database_url: str, tmp_path: Path) -> Settings:
    return settings(tmp_path, database_url=database_url)


def test_current_database_is_well(current: Settings) -> None:
    assert bad(check_database(current)) == []


def test_missing_database_is_a_problem_and_is_not_made(tmp_path: Path) -> None:
    only(check_database(settings(tmp_path)), Level.PROBLEM, "debias db upgrade")

    assert list(tmp_path.iterdir()) == []


def test_old_schema_is_a_problem(current: Settings, database: Database) -> None:
    downgrade(database, "-1")

    only(check_database(current), Level.PROBLEM, "debias db upgrade")


def test_unreachable_database_is_a_problem_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql+psycopg://me:do-not-show@127.0.0.1:{CLOSED_PORT}/x"

    found = only(
        check_database(settings(tmp_path, database_url=url)), Level.PROBLEM, "DEBIAS_DATABASE_URL"
    )

    assert "do-not-show" not in found.message


def test_read_only_database_is_a_problem(
    migrated_postgres: tuple[PostgresAddress, str], tmp_path: Path
) -> None:
    server, template = migrated_postgres
    url = server.create_database("read_only", template=template).url
    separator = "&" if "?" in url else "?"
    url += f"{separator}options=-c%20default_transaction_read_only%3Don"

    found = check_database(settings(tmp_path, database_url=url))

    only(found, Level.PROBLEM, "cannot be written")
    server.drop_database("read_only")


def test_clock_that_differs_is_named(database_url: str) -> None:
    database = Database(database_url, clock=FakeClock())

    only(_clock(database), Level.WARNING, "NTP")
    database.dispose()


def test_class_without_a_worker_is_a_problem_once_jobs_wait(
    current: Settings, database: Database
) -> None:
    only(check_workers(current), Level.WARNING, "debias worker --classes cpu")

    queue_job(database, make_project(database))

    only(check_workers(current), Level.PROBLEM, "1 job(s) wait")


def test_worker_of_another_release_and_one_without_room_are_named(
    current: Settings, database: Database
) -> None:
    add_worker(database, versions={"evenhand": "0.0.1"}, disk_low=True, disk_free_bytes=1024)

    release, room = bad(check_workers(current))

    assert "0.0.1" in release.message
    assert "1 KiB" in room.message
    assert (release.level, room.level) == (Level.WARNING, Level.PROBLEM)


def test_silent_worker_is_not_alive(current: Settings, database: Database) -> None:
    add_worker(database)
    with database.write() as session:
        past = database.now(session).replace(year=2020)
        session.execute(sa.update(Worker).values(last_seen_at=past))

    only(check_workers(current), Level.WARNING, "None is alive")


# Broker


def test_broker_that_answers_is_well(redis_server: RedisAddress, tmp_path: Path) -> None:
    assert bad(check_broker(settings(tmp_path, broker_url=redis_server.url))) == []


def test_absent_broker_is_a_problem(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{CLOSED_PORT}/0"

    only(check_broker(settings(tmp_path, broker_url=url)), Level.PROBLEM, "does not answer")


def test_broker_that_wants_another_password_is_a_problem(
    redis_server: RedisAddress, tmp_path: Path
) -> None:
    url = redis_server.url.replace("redis://", "redis://nobody:wrong@", 1)

    only(check_broker(settings(tmp_path, broker_url=url)), Level.PROBLEM, "refuses")


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        ({"maxmemory_policy": "allkeys-lru", "maxmemory": 1000}, Level.PROBLEM, "noeviction"),
        ({"maxmemory_policy": "allkeys-lru", "maxmemory": 0}, Level.WARNING, "noeviction"),
        ({"redis_version": "5.0.7"}, Level.WARNING, "older than 6.2"),
    ],
)
def test_unfit_broker_is_named(facts: dict[str, Any], level: Level, words: str) -> None:
    only(_judge({"redis_version": "7.2.4", **facts}), level, words)


# Store


def s3(home: Path, server: S3Address, url: str, **values: Any) -> Settings:
    given = {
        "store_url": url,
        "s3_endpoint_url": server.endpoint_url,
        "s3_access_key_id": SecretStr(server.access_key_id),
        "s3_secret_access_key": SecretStr(server.secret_access_key),
    }
    return settings(home, **{**given, **values})


def test_stores_that_work_are_well(s3_server: S3Address, s3_bucket: str, tmp_path: Path) -> None:
    assert bad(check_store(settings(tmp_path))) == []
    assert bad(check_store(s3(tmp_path, s3_server, s3_bucket))) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_keys_that_a_store_refuses_are_a_problem(
    s3_server: S3Address, s3_bucket: str, tmp_path: Path
) -> None:
    stranger = s3(tmp_path, s3_server, s3_bucket, s3_access_key_id=SecretStr("nobody"))
    wrong = s3(tmp_path, s3_server, s3_bucket, s3_secret_access_key=SecretStr("do-not-show"))

    only(check_store(stranger), Level.PROBLEM, "DEBIAS_S3_ACCESS_KEY_ID")
    found = only(check_store(wrong), Level.PROBLEM, "DEBIAS_S3_SECRET_ACCESS_KEY")
    assert "do-not-show" not in f"{found}"


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (404, "NoSuchBucket", "The bucket does not exist"),
        (403, "AccessDenied", "denies access"),
        (403, "InvalidAccessKeyId", "does not know the access key"),
        (403, "SignatureDoesNotMatch", "does not accept the secret"),
        (403, "RequestTimeTooSkewed", "clocks"),
        (400, "AuthorizationHeaderMalformed", "DEBIAS_S3_REGION"),
    ],
)
def test_refusals_of_a_store_are_told_apart(
    tmp_path: Path, status: int, code: str, words: str
) -> None:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>"
    refusing = Listener(status=status, text=body)
    address = S3Address(refusing.url, "key", "secret-value")

    found = list(check_store(s3(tmp_path, address, "s3://bucket/prefix")))

    refusing.close()
    only(found, Level.PROBLEM, words)


def test_store_in_an_impossible_place_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    found = check_store(settings(tmp_path, store_url=f"file://{tmp_path}/file/store"))

    only(found, Level.PROBLEM, "DEBIAS_STORE_URL")


def test_store_of_an_unknown_kind_is_a_problem(tmp_path: Path) -> None:
    only(check_store(settings(tmp_path, store_url="gs://x")), Level.PROBLEM, "DEBIAS_STORE_URL")


# Hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStandIn]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with HubStandIn() as stand_in:
        stand_in.add(PROBE_REPO, llama_folder())
        yield stand_in


def test_hub_that_answers_is_well(hub: HubStandIn, tmp_path: Path) -> None:
    assert bad(check_hub(settings(tmp_path, hub_endpoint=hub.endpoint))) == []


def test_mirror_without_the_probed_model_is_well(hub: HubStandIn, tmp_path: Path) -> None:
    hub.repos.clear()

    assert bad(check_hub(settings(tmp_path, hub_endpoint=hub.endpoint))) == []


def test_mirror_without_sizes_is_named(hub: HubStandIn, tmp_path: Path) -> None:
    hub.faults.without_sizes = True

    found = check_hub(settings(tmp_path, hub_endpoint=hub.endpoint))

    only(found, Level.WARNING, "lists no sizes")


def test_absent_hub_is_a_problem_for_those_who_set_one_only(
    hub: HubStandIn, tmp_path: Path
) -> None:
    hub.faults.answers = [(503, {})] * 2
    mine = settings(tmp_path, hub_endpoint=hub.endpoint)
    default = mine.model_copy()
    default.model_fields_set.discard("hub_endpoint")

    only(check_hub(mine), Level.PROBLEM, "has a fault")
    only(check_hub(default), Level.WARNING, "has a fault")


def test_token_over_plain_http_is_named(hub: HubStandIn, tmp_path: Path) -> None:
    found = check_hub(settings(tmp_path, hub_endpoint=hub.endpoint, hub_token=GOOD_TOKEN))

    assert GOOD_TOKEN not in str(only(found, Level.WARNING, "without encryption"))


def test_wrong_token_is_a_problem(hub: HubStandIn, tmp_path: Path) -> None:
    found = bad(check_hub(settings(tmp_path, hub_endpoint=hub.endpoint, hub_token="hf_old")))

    assert [finding.level for finding in found].count(Level.PROBLEM) == 2
    assert "wrong, expired or revoked" in found[-1].message


def test_mirror_that_knows_no_owners_leaves_the_token_open(hub: HubStandIn, tmp_path: Path) -> None:
    hub.faults.without_owners = True

    found = bad(check_hub(settings(tmp_path, hub_endpoint=hub.endpoint, hub_token=GOOD_TOKEN)))

    assert [finding.level for finding in found] == [Level.WARNING] * 2
    assert "unknown" in found[-1].message


# torch


def test_torch_works_here(tmp_path: Path) -> None:
    found = list(check_devices(settings(tmp_path)))

    assert any("torch" in finding.message for finding in found)
    assert Level.PROBLEM not in {finding.level for finding in found}


def test_broken_torch_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_checks, "_SCRIPT", "raise RuntimeError('driver too old')")

    only(check_devices(settings(tmp_path)), Level.PROBLEM, "driver too old")


def test_torch_that_crashes_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_checks, "_SCRIPT", "import os; os.abort()")

    only(check_devices(settings(tmp_path)), Level.PROBLEM, "exit code -6")


def test_torch_that_is_not_installed_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert bad(check_devices(settings(tmp_path))) == []


CPU = {"torch": "2.13.0", "transformers": "5.24.0", "cuda": None, "gpus": [], "threads": 2}
GPU = {**CPU, "cuda": "12.8", "gpus": ["A100"]}


@pytest.mark.parametrize(
    ("facts", "classes", "driver", "words"),
    [
        (GPU, ("cpu",), True, "no class of DEBIAS_DEVICE_CLASSES"),
        (CPU, ("cpu",), True, "torch finds no GPU"),
        (CPU, ("gpu", "cpu"), False, "this machine has none"),
    ],
)
def test_devices_that_do_not_fit_are_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any],
    classes: tuple[str, ...],
    driver: bool,
    words: str,
) -> None:
    path = tmp_path / "version"
    if driver:
        path.touch()
    monkeypatch.setattr(device_checks, "_DRIVER", path)

    only(judge_devices(facts, classes), Level.WARNING, words)
    assert bad(judge_devices(GPU, ("gpu",))) == []


# API


@pytest.mark.parametrize(
    ("api", "level", "words"),
    [
        ({"ours": False}, Level.WARNING, "Another program"),
        ({"ours": True, "ready": 503, "text": "no database"}, Level.PROBLEM, "no database"),
        ({"ours": True, "text": '{"status": "degraded"}'}, Level.WARNING, "degraded"),
        ({"ours": True}, None, ""),
    ],
)
def test_what_listens_at_the_address_is_judged(
    tmp_path: Path, api: dict[str, Any], level: Level | None, words: str
) -> None:
    running = Listener(**api)

    found = list(check_api(settings(tmp_path, public_url=running.url)))

    running.close()
    if level is None:
        assert bad(found) == []
    else:
        only(found, level, words)


def test_public_address_where_nothing_listens_is_a_problem(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{CLOSED_PORT}"

    only(check_api(settings(tmp_path, public_url=url)), Level.PROBLEM, "debias api")


# All of them


def test_check_that_hangs_and_one_that_raises_cost_the_others_nothing(tmp_path: Path) -> None:
    released = threading.Event()

    def hang(_settings: Settings) -> Iterator[Finding]:
        yield ok("begun")
        released.wait()

    def fail(_settings: Settings) -> Iterator[Finding]:
        raise RuntimeError("unheard of")

    checks = {"hang": hang, "fail": fail, "fine": lambda _settings: [ok("fine")]}
    results = dict(run_checks(settings(tmp_path), timeout_s=0.2, checks=checks))
    released.set()

    assert [finding.level for finding in results["hang"]] == [Level.OK, Level.PROBLEM]
    assert "within 0.2 s" in results["hang"][1].message
    assert "unheard of" in results["fail"][0].message
    assert results["fine"] == [ok("fine")]


def test_no_secret_is_shown(tmp_path: Path) -> None:
    hide_value("do-not-show-me")

    def leak(_settings: Settings) -> Iterator[Finding]:
        yield Finding(Level.WARNING, "key do-not-show-me", "redis://:do-not-show@host")

    results = list(run_checks(settings(tmp_path), timeout_s=5, checks={"leak": leak}))

    assert "do-not-show" not in str(results)


RESULTS = [("disk", [ok("room")]), ("hub", [Finding(Level.PROBLEM, "down", "Start it.")])]


def test_findings_are_shown_with_what_to_do() -> None:
    console = Console(record=True, width=80, file=io.StringIO())

    show(RESULTS, console)

    text = console.export_text()
    assert "problem  hub   down" in text
    assert "-> Start it." in text
    assert "1 problem(s)" in text
    assert worst(RESULTS) is Level.PROBLEM
    assert as_document(RESULTS)["status"] == "problem"


def doctor(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli.main", *arguments],
        env={"PATH": os.environ["PATH"], "DEBIAS_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("level", "status"), [(Level.OK, 0), (Level.WARNING, 0), (Level.PROBLEM, 1)]
)
def test_only_problems_make_the_command_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: Level, status: int
) -> None:
    results = [("disk", [ok("room")]), ("hub", [Finding(level, "m", "h")])]
    monkeypatch.setattr("app.cli.doctor.run_checks", lambda *_, **__: iter(results))
    console = Console(file=io.StringIO())

    assert diagnose(settings(tmp_path), console, as_json=False, timeout_s=1) == status


def test_command_reports_every_part(hub: HubStandIn, tmp_path: Path) -> None:
    token = "do-not-show-this"

    done = doctor(
        tmp_path, "doctor", "--json", DEBIAS_HUB_TOKEN=token, DEBIAS_HUB_ENDPOINT=hub.endpoint
    )

    report = json.loads(done.stdout)
    assert (done.returncode, report["status"]) == (1, "problem")
    # Without a database nothing is known of workers.
    assert {found["check"] for found in report["findings"]} == set(CHECKS) - {"workers"}
    assert token not in done.stdout + done.stderr


def test_cache_is_listed_and_cleared(tmp_path: Path) -> None:
    CommitCache(tmp_path / "hub-cache", endpoint="h", repo_id="m", commit="0").put("f", b"x" * 9000)

    listed = doctor(tmp_path, "cache", "ls")
    cleared = doctor(tmp_path, "cache", "clear")

    assert "1 commit(s), 12 KiB of at most 50 GiB" in listed.stdout
    assert "Removed 1 commit(s)" in cleared.stdout
    assert [path for path in (tmp_path / "hub-cache").rglob("*") if path.is_file()] == []
