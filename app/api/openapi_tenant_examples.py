"""Examples for the OpenAPI document, by operation id: rotated keys, secrets, audit log."""

from typing import Any

from app.api.openapi_examples import JOB_ID, KEY, KEY_ID, MOMENT

SECRET: dict[str, Any] = {"name": "hub_token", "created_at": MOMENT, "updated_at": MOMENT}

ENTRY: dict[str, Any] = {
    "id": "aud_01m8pkhs2w4y6a8c0e2g4j6k8n",
    "at": MOMENT,
    "action": "job.cancelled",
    "actor": "key",
    "key_id": KEY_ID,
    "target": JOB_ID,
    "request_id": "4f2d8c0e6b7a4d0f9a3c5e1b2d4f6a80",
    "details": {"status": "running"},
}
PROJECT_ENTRY = {**ENTRY, "project": "prj_01m8pkgatdeqw4s6v8x0z2b4df"}

REQUESTS: dict[str, Any] = {
    "rotateApiKey": {"overlap_s": 3600},
    "setSecret": {"value": "hf_example_of_a_token"},
}

RESPONSES: dict[str, tuple[str, Any]] = {
    "rotateApiKey": ("201", {**KEY, "secret": "dbk_8Kq2mZ0x_..."}),
    "listSecrets": ("200", {"data": [SECRET]}),
    "setSecret": ("200", SECRET),
    "listAuditLog": ("200", {"data": [ENTRY], "has_more": False, "next_cursor": None}),
    "listServiceAuditLog": (
        "200",
        {"data": [PROJECT_ENTRY], "has_more": False, "next_cursor": None},
    ),
}
