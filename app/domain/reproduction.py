"""Write a job's resolved spec as a request that does the same again."""

from typing import Any

from app.domain.specs import ResolvedSpec


def request_of(spec: ResolvedSpec) -> dict[str, Any]:
    """Turn a resolved spec back into a body of `createJob`, with everything pinned."""
    return {
        "kind": spec.kind,
        "name": spec.name,
        "model": _reference(spec.model),
        "method": spec.method,
        "method_version": spec.method_version,
        "config": spec.config,
        "evaluation": {
            "benchmarks": [
                {"name": benchmark.name, "config": benchmark.config}
                for benchmark in spec.benchmarks
            ]
        },
        "resources": {
            "device_class": spec.resources.device_class,
            "dtype": spec.resources.dtype,
            "max_runtime_s": spec.resources.max_runtime_s,
        },
        "outputs": spec.outputs.model_dump(mode="json"),
        "retry": {"max_attempts": spec.max_attempts},
        "priority": spec.priority,
        "labels": spec.labels,
        "seed": spec.seed,
    }


def _reference(model: dict[str, Any]) -> dict[str, Any]:
    kind = model["type"]
    if kind == "hub":
        return {"hub": model["repo_id"], "revision": model["commit"]}
    if kind == "path":
        return {"path": model["name"]}
    if kind == "demo":
        return {"demo": model["name"]}
    return {"version_id": model["version_id"]}
