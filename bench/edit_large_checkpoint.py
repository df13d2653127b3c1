"""Time and memory of the streamed edit beside a plain copy with SHA-256 and fsync.

Makes random Llama checkpoints of 2 GB in four shards, then runs by turns, several times over:

* the edit exactly as a job runs it (`apply_edit`), 1 % of the neurons of each layer;
* the reference: for every file of the checkpoint, blocks of 8 MiB read into one buffer that is
  used again, hashed, written, and one fsync at the end of each file.

Both read from a warm page cache; before every run the last target is deleted and everything is
synced, so that nobody pays for what another left to write. The ratio of a line compares the
fastest edit with the fastest copy. Peak memory is measured in a fresh process for each edit: the
high-water mark during the edit above the resident size after the imports. Linux only.

    .venv/bin/python -m bench.edit_large_checkpoint [--gigabytes 2] [--rounds 5] [--folder DIR]
"""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from bench.stage_cost import resident_bytes
from workers.methods.fairness_pruning.editing.edit import apply_edit

# Shapes of Llama 3.2 1B; the number of layers follows from the size asked for.
HIDDEN, NEURONS, KEY_VALUE, VOCABULARY = 2048, 8192, 512, 32_000
SHARDS = 4
FRACTION = 0.01
ITEM_BYTES = {"F32": 4, "BF16": 2}
MODES: dict[str, dict[str, Any]] = {
    "prune": {"mode": "prune"},
    "zero": {"mode": "zero"},
    "scale": {"mode": "scale", "scale_factor": 0.5},
}
COPY_BLOCK_BYTES = 8 * 1024 * 1024
MIB = 1024 * 1024

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one run, by the clock and of this process's CPU time."""

    wall_s: float
    cpu_s: float


def main() -> None:
    """Measure every dtype and mode and print the table."""
    arguments = parse_arguments()
    if arguments.measure_memory:
        base, out, mode = arguments.measure_memory
        print(json.dumps(peak_above_baseline(Path(base), Path(out), mode)))
        return
    print(f"{arguments.rounds} rounds, {FRACTION:.0%} of {NEURONS} neurons a layer.\n")
    print("| dtype | mode | GB | copy + SHA-256 + fsync, s | edit, s | ratio | CPU copy, s "
          "| CPU edit, s | ratio | peak above baseline, MiB |")  # fmt: skip
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for dtype in arguments.dtypes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            base = Path(folder) / "base"
            make_checkpoint(base, dtype, int(arguments.gigabytes * 1e9))
            for mode in arguments.modes:
                print(table_row(base, dtype, mode, rounds=arguments.rounds), flush=True)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to put the checkpoints, on a real disk")
    parser.add_argument("--dtypes", nargs="+", choices=ITEM_BYTES, default=list(ITEM_BYTES))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--measure-memory", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def table_row(base: Path, dtype: str, mode: str, *, rounds: int) -> str:
    """Time one mode against the copy, by turns, and measure its memory."""
    copies, edits = [], []
    target = base.with_name("out")
    for _ in range(rounds):
        copies.append(timed(lambda: copy_hash_sync(base, target), target))
        edits.append(timed(lambda: edit(base, target, mode), target))
    gigabytes = sum(path.stat().st_size for path in base.iterdir()) / 1e9
    wall = [[cost.wall_s for cost in costs] for costs in (copies, edits)]
    cpu = [[cost.cpu_s for cost in costs] for costs in (copies, edits)]
    cells = [dtype, mode, f"{gigabytes:.2f}", *compared(*wall), *compared(*cpu)]
    return "| " + " | ".join([*cells, f"{memory_of_fresh_process(base, mode):.0f}"]) + " |"


def compared(copies: list[float], edits: list[float]) -> list[str]:
    """Show minimum (median) of both, and the ratio of the minima."""
    shown = [f"{min(times):.2f} ({statistics.median(times):.2f})" for times in (copies, edits)]
    return [*shown, f"{min(edits) / min(copies):.2f}"]


def timed(run: Callable[[], object], target: Path) -> Cost:
    """Time one run from a clean start."""
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    cost = Cost(time.perf_counter() - wall, time.process_time() - cpu)
    shutil.rmtree(target)
    return cost


def edit(base: Path, target: Path, mode: str) -> None:
    """Edit as a job does: poll for a stop and tell the progress at every block."""
    config = json.loads((base / "config.json").read_text())
    random = np.random.default_rng(0)
    removed = {
        layer: sorted(random.choice(NEURONS, int(FRACTION * NEURONS), replace=False).tolist())
        for layer in range(config["num_hidden_layers"])
    }
    settings = FairnessPruningConfig.model_validate({"neuron_indices": removed, **MODES[mode]})
    apply_edit(
        base, target, removed, settings,
        should_stop=lambda: False, on_progress=lambda _done, _total: None,
    )  # fmt: skip


