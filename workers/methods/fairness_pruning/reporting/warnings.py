"""What the reader must know before believing a number, in sentences."""

from workers.methods.fairness_pruning.measuring.pair_plan import SPLIT_LABELS
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.reporting.language import costs_language, language_entry
from workers.reports.picture import printable
from workers.reports.wording import counted, one_sentence

# Characters of a pair in a sentence about it.
_LONGEST_PAIR = 120
_DONE = {"prune": "removed", "zero": "set to zero", "scale": "scaled"}
# To set a neuron to zero computes the same as to remove it, so that would be no advice.
_GENTLER = {
    "prune": "or weaken them with mode `scale`",
    "zero": "or weaken them with mode `scale`",
    "scale": "or move `scale_factor` nearer to 1",
}


def cost_warnings(evidence: Evidence) -> list[tuple[str, str]]:
    """Code and sentence of what the edit itself costs: known only once it was measured."""
    found = (_large_edit(evidence), _language_cost(evidence))
    return [warning for warning in found if warning is not None]


def _large_edit(evidence: Evidence) -> tuple[str, str] | None:
    """Warn of layers that lose more than half of their neurons."""
    neurons = evidence.shape.dimensions.neurons
    counts = {layer: len(indices) for layer, indices in evidence.removed.items()}
    large = [layer for layer, count in counts.items() if 2 * count > neurons]
    if not large:
        return None
    most = max(large, key=lambda layer: counts[layer])
    message = (
        f"More than half of the neurons are {_DONE[evidence.config.mode]} in "
        f"{counted(len(large), 'layer')} (layer {most}: {counts[most]} of {neurons}). Little of "
        "the model may be left; use a smaller `fraction`."
    )
    return "large_edit", message


def _language_cost(evidence: Evidence) -> tuple[str, str] | None:
    """Warn of a loss on the prompts that grew reliably."""
    language = language_entry(evidence)
    if language is None or not costs_language(language):
        return None
    perplexity, (low, high) = language["perplexity"], language["ci95_loss_increase"]
    message = (
        f"The edit costs language: the perplexity on the prompts rose from "
        f"{perplexity['before']:.4g} to {perplexity['after']:.4g} (95 % interval of the increase "
        f"of the loss: {low:+.3f} to {high:+.3f} nats per token). {_gentler(evidence)}"
    )
    return "language_cost", message


def _gentler(evidence: Evidence) -> str:
    """Say what would cost less."""
    neurons = f"Change fewer neurons with a smaller `fraction`, {_GENTLER[evidence.config.mode]}."
    if evidence.config.attention_heads is None:
        return neurons
    heads = "Take out fewer attention heads."
    return f"{heads} {neurons}" if any(evidence.removed.values()) else heads


def warnings_of(evidence: Evidence) -> list[str]:
    """Give all warnings: on evidence and cost first, then on how the model is stored."""
    return [*evidence_warnings(evidence), *storage_warnings(evidence)]


def evidence_warnings(evidence: Evidence) -> list[str]:
    """Sentences that the reader must know before believing a number."""
    warnings = [message for _code, message in evidence.edit.state["warnings"]]
    warnings += [message for _code, message in cost_warnings(evidence)]
    if not evidence.config.controls.enabled:
        warnings.insert(0, "No controls were run, so nothing can be said about the selection.")
    return [*warnings, *pair_warnings(evidence)]


def storage_warnings(evidence: Evidence) -> list[str]:
    """Sentences for whoever runs the model: its size, and which formats its width is fit for."""
    advice = evidence.width.advice
    return [*_padding_warnings(evidence), *([] if advice is None else [advice])]


def pair_warnings(evidence: Evidence) -> list[str]:
    """Sentences on pairs that were left out, or whose prompts differ in length."""
    warnings = []
    for pair in evidence.plan.pairs:
        both = printable(one_sentence(pair.prompt_1, pair.prompt_2), _LONGEST_PAIR)
        name = f"The {SPLIT_LABELS[pair.split].removesuffix('s')} “{both}”"
        lengths = f"{len(pair.ids_1)} and {len(pair.ids_2)} tokens"
        if pair.column is None:
            warnings.append(f"{name} was left out: its prompts have {lengths}.")
        elif pair.alignment.dropped_span:
            warnings.append(
                f"{name} has {lengths}; the inserted words have no counterpart and do not count."
            )
    shifted = sum(1 for pair in evidence.plan.measured if pair.alignment.position_shift)
    if shifted:
        warnings.append(
            f"In {shifted} of {len(evidence.plan.measured)} pairs the prompts differ in length: "
            "part of the difference after the swapped words comes from their shifted positions."
        )
    return warnings


def _padding_warnings(evidence: Evidence) -> list[str]:
    """Say that unequal layers were filled up: the model is then larger than expected."""
    padding = evidence.edit.state["padding_neurons"]
    if not padding:
        return []
    before = evidence.edit.state["intermediate_size_before"]
    kept = evidence.edit.state["intermediate_size_after"]
    effect = (
        "the model is as large as before, as in mode zero"
        if kept == before
        else f"every layer stores {kept} neurons"
    )
    return [
        f"Layers were filled with {sum(padding.values())} zero neurons, because a model has one "
        f"size for all layers: {effect}."
    ]
