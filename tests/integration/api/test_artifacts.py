"""Artifacts, reports and download links over HTTP."""

import base64
import hashlib
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from app.db.tables import Artifact
from app.security.scopes import Scope
from app.services.projects import ensure_default_project
from app.settings import Settings
from app.storage.keys import blob_key
from tests.integration.api.callers import Caller
from tests.integration.api.conftest import run_app
from tests.integration.api.runs import finished_job

REPORT = b'{"pairs": []}'
PAGE = b"<!doctype html><title>Report</title>"
WEIGHTS = bytes(range(256)) * 8
CARD = b"# A fairer model\n"
FILES = {
    "report.json": REPORT,
    "report.html": PAGE,
    "checkpoint/README.md": CARD,
    "checkpoint/model.safetensors": WEIGHTS,
}


@pytest.fixture
def job_id(caller: Caller) -> str:
    return finished_job(caller, FILES)


def artifact(caller: Caller, job_id: str, name: str) -> dict[str, Any]:
    rows = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"]
    found: dict[str, Any] = next(row for row in rows if row["name"] == name)
    return found


def test_artifacts_are_listed_by_name(caller: Caller, job_id: str) -> None:
    rows = caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"]

    assert [row["name"] for row in rows] == sorted(FILES)
    assert rows[1]["sha256"] == hashlib.sha256(WEIGHTS).hexdigest()
    assert rows[1]["size_bytes"] == len(WEIGHTS)


def test_content_comes_with_its_digest(caller: Caller, job_id: str) -> None:
    row = artifact(caller, job_id, "checkpoint/model.safetensors")

    answer = caller.get(row["content"])

    digest = base64.b64encode(hashlib.sha256(WEIGHTS).digest()).decode()
    assert answer.content == WEIGHTS
    assert answer.headers["etag"] == f'"sha256:{row["sha256"]}"'
    assert answer.headers["repr-digest"] == f"sha-256=:{digest}:"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-length"] == str(len(WEIGHTS))


def test_range_gives_part_of_the_bytes(caller: Caller, job_id: str) -> None:
    row = artifact(caller, job_id, "checkpoint/model.safetensors")

    answer = caller.get(row["content"], headers={"Range": "bytes=10-19"})

    assert answer.status_code == 206
    assert answer.content == WEIGHTS[10:20]
    assert answer.headers["content-range"] == f"bytes 10-19/{len(WEIGHTS)}"


def test_range_beyond_the_end_is_refused(caller: Caller, job_id: str) -> None:
    row = artifact(caller, job_id, "report.json")

    answer = caller.get(row["content"], headers={"Range": "bytes=99999-"})

    assert (answer.status_code, answer.json()["code"]) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(REPORT)}"


def test_head_tells_the_length_without_the_bytes(caller: Caller, job_id: str) -> None:
    row = artifact(caller, job_id, "checkpoint/model.safetensors")

    answer = caller.request("HEAD", row["content"])

    assert answer.content == b""
    assert answer.headers["content-length"] == str(len(WEIGHTS))
    assert answer.headers["etag"] == caller.get(row["content"]).headers["etag"]


def test_bytes_the_client_has_are_not_sent_again(caller: Caller, job_id: str) -> None:
    row = artifact(caller, job_id, "report.json")
    tag = caller.get(row["content"]).headers["etag"]

    answer = caller.get(row["content"], headers={"If-None-Match": tag})

    assert (answer.status_code, answer.content) == (304, b"")


def test_expired_artifact_is_gone_but_described(caller: Caller, job_id: str) -> None:
    row = artifact(caller, job_id, "report.json")
    with caller.app.database.write() as session:
        now = caller.app.database.now(session)
        session.execute(
            sa.update(Artifact)
            .where(Artifact.project_id == caller.project_id, Artifact.name == "report.json")
            .values(deleted_at=now)
        )

    assert caller.get(row["content"]).json()["code"] == "gone"
    assert caller.get(f"/v1/artifacts/{row['id']}").json()["deleted_at"] is not None


def test_bytes_missing_in_the_store_are_gone(caller: Caller) -> None:
    job_id = finished_job(caller, {"report.json": b'{"only": "here"}'})
    row = artifact(caller, job_id, "report.json")
    caller.app.store.delete(blob_key(caller.shown_project, row["sha256"], "1"))

    answer = caller.get(row["content"])

    assert (answer.status_code, answer.json()["code"]) == (410, "gone")


