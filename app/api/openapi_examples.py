"""Examples of requests and answers for the OpenAPI document, by operation id.

A test holds every one of them to the schema of its operation.
"""

from typing import Any

MOMENT = "2026-01-31T12:00:00.000Z"
JOB_ID = "job_01m8pkgx24eanb1smxfmhm5ask"
ARTIFACT_ID = "art_01m8pkh3x8e9r8m0w5q2d7c4tz"
KEY_ID = "key_01m8pkgataengs1jqe1zer5mzd"
VERSION_ID = "mv_01m8pkhb2sfkr9j4t6v8x0z2bd"
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
JOB_PATH = f"/v1/jobs/{JOB_ID}"

# The quickest job there is: its model comes with the service.
MODEL = {"demo": "tiny-llama"}
CONFIG = {"preset": "article", "fraction": 0.125, "pairs": ["gender"]}

JOB_REQUEST: dict[str, Any] = {
    "kind": "debias",
    "name": "tiny-llama, gender",
    "model": MODEL,
    "method": "fairness_pruning",
    "config": CONFIG,
    "labels": {"team": "nlp"},
    "seed": 0,
}

JOB: dict[str, Any] = {
    "id": JOB_ID,
    "object": "job",
    "kind": "debias",
    "name": "tiny-llama, gender",
    "status": "queued",
    "phase": None,
    "progress": None,
    "queue": {"class": "cpu", "position": 1},
    "model": {"type": "demo", "name": "tiny-llama"},
    "method": "fairness_pruning",
    "method_version": "1.1.0",
    "config": CONFIG,
    "spec_hash": SHA256,
    "attempt": 0,
    "max_attempts": 3,
    "priority": 0,
    "seed": 0,
    "stop_requested": None,
    "worker": None,
    "error": None,
    "result": None,
    "gate": None,
    "estimate": None,
    "created_at": MOMENT,
    "queued_at": MOMENT,
    "started_at": None,
    "finished_at": None,
    "usage": None,
    "labels": {"team": "nlp"},
    "created_by_key": KEY_ID,
    "links": {
        "self": JOB_PATH,
        "events": f"{JOB_PATH}/events",
        "logs": f"{JOB_PATH}/logs",
        "metrics": f"{JOB_PATH}/metrics",
        "artifacts": f"{JOB_PATH}/artifacts",
        "report": f"{JOB_PATH}/report",
    },
    "artifacts": None,
    "warnings": None,
}

ARTIFACT: dict[str, Any] = {
    "id": ARTIFACT_ID,
    "job_id": JOB_ID,
    "name": "checkpoint/model.safetensors",
    "type": "model",
    "media_type": "application/octet-stream",
    "size_bytes": 269060552,
    "sha256": SHA256,
    "created_at": MOMENT,
    "expires_at": None,
    "deleted_at": None,
    "content": f"/v1/artifacts/{ARTIFACT_ID}/content",
}

KEY: dict[str, Any] = {
    "id": KEY_ID,
    "name": "ci",
    "prefix": "8Kq2mZ0x",
    "scopes": ["jobs:read", "jobs:write"],
    "created_at": MOMENT,
    "expires_at": None,
    "last_used_at": None,
}

METHOD: dict[str, Any] = {
    "name": "fairness_pruning",
    "version": "1.1.0",
    "title": "Fairness Pruning",
    "summary": "Removes the neurons that react most to a swapped demographic word.",
    "family": "pruning",
    "modality": ["text"],
    "model_types": ["llama"],
    "produces": "checkpoint",
    "requires_training": False,
    "supports_checkpoint": True,
    "deterministic": True,
    "default_device_class": "cpu",
    "references": [{"title": "Example of a reference", "url": "https://example.org/paper"}],
    "deprecated": False,
}

