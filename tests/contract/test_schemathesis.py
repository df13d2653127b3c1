"""Generated requests to every operation: no crash, and every answer as the document says."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.documents import REPOSITORY
from tests.hub_stand_in import HubStandIn
from tests.integration.api.conftest import run_app, settings_for
from tests.integration.api.live_server import LiveServer
from tests.integration.api.runs import finished_job

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = int(os.environ.get("EVENHAND_GENERATED_EXAMPLES", "10"))
# Waits and streams are held open on purpose, and have tests of their own.
HELD_OPEN = {"wait", "follow"}
FILES = {"report.json": b"{}", "report.html": b"<p>", "report.md": b"#"}

schema = schemathesis.openapi.from_dict(json.loads((REPOSITORY / "openapi.json").read_text()))


@dataclass(frozen=True)
class Target:
    """A live application, and things in it that paths can name."""

    url: str
    key: str
    names: dict[str, str]


@pytest.fixture(scope="module")
def target(
    tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path, hub: HubStandIn
) -> Iterator[Target]:
    home = tmp_path_factory.mktemp("generated")
    shutil.copy2(migrated_sqlite, home / "debias.db")
    with run_app(settings_for(home, hub)) as running:
        caller = running.caller()
        job_id = finished_job(caller, FILES)
        artifact_id = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]["id"]
        server = LiveServer(caller)
        names = {"job_id": job_id, "artifact_id": artifact_id, "name": "fake", "code": "gone"}
        yield Target(server.start(), caller.key, names)
        server.stop()


def is_to_exist(case: schemathesis.Case) -> bool:
    """Tell whether to put names of existing things into the path: in about every second case.

    What a generated path names is hardly ever there. What is deleted would be missing later.
    """
    return case.method != "DELETE" and len(repr(case.path_parameters)) % 2 == 0


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_answers_keep_to_the_document(case: schemathesis.Case, target: Target) -> None:
    if is_to_exist(case):
        case.path_parameters.update(
            {name: target.names[name] for name in case.path_parameters if name in target.names}
        )
    for name in HELD_OPEN & set(case.query):
        del case.query[name]

    case.call_and_validate(
        base_url=target.url, headers={"Authorization": f"Bearer {target.key}"}, checks=CHECKS
    )
