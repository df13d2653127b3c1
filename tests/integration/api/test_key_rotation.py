"""Keys that replace each other, and what a key can never give or lose."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from app.db.tables import ApiKey, IdempotencyKey
from app.domain.clock import format_time
from app.domain.ids import IdPrefix, parse_id
from app.security.scopes import GRANTABLE, TENANT, Scope
from app.services import keys
from tests.integration.api.callers import Caller, RunningApp

MANAGER = (Scope.KEYS_MANAGE, Scope.JOBS_READ)
HOUR = timedelta(hours=1)


def now(caller: Caller) -> datetime:
    with caller.app.database.read() as session:
        return caller.app.database.now(session)


def make(caller: Caller, scopes: Sequence[str] = ("jobs:read",), **fields: Any) -> dict[str, Any]:
    answer = caller.post("/v1/api-keys", json={"name": "ci", "scopes": list(scopes), **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def rotate(caller: Caller, key_id: str, **body: Any) -> Any:
    return caller.post(f"/v1/api-keys/{key_id}/rotate", json=body)


def using(caller: Caller, made: dict[str, Any]) -> Caller:
    return Caller(caller.app, caller.project_id, made["secret"])


def own_id(caller: Caller) -> str:
    return str(caller.get("/v1/me").json()["key"]["id"])


def expire(caller: Caller, key_id: str, *, after: timedelta) -> None:
    """Let a key end at another time than it was made to."""
    with caller.app.database.write() as session:
        moment = caller.app.database.now(session) + after
        uuid = parse_id(IdPrefix.KEY, key_id)
        session.execute(sa.update(ApiKey).where(ApiKey.id == uuid).values(expires_at=moment))


class TestRotation:
    def test_new_key_may_do_the_same_and_both_work_for_a_while(self, caller: Caller) -> None:
        old = make(caller, ["jobs:read", "artifacts:read"])

        answer = rotate(caller, old["id"], overlap_s=600)

        new = answer.json()
        assert answer.status_code == 201
        assert answer.headers["location"] == f"/v1/api-keys/{new['id']}"
        assert (new["name"], new["scopes"], new["expires_at"]) == ("ci", old["scopes"], None)
        assert [using(caller, key).get("/v1/jobs").status_code for key in (old, new)] == [200, 200]

    def test_old_key_says_when_it_ends_and_what_replaced_it(self, caller: Caller) -> None:
        old = make(caller)
        before = now(caller)

        new = rotate(caller, old["id"]).json()

        shown = caller.get(f"/v1/api-keys/{old['id']}").json()
        ends = datetime.fromisoformat(shown["expires_at"])
        assert shown["replaced_by"] == new["id"]
        assert timedelta(hours=23) < ends - before < timedelta(hours=25)
        assert new["replaced_by"] is None

    def test_without_overlap_the_old_key_is_dead_at_once(self, caller: Caller) -> None:
        old = make(caller)

        new = rotate(caller, old["id"], overlap_s=0).json()

        assert using(caller, old).get("/v1/jobs").status_code == 401
        assert using(caller, new).get("/v1/jobs").status_code == 200

    def test_overlap_does_not_prolong_a_key_that_was_to_end_sooner(self, caller: Caller) -> None:
        old = make(caller, expires_at=format_time(now(caller) + HOUR))

        rotate(caller, old["id"], overlap_s=86_400)

        shown = caller.get(f"/v1/api-keys/{old['id']}").json()
        assert shown["expires_at"] == old["expires_at"]

    def test_successor_lives_as_long_as_the_old_key_was_made_for(self, caller: Caller) -> None:
        old = make(caller, expires_at=format_time(now(caller) + 2 * HOUR))

        new = rotate(caller, old["id"]).json()

        lives = datetime.fromisoformat(new["expires_at"]) - datetime.fromisoformat(
            new["created_at"]
        )
        assert abs(lives - 2 * HOUR) < timedelta(seconds=30)

    def test_replaced_key_cannot_be_rotated_again(self, caller: Caller) -> None:
        old = make(caller)
        new = rotate(caller, old["id"]).json()

        again = rotate(caller, old["id"])

        assert (again.status_code, again.json()["code"]) == (409, "invalid_state")
        assert new["id"] in again.json()["detail"]
        assert rotate(caller, new["id"]).status_code == 201

    def test_dead_keys_cannot_be_rotated(self, caller: Caller) -> None:
        expired, revoked = make(caller), make(caller)
        expire(caller, expired["id"], after=timedelta(seconds=-1))
        caller.request("DELETE", f"/v1/api-keys/{revoked['id']}")

        assert rotate(caller, expired["id"]).status_code == 409
        assert rotate(caller, revoked["id"]).status_code == 404

    def test_key_in_use_can_replace_itself(self, caller: Caller) -> None:
        manager = using(caller, make(caller, MANAGER))

        new = rotate(manager, own_id(manager), overlap_s=0).json()

        assert manager.get("/v1/me").status_code == 401
        assert using(caller, new).get("/v1/me").json()["scopes"] == sorted(MANAGER)

    def test_key_without_the_scope_cannot_replace_even_itself(self, caller: Caller) -> None:
        """Whoever found it would hold a key that its owner has never seen."""
        plain = using(caller, make(caller))

        answer = rotate(plain, own_id(plain))

        assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")

    @pytest.mark.parametrize("overlap_s", [-1, 604_801, 1.5, "60", True, None])
    def test_overlap_has_limits(self, caller: Caller, overlap_s: object) -> None:
        old = make(caller)

        assert rotate(caller, old["id"], overlap_s=overlap_s).status_code == 422
        assert using(caller, old).get("/v1/jobs").status_code == 200

    def test_repetition_gets_the_same_key_without_its_secret(self, caller: Caller) -> None:
        old, headers = make(caller), {"Idempotency-Key": "rotate-1"}
        path = f"/v1/api-keys/{old['id']}/rotate"

        first, second = (caller.post(path, json={}, headers=headers) for _ in range(2))

        assert second.headers["idempotency-replayed"] == "true"
        assert second.json() == {**first.json(), "secret": None}
        with caller.app.database.read() as session:
            stored = session.execute(sa.select(IdempotencyKey.response)).scalars().all()
        assert first.json()["secret"] not in repr(stored)


class TestWhatAKeyCanGive:
    def test_scopes_of_another_key_cannot_be_had_by_rotating_it(self, caller: Caller) -> None:
        strong = make(caller, ["jobs:write", "jobs:read"])
        manager = caller.with_scopes(*MANAGER)

        answer = rotate(manager, strong["id"], overlap_s=0)

        assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
        assert "jobs:write" in answer.json()["detail"]
        assert using(caller, strong).get("/v1/jobs").status_code == 200

    def test_admin_comes_from_admin_only(self, app: RunningApp) -> None:
        tenant = app.caller(scopes=sorted(TENANT))
        operators = tenant.with_scopes(*GRANTABLE)

        asked = tenant.post("/v1/api-keys", json={"name": "up", "scopes": ["admin"]})
        rotated = rotate(tenant, own_id(operators))

        assert (asked.status_code, rotated.status_code) == (403, 403)
        assert "admin" in asked.json()["detail"]
        assert "admin" in rotated.json()["detail"]

    @pytest.mark.parametrize("wanted", [None, 2 * HOUR])
    def test_key_that_expires_cannot_make_one_that_outlives_it(
        self, caller: Caller, wanted: timedelta | None
    ) -> None:
        expires_at = format_time(now(caller) + HOUR)
        manager = using(caller, make(caller, MANAGER, expires_at=expires_at))
        later = format_time(now(caller) + wanted) if wanted else None

        answer = manager.post(
            "/v1/api-keys", json={"name": "x", "scopes": ["jobs:read"], "expires_at": later}
        )

        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/expires_at"
        assert expires_at in answer.json()["errors"][0]["message"]
        assert make(manager, expires_at=expires_at)["expires_at"] == expires_at

    def test_key_that_expires_cannot_prolong_itself(self, caller: Caller) -> None:
        expires_at = format_time(now(caller) + HOUR)
        manager = using(caller, make(caller, MANAGER, expires_at=expires_at))

        new = rotate(manager, own_id(manager)).json()

        assert new["expires_at"] == expires_at
        third = rotate(using(caller, new), new["id"]).json()
        assert third["expires_at"] == expires_at

    def test_key_that_expires_cannot_renew_another_beyond_its_end(self, caller: Caller) -> None:
        eternal = make(caller)
        manager = using(caller, make(caller, MANAGER, expires_at=format_time(now(caller) + HOUR)))

        answer = rotate(manager, eternal["id"])

        assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
        assert caller.get(f"/v1/api-keys/{eternal['id']}").json()["replaced_by"] is None

    def test_replaced_key_can_make_nothing_that_outlives_its_overlap(self, caller: Caller) -> None:
        manager = using(caller, make(caller, MANAGER))
        rotate(manager, own_id(manager), overlap_s=60)

        answer = manager.post("/v1/api-keys", json={"name": "x", "scopes": ["jobs:read"]})

        assert answer.status_code == 422
        assert answer.json()["errors"][0]["code"] == "outlives_maker"


class TestLastManager:
    @pytest.fixture
    def lonely(self, app: RunningApp) -> Caller:
        """The only key of a project, which can manage keys."""
        return app.caller(scopes=sorted(TENANT))

    def test_last_key_that_manages_keys_stays(self, lonely: Caller) -> None:
        make(lonely)

        answer = lonely.request("DELETE", f"/v1/api-keys/{own_id(lonely)}")

        assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
        assert "overlap of 0" in answer.json()["detail"]
        assert lonely.get("/v1/me").status_code == 200

    def test_it_goes_when_there_is_another(self, lonely: Caller) -> None:
        make(lonely, MANAGER)

        assert lonely.request("DELETE", f"/v1/api-keys/{own_id(lonely)}").status_code == 204

    @pytest.mark.parametrize("how", ["expired", "revoked", "replaced"])
    def test_keys_that_are_gone_do_not_count(self, lonely: Caller, how: str) -> None:
        other = make(lonely, MANAGER)
        if how == "expired":
            expire(lonely, other["id"], after=timedelta(seconds=-1))
        elif how == "revoked":
            lonely.request("DELETE", f"/v1/api-keys/{other['id']}")
        else:
            new = rotate(lonely, other["id"]).json()
            expire(lonely, new["id"], after=timedelta(seconds=-1))

        assert lonely.request("DELETE", f"/v1/api-keys/{own_id(lonely)}").status_code == 409

    def test_leaked_last_key_can_be_rotated_away(self, lonely: Caller) -> None:
        leaked = own_id(lonely)

        new = rotate(lonely, leaked, overlap_s=0).json()

        assert lonely.get("/v1/me").status_code == 401
        successor = using(lonely, new)
        assert successor.request("DELETE", f"/v1/api-keys/{leaked}").status_code == 204

    def test_last_admin_stays_too(self, app: RunningApp) -> None:
        operator = app.caller()
        make(operator, sorted(TENANT))

        answer = operator.request("DELETE", f"/v1/api-keys/{own_id(operator)}")

        assert answer.status_code == 409
        assert "admin" in answer.json()["detail"]


class TestNumber:
    @pytest.fixture(autouse=True)
    def three_keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keys, "MAX_WORKING_KEYS", 3)

    def test_project_has_no_more_keys_than_allowed(self, caller: Caller) -> None:
        made = [make(caller) for _ in range(2)]

        refused = caller.post("/v1/api-keys", json={"name": "ci", "scopes": ["jobs:read"]})

        assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
        assert "3 working keys" in refused.json()["detail"]
        caller.request("DELETE", f"/v1/api-keys/{made[0]['id']}")
        expire(caller, make(caller)["id"], after=-HOUR)
        make(caller)

    def test_old_and_new_key_both_count_while_both_work(self, caller: Caller) -> None:
        made = [make(caller) for _ in range(2)]

        assert rotate(caller, made[0]["id"], overlap_s=60).json()["code"] == "quota_exceeded"
        assert rotate(caller, made[0]["id"], overlap_s=0).status_code == 201