BENCHMARK: dict[str, Any] = {
    "name": "example_pairs",
    "version": "1.0.0",
    "title": "Example of a benchmark",
    "summary": "How often the model prefers the stereotyped sentence of a pair.",
    "metrics": [
        {
            "name": "preference",
            "title": "Share of stereotyped sentences preferred",
            "unit": "percent",
            "range": [0.0, 100.0],
            "ideal": 50.0,
            "higher_is_better": None,
        }
    ],
    "dataset_license": "CC-BY-SA-4.0",
    "items": 1500,
    "items_per_s": 40.0,
    "references": [{"title": "Example of a reference", "url": "https://example.org/paper"}],
    "deprecated": False,
}

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {"fraction": {"type": "number", "exclusiveMinimum": 0}},
}

EVENT: dict[str, Any] = {
    "seq": 1,
    "type": "job.created",
    "at": MOMENT,
    "level": "info",
    "data": {},
}

ESTIMATE: dict[str, Any] = {
    "valid": True,
    "problems": [],
    "warnings": [],
    "resolved_spec": {"method": "fairness_pruning", "method_version": "1.1.0"},
    "estimate": {
        "device_class": "cpu",
        "peak_gpu_bytes": 0,
        "peak_host_bytes": 2795503616,
        "disk_bytes": 1611863040,
        "output_bytes": 269060608,
        "duration_s": None,
        "basis": "formula",
        "gpu_s": None,
        "cost": None,
    },
}

REQUESTS: dict[str, Any] = {
    "createJob": JOB_REQUEST,
    "estimateJob": JOB_REQUEST,
    "updateJob": {"name": "new name", "labels": {"team": "nlp"}},
    "cancelJob": {"keep_checkpoint": True},
    "retryJob": {"from": "checkpoint", "resources": {"max_runtime_s": 7200}},
    "createApiKey": {"name": "ci", "scopes": ["jobs:read", "jobs:write"]},
    "createDownloadUrl": {"expires_in_s": 3600},
}

