"""The resolved spec: what a job will do, with every default written and every source pinned."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.domain.canonical import canonical_sha256

COSMETIC_FIELDS = frozenset({"name", "labels", "priority"})
"""Fields that do not change what is computed, and so are left out of the hash."""


class SpecPart(BaseModel):
    """Base of the parts: closed and frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ResolvedResources(SpecPart):
    """Where and how long an attempt may run."""

    device_class: str
    dtype: Literal["auto", "float32", "bfloat16", "float16"]
    max_runtime_s: int
    stall_timeout_s: int = 1800
    checkpoint_every_s: int = 300


class ResolvedOutputs(SpecPart):
    """What is kept of a finished job."""

    register_as: str | None
    formats: tuple[Literal["safetensors", "gguf"], ...]
    plots: bool
    keep_checkpoints: int


class ResolvedBenchmark(SpecPart):
    """A benchmark to run before and after, with every default of its config written."""

    name: str
    version: str
    config: dict[str, Any]


class ResolvedSpec(SpecPart):
    """Everything an attempt needs to know. Stored with the job.

    What decides the result stays as it was when the job was made; only a retry that asks for
    other resources stores a spec with those resources.

    `model` is the pinned source: its `type` is `hub`, `path` or `version`, and its other keys
    identify exactly one set of bytes.
    """

    kind: Literal["debias"]
    name: str | None
    method: str
    method_version: str
    model: dict[str, Any]
    config: dict[str, Any]
    benchmarks: tuple[ResolvedBenchmark, ...] = ()
    resources: ResolvedResources
    outputs: ResolvedOutputs
    max_attempts: int = Field(ge=1, le=5)
    seed: int
    priority: int
    labels: dict[str, str]

    def sha256(self) -> str:
        """Hash of all that changes the result: equal hashes mean the same computation."""
        fields = self.model_dump(mode="json")
        return canonical_sha256({k: v for k, v in fields.items() if k not in COSMETIC_FIELDS})
