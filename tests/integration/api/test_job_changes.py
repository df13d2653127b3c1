"""Changing, cancelling, repeating and deleting jobs over HTTP."""

from app.domain.states import JobStatus
from tests.integration.api.callers import Caller
from tests.integration.api.runs import failed_job, finish, finished_job, start


class TestChanging:
    def test_name_and_labels_change(self, caller: Caller) -> None:
        job = caller.create_job(name="old", labels={"a": "1"})

        body = {"name": None, "labels": {"b": "2"}}
        changed = caller.request("PATCH", f"/v1/jobs/{job['id']}", json=body)

        assert (changed.json()["name"], changed.json()["labels"]) == (None, {"b": "2"})

    def test_field_left_out_stays(self, caller: Caller) -> None:
        job = caller.create_job(name="kept")

        changed = caller.request("PATCH", f"/v1/jobs/{job['id']}", json={"priority": -2})

        assert (changed.json()["name"], changed.json()["priority"]) == ("kept", -2)

    def test_stale_if_match_changes_nothing(self, caller: Caller) -> None:
        path = f"/v1/jobs/{caller.create_job(name='a')['id']}"
        tag = caller.get(path).headers["etag"]
        first = caller.request("PATCH", path, json={"name": "b"}, headers={"If-Match": tag})

        second = caller.request("PATCH", path, json={"name": "c"}, headers={"If-Match": tag})

        assert first.status_code == 200
        assert (second.status_code, second.json()["code"]) == (412, "precondition_failed")
        assert caller.get(path).json()["name"] == "b"

    def test_priority_of_a_running_job_stays(self, caller: Caller) -> None:
        job_id = caller.create_job()["id"]
        start(caller, job_id)

        answer = caller.request("PATCH", f"/v1/jobs/{job_id}", json={"priority": -1})

        assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")


class TestCancel:
    def test_queued_job_is_cancelled_at_once(self, caller: Caller) -> None:
        job_id = caller.create_job()["id"]

        answer = caller.post(f"/v1/jobs/{job_id}/cancel")

        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")

    def test_running_job_is_asked_to_stop(self, caller: Caller) -> None:
        job_id = caller.create_job()["id"]
        start(caller, job_id)

        first = caller.post(f"/v1/jobs/{job_id}/cancel", json={"keep_checkpoint": True})
        second = caller.post(f"/v1/jobs/{job_id}/cancel")

        assert (first.status_code, first.json()["status"]) == (202, "cancelling")
        assert first.json()["stop_requested"] == "cancel"
        assert second.status_code == 202

    def test_cancelled_job_may_be_cancelled_again(self, caller: Caller) -> None:
        job_id = caller.create_job()["id"]
        caller.post(f"/v1/jobs/{job_id}/cancel")

        assert caller.post(f"/v1/jobs/{job_id}/cancel").status_code == 200

    def test_finished_job_cannot_be_cancelled(self, caller: Caller) -> None:
        answer = caller.post(f"/v1/jobs/{finished_job(caller)}/cancel")

        assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
        assert "succeeded" in answer.json()["detail"]


class TestRetry:
    def test_failed_job_is_queued_again_for_one_more_attempt(self, caller: Caller) -> None:
        job_id = failed_job(caller, retry={"max_attempts": 1})

        answer = caller.post(f"/v1/jobs/{job_id}/retry", json={"from": "start"})

        body = answer.json()
        assert answer.status_code == 202
        assert (body["id"], body["status"], body["error"]) == (job_id, "queued", None)
        assert body["max_attempts"] == 2
        assert [row["number"] for row in attempts(caller, job_id)] == [1]

    def test_resources_of_the_next_attempt_change(self, caller: Caller) -> None:
        job_id = failed_job(caller)

        body = {"resources": {"dtype": "float32", "max_runtime_s": 60}}
        caller.post(f"/v1/jobs/{job_id}/retry", json=body)

        spec = caller.get(f"/v1/jobs/{job_id}/spec").json()
        assert spec["resources"] == {"device_class": "cpu", "dtype": "float32", "max_runtime_s": 60}

    def test_succeeded_job_cannot_be_tried_again(self, caller: Caller) -> None:
        answer = caller.post(f"/v1/jobs/{finished_job(caller)}/retry")

        assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")


class TestDelete:
    def test_deleted_job_is_gone_from_every_view(self, caller: Caller) -> None:
        job_id = finished_job(caller, {"report.json": b"{}"})
        artifact = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"][0]["id"]

        answer = caller.request("DELETE", f"/v1/jobs/{job_id}")

        assert answer.status_code == 204
        assert caller.get(f"/v1/jobs/{job_id}").status_code == 404
        assert caller.get(f"/v1/jobs/{job_id}/events").status_code == 404
        assert caller.get(f"/v1/artifacts/{artifact}/content").status_code == 404
        assert caller.get("/v1/jobs").json()["data"] == []

    def test_running_job_cannot_be_deleted(self, caller: Caller) -> None:
        job_id = caller.create_job()["id"]
        start(caller, job_id)

        answer = caller.request("DELETE", f"/v1/jobs/{job_id}")

        assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
        finish(caller, job_id, JobStatus.FAILED)
        assert caller.request("DELETE", f"/v1/jobs/{job_id}").status_code == 204


def attempts(caller: Caller, job_id: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = caller.get(f"/v1/jobs/{job_id}/attempts").json()["data"]
    return found
