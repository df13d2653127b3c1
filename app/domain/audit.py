"""What the audit log can tell of: one name for each kind of change."""

from enum import StrEnum


class AuditAction(StrEnum):
    """A change worth asking about later. Names are part of the API: never rename one."""

    KEY_CREATED = "key.created"
    KEY_ROTATED = "key.rotated"
    KEY_REVOKED = "key.revoked"
    JOB_CREATED = "job.created"
    JOB_CHANGED = "job.changed"
    JOB_CANCELLED = "job.cancelled"
    JOB_PAUSED = "job.paused"
    JOB_RESUMED = "job.resumed"
    JOB_RETRIED = "job.retried"
    JOB_DELETED = "job.deleted"
    SECRET_SET = "secret.set"  # noqa: S105 - a name
    SECRET_DELETED = "secret.deleted"  # noqa: S105 - a name
    ARTIFACT_LINKED = "artifact.linked"
    PROJECT_CREATED = "project.created"
    PROJECT_CHANGED = "project.changed"
    WORKER_DRAINED = "worker.drained"
    GARBAGE_COLLECTED = "garbage.collected"


class AuditActor(StrEnum):
    """On whose behalf it happened."""

    KEY = "key"
    """A key of the project itself."""
    OPERATOR = "operator"
    """A key of another project, with the scope `admin`; which one is the operator's to know."""
    LOCAL = "local"
    """Somebody on the machine: the command line, or a service that asks nobody for a key."""
