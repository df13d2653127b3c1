"""Show what the demo's edit did to the bias that its model is known to have."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from app.cli.watch import change, number

FILE = "known_bias.json"
STAGES = ("table", "before", "after")
VERDICTS = {
    True: "Known bias: P(she) of the jobs came closer to 0.5",
    False: "Known bias: P(she) of the jobs went further from 0.5",
    None: "Known bias: no reliable change of the distance of P(she) from 0.5",
}


def show_known_bias(base: Path, folder: Path, console: Console) -> None:
    """Measure both models in a process of its own, keep the numbers in `folder`, and show them."""
    measured = folder / FILE
    models = [str(base), str(folder / "checkpoint")]
    command = [sys.executable, "-m", "workers.demo_models.known_bias", *models, str(measured)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise SystemExit(f"The known bias could not be measured:\n{done.stderr.strip()}")
    found = json.loads(measured.read_text())
    console.print()
    console.print(known_bias_table(found))
    console.print(known_bias_sentence(found), highlight=False)


def known_bias_table(found: dict[str, Any]) -> Table:
    """Lay out the measured answers beside the table that the model's text was made from."""
    title = "Known bias: P(she) after the name of a job"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for heading in ("table", "before", "after"):
        table.add_column(heading, justify="right", no_wrap=True)
    for job in found["shown_jobs"]:
        table.add_row(job, *(f"{found['jobs'][job][stage]:.3f}" for stage in STAGES))
    distance, agreement, language = (
        found[name] for name in ("distance", "correlation", "perplexity")
    )
    table.add_section()
    mean = f"mean |P(she) - 0.5|, {distance['n']} jobs"
    table.add_row(mean, "", number(distance["before"]), number(distance["after"]))
    table.add_row("correlation with the table", "", *map(number, _both(agreement)))
    values = [number(text["perplexity"]) for text in _both(language)]
    table.add_row(f"perplexity, {language['before']['texts']} new stories", "", *values)
    return table


def known_bias_sentence(found: dict[str, Any]) -> str:
    """Say whether the known bias fell, as far as the interval carries it."""
    distance = found["distance"]
    amount = change(distance["delta"], distance["ci95_delta"])
    return f"{VERDICTS[distance['fell']]}: {amount}, 95 % interval over {distance['n']} jobs."


def _both(stages: dict[str, Any]) -> tuple[Any, Any]:
    return stages["before"], stages["after"]
