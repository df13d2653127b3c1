"""Secrets of projects over HTTP: set, listed, deleted, and never shown."""

import json
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from app.db.tables import ProjectSecret
from app.security.scopes import TENANT, Scope
from app.settings import Settings
from tests.hub_stand_in import GOOD_TOKEN, HubStandIn
from tests.integration.api.callers import JOB, Caller, RunningApp
from tests.integration.api.conftest import run_app
from tests.model_files import llama_folder

PATH = "/v1/secrets/hub_token"
VALUE = "hf_" + "v" * 30


def put(caller: Caller, value: object = VALUE, path: str = PATH) -> Any:
    return caller.request("PUT", path, json={"value": value})


def stored(caller: Caller) -> list[ProjectSecret]:
    with caller.app.database.read() as session:
        statement = sa.select(ProjectSecret).where(ProjectSecret.project_id == caller.project_id)
        return list(session.execute(statement).scalars())


def test_secret_is_listed_without_its_value(caller: Caller) -> None:
    answer = put(caller)

    listed = caller.get("/v1/secrets")
    assert answer.status_code == 200
    assert listed.json()["data"] == [answer.json()]
    assert set(answer.json()) == {"name", "created_at", "updated_at"}
    assert VALUE not in answer.text + listed.text


def test_value_is_stored_encrypted_only(caller: Caller) -> None:
    put(caller)

    rows = stored(caller)
    assert len(rows) == 1
    assert VALUE not in rows[0].ciphertext
    audit = caller.get("/v1/audit-log").text
    assert "secret.set" in audit
    assert VALUE not in audit


def test_new_value_takes_the_place_of_the_old_one(caller: Caller) -> None:
    first = put(caller).json()
    before = stored(caller)[0].ciphertext

    second = put(caller, VALUE + "2").json()

    rows = stored(caller)
    assert [(row.version, row.ciphertext != before) for row in rows] == [(2, True)]
    assert second["created_at"] == first["created_at"]


def test_deleted_secret_is_gone(caller: Caller) -> None:
    put(caller)

    assert caller.request("DELETE", PATH).status_code == 204
    assert stored(caller) == []
    assert caller.get("/v1/secrets").json()["data"] == []
    assert caller.request("DELETE", PATH).status_code == 404


@pytest.mark.parametrize("name", ["other", "HUB_TOKEN", "hub_token%00", "a" * 64])
def test_only_known_names_are_taken(caller: Caller, name: str) -> None:
    for answer in (
        put(caller, path=f"/v1/secrets/{name}"),
        caller.request("DELETE", f"/v1/secrets/{name}"),
    ):
        assert answer.status_code in (404, 422)
    assert stored(caller) == []


@pytest.mark.parametrize(
    "value",
    [
        "hf_tiny",
        "v" * 513,
        "with space in it",
        "line\nfeed-in-token",
        "tab\tin-the-token",
        "tök-en-of-the-hub",
        "nul\x00in-the-token",
        31415926535,
        ["list-of-a-token"],
        {"object": "of-a-token"},
        None,
        True,
    ],
)
def test_bad_values_are_refused_and_not_repeated(caller: Caller, value: object) -> None:
    answer = put(caller, value)

    assert answer.status_code in (400, 422), answer.text
    assert stored(caller) == []
    for text in [value] if isinstance(value, str) else ["31415926535", "of-a-token"]:
        assert json.dumps(text)[1:-1] not in answer.text


def test_misspelt_field_is_refused_without_repeating_its_value(caller: Caller) -> None:
    answer = caller.request("PUT", PATH, json={"valeu": VALUE})

    assert answer.status_code == 422
    assert VALUE not in answer.text


def test_other_scopes_do_not_suffice(caller: Caller) -> None:
    others = caller.with_scopes(*(TENANT - {Scope.SECRETS_MANAGE}))

    assert put(others).status_code == 403
    assert others.get("/v1/secrets").status_code == 403
    assert others.request("DELETE", PATH).status_code == 403


def test_first_values_at_the_same_time_end_as_one_row(caller: Caller) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda n: put(caller, f"{VALUE}{n}"), range(6)))

    assert {answer.status_code for answer in answers} == {200}
    assert len(stored(caller)) == 1


@pytest.fixture
def gated(hub: HubStandIn) -> str:
    """A gated model of this test's own."""
    repo_id = f"org/gated-{token_hex(4)}"
    hub.add(repo_id, llama_folder(), gated="manual")
    return repo_id


def test_hub_token_opens_gated_models_for_jobs_of_its_project(
    app: RunningApp, caller: Caller, gated: str
) -> None:
    job = {**JOB, "model": {"hub": gated}}
    refused = caller.post("/v1/jobs", json=job)
    put(caller, GOOD_TOKEN)

    accepted, estimated = (
        caller.post(path, json=job) for path in ("/v1/jobs", "/v1/jobs/estimate")
    )

    assert (refused.status_code, refused.json()["code"]) == (422, "model_gated")
    assert accepted.status_code == 202, accepted.text
    assert estimated.json()["valid"] is True
    assert GOOD_TOKEN not in accepted.text + estimated.text
    assert app.caller().post("/v1/jobs", json=job).json()["code"] == "model_gated"
    caller.request("DELETE", PATH)
    assert caller.post("/v1/jobs", json=job).json()["code"] == "model_gated"


def test_token_under_a_lost_key_is_named_and_can_be_set_again(
    sqlite_settings: Settings, gated: str
) -> None:
    job = {**JOB, "model": {"hub": gated}}
    with run_app(sqlite_settings) as before:
        caller = before.caller()
        put(caller, GOOD_TOKEN)
    changed = sqlite_settings.model_copy(update={"secret_key": SecretStr("another" * 6)})
    with run_app(changed) as after:
        caller = Caller(after, caller.project_id, caller.key)
        refused = caller.post("/v1/jobs", json=job)
        estimated = caller.post("/v1/jobs/estimate", json=job).json()
        put(caller, GOOD_TOKEN)
        accepted = caller.post("/v1/jobs", json=job)

    assert (refused.status_code, refused.json()["code"]) == (422, "secret_unreadable")
    assert "PUT /v1/secrets/hub_token" in refused.json()["detail"]
    assert [problem["code"] for problem in estimated["problems"]] == ["secret_unreadable"]
    assert accepted.status_code == 202


def test_service_without_a_secret_key_says_so(sqlite_settings: Settings) -> None:
    settings = sqlite_settings.model_copy(update={"secret_key": None})
    with run_app(settings) as running:
        caller = running.caller()
        answer = put(caller)

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "DEBIAS_SECRET_KEY" in answer.json()["detail"]


def test_projects_keep_their_own(app: RunningApp, caller: Caller) -> None:
    other = app.caller()
    put(caller)
    put(other, VALUE + "-other")

    other.request("DELETE", PATH)

    assert len(stored(caller)) == 1
