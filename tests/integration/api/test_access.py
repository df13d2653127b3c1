"""Who may do what: keys, scopes, and the wall between projects."""

from datetime import timedelta

import sqlalchemy as sa
from starlette.testclient import TestClient

from app.db.tables import ApiKey
from app.main import create_app
from app.security.scopes import GRANTABLE, Scope
from app.services.projects import ensure_default_project
from app.settings import Settings
from tests.integration.api.callers import JOB, Caller, RunningApp

KEY = {"name": "ci", "scopes": ["jobs:read"]}


def test_missing_wrong_expired_and_revoked_keys_look_the_same(caller: Caller) -> None:
    expired, revoked = caller.with_scopes(Scope.JOBS_READ), caller.with_scopes(Scope.JOBS_READ)
    with caller.app.database.write() as session:
        now = caller.app.database.now(session)
        for key, column in ((expired, "expires_at"), (revoked, "revoked_at")):
            session.execute(
                sa.update(ApiKey)
                .where(ApiKey.prefix == key.key.split("_")[1])
                .values({column: now - timedelta(seconds=1)})
            )
    wrong_end = "y" if caller.key.endswith("x") else "x"
    headers = [
        {},
        {"Authorization": "Basic abc"},
        {"Authorization": f"Bearer {caller.key[:-1]}{wrong_end}"},
        {"Authorization": "Bearer dbk_AAAAAAAA_" + "b" * 43},
        {"Authorization": f"Bearer {expired.key}"},
        {"Authorization": f"Bearer {revoked.key}"},
    ]

    answers = [caller.app.client.get("/v1/jobs", headers=header) for header in headers]

    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.json()["detail"] for answer in answers}) == 1
    assert all("Bearer" in answer.headers["www-authenticate"] for answer in answers)


def test_new_key_works_and_its_secret_is_shown_once(caller: Caller) -> None:
    made = caller.post("/v1/api-keys", json=KEY).json()

    listed = caller.get("/v1/api-keys").json()["data"]
    used = Caller(caller.app, caller.project_id, made["secret"]).get("/v1/jobs")

    assert used.status_code == 200
    assert {key["id"] for key in listed} >= {made["id"]}
    assert not any("secret" in key for key in listed)


def test_secret_is_not_stored(caller: Caller) -> None:
    headers = {"Idempotency-Key": "key-1"}
    made = caller.post("/v1/api-keys", json=KEY, headers=headers).json()

    again = caller.post("/v1/api-keys", json=KEY, headers=headers)

    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == {**made, "secret": None}


def test_revoked_key_stops_working(caller: Caller) -> None:
    made = caller.post("/v1/api-keys", json=KEY).json()
    key = Caller(caller.app, caller.project_id, made["secret"])
    assert key.get("/v1/jobs").status_code == 200

    caller.request("DELETE", f"/v1/api-keys/{made['id']}")

    assert key.get("/v1/jobs").status_code == 401
    assert caller.get(f"/v1/api-keys/{made['id']}").status_code == 404


def test_key_cannot_grant_what_it_lacks(caller: Caller) -> None:
    manager = caller.with_scopes(Scope.KEYS_MANAGE)

    answer = manager.post("/v1/api-keys", json=KEY)

    assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
    assert "jobs:read" in answer.json()["detail"]


def test_use_of_a_key_is_noted(caller: Caller) -> None:
    me = caller.get("/v1/me").json()

    assert me["key"]["last_used_at"] is not None
    assert caller.get("/v1/me").json()["key"]["last_used_at"] == me["key"]["last_used_at"]


def test_profile_shows_quotas_and_their_use(app: RunningApp) -> None:
    caller = app.caller(max_queued=5)
    caller.create_job()

    me = caller.get("/v1/me").json()

    assert me["quotas"]["max_queued"] == {"limit": 5, "used": 1}
    assert me["scopes"] == sorted(GRANTABLE)


def test_wrong_prefix_looks_like_a_missing_job(caller: Caller) -> None:
    job_id = caller.create_job()["id"]

    answer = caller.get("/v1/jobs/" + job_id.replace("job_", "art_"))

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_version_of_another_project_cannot_be_used(caller: Caller) -> None:
    body = {**JOB, "model": {"version_id": "mv_00000000000000000000000000"}}

    answer = caller.post("/v1/jobs", json=body)

    assert answer.json()["code"] == "model_not_found"
    assert answer.json()["errors"][0]["pointer"] == "/model/version_id"


def test_authentication_off_gives_the_default_project(sqlite_settings: Settings) -> None:
    settings = sqlite_settings.model_copy(update={"auth_mode": "disabled"})
    app = create_app(settings, maintenance=False)
    with TestClient(app, base_url="http://localhost") as client:
        missing = client.get("/v1/me")
        database = client.app_state["runtime"].context.database
        bootstrap = ensure_default_project(database)
        me = client.get("/v1/me").json()

    assert missing.status_code == 503
    assert me["project"]["name"] == "default"
    assert me["key"] is None
    assert bootstrap.admin_key is not None


def test_default_project_is_made_once(sqlite_settings: Settings) -> None:
    with TestClient(create_app(sqlite_settings, maintenance=False)) as client:
        database = client.app_state["runtime"].context.database
        first, second = ensure_default_project(database), ensure_default_project(database)
        headers = {"Authorization": f"Bearer {first.admin_key}"}

        assert second == type(first)(first.project_id, None)
        assert client.get("/v1/me", headers=headers).json()["scopes"] == sorted(GRANTABLE)
