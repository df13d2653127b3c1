"""No secret that a client sends or is given comes back in an answer, an event or a log line."""

import io
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.logging import configure_logging
from app.services import jobs
from tests.hub_stand_in import HubStandIn
from tests.integration.api.callers import JOB, Caller
from tests.integration.api.runs import finished_job
from tests.model_files import llama_folder

TOKEN = "hf_" + "LeakedTokenOfATest" * 2
OPAQUE = "opaque-token-of-a-test"  # of no known form: only its registration can hide it


@pytest.fixture(params=["json", "console"])
def log(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """Everything that the service and its libraries log meanwhile, at every level."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    configure_logging("debug", request.param)
    root.setLevel(logging.DEBUG)
    stream = io.StringIO()
    handler = root.handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    yield stream
    root.handlers = handlers
    root.setLevel(level)


def test_keys_stay_out_of_logs_and_answers(caller: Caller, log: io.StringIO) -> None:
    made = caller.post("/v1/api-keys", json={"name": "n", "scopes": ["jobs:read"]}).json()
    new = caller.post(f"/v1/api-keys/{made['id']}/rotate", json={}).json()
    wrong = made["secret"][:-4] + "AAAA"
    answers = [
        caller.get("/v1/jobs", headers={"Authorization": f"Bearer {wrong}"}),
        caller.get("/v1/jobs", headers={"Authorization": made["secret"]}),
        caller.get("/v1/jobs", params={"api_key": made["secret"]}),
        caller.get(f"/v1/jobs/{made['secret']}"),
        caller.post("/v1/jobs", json={**JOB, "method": made["secret"]}),
        caller.get("/v1/api-keys"),
        caller.get("/v1/audit-log"),
    ]

    secrets = [text.rpartition("_")[2] for text in (made["secret"], new["secret"], caller.key)]
    lines = log.getvalue()
    assert "request_answered" in lines
    assert [secret for secret in (*secrets, wrong) if secret in lines] == []
    told = [answer.text for answer in answers[:2] + answers[5:]]
    assert not any(secret in text for text in told for secret in secrets)


@pytest.mark.parametrize("token", [TOKEN, OPAQUE])
def test_hub_token_stays_out_of_logs_problems_and_events(
    caller: Caller, hub: HubStandIn, log: io.StringIO, token: str
) -> None:
    """The hub refuses the token; the words for that must do without it."""
    hub.add("org/leaks", llama_folder(), gated="manual")
    assert caller.request("PUT", "/v1/secrets/hub_token", json={"value": token}).status_code == 200
    job = {**JOB, "model": {"hub": "org/leaks"}}

    answers = [caller.post(path, json=job) for path in ("/v1/jobs", "/v1/jobs/estimate")]
    answers += [caller.get(path) for path in ("/v1/secrets", "/v1/audit-log", "/v1/me")]

    assert answers[0].json()["code"] == "model_gated"
    assert any(seen.headers.get("Authorization") == f"Bearer {token}" for seen in hub.seen)
    # From its first use on, whatever a library says of it is hidden too.
    logging.getLogger("library").warning("sent %s", token)
    assert "sent" in log.getvalue()
    assert not any(token in answer.text for answer in answers)
    assert token not in log.getvalue()


def test_signatures_of_links_stay_out_of_logs(caller: Caller, log: io.StringIO) -> None:
    job_id = finished_job(caller, {"a.json": b"{}"})
    artifact = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]["id"]
    url = caller.post(f"/v1/artifacts/{artifact}/download-url").json()["url"]
    path = url[url.index("/downloads/") :]
    signature = re.search(r"signature=([0-9a-f]+)", path)
    assert signature is not None

    good = caller.app.client.get(path)
    bad = caller.app.client.get(path.replace("expires=", "expires=1"))
    audit = caller.get("/v1/audit-log")

    assert (good.status_code, bad.status_code) == (200, 401)
    assert "/downloads/" in log.getvalue()
    assert signature[1] not in log.getvalue() + bad.text + audit.text


def test_defect_that_quotes_a_secret_shows_it_to_nobody(
    caller: Caller, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"unexpected {TOKEN} and {caller.key}")

    monkeypatch.setattr(jobs, "list_jobs", fail)

    answer = caller.get("/v1/jobs")

    assert answer.status_code == 500
    assert "RuntimeError" in log.getvalue()
    for secret in (TOKEN, caller.key):
        assert secret not in answer.text + log.getvalue()
