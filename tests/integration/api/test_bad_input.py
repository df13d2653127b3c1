"""The table of bad input: what is sent, the code and the advice that come back, and no job."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa

from app.db.tables import Job
from tests.hub_stand_in import HubStandIn
from tests.integration.api.callers import JOB, Caller
from tests.model_files import CONFIG, llama_folder, safetensors, sharded_llama_folder

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
PAIR = {"prompt_1": "word2 word3", "prompt_2": "word2 word4"}
UNEVEN_PAIR = {"prompt_1": "word2 word3", "prompt_2": "word2 word4 word5"}
IDENTICAL_PAIR = {"prompt_1": "word2 word3", "prompt_2": "word2 word3"}
GENERATION = {"max_length": 8}


def config_of(**changes: object) -> bytes:
    return json.dumps({**CONFIG, **changes}).encode()


REPOS: dict[str, dict[str, bytes]] = {
    "org/tiny": llama_folder(),
    "org/pickle": {**llama_folder(model__safetensors=None), "pytorch_model.bin": b"x"},
    "org/moe": llama_folder(config__json=config_of(model_type="mixtral", num_local_experts=4)),
    "org/encoder": llama_folder(config__json=config_of(model_type="bert")),
    "org/quantised": llama_folder(
        config__json=config_of(quantization_config={"quant_method": "gptq", "bits": 4})
    ),
    "org/pointer": llama_folder(model__safetensors=LFS_POINTER),
    "org/shards": {
        name: data for name, data in sharded_llama_folder(3).items() if "00002-of" not in name
    },
    "org/code": llama_folder(config__json=config_of(_attn_implementation_internal="x/y")),
    "org/adapter": {
        "adapter_config.json": b"{}",
        "adapter_model.safetensors": safetensors({"a": [1]}),
    },
    "org/mute": llama_folder(tokenizer__json=None, tokenizer_config__json=None),
    "org/cut": llama_folder(model__safetensors=llama_folder()["model.safetensors"][:-1]),
}


@pytest.fixture(scope="module", autouse=True)
def bad_models(hub: HubStandIn) -> None:
    for repo_id, files in REPOS.items():
        hub.add(repo_id, files)
    hub.add("org/gated", llama_folder(), gated="manual")


@dataclass(frozen=True)
class Row:
    """One request and what it must be answered."""

    name: str
    status: int
    code: str
    advice: str
    body: Any = None
    pointer: str | None = None
    parameter: str | None = None
    path: str = "/v1/jobs"
    method: str = "POST"
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)


def job(row: str, code: str, advice: str, pointer: str | None, /, **fields: Any) -> Row:
    """A row that changes fields of a good job."""
    body = {key: value for key, value in {**JOB, **fields}.items() if value is not ...}
    return Row(row, 422, code, advice, body=body, pointer=pointer)


def raw(name: str, status: int, code: str, advice: str, content: bytes, **more: Any) -> Row:
    """A row that sends bytes."""
    headers = {"Content-Type": "application/json", **more.pop("headers", {})}
    return Row(name, status, code, advice, content=content, headers=headers, **more)


def model(name: str, code: str, advice: str, repo: str, pointer: str | None = "/model") -> Row:
    """A row about a model of the hub."""
    fields = {"model": {"hub": repo}, "method": "fairness_pruning"}
    return job(name, code, advice, pointer, **fields, config={"pairs": [PAIR], "fraction": 0.2})


def pruning(name: str, advice: str, pointer: str, **config: Any) -> Row:
    """A row about the config of Fairness Pruning on a model that fits."""
    settings = {"pairs": [PAIR], "fraction": 0.2, "generation": GENERATION, **config}
    fields = {"model": {"hub": "org/tiny"}, "method": "fairness_pruning"}
    given = {key: value for key, value in settings.items() if value is not ...}
    return job(name, "config_invalid", advice, pointer, **fields, config=given)


def get(name: str, status: int, code: str, advice: str, path: str, **more: Any) -> Row:
    """A row that reads."""
    return Row(name, status, code, advice, path=path, method="GET", **more)


def nested(depth: int) -> bytes:
    return b'{"config": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


ROWS = [
    # The bytes of the body.
    raw("not json", 400, "bad_request", "JSON", b"{model: 1}"),
    raw("not utf-8", 400, "bad_request", "UTF-8", b'{"name": "\xff"}'),
    raw("not an object", 400, "bad_request", "object", b"[1]"),
    raw("nan", 400, "bad_request", "NaN", b'{"seed": NaN}'),
    raw("infinity", 400, "bad_request", "Infinity", b'{"seed": -Infinity}'),
    raw("duplicate key", 400, "bad_request", "twice", b'{"method": "a", "method": "b"}'),
    raw("deep", 400, "bad_request", "32", nested(40)),
    raw("very deep", 400, "bad_request", "deep", b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    raw("oversize", 413, "too_large", "1048576", b'{"name": "' + b"x" * 2**20 + b'"}'),
    raw(
        "gzip",
        415,
        "unsupported_media_type",
        "uncompressed",
        b"{}",
        headers={"Content-Encoding": "gzip"},
    ),
    raw(
        "form",
        415,
        "unsupported_media_type",
        "application/json",
        b"a=1",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    ),
    raw(
        "latin-1",
        415,
        "unsupported_media_type",
        "UTF-8",
        b"{}",
        headers={"Content-Type": "application/json; charset=latin-1"},
    ),
    raw("number beyond 64 bits", 400, "bad_request", "too large", b'{"seed": 1e999}'),
    raw(
        "nul in a name", 422, "validation_failed", "NUL", b'{"name": "a\\u0000b"}', pointer="/name"
    ),
    raw(
        "lone surrogate",
        422,
        "validation_failed",
        "surrogate",
        b'{"name": "\\ud800"}',
        pointer="/name",
    ),
    raw(
        "long array",
        422,
        "validation_failed",
        "10000",
        b'{"config": {"pairs": [' + b"1," * 10_000 + b"1]}}",
        pointer="/config/pairs",
    ),
    raw(
        "long text",
        422,
        "validation_failed",
        "4096",
        b'{"config": {"a": "' + b"x" * 5000 + b'"}}',
        pointer="/config/a",
    ),
    raw("no body", 422, "validation_failed", "body", b""),
    # Fields.
    job("unknown field", "validation_failed", "Did you mean 'method'?", "/metod", metod="fake"),
    job(
        "unknown nested field",
        "validation_failed",
        "Did you mean 'dtype'?",
        "/resources/dtyp",
        resources={"dtyp": "auto"},
    ),
    job("no model", "validation_failed", "Add the field 'model'", "/model", model=...),
    job("missing method", "validation_failed", "Add the field 'method'", "/method", method=...),
    job("number as text", "validation_failed", "whole number", "/seed", seed="5"),
    job("bool as number", "validation_failed", "not true", "/seed", seed=True),
    job("fraction as whole number", "validation_failed", "whole number", "/priority", priority=0.5),
    job("text as object", "validation_failed", "an object", "/config", config="steps=3"),
    job("null model", "validation_failed", "not null", "/model", model=None),
    job("negative seed", "validation_failed", "greater than or equal to 0", "/seed", seed=-1),
    job(
        "too many attempts",
        "validation_failed",
        "less than or equal to 5",
        "/retry/max_attempts",
        retry={"max_attempts": 6},
    ),
    job("unknown kind", "validation_failed", "'debias'", "/kind", kind="evaluate"),
    job(
        "unknown dtype",
        "validation_failed",
        "'bfloat16'",
        "/resources/dtype",
        resources={"dtype": "int8"},
    ),
    job(
        "unknown device class",
        "validation_failed",
        "cpu",
        "/resources/device_class",
        resources={"device_class": "tpu"},
    ),
    job(
        "run time over the limit",
        "validation_failed",
        "86400",
        "/resources/max_runtime_s",
        resources={"max_runtime_s": 10**6},
    ),
    job(
        "label value of a wrong type",
        "validation_failed",
        "text in quotes",
        "/labels/team",
        labels={"team": 5},
    ),
    job(
        "too many labels",
        "validation_failed",
        "32",
        "/labels",
        labels={f"k{k}": "v" for k in range(33)},
    ),
    job("empty name", "validation_failed", "at least 1", "/name", name=""),
    # Methods and their configs.
    job(
        "unknown method",
        "validation_failed",
        "Did you mean 'fairness_pruning'?",
        "/method",
        method="fairness_prunning",
    ),
    job(
        "unknown version",
        "validation_failed",
        "the newest is 1.0.0",
        "/method_version",
        method_version="9",
    ),
    job(
        "misspelt setting",
        "config_invalid",
        "Did you mean 'steps'?",
        "/config/stepz",
        config={"stepz": 1},
    ),
    job(
        "setting of a wrong type",
        "config_invalid",
        "whole number",
        "/config/steps",
        config={"steps": "many"},
    ),
    job(
        "setting out of range",
        "config_invalid",
        "greater than or equal to 1",
        "/config/steps",
        config={"steps": 0},
    ),
    job(
        "no pairs",
        "config_invalid",
        "pairs",
        "/config",
        model={"hub": "org/tiny"},
        method="fairness_pruning",
        config={"fraction": 0.2},
    ),
    pruning("unknown pair set", "gender", "/config/pairs", pairs="gendre"),
    pruning(
        "pairs of different length",
        "on_length_mismatch",
        "/config/pairs/0",
        pairs=[UNEVEN_PAIR],
        on_length_mismatch="error",
    ),
    pruning("identical pair", "swap a word", "/config/pairs/0", pairs=[IDENTICAL_PAIR]),
    pruning("fraction too small", "less than one", "/config/fraction", fraction=0.01),
    pruning("two amounts", "one of", "/config", neurons_per_layer=1),
    pruning(
        "neuron index too high",
        "6",
        "/config/neuron_indices/0",
        fraction=...,
        neuron_indices={"0": [6]},
    ),
    pruning(
        "layer too high",
        "0 to 1",
        "/config/neuron_indices",
        fraction=...,
        neuron_indices={"5": [0]},
    ),
    # Models.
    job(
        "two sources",
        "validation_failed",
        "exactly one of hub, path and version_id",
        "/model",
        model={"hub": "org/tiny", "path": "tiny"},
    ),
    job(
        "no source",
        "validation_failed",
        "exactly one of hub, path and version_id",
        "/model",
        model={},
    ),
    job(
        "revision of a path",
        "validation_failed",
        "Leave out revision",
        "/model",
        model={"path": "tiny", "revision": "main"},
    ),
    job(
        "page address as model",
        "validation_failed",
        "org/",
        "/model/hub",
        model={"hub": "https://huggingface.co/org/tiny/tree/main"},
    ),
    job(
        "address as revision",
        "validation_failed",
        "revision",
        "/model/revision",
        model={"hub": "org/tiny", "revision": "https://huggingface.co/org/tiny"},
    ),
    job(
        "path traversal", "uri_not_allowed", "segment", "/model/path", model={"path": "../outside"}
    ),
    job("absolute path", "uri_not_allowed", "segment", "/model/path", model={"path": "/etc"}),
    job("missing path", "model_not_found", "none", "/model/path", model={"path": "none"}),
    job(
        "wrong id as version",
        "model_not_found",
        "mv_",
        "/model/version_id",
        model={"version_id": "job_00000000000000000000000000"},
    ),
    job(
        "missing version",
        "model_not_found",
        "result.model_version_id",
        "/model/version_id",
        model={"version_id": "mv_00000000000000000000000000"},
    ),
    model("missing model", "model_not_found", "org/none", "org/none", "/model/hub"),
    model("gated model", "model_gated", "token", "org/gated", "/model/hub"),
    model("pickle only", "unsafe_model_format", "safe_serialization=True", "org/pickle"),
    model("lfs pointer", "unsafe_model_format", "git lfs pull", "org/pointer"),
    model("missing shards", "unsafe_model_format", "1 file", "org/shards"),
    model("cut weights", "unsafe_model_format", "Upload the file again", "org/cut"),
    model("code in config", "unsafe_model_format", "Remove it", "org/code"),
    model("quantised", "method_model_incompatible", "bfloat16", "org/quantised"),
    model("adapter", "method_model_incompatible", "Merge it", "org/adapter"),
    model("mixture of experts", "method_model_incompatible", "expert", "org/moe"),
    model("encoder", "method_model_incompatible", "llama", "org/encoder"),
    model("no tokenizer", "method_model_incompatible", "tokenizer", "org/mute"),
    # Headers and queries.
    Row(
        "bad idempotency key",
        400,
        "bad_request",
        "255",
        body=JOB,
        headers={"Idempotency-Key": "k" * 256},
    ),
    Row(
        "empty idempotency key",
        400,
        "bad_request",
        "Idempotency-Key",
        body=JOB,
        headers={"Idempotency-Key": ""},
    ),
    Row(
        "unacceptable",
        406,
        "not_acceptable",
        "application/json",
        body=JOB,
        headers={"Accept": "application/xml"},
    ),
    Row(
        "misspelt query",
        422,
        "validation_failed",
        "Did you mean 'dry_run'?",
        body=JOB,
        path="/v1/jobs?dryrun=true",
        parameter="dryrun",
    ),
    get("broken cursor", 400, "invalid_cursor", "without one", "/v1/jobs?cursor=%21"),
    get("foreign cursor", 400, "invalid_cursor", "without one", "/v1/jobs?cursor=eyJ2IjoxfQ"),
    get("page too long", 422, "validation_failed", "100", "/v1/jobs?limit=101", parameter="limit"),
    get(
        "unknown status",
        422,
        "validation_failed",
        "'queued'",
        "/v1/jobs?status=lost",
        parameter="status",
    ),
    get(
        "label without value",
        422,
        "validation_failed",
        "key:value",
        "/v1/jobs?label=team",
        parameter="label",
    ),
    get(
        "time without zone",
        422,
        "validation_failed",
        "zone",
        "/v1/jobs?created_after=2026-01-01T00:00:00",
        parameter="created_after",
    ),
    get(
        "wait too long",
        422,
        "validation_failed",
        "60",
        "/v1/jobs/job_00000000000000000000000000?wait=61",
        parameter="wait",
    ),
    get("wrong id prefix", 404, "not_found", "job_", "/v1/jobs/art_00000000000000000000000000"),
    get("broken id", 404, "not_found", "job_", "/v1/jobs/job_1"),
    get("slash at the end", 404, "not_found", "slash", "/v1/jobs/"),
    get("unknown route", 404, "not_found", "path", "/v1/jbos"),
    Row("wrong method", 405, "method_not_allowed", "GET", method="PUT", path="/v1/methods"),
    Row(
        "key without scopes",
        422,
        "validation_failed",
        "at least 1",
        path="/v1/api-keys",
        body={"name": "k", "scopes": []},
        pointer="/scopes",
    ),
    Row(
        "key with an unknown scope",
        422,
        "validation_failed",
        "'jobs:read'",
        path="/v1/api-keys",
        body={"name": "k", "scopes": ["jobs:all"]},
        pointer="/scopes/0",
    ),
    Row(
        "key that has expired",
        422,
        "validation_failed",
        "future",
        path="/v1/api-keys",
        body={"name": "k", "scopes": ["jobs:read"], "expires_at": "2020-01-01T00:00:00Z"},
        pointer="/expires_at",
    ),
    Row(
        "key with a time without zone",
        422,
        "validation_failed",
        "timezone",
        path="/v1/api-keys",
        body={"name": "k", "scopes": ["jobs:read"], "expires_at": "2099-01-01T00:00:00"},
        pointer="/expires_at",
    ),
]


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