def copy_hash_sync(base: Path, target: Path) -> dict[str, str]:
    """Copy every file of a folder and return the SHA-256 of each."""
    target.mkdir()
    buffer = bytearray(COPY_BLOCK_BYTES)
    view = memoryview(buffer)
    hashes = {}
    for path in sorted(base.iterdir()):
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as source, (target / path.name).open("xb") as out:
            while count := source.readinto(buffer):
                digest.update(view[:count])
                out.write(view[:count])
            out.flush()
            os.fsync(out.fileno())
        hashes[path.name] = digest.hexdigest()
    return hashes


def memory_of_fresh_process(base: Path, mode: str) -> float:
    """Peak of one edit above the baseline in a new process, in MiB."""
    target = base.with_name("out")
    command = [sys.executable, "-m", "bench.edit_large_checkpoint"]
    command += ["--measure-memory", str(base), str(target), mode]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    shutil.rmtree(target)
    return float(json.loads(result.stdout)) / MIB


def peak_above_baseline(base: Path, target: Path, mode: str) -> int:
    """Bytes by which the resident size grew at most while editing."""
    # Sets the high-water mark back to the resident size, so that the peak of the imports is out.
    Path("/proc/self/clear_refs").write_text("5")
    baseline = resident_bytes("VmRSS")
    edit(base, target, mode)
    return resident_bytes("VmHWM") - baseline


def make_checkpoint(folder: Path, dtype: str, size_bytes: int) -> None:
    """Write a random Llama model of about `size_bytes`, one tensor at a time."""
    layer_bytes = ITEM_BYTES[dtype] * sum(int(np.prod(s)) for s in layer_shapes(0).values())
    embedding_bytes = ITEM_BYTES[dtype] * VOCABULARY * HIDDEN
    layers = max(SHARDS, round((size_bytes - embedding_bytes) / layer_bytes))
    folder.mkdir()
    weight_map: dict[str, str] = {}
    total = 0
    random = np.random.default_rng(0)
    for number, shapes in enumerate(shards(layers), 1):
        name = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        total += write_random_shard(folder / name, shapes, dtype, random)
        weight_map |= dict.fromkeys(shapes, name)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": NEURONS,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))


def layer_shapes(layer: int) -> Shapes:
    """Name the tensors of one layer with their shapes."""
    prefix = f"model.layers.{layer}"
    return {
        f"{prefix}.input_layernorm.weight": (HIDDEN,),
        f"{prefix}.mlp.down_proj.weight": (HIDDEN, NEURONS),
        f"{prefix}.mlp.gate_proj.weight": (NEURONS, HIDDEN),
        f"{prefix}.mlp.up_proj.weight": (NEURONS, HIDDEN),
        f"{prefix}.post_attention_layernorm.weight": (HIDDEN,),
        f"{prefix}.self_attn.k_proj.weight": (KEY_VALUE, HIDDEN),
        f"{prefix}.self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        f"{prefix}.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
        f"{prefix}.self_attn.v_proj.weight": (KEY_VALUE, HIDDEN),
    }


def shards(layers: int) -> Iterator[Shapes]:
    """Split the tensors of the model into shards of whole layers."""
    for number, part in enumerate(np.array_split(np.arange(layers), SHARDS)):
        shapes: Shapes = {}
        if number == 0:
            shapes["model.embed_tokens.weight"] = (VOCABULARY, HIDDEN)
        for layer in part.tolist():
            shapes |= layer_shapes(layer)
        if number == SHARDS - 1:
            shapes["model.norm.weight"] = (HIDDEN,)
        yield shapes


def write_random_shard(path: Path, shapes: Shapes, dtype: str, random: np.random.Generator) -> int:
    """Write one shard of normal values and return the bytes of its tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + ITEM_BYTES[dtype] * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            file.write(random_elements(shape, dtype, random).data)
    return offset


def random_elements(
    shape: tuple[int, ...], dtype: str, random: np.random.Generator
) -> npt.NDArray[Any]:
    """Draw the elements of one tensor; bfloat16 is the upper half of a float32."""
    values = np.float32(0.02) * random.standard_normal(shape, dtype=np.float32)
    return values if dtype == "F32" else (values.view(np.uint32) >> 16).astype(np.uint16)


if __name__ == "__main__":
    main()
