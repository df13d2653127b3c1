"""What report, page and card say about attention heads. Labelled an extension everywhere."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt

from workers.methods.fairness_pruning.heads.choose import STATE
from workers.methods.fairness_pruning.measuring.phase_data import unpack_removed
from workers.methods.fairness_pruning.reporting.amount_facts import in_layers
from workers.reports.document import Cell, Fact, Table
from workers.reports.wording import counted
from workers.runtime.context import PhaseOutput

Array = npt.NDArray[Any]

_DONE = {"zero": "set to zero", "remove": "removed with their key-value head"}
_MAX_ROWS = 200
# So many heads fit the list of facts.
_MAX_NAMED = 24


def heads_entry(edit: PhaseOutput) -> dict[str, Any]:
    """Give the part of report.json about heads; empty where the job did not ask for any."""
    state = edit.state.get(STATE)
    if state is None:
        return {}
    entry = {
        "extension": True,
        "mode": state["mode"],
        "head_dim": state["head_dim"],
        "query_heads": {"before": state["heads"], "after": _left(state, "heads")},
        "key_value_heads": {
            "before": state["key_value_heads"],
            "after": _left(state, "key_value_heads"),
        },
        "removed": state["removed"],
        "removed_heads": list(_head_entries(state, edit.arrays)),
        "scores": _layers(edit.arrays, "head_score"),
        "bias": _layers(edit.arrays, "head_bias"),
        "importance": _layers(edit.arrays, "head_importance"),
        "importance_of": _importance_of(state),
        "controls": state["controls"],
    }
    return {STATE: entry}


def head_sentence(edit: PhaseOutput) -> str | None:
    """Say how many heads were taken out and how; None where the job did not ask for any."""
    state = edit.state.get(STATE)
    if state is None:
        return None
    counts = [len(heads) for heads in state["removed"].values()]
    was = "was" if sum(counts) == 1 else "were"
    return (
        f"As an extension of the method, {sum(counts)} of {len(counts) * state['heads']} attention "
        f"heads, {in_layers(counts)}, {was} {_DONE[state['mode']]}."
    )


def heads_subtitle(edit: PhaseOutput) -> str:
    """Say in a few words how many heads go; empty without any."""
    state = edit.state.get(STATE)
    if state is None:
        return ""
    touched = [heads for heads in state["removed"].values() if heads]
    count = counted(sum(map(len, touched)), "attention head")
    return f"{count} in {len(touched)} of {len(state['removed'])} layers, mode {state['mode']}"


def head_facts(edit: PhaseOutput) -> Iterator[Fact]:
    """State what was done to heads, for the list of what changed."""
    state = edit.state.get(STATE)
    if state is None:
        return
    yield Fact("Done to attention heads (extension)", f"{_DONE[state['mode']]}")
    touched = {layer: heads for layer, heads in state["removed"].items() if heads}
    if 0 < sum(map(len, touched.values())) <= _MAX_NAMED:
        named = (f"layer {layer}: {', '.join(map(str, heads))}" for layer, heads in touched.items())
        yield Fact("Which heads, counted from 0", "; ".join(named))
    elif touched:
        yield Fact("Which heads", "listed in the annex")
    before, after = state["heads"], _left(state, "heads")
    yield Fact(
        "Attention heads that a layer stores",
        f"{before} to {after}" if after != before else f"{before}, as before",
    )
    if state["key_value_heads"] != state["heads"]:
        size = state["heads"] // state["key_value_heads"]
        yield Fact("Grouped queries", f"{size} heads share a key-value head")


def head_table(edit: PhaseOutput) -> Table | None:
    """List the heads that went, with the scores that chose them; None without any."""
    state = edit.state.get(STATE)
    if state is None:
        return None
    entries = list(_head_entries(state, edit.arrays))
    rows: list[tuple[Cell, ...]] = [
        (
            str(entry["layer"]),
            str(entry["head"]),
            str(entry["key_value_head"]),
            entry["score"],
            entry["bias"],
            entry["importance"],
        )
        for entry in entries[:_MAX_ROWS]
    ]
    rest = "" if len(rows) == len(entries) else " The rest is in report.json."
    controls = (
        " Each control took out as many heads of each layer, beside its neurons."
        if state["controls"]
        else ""
    )
    return Table(
        title="Attention heads (extension)",
        columns=("Layer", "Head", "Key-value head", "Score", "Reaction", "Importance"),
        rows=tuple(rows),
        note=(
            f"Heads that were {_DONE[state['mode']]}. The article does not look at heads. Reaction "
            "is the mean difference between the two prompts at the input of the attention's output "
            f"projection; importance is {_importance_of(state)}.{controls}{rest}"
        ),
    )


def _importance_of(state: Mapping[str, Any]) -> str:
    norm = "the norm of the head's columns of the output projection"
    if state["importance_has_values"]:
        return f"{norm} times that of its value rows"
    return f"{norm} alone, since values are stored fused with queries and keys"


def _left(state: Mapping[str, Any], what: str) -> int:
    """Count the heads that a layer stores afterwards: all of them in mode `zero`."""
    stored: int = state[what]
    if state["mode"] == "zero":
        return stored
    gone = max(map(len, state["removed"].values()), default=0)
    return stored - gone * stored // int(state["heads"])


def _head_entries(
    state: Mapping[str, Any], arrays: Mapping[str, Array]
) -> Iterator[dict[str, Any]]:
    size = state["heads"] // state["key_value_heads"]
    for layer, heads in unpack_removed(state["removed"]).items():
        for head in heads:
            yield {
                "layer": layer,
                "head": head,
                "key_value_head": head // size,
                **{
                    name: _value(arrays, f"head_{name}", layer, head)
                    for name in ("score", "bias", "importance")
                },
            }


def _value(arrays: Mapping[str, Array], name: str, layer: int, head: int) -> float | None:
    values = arrays[name]
    return float(values[layer, head]) if values.size else None


def _layers(arrays: Mapping[str, Array], name: str) -> list[list[float]] | None:
    values = arrays[name]
    return [[float(value) for value in row] for row in values] if values.size else None
