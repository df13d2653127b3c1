"""Every operation of the service: whose data it reaches, and what it leaves in the audit log.

The tests of isolation, scopes and audit walk this table and compare it with the application, so
that a new operation without an entry, or one that changes its scope, fails them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.domain.audit import AuditAction
from app.security.scopes import Scope
from tests.integration.api.callers import JOB


class Reach(StrEnum):
    """Whose data an operation reads or changes."""

    ITEM = "one thing of the project, named in the path"
    LIST = "things of the project"
    MAKES = "a new thing of the project"
    SAME = "the same for everyone: the catalogue"
    OPERATOR = "all projects, by right"
    PUBLIC = "nobody's data"
    SIGNED = "one artifact, by the signature of a link"


NOT_AUDITED_DRY = "It stores nothing."
KEY = {"name": "ci", "scopes": ["jobs:read"]}
EVENTS = ("application/json", "text/event-stream")


@dataclass(frozen=True)
class Operation:
    """What the tests have to know of one operation.

    `filters` gives, for each query parameter, a value that fits what another project has; names
    in braces stand for its ids. `audit` is the action that a change leaves in the audit log, or
    the reason why it leaves none; reading leaves none.
    """

    scope: Scope | None
    reach: Reach
    body: Mapping[str, Any] | None = None
    accepts: tuple[str, ...] = ("application/json",)
    filters: Mapping[str, str] = field(default_factory=dict)
    audit: AuditAction | str | None = None
    idempotent: bool = False


def _of_job(scope: Scope = Scope.JOBS_READ, **more: Any) -> Operation:
    return Operation(scope, Reach.ITEM, **more)


TIMES = {"created_after": "2020-01-01T00:00:00Z", "created_before": "2100-01-01T00:00:00Z"}

OPERATIONS: dict[str, Operation] = {
    "getLiveness": Operation(None, Reach.PUBLIC),
    "getReadiness": Operation(None, Reach.PUBLIC),
    "getVersion": Operation(None, Reach.PUBLIC),
    "getServiceMetrics": Operation(None, Reach.PUBLIC),
    "getProblem": Operation(None, Reach.PUBLIC),
    "getDownload": Operation(None, Reach.SIGNED),
    "listMethods": Operation(Scope.METHODS_READ, Reach.SAME),
    "getMethod": Operation(Scope.METHODS_READ, Reach.SAME),
    "getMethodSchema": Operation(Scope.METHODS_READ, Reach.SAME),
    "listBenchmarks": Operation(Scope.METHODS_READ, Reach.SAME),
    "getBenchmark": Operation(Scope.METHODS_READ, Reach.SAME),
    "createJob": Operation(
        Scope.JOBS_WRITE,
        Reach.MAKES,
        body=JOB,
        audit=AuditAction.JOB_CREATED,
        idempotent=True,
    ),
    "estimateJob": Operation(Scope.JOBS_READ, Reach.MAKES, body=JOB, audit=NOT_AUDITED_DRY),
    "listJobs": Operation(
        Scope.JOBS_READ,
        Reach.LIST,
        filters={
            "status": "succeeded",
            "kind": "debias",
            "method": "fake",
            "label": "team:{mark}",
            "model_version_id": "{version_id}",
            "q": "{mark}",
            **TIMES,
        },
    ),
    "getJobSummary": Operation(Scope.JOBS_READ, Reach.LIST),
    "getUsage": Operation(
        Scope.JOBS_READ,
        Reach.LIST,
        filters={
            "from": "{yesterday}",
            "to": "{tomorrow}",
            "group_by": "key",
        },
    ),
    "getJob": _of_job(),
    "updateJob": _of_job(Scope.JOBS_WRITE, body={"name": "mine"}, audit=AuditAction.JOB_CHANGED),
    "deleteJob": _of_job(Scope.JOBS_WRITE, audit=AuditAction.JOB_DELETED),
    "cancelJob": _of_job(Scope.JOBS_WRITE, audit=AuditAction.JOB_CANCELLED),
    "pauseJob": _of_job(Scope.JOBS_WRITE, audit=AuditAction.JOB_PAUSED),
    "resumeJob": _of_job(Scope.JOBS_WRITE, audit=AuditAction.JOB_RESUMED),
    "retryJob": _of_job(Scope.JOBS_WRITE, audit=AuditAction.JOB_RETRIED),
    "listAttempts": _of_job(),
    "listEvents": _of_job(accepts=EVENTS),
    "listLogs": _of_job(accepts=("application/json", "text/plain")),
    "listMetrics": _of_job(),
    "listMetricNames": _of_job(),
    "listEvaluations": _of_job(),
    "listArtifacts": _of_job(Scope.ARTIFACTS_READ),
    "getManifest": _of_job(Scope.ARTIFACTS_READ),
    "getReport": _of_job(accepts=("application/json", "text/html", "text/markdown")),
    "listCheckpoints": _of_job(),
    "getJobSpec": _of_job(),
    "getArtifact": Operation(Scope.ARTIFACTS_READ, Reach.ITEM),
    "getArtifactContent": Operation(Scope.ARTIFACTS_READ, Reach.ITEM, accepts=("*/*",)),
    "createDownloadUrl": Operation(
        Scope.ARTIFACTS_READ, Reach.ITEM, audit=AuditAction.ARTIFACT_LINKED
    ),
    "createApiKey": Operation(
        Scope.KEYS_MANAGE,
        Reach.MAKES,
        body=KEY,
        audit=AuditAction.KEY_CREATED,
        idempotent=True,
    ),
    "listApiKeys": Operation(Scope.KEYS_MANAGE, Reach.LIST),
    "getApiKey": Operation(Scope.KEYS_MANAGE, Reach.ITEM),
    "rotateApiKey": Operation(
        Scope.KEYS_MANAGE, Reach.ITEM, audit=AuditAction.KEY_ROTATED, idempotent=True
    ),
    "revokeApiKey": Operation(Scope.KEYS_MANAGE, Reach.ITEM, audit=AuditAction.KEY_REVOKED),
    "getMe": Operation(Scope.PROFILE_READ, Reach.LIST),
    "listSecrets": Operation(Scope.SECRETS_MANAGE, Reach.LIST),
    "setSecret": Operation(
        Scope.SECRETS_MANAGE,
        Reach.MAKES,
        body={"value": "hf_" + "s" * 30},
        audit=AuditAction.SECRET_SET,
    ),
    # The name is no id: the own project has one of the same name, or none.
    "deleteSecret": Operation(Scope.SECRETS_MANAGE, Reach.MAKES, audit=AuditAction.SECRET_DELETED),
    "listAuditLog": Operation(
        Scope.AUDIT_READ,
        Reach.LIST,
        filters={"action": "key.created", "key_id": "{key_id}", **TIMES},
    ),
    "listServiceAuditLog": Operation(Scope.ADMIN, Reach.OPERATOR),
    "createProject": Operation(
        Scope.ADMIN,
        Reach.OPERATOR,
        body={"name": "new-project"},
        audit=AuditAction.PROJECT_CREATED,
        idempotent=True,
    ),
    "listProjects": Operation(Scope.ADMIN, Reach.OPERATOR),
    "getProject": Operation(Scope.ADMIN, Reach.OPERATOR),
    "updateProject": Operation(
        Scope.ADMIN, Reach.OPERATOR, body={"weight": 2.0}, audit=AuditAction.PROJECT_CHANGED
    ),
    "createProjectKey": Operation(
        Scope.ADMIN,
        Reach.OPERATOR,
        body={"name": "lost"},
        audit=AuditAction.KEY_CREATED,
        idempotent=True,
    ),
    "listWorkers": Operation(Scope.ADMIN, Reach.OPERATOR),
    "drainWorker": Operation(Scope.ADMIN, Reach.OPERATOR, audit=AuditAction.WORKER_DRAINED),
    "listQueues": Operation(Scope.ADMIN, Reach.OPERATOR),
    "collectGarbage": Operation(Scope.ADMIN, Reach.OPERATOR, audit=AuditAction.GARBAGE_COLLECTED),
}

# Fields of request bodies that name a thing of the project, by operation.
IDS_IN_BODIES = {"createJob": {"version_id"}, "estimateJob": {"version_id"}}
