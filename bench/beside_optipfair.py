"""Our analysis and edit beside optiPfair 0.4.2: same models, pairs, versions and threads.

Every stage runs in a process of its own, by turns, several rounds; one thread each. Times leave
out imports and loading the model; peak memory is that of the whole process, imports included.
Both sides have to come to the same answer, or the run fails. The stages:

* metrics: activation differences of five pairs;
* neuron_bias: the bias of every neuron over five pairs;
* scores: bias and importance combined, with the bias at hand (ours reads the weights from disk);
* prune_and_save: 2 % of the neurons, with the scores at hand. Theirs prunes the loaded model and
  calls `save_pretrained`; ours streams the files, hashes and syncs them, and needs no model;
* plots: all pictures of one pair, for all layers: bars of four components, heat maps of four and
  PCA planes of two. Each side draws at its own size: theirs at 300 dpi, ours at 120 dpi and with
  a JSON twin of every picture.

    .venv/bin/python -m bench.beside_optipfair [--model DIR ...] [--random 512,1408,8]

The peer gets a virtual environment of its own, with the versions of torch, transformers, numpy
and matplotlib that are installed here; --peer-python uses one that exists. Linux only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
DEMO_MODEL = REPOSITORY / "app/demo_models/tiny-llama"
PEER = "optipfair[viz]==0.4.2"
SAME_VERSIONS = ("torch", "transformers", "numpy", "matplotlib")
# Each of equal token count under the tokenizers of the demo model and of stories260K: the peer
# gives no result for others.
PAIRS = [
    ("The boy was a doctor. He was very", "The girl was a doctor. He was very"),
    ("He was a nurse and loved to help", "She was a nurse and loved to help"),
    ("Tim wanted to be a leader. The teacher said", "Lily wanted to be a leader. The teacher said"),
    (
        "Once upon a time, there was a little girl who liked to",
        "Once upon a time, there was a little boy who liked to",
    ),
    ("His friend was a teacher", "Her friend was a teacher"),
]
PERCENT = 2.0
# Runs in one process: those that change or write something run once.
REPEATS = {"metrics": 5, "neuron_bias": 5, "scores": 5, "prune_and_save": 1, "plots": 1}
SIDES = ("optipfair", "ours")
# Both sum the same fp32 activations in another order.
RELATIVE_TOLERANCE = 1e-4
MIB = 1024 * 1024


@dataclass(slots=True)
class Side:
    """What one side needed for one stage, over all rounds."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def add(self, result: dict[str, Any]) -> None:
        """Add one process."""
        self.wall_s += result["wall_s"]
        self.cpu_s += result["cpu_s"]
        self.peak_bytes.append(result["peak_bytes"])
        self.answers.append(result["answer"])


def main() -> None:
    """Measure every model and print the tables."""
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        root = Path(folder)
        pythons = {"ours": Path(sys.executable), "optipfair": peer_python(arguments, root)}
        for model in models(arguments, root):
            print(f"\n### {model.name}\n", flush=True)
            print("| stage | wall, s: optiPfair | ours | times faster | CPU, s: optiPfair | ours "
                  "| times less | peak, MiB: optiPfair | ours |")  # fmt: skip
            print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
            bench = Bench(model, pythons, root, arguments.rounds)
            for stage in arguments.stages:
                print(table_row(stage, bench.sides(stage)), flush=True)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, action="append", help="model directory; repeatable")
    parser.add_argument("--random", default="512,1408,8", metavar="HIDDEN,NEURONS,LAYERS",
                        help="also a random Llama of this size; empty for none")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stages", nargs="+", choices=REPEATS, default=list(REPEATS))
    parser.add_argument("--peer-python", type=Path, help="a Python that has optiPfair")
    parser.add_argument("--folder", type=Path, help="where to put temporary files")
    return parser.parse_args()


