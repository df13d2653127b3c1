"""The streamed edit and the importance scores need little memory, whatever the model size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LAYERS, HIDDEN, NEURONS = 4, 4096, 10_922
MATRICES = {
    "gate_proj": (NEURONS, HIDDEN),
    "up_proj": (NEURONS, HIDDEN),
    "down_proj": (HIDDEN, NEURONS),
}
LIMIT_BYTES = 300 * 1024 * 1024

MEASURED = """
import sys
from pathlib import Path
from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import find_layout
from workers.methods.fairness_pruning.editing.edit import apply_edit
from workers.methods.fairness_pruning.selecting.importance import importance_scores

def memory(field):
    # Not ru_maxrss: a new process inherits that from the one that started it.
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status[field].split()[0]) * 1024

base, out = map(Path, sys.argv[1:])
removed = {layer: list(range(layer, 10_000, 100)) for layer in range(4)}
config = FairnessPruningConfig.model_validate({"neuron_indices": removed})
open("/proc/self/clear_refs", "w").write("5")  # the peak of the imports is no matter here
baseline = memory("VmRSS")
importance_scores(base, find_layout("llama"), "ppm")
apply_edit(
    base, out, removed, config, should_stop=lambda: False, on_progress=lambda done, total: None
)
print(memory("VmHWM") - baseline)
"""


def save_sparse_model(folder: Path) -> int:
    """Write a sharded checkpoint of zeros, a file a layer, without storing the zeros."""
    folder.mkdir()
    weight_map, total = {}, 0
    for layer in range(LAYERS):
        header, offset = {}, 0
        for module, (rows, columns) in MATRICES.items():
            name = f"model.layers.{layer}.mlp.{module}.weight"
            end = offset + rows * columns * 4
            header[name] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [offset, end]}
            weight_map[name] = f"model-{layer}.safetensors"
            offset = end
        text = json.dumps(header).encode()
        with (folder / f"model-{layer}.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + offset)
        total += offset
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    sizes = {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "intermediate_size": NEURONS}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
    return total


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_gigabytes_are_edited_within_300_megabytes(tmp_path: Path) -> None:
    assert save_sparse_model(tmp_path / "base") > 2e9
    script = [sys.executable, "-c", MEASURED, str(tmp_path / "base"), str(tmp_path / "out")]

    result = subprocess.run(script, check=True, capture_output=True, text=True, timeout=500)

    assert int(result.stdout) < LIMIT_BYTES
