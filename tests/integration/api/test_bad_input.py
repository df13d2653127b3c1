"""Every row of the table of bad input is refused with its code and advice, and leaves no job."""

import pytest
import sqlalchemy as sa

from app.db.tables import Job
from tests.hub_stand_in import HubStandIn
from tests.integration.api import bad_formats, bad_input, bad_models
from tests.integration.api.bad_input import Row
from tests.integration.api.bad_models import GENERATION, PAIR, REPOS
from tests.integration.api.callers import JOB, Caller
from tests.model_files import llama_folder

ROWS = (*bad_input.ROWS, *bad_models.ROWS, *bad_formats.ROWS)


@pytest.fixture(scope="module", autouse=True)
def damaged_repositories(hub: HubStandIn) -> None:
    for repo_id, files in {**REPOS, **bad_formats.REPOS}.items():
        hub.add(repo_id, files)
    hub.add("org/gated", llama_folder(), gated="manual")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_bad_input_is_refused_with_advice_and_leaves_no_job(caller: Caller, row: Row) -> None:
    sent = {"content": row.content} if row.content is not None else {"json": row.body}

    answer = caller.request(row.method, row.path, headers=row.headers, **sent)

    problem = answer.json()
    findings = problem.get("errors", [])
    said = [problem["detail"], *(finding["message"] for finding in findings)]
    assert (answer.status_code, problem["code"]) == (row.status, row.code), problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert any(row.advice in text for text in said), problem
    assert row.pointer is None or row.pointer in [f.get("pointer") for f in findings], problem
    assert row.parameter is None or row.parameter in [f.get("parameter") for f in findings]
    assert problem["request_id"] == answer.headers["x-request-id"]
    with caller.app.database.read() as session:
        jobs = sa.select(sa.func.count()).select_from(Job)
        mine = jobs.where(Job.project_id == caller.project_id)
        assert session.execute(mine).scalar_one() == 0


def test_the_good_job_of_each_table_is_accepted(caller: Caller) -> None:
    config = {"pairs": [PAIR], "fraction": 0.2, "generation": GENERATION}
    body = {"model": {"hub": "org/tiny"}, "method": "fairness_pruning", "config": config}

    for good in (JOB, body):
        answer = caller.post("/v1/jobs", json=good)
        assert answer.status_code == 202, answer.text


def test_table_is_long_enough() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) >= 40
