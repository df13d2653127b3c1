"""Examples of what operators send and get, and of what projects use, by operation id."""

from typing import Any

from app.api.openapi_examples import JOB_ID, KEY, KEY_ID, MOMENT

PROJECT_ID = "prj_01m8pkgatdeqw4s6v8x0z2b4df"

PROJECT: dict[str, Any] = {
    "id": PROJECT_ID,
    "name": "nlp",
    "weight": 1.0,
    "max_running": 4,
    "max_queued": 100,
    "max_storage_bytes": 107374182400,
    "max_gpu_s_per_day": None,
    "retention_days": 90,
    "suspended": False,
    "created_at": MOMENT,
    "updated_at": MOMENT,
}
NEW_KEY: dict[str, Any] = {**KEY, "secret": "dbk_8Kq2mZ0x_..."}
WORKER: dict[str, Any] = {
    "id": "wrk_01m8pkhq7c2x4z6b8d0f2h4k6m",
    "host": "worker-1",
    "pid": 17,
    "classes": ["gpu", "cpu"],
    "device": "cuda:0",
    "gpu_bytes": 85899345920,
    "host_bytes": 137438953472,
    "disk_free_bytes": 512000000000,
    "disk_low": False,
    "versions": {"evenhand": "0.1.0", "python": "3.11.9", "celery": "5.6.0"},
    "state": "ready",
    "draining": False,
    "current_job_id": JOB_ID,
    "last_seen_at": MOMENT,
    "started_at": MOMENT,
}
USED: dict[str, Any] = {
    "jobs": {"succeeded": 3, "failed": 1},
    "attempts": 5,
    "wall_s": 412.5,
    "gpu_s": 120.25,
    "stored_bytes": 807181656,
}

REQUESTS: dict[str, Any] = {
    "createProject": {"name": "nlp", "max_running": 4, "max_storage_bytes": 107374182400},
    "updateProject": {"weight": 3.0, "max_gpu_s_per_day": 86400},
    "createProjectKey": {"name": "replacement"},
}

FREED = [
    {"kind": "artifacts", "rows": 16, "size_bytes": 0},
    {"kind": "blobs", "rows": 12, "size_bytes": 538090040},
]

RESPONSES: dict[str, tuple[str, Any]] = {
    "collectGarbage": (
        "200",
        {
            "dry_run": False,
            "complete": True,
            "freed": FREED,
            "total_rows": 28,
            "total_size_bytes": 538090040,
        },
    ),
    "createProject": ("201", {"project": PROJECT, "key": NEW_KEY}),
    "listProjects": ("200", {"data": [PROJECT], "has_more": False, "next_cursor": None}),
    "getProject": ("200", PROJECT),
    "updateProject": ("200", {**PROJECT, "weight": 3.0, "max_gpu_s_per_day": 86400}),
    "createProjectKey": ("201", NEW_KEY),
    "listWorkers": ("200", {"data": [WORKER], "has_more": False, "next_cursor": None}),
    "drainWorker": ("202", {**WORKER, "draining": True}),
    "listQueues": (
        "200",
        {
            "data": [
                {
                    "device_class": "gpu",
                    "queued": 12,
                    "dispatched": 1,
                    "running": 3,
                    "oldest_age_s": 41.5,
                    "workers": 4,
                    "idle_slots": 1,
                }
            ]
        },
    ),
    "getUsage": (
        "200",
        {
            "from": MOMENT,
            "to": MOMENT,
            "group_by": "key",
            "total": USED,
            "data": [{**USED, "group": KEY_ID}],
        },
    ),
}