def test_manifest_is_input_for_sha256sum(caller: Caller, job_id: str, tmp_path: Path) -> None:
    for row in caller.get(f"/v1/jobs/{job_id}/artifacts").json()["data"]:
        path = tmp_path / row["name"]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(caller.get(row["content"]).content)
    sums = caller.get(f"/v1/jobs/{job_id}/artifacts/manifest", headers={"Accept": "text/plain"})

    done = subprocess.run(
        ["sha256sum", "-c"],
        input=sums.text,
        text=True,
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )

    assert done.stdout.count("OK") == len(FILES)


def test_manifest_sums_up_the_bytes(caller: Caller, job_id: str) -> None:
    manifest = caller.get(f"/v1/jobs/{job_id}/artifacts/manifest").json()

    assert manifest["total_bytes"] == sum(len(data) for data in FILES.values())


@pytest.mark.parametrize(
    ("accept", "media_type", "body"),
    [
        (None, "application/json", REPORT),
        ("application/json", "application/json", REPORT),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html", PAGE),
        ("text/markdown", "text/markdown", CARD),
    ],
)
def test_report_comes_as_asked(
    caller: Caller, job_id: str, accept: str | None, media_type: str, body: bytes
) -> None:
    answer = caller.get(f"/v1/jobs/{job_id}/report", headers={"Accept": accept} if accept else {})

    assert answer.content == body
    assert answer.headers["content-type"].startswith(media_type)
    assert "sandbox" in answer.headers["content-security-policy"]


def test_job_without_report_says_when_there_is_one(caller: Caller) -> None:
    answer = caller.get(f"/v1/jobs/{caller.create_job()['id']}/report")

    assert answer.status_code == 404
    assert "succeeded" in answer.json()["detail"]


class TestLinks:
    def link(self, caller: Caller, job_id: str) -> str:
        row = artifact(caller, job_id, "report.json")
        body = {"expires_in_s": 60}
        answer = caller.post(f"/v1/artifacts/{row['id']}/download-url", json=body)
        parts = urlsplit(answer.json()["url"])
        return f"{parts.path}?{parts.query}"

    def test_link_needs_no_key(self, caller: Caller, job_id: str) -> None:
        answer = caller.app.client.get(self.link(caller, job_id))

        assert (answer.status_code, answer.content) == (200, REPORT)

    def test_changed_link_is_refused(self, caller: Caller, job_id: str) -> None:
        link = self.link(caller, job_id).replace("expires=", "expires=1")

        answer = caller.app.client.get(link)

        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")

    def test_link_to_another_artifact_is_refused(self, caller: Caller, job_id: str) -> None:
        other = artifact(caller, job_id, "report.html")["id"]
        query = self.link(caller, job_id).partition("?")[2]

        assert caller.app.client.get(f"/downloads/{other}?{query}").status_code == 401

    def test_link_ends_with_the_key_that_made_it(self, caller: Caller, job_id: str) -> None:
        maker = caller.with_scopes(Scope.JOBS_READ, Scope.ARTIFACTS_READ)
        key_id = maker.get("/v1/me").json()["key"]["id"]
        link, kept = self.link(maker, job_id), self.link(caller, job_id)
        assert caller.app.client.get(link).content == REPORT

        assert caller.request("DELETE", f"/v1/api-keys/{key_id}").status_code == 204

        assert caller.app.client.get(link).status_code == 401
        assert caller.app.client.get(kept).content == REPORT

    def test_link_cannot_be_ascribed_to_another_key(self, caller: Caller, job_id: str) -> None:
        link = self.link(caller, job_id)
        issuer = caller.get("/v1/me").json()["key"]["id"]
        other = caller.with_scopes(Scope.JOBS_READ).get("/v1/me").json()["key"]["id"]

        for instead in (other, ""):
            changed = link.replace(f"issuer={issuer}", f"issuer={instead}")
            assert changed != link
            assert caller.app.client.get(changed).status_code == 401

    def test_link_of_a_service_without_keys_needs_none(self, sqlite_settings: Settings) -> None:
        settings = sqlite_settings.model_copy(update={"auth_mode": "disabled"})
        with run_app(settings) as running:
            project_id = ensure_default_project(running.database).project_id
            anyone = Caller(running, project_id, "")
            running.client.headers["Host"] = "localhost"

            link = self.link(anyone, finished_job(anyone, FILES))

            assert "issuer=&" in link
            assert running.client.get(link).content == REPORT

    @pytest.mark.parametrize("seconds", [59, 86_401])
    def test_life_of_a_link_is_bounded(self, caller: Caller, job_id: str, seconds: int) -> None:
        row = artifact(caller, job_id, "report.json")

        body = {"expires_in_s": seconds}
        answer = caller.post(f"/v1/artifacts/{row['id']}/download-url", json=body)

        assert answer.json()["errors"][0]["pointer"] == "/expires_in_s"
