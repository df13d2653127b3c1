"""Pausing and resuming jobs over HTTP."""

from typing import Any

import pytest
import sqlalchemy as sa

from app.db.tables import Job, Project
from app.domain.states import AttemptOutcome
from tests.integration.api.callers import Caller, job_uuid
from tests.integration.api.runs import failed_job, finished_job, give_back, paused_job, start


def running_job(caller: Caller) -> str:
    job_id = str(caller.create_job()["id"])
    start(caller, job_id)
    return job_id


def event_types(caller: Caller, job_id: str) -> list[str]:
    return [event["type"] for event in caller.get(f"/v1/jobs/{job_id}/events").json()["data"]]


class TestPause:
    def test_running_job_is_asked_once_to_pause(self, caller: Caller) -> None:
        job_id = running_job(caller)

        first = caller.post(f"/v1/jobs/{job_id}/pause")
        second = caller.post(f"/v1/jobs/{job_id}/pause")

        assert (first.status_code, second.status_code) == (202, 202)
        assert (first.json()["status"], first.json()["stop_requested"]) == ("running", "pause")
        assert first.headers["location"] == f"/v1/jobs/{job_id}"
        assert first.headers["etag"] == second.headers["etag"]
        assert event_types(caller, job_id).count("job.pausing") == 1

    def test_paused_job_may_be_paused_again(self, caller: Caller) -> None:
        job_id = paused_job(caller)

        answer = caller.post(f"/v1/jobs/{job_id}/pause")

        assert (answer.status_code, answer.json()["status"]) == (200, "paused")
        assert answer.json()["stop_requested"] is None

    def test_queued_and_finished_jobs_cannot_be_paused(self, caller: Caller) -> None:
        for job_id in (caller.create_job()["id"], finished_job(caller), failed_job(caller)):
            answer = caller.post(f"/v1/jobs/{job_id}/pause")

            assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
            assert "Only a running job" in answer.json()["detail"]

    def test_method_without_checkpoints_says_why_it_cannot(self, caller: Caller) -> None:
        job_id = running_job(caller)
        with caller.app.database.write() as session:
            # A version that this service does not know keeps no checkpoints it knows of either.
            session.execute(
                sa.update(Job).where(Job.id == job_uuid(job_id)).values(method_version="0.0.1")
            )

        answer = caller.post(f"/v1/jobs/{job_id}/pause")

        assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
        assert "keeps no checkpoints" in answer.json()["detail"]

    def test_cancel_wins_whichever_came_first(self, caller: Caller) -> None:
        job_id = running_job(caller)
        caller.post(f"/v1/jobs/{job_id}/pause")
        cancelled = caller.post(f"/v1/jobs/{job_id}/cancel")
        late = caller.post(f"/v1/jobs/{job_id}/pause")
        give_back(caller, job_id, AttemptOutcome.PAUSED)

        assert (cancelled.status_code, cancelled.json()["stop_requested"]) == (202, "cancel")
        assert (late.status_code, late.json()["code"]) == (409, "invalid_state")
        assert caller.get(f"/v1/jobs/{job_id}").json()["status"] == "cancelled"

    def test_drain_of_the_worker_fulfils_a_wanted_pause(self, caller: Caller) -> None:
        job_id = running_job(caller)
        caller.post(f"/v1/jobs/{job_id}/pause")

        give_back(caller, job_id, AttemptOutcome.DRAINED)

        assert caller.get(f"/v1/jobs/{job_id}").json()["status"] == "paused"

    def test_key_that_only_reads_is_refused(self, caller: Caller) -> None:
        job_id = running_job(caller)
        reader = caller.with_scopes("jobs:read")  # type: ignore[arg-type]

        for action in ("pause", "resume"):
            assert reader.post(f"/v1/jobs/{job_id}/{action}").status_code == 403


class TestResume:
    def test_paused_job_waits_for_its_turn_again(self, caller: Caller) -> None:
        job_id = paused_job(caller)

        answer = caller.post(f"/v1/jobs/{job_id}/resume")

        assert (answer.status_code, answer.json()["status"]) == (202, "queued")
        assert event_types(caller, job_id)[-1] == "job.resumed"

    def test_repeating_it_changes_nothing(self, caller: Caller) -> None:
        job_id = paused_job(caller)
        first = caller.post(f"/v1/jobs/{job_id}/resume")

        second = caller.post(f"/v1/jobs/{job_id}/resume")

        assert second.status_code == 202
        assert first.headers["etag"] == second.headers["etag"]

    def test_pause_that_has_not_happened_yet_is_withdrawn(self, caller: Caller) -> None:
        job_id = running_job(caller)
        caller.post(f"/v1/jobs/{job_id}/pause")

        answer = caller.post(f"/v1/jobs/{job_id}/resume")
        # The worker was told already and stops all the same.
        give_back(caller, job_id, AttemptOutcome.PAUSED)

        assert (answer.json()["status"], answer.json()["stop_requested"]) == ("running", None)
        assert caller.get(f"/v1/jobs/{job_id}").json()["status"] == "queued"

    def test_cancelled_and_finished_jobs_refuse(self, caller: Caller) -> None:
        cancelling = running_job(caller)
        caller.post(f"/v1/jobs/{cancelling}/cancel")

        for job_id in (cancelling, finished_job(caller), failed_job(caller)):
            answer = caller.post(f"/v1/jobs/{job_id}/resume")

            assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")

    def test_full_queue_has_no_room_for_it(self, caller: Caller) -> None:
        job_id = paused_job(caller)
        with caller.app.database.write() as session:
            limit = sa.update(Project).where(Project.id == caller.project_id).values(max_queued=0)
            session.execute(limit)

        answer = caller.post(f"/v1/jobs/{job_id}/resume")

        assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
        assert caller.get(f"/v1/jobs/{job_id}").json()["status"] == "paused"


def test_paused_job_is_cancelled_at_once(caller: Caller) -> None:
    job_id = paused_job(caller)

    answer = caller.post(f"/v1/jobs/{job_id}/cancel")

    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_job_of_another_project_is_not_there(caller: Caller, action: str) -> None:
    stranger: Any = caller.app.caller()

    answer = stranger.post(f"/v1/jobs/{running_job(caller)}/{action}")

    assert answer.status_code == 404
