"""The device of this worker's slot. Torch is asked only where it is loaded already."""

import os
import resource
import sys
from types import ModuleType

AUTO = "auto"
CPU = "cpu"


def resolve_device(asked: str) -> str:
    """Name the torch device that `auto` stands for here; another name is kept."""
    if asked != AUTO:
        return asked
    torch = _loaded_torch()
    return "cuda:0" if torch is not None and torch.cuda.is_available() else CPU


def device_memory_bytes(device: str) -> int | None:
    """Memory of the device; None for a CPU."""
    torch = _loaded_torch()
    if torch is None or not device.startswith("cuda"):
        return None
    return int(torch.cuda.get_device_properties(device).total_memory)


def peak_device_bytes(device: str) -> int | None:
    """Most memory this process held on the device; None for a CPU."""
    torch = _loaded_torch()
    if torch is None or not device.startswith("cuda"):
        return None
    return int(torch.cuda.max_memory_allocated(device))


def peak_host_bytes() -> int:
    """Most resident memory this process ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def use_threads(count: int | None) -> None:
    """Let torch compute on `count` threads (all cores for None)."""
    torch = _loaded_torch()
    if torch is not None:
        torch.set_num_threads(count or os.cpu_count() or 1)


def _loaded_torch() -> ModuleType | None:
    return sys.modules.get("torch")
