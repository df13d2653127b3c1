"""The table of hostile names against every place of a request that takes a string."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.hostile_names import OUTSIDE, SECRET, Sandbox, hostile_names, watching
from tests.hub_stand_in import HubStandIn
from tests.integration.api.callers import JOB, Caller

pytestmark = pytest.mark.parametrize("app", ["sqlite"], indirect=True)
Way = Callable[[Caller, str], Any]


def model(source: str) -> Way:
    return lambda caller, name: create(caller, {**JOB, "model": {source: name}})


def create(caller: Caller, body: dict[str, Any]) -> Any:
    # Escaped, as a lone surrogate could not be sent otherwise.
    content = json.dumps(body).encode()
    return caller.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})


def revision(caller: Caller, name: str) -> Any:
    return create(caller, {**JOB, "model": {"hub": "org/tiny", "revision": name}})


def field(*where: str) -> Way:
    """A string field of a job, however deep."""

    def send(caller: Caller, name: str) -> Any:
        value: Any = name
        for key in reversed(where):
            value = {key: value}
        return create(caller, JOB | value)

    return send


def label_key(caller: Caller, name: str) -> Any:
    return create(caller, {**JOB, "labels": {name: "x"}})


def path(template: str) -> Way:
    """A segment of a path, encoded once, so that the service itself decodes it."""
    return lambda caller, name: caller.get(template.format(quote(name, safe="")))


def path_as_it_is(template: str) -> Way:
    """A segment of a path that is decoded once more than it was encoded."""
    return lambda caller, name: caller.get(template.format(quote(name, safe="/%")))


def query(where: str, parameter: str) -> Way:
    return lambda caller, name: caller.get(where, params={parameter: name})


def header(where: str, name: str) -> Way:
    """A header; what no header can hold is refused by the server before."""

    def send(caller: Caller, value: str) -> Any:
        sent = value.encode("utf-8").translate(None, b"\r\n\0")
        return caller.request("POST", where, json=JOB | {"model": 1}, headers={name: sent})

    return send


JOB_ID = "job_00000000000000000000000000"
WAYS_IN: dict[str, Way] = {
    "model path": model("path"),
    "model of the hub": model("hub"),
    "demo model": model("demo"),
    "model version": model("version_id"),
    "model by name": model("model"),
    "revision": revision,
    "method": field("method"),
    "name": field("name"),
    "setting": field("config", "steps"),
    "name to register as": field("outputs", "register_as"),
    "value of a label": field("labels", "team"),
    "key of a label": label_key,
    "job": path("/v1/jobs/{}"),
    "job, decoded twice": path_as_it_is("/v1/jobs/{}"),
    "artifact": path("/v1/artifacts/{}/content"),
    "download": path("/downloads/{}"),
    "problem": path("/problems/{}"),
    "catalogue": path("/v1/methods/{}/schema"),
    "assets": path("/docs/assets/{}"),
    "assets, as they are": path_as_it_is("/docs/assets/{}"),
    "cursor": query("/v1/jobs", "cursor"),
    "filter": query("/v1/jobs", "label"),
    "search": query("/v1/jobs", "q"),
    "log stream": query(f"/v1/jobs/{JOB_ID}/logs", "stream"),
    "log position": query(f"/v1/jobs/{JOB_ID}/logs", "after"),
    "signature": query("/downloads/art_00000000000000000000000000", "signature"),
    "Idempotency-Key": header("/v1/jobs", "Idempotency-Key"),
    "X-Request-Id": header("/v1/jobs", "X-Request-Id"),
    "traceparent": header("/v1/jobs", "traceparent"),
    "Host": header("/v1/jobs", "Host"),
    "Accept": header("/v1/jobs", "Accept"),
    "Authorization": header("/v1/jobs", "Authorization"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way_in", WAYS_IN)
def test_hostile_name_reaches_no_file(
    caller: Caller, hub: HubStandIn, tmp_path: Path, way_in: str
) -> None:
    sandbox = Sandbox(tmp_path)
    sandbox.outside.mkdir()
    (sandbox.outside / "secret").write_text(SECRET)
    link = caller.app.settings.models_dir / "way-out"  # type: ignore[operator]
    link.unlink(missing_ok=True)
    link.symlink_to(sandbox.outside)
    names = hostile_names(str(tmp_path)) | {"link": "way-out", "link below": "way-out/secret"}
    seen = len(hub.seen)
    wrong = {}

    for label, name in names.items():
        with watching(sandbox):
            answer = WAYS_IN[way_in](caller, name)
        leaked = SECRET in answer.text or "root:" in answer.text
        if answer.status_code >= 500 or leaked or sandbox.opened_outside:
            wrong[label] = (answer.status_code, list(sandbox.opened_outside), answer.text[:300])
            sandbox.opened_outside.clear()

    assert wrong == {}
    assert [
        seen.path for seen in hub.seen[seen:] if ".." in seen.path or OUTSIDE in seen.path
    ] == []


def test_way_that_is_fine_goes_through(caller: Caller) -> None:
    """Else a test of refusals would prove nothing."""
    assert model("path")(caller, "tiny").status_code == 202
    assert field("labels", "team")(caller, "red").status_code == 202
    assert path("/docs/assets/{}")(caller, "swagger-ui.css").status_code == 200