RESPONSES: dict[str, tuple[str, Any]] = {
    "createJob": ("202", JOB),
    "estimateJob": ("200", ESTIMATE),
    "listJobs": ("200", {"data": [JOB], "has_more": False, "next_cursor": None}),
    "getJobSummary": (
        "200",
        {"by_status": {"queued": 1}, "by_device_class": {"cpu": {"queued": 1}}},
    ),
    "getJob": ("200", JOB),
    "updateJob": ("200", JOB),
    "cancelJob": ("200", {**JOB, "status": "cancelled", "finished_at": MOMENT}),
    "pauseJob": ("202", {**JOB, "status": "running", "stop_requested": "pause"}),
    "resumeJob": ("202", JOB),
    "retryJob": ("202", JOB),
    "listAttempts": (
        "200",
        {
            "data": [
                {
                    "id": "att_01m8pkhk4n3rz3y5k7m9p1r3t5",
                    "number": 1,
                    "worker": "wrk_01m8pkhq7c2x4z6b8d0f2h4k6m",
                    "host": "worker-1",
                    "started_at": MOMENT,
                    "ended_at": MOMENT,
                    "outcome": "succeeded",
                    "error": None,
                    "exit_code": None,
                    "signal": None,
                    "peak_rss_bytes": 1500000000,
                    "peak_gpu_bytes": None,
                    "phase_seconds": {"debiasing": 41.5},
                    "resumed_from": None,
                }
            ]
        },
    ),
    "listEvents": ("200", {"data": [EVENT], "has_more": False, "next_after": 1}),
    "listLogs": (
        "200",
        {
            "data": [
                {
                    "attempt": 1,
                    "stream": "log",
                    "line": 1,
                    "at": MOMENT,
                    "level": "info",
                    "text": "loaded the model",
                }
            ],
            "has_more": False,
            "next_after": "eyIxOmxvZyI6MX0",
        },
    ),
    "listMetrics": (
        "200",
        {
            "data": [
                {
                    "name": "loss",
                    "attempt": 1,
                    "points": [
                        {"step": 0, "value": 2.5, "nonfinite": None, "at": MOMENT},
                        {"step": 1, "value": None, "nonfinite": "nan", "at": MOMENT},
                    ],
                }
            ]
        },
    ),
    "listMetricNames": ("200", {"data": [{"name": "loss", "points": 2, "last_step": 1}]}),
    "listEvaluations": (
        "200",
        {
            "data": [
                {
                    "stage": "before",
                    "benchmark": "fairness_pruning",
                    "benchmark_version": "1.0.0",
                    "metric": "bias_metric_parity",
                    "group": "gender",
                    "seed": 0,
                    "value": 0.021,
                    "nonfinite": None,
                    "ci_low": 0.018,
                    "ci_high": 0.024,
                    "ci_level": 0.95,
                    "n": 10,
                    "unit": "1",
                    "ideal": 0.0,
                }
            ]
        },
    ),
    "listArtifacts": ("200", {"data": [ARTIFACT]}),
    "getManifest": (
        "200",
        {
            "job_id": JOB_ID,
            "total_bytes": 269060552,
            "files": [
                {
                    "name": "checkpoint/model.safetensors",
                    "size_bytes": 269060552,
                    "sha256": SHA256,
                }
            ],
        },
    ),
    "getReport": ("200", {"pairs": [], "removed": {"0": [1, 5]}}),
    "listCheckpoints": (
        "200",
        {
            "data": [
                {
                    "phase": "evaluating_before",
                    "step": None,
                    "size_bytes": 2048,
                    "created_at": MOMENT,
                    "resumable": True,
                }
            ]
        },
    ),
    "getJobSpec": ("200", JOB_REQUEST),
    "getArtifact": ("200", ARTIFACT),
    "createDownloadUrl": (
        "200",
        {
            "url": f"https://example.org/downloads/{ARTIFACT_ID}?expires=1769864400",
            "expires_at": MOMENT,
        },
    ),
    "listMethods": ("200", {"data": [METHOD]}),
    "getMethod": (
        "200",
        {
            **METHOD,
            "config_schema": SCHEMA,
            "example_config": CONFIG,
            "datasets": [],
            "metrics": [
                {
                    "name": "bias_metric_parity",
                    "title": "Mean activation difference",
                    "unit": "1",
                    "ideal": 0.0,
                    "lower_is_better": True,
                    "resampling_unit": "pair",
                }
            ],
        },
    ),
    "getMethodSchema": ("200", SCHEMA),
    "listBenchmarks": ("200", {"data": [BENCHMARK]}),
    "getBenchmark": (
        "200",
        {**BENCHMARK, "config_schema": SCHEMA, "example_config": {"max_items": 500}},
    ),
    "createApiKey": ("201", {**KEY, "secret": "dbk_8Kq2mZ0x_..."}),
    "listApiKeys": ("200", {"data": [KEY], "has_more": False, "next_cursor": None}),
    "getApiKey": ("200", KEY),
    "getMe": (
        "200",
        {
            "key": KEY,
            "project": {
                "id": "prj_01m8pkgatdeqw4s6v8x0z2b4df",
                "name": "default",
                "suspended": False,
                "retention_days": 90,
            },
            "scopes": ["jobs:read", "jobs:write"],
            "quotas": {
                "max_queued": {"limit": 100, "used": 1},
                "max_running": {"limit": 16, "used": 0},
                "max_storage_bytes": {"limit": None, "used": 269060552},
                "max_gpu_s_per_day": {"limit": 3600, "used": 120},
            },
        },
    ),
    "getLiveness": ("200", {"status": "alive"}),
    "getReadiness": (
        "200",
        {
            "status": "ready",
            "database": True,
            "database_schema": True,
            "store": True,
            "broker": True,
        },
    ),
    "getVersion": ("200", {"version": "0.1.0", "database_schema": "0001", "python": "3.11.9"}),
    "getProblem": (
        "200",
        {
            "code": "not_found",
            "title": "Not found",
            "status": 404,
            "explanation": "No such resource in this project.",
        },
    ),
}
