"""How reports name the base model, and what they know of where it comes from."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from app.domain.ids import IdPrefix, parse_id
from app.domain.sources import shown_name
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.reports.document import Fact


def model_name(evidence: Evidence) -> str:
    """Name the base model as its source does; the output of a job by that job and its base."""
    return shown_name(_source(evidence)) or "the base model"


def hub_name(evidence: Evidence) -> str | None:
    """Name of the base model on a hub, None where it is not from one."""
    source = _source(evidence)
    name = source.get("hub") or source.get("repo_id")
    return str(name) if name else None


def origin_facts(evidence: Evidence) -> Iterator[Fact]:
    """Say which model and which job the report is about."""
    source, provenance = _source(evidence), evidence.ctx.provenance
    yield Fact("Model", model_name(evidence))
    revision = source.get("commit") or source.get("revision") or source.get("version_id")
    yield Fact("Revision", str(revision) if revision else "none; see the digests of its files")
    config = json.loads((evidence.ctx.model_dir / "config.json").read_text(encoding="utf-8"))
    yield Fact("Family", str(config["model_type"]))
    yield Fact("Job", str(provenance["job_id"]))
    requested = requested_on(str(provenance["job_id"]))
    yield Fact("Requested on", requested or "not recorded: the job was run without the service")


def requested_on(job_id: str) -> str | None:
    """Day (UTC) on which a job was requested, which its id tells; None for a local run."""
    parsed = parse_id(IdPrefix.JOB, job_id)
    # Only version 7 begins with the time in milliseconds (RFC 9562, section 5.7).
    if parsed is None or parsed.version != 7:
        return None
    day = datetime.fromtimestamp((parsed.int >> 80) / 1000, tz=UTC).date()
    return f"{day.isoformat()} (UTC)"


def _source(evidence: Evidence) -> dict[str, Any]:
    source = evidence.ctx.provenance["model"]
    return source if isinstance(source, dict) else {}
