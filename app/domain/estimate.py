"""What a job will need, by formula: memory, disk, and the class of device that has it."""

from dataclasses import dataclass

from app.domain.architectures import find_layout
from app.domain.models import ModelFacts

GIB = 1024**3
BYTES_PER_PARAMETER = {"float32": 4, "bfloat16": 2, "float16": 2}
FRAGMENTATION = 1.2
CUDA_CONTEXT_BYTES = int(0.6 * GIB)
HOST_BASE_BYTES = int(1.5 * GIB)
DISK_BASE_BYTES = 1 * GIB
ACTIVATION_FACTOR = 2  # activations kept of each layer without gradients; 16 with them
ADAM_BYTES = 8  # two moments in 32 bits for each trained parameter
PROBE_TOKENS = 1024  # tokens assumed in flight: batch times sequence length
MASTER_COPY_BYTES = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """The parts of a job that its memory depends on."""

    facts: ModelFacts
    device_class: str
    dtype: str
    trains: bool
    kept_checkpoints: int
    models_written: int = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """Peak memory and disk of one attempt, and what is kept of it.

    Times are unknown until jobs like it have run.
    """

    device_class: str
    peak_gpu_bytes: int
    peak_host_bytes: int
    disk_bytes: int
    output_bytes: int

    def as_json(self) -> dict[str, object]:
        """Write the estimate as the API shows it."""
        return {
            "device_class": self.device_class,
            "peak_gpu_bytes": self.peak_gpu_bytes,
            "peak_host_bytes": self.peak_host_bytes,
            "disk_bytes": self.disk_bytes,
            "output_bytes": self.output_bytes,
            "duration_s": None,
            "basis": "formula",
            "gpu_s": None,
            "cost": None,
        }


def estimate(work: Workload) -> Estimate:
    """Estimate by formula; a CPU job needs the device memory from the host instead."""
    facts = work.facts
    width = BYTES_PER_PARAMETER.get(work.dtype) or _stored_width(facts)
    weights = facts.parameter_count * width
    needed = weights + _activations(facts, width, trains=work.trains)
    if work.trains:
        needed += facts.parameter_count * (width + ADAM_BYTES)
        needed += facts.parameter_count * MASTER_COPY_BYTES if width < MASTER_COPY_BYTES else 0
    needed = int(needed * FRAGMENTATION)
    on_gpu = work.device_class.startswith("gpu")
    largest = max((file.size_bytes for file in facts.files), default=0)
    host = 2 * largest + HOST_BASE_BYTES
    checkpoint = facts.size_bytes
    return Estimate(
        device_class=work.device_class,
        peak_gpu_bytes=needed + CUDA_CONTEXT_BYTES if on_gpu else 0,
        peak_host_bytes=host if on_gpu else host + needed,
        disk_bytes=(2 + work.kept_checkpoints) * checkpoint + DISK_BASE_BYTES,
        output_bytes=(work.models_written + work.kept_checkpoints) * checkpoint,
    )


def _stored_width(facts: ModelFacts) -> int:
    tensor_bytes = sum(tensor.size_bytes for tensor in facts.tensors.values())
    return max(1, round(tensor_bytes / max(1, facts.parameter_count)))


def _activations(facts: ModelFacts, width: int, *, trains: bool) -> int:
    hidden, layers = _dimensions(facts)
    factor = 16 if trains else ACTIVATION_FACTOR
    return PROBE_TOKENS * hidden * layers * width * factor


def _dimensions(facts: ModelFacts) -> tuple[int, int]:
    """Give hidden size and layers by the names of the model's family; 0 where they are unknown."""
    layout = find_layout(facts.model_type)
    if layout is None:
        return _whole_number(facts, "hidden_size"), _whole_number(facts, "num_hidden_layers")
    try:
        dimensions = layout.dimensions(facts.config)
    except (ValueError, KeyError, TypeError, AttributeError):
        return 0, 0
    return dimensions.hidden, dimensions.layers


def _whole_number(facts: ModelFacts, name: str) -> int:
    value = facts.config.get(name)
    return value if isinstance(value, int) else 0