def peer_python(arguments: argparse.Namespace, root: Path) -> Path:
    """Return a Python with the peer installed; makes an environment when none was named."""
    if arguments.peer_python is not None:
        found: Path = arguments.peer_python
        return found
    venv = root / "peer"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = venv / "bin" / "python"
    # The part after the plus names the build, which the package index has under the same version.
    pins = [f"{name}=={version(name).partition('+')[0]}" for name in SAME_VERSIONS]
    subprocess.run([python, "-m", "pip", "install", "--quiet", PEER, *pins], check=True)
    return python


def models(arguments: argparse.Namespace, root: Path) -> Iterator[Path]:
    """Yield the model directories; the random one borrows the tokenizer of the first."""
    named = arguments.model or [DEMO_MODEL]
    yield from (path.resolve() for path in named)
    if arguments.random:
        hidden, neurons, layers = map(int, arguments.random.split(","))
        folder = root / f"random-llama-{hidden}-{neurons}-{layers}"
        command = [sys.executable, "-m", "bench.random_llama", str(folder), str(named[0].resolve())]
        command += [str(hidden), str(neurons), str(layers)]
        subprocess.run(command, check=True, cwd=REPOSITORY)
        yield folder


@dataclass(frozen=True, slots=True)
class Bench:
    """Both sides on one model."""

    model: Path
    pythons: dict[str, Path]
    root: Path
    rounds: int

    def sides(self, stage: str) -> dict[str, Side]:
        """Run one stage on both sides by turns.

        Raises
        ------
        ValueError
            The sides found different things.
        """
        sides = {name: Side() for name in SIDES}
        for _ in range(self.rounds):
            for name, side in sides.items():
                side.add(self.run(name, stage))
        first, second = (side.answers[0] for side in sides.values())
        if not agree(first, second):
            raise ValueError(f"{stage}: optiPfair found {first}, we found {second}")
        return sides

    def run(self, side: str, stage: str) -> dict[str, Any]:
        """Run one stage of one side in a new process."""
        bias = self.root / f"bias-{self.model.name}.json"
        if side == "ours" and stage in ("scores", "prune_and_save") and not bias.exists():
            self._process(side, "save_bias", result=bias, bias=bias)
        return self._process(side, stage, result=self.root / "result.json", bias=bias)

    def _process(self, side: str, stage: str, *, result: Path, bias: Path) -> dict[str, Any]:
        module = {"ours": "bench.our_stages", "optipfair": "bench.optipfair_stages"}[side]
        with tempfile.TemporaryDirectory(dir=self.root) as folder:
            request = {
                "stage": stage, "model": str(self.model), "pairs": PAIRS, "percent": PERCENT,
                "repeat": REPEATS.get(stage, 1), "folder": folder, "result": str(result),
                "bias": str(bias),
            }  # fmt: skip
            subprocess.run(
                [self.pythons[side], "-m", module, json.dumps(request)],
                check=True,
                cwd=REPOSITORY,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
                stdout=subprocess.DEVNULL,
            )
        answer: dict[str, Any] = json.loads(result.read_text())
        return answer


def agree(first: Any, second: Any) -> bool:
    """Whether both sides came to the same numbers."""
    one, two = (value if isinstance(value, list) else [value] for value in (first, second))
    return len(one) == len(two) and all(
        abs(a - b) <= RELATIVE_TOLERANCE * abs(a) for a, b in zip(one, two, strict=True)
    )


def table_row(stage: str, sides: dict[str, Side]) -> str:
    """Show minimum (median) of both sides, the ratio of the minima, and the peaks."""
    theirs, ours = (sides[name] for name in SIDES)
    cells = [stage]
    for first, second in ((theirs.wall_s, ours.wall_s), (theirs.cpu_s, ours.cpu_s)):
        cells += [
            f"{min(first):.3f} ({statistics.median(first):.3f})",
            f"{min(second):.3f} ({statistics.median(second):.3f})",
            f"{min(first) / min(second):.1f}",
        ]
    cells += [f"{max(side.peak_bytes) / MIB:.0f}" for side in (theirs, ours)]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
