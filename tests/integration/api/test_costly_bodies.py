"""However much is wrong with a body, its answer stays small."""

import json

import pytest

from tests.integration.api.callers import Caller
from tests.integration.api.costly_bodies import BODIES, Costly

MAX_FINDINGS = 51  # the last one says how many are left out
MAX_BYTES = 100_000

# The database has no part in this.
pytestmark = pytest.mark.parametrize("app", ["sqlite"], indirect=True)


@pytest.mark.parametrize("costly", BODIES, ids=lambda costly: costly.name)
def test_answer_to_a_body_that_is_wrong_everywhere_is_small(caller: Caller, costly: Costly) -> None:
    content = json.dumps(costly.body, ensure_ascii=False, separators=(",", ":")).encode()
    assert len(content) < caller.app.settings.max_body_bytes

    answer = caller.request(
        costly.method, costly.path, content=content, headers={"Content-Type": "application/json"}
    )

    assert answer.status_code in (200, 422), answer.text[:1000]
    said = answer.json()
    findings = said.get("errors") or said["problems"]
    assert 0 < len(findings) <= MAX_FINDINGS
    assert len(answer.content) < MAX_BYTES


def test_what_is_not_shown_is_counted(caller: Caller) -> None:
    config = {f"fractio{n}": 1 for n in range(900)}
    body = {"model": {"path": "tiny"}, "method": "fairness_pruning", "config": config}

    refused = caller.post("/v1/jobs", json=body).json()
    tried = caller.post("/v1/jobs/estimate", json=body).json()

    for findings in (refused["errors"], tried["problems"]):
        assert len(findings) == MAX_FINDINGS
        assert findings[0]["message"] == "Unknown field 'fractio0'. Did you mean 'fraction'?"
        assert findings[-1]["code"] == "more_findings"
        assert "850 more findings" in findings[-1]["message"]


def test_unknown_parameters_are_counted_as_well(caller: Caller) -> None:
    answer = caller.get("/v1/jobs?" + "&".join(f"limi{n}=1" for n in range(900)))

    findings = answer.json()["errors"]
    assert len(findings) == MAX_FINDINGS
    assert "850 more findings" in findings[-1]["message"]
