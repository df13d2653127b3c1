"""All tables, in one import point for queries and migrations."""

from app.db.tables.jobs import (
    IS_LEASED,
    Artifact,
    EvaluationResult,
    Job,
    JobAttempt,
    JobCheckpoint,
    JobEvent,
    JobLogChunk,
    MetricPoint,
)
from app.db.tables.models import Blob, Model, ModelFile, ModelVersion
from app.db.tables.operations import OutboxMessage, Tally, Worker
from app.db.tables.projects import (
    ApiKey,
    AuditEntry,
    IdempotencyKey,
    Project,
    ProjectSecret,
)

__all__ = [
    "IS_LEASED",
    "ApiKey",
    "Artifact",
    "AuditEntry",
    "Blob",
    "EvaluationResult",
    "IdempotencyKey",
    "Job",
    "JobAttempt",
    "JobCheckpoint",
    "JobEvent",
    "JobLogChunk",
    "MetricPoint",
    "Model",
    "ModelFile",
    "ModelVersion",
    "OutboxMessage",
    "Project",
    "ProjectSecret",
    "Tally",
    "Worker",
]
