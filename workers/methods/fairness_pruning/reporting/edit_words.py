"""What a job did to the model, for readers who know nothing of neurons."""

from collections.abc import Iterator

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.presets import PRESETS
from workers.methods.fairness_pruning.heads.report import (
    head_facts,
    head_sentence,
    heads_subtitle,
)
from workers.methods.fairness_pruning.reporting.amount_facts import (
    choice_facts,
    difference_fact,
    in_layers,
)
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.methods.fairness_pruning.reporting.language import costs_language, language_entry
from workers.methods.fairness_pruning.reporting.model_names import model_name, origin_facts
from workers.methods.fairness_pruning.reporting.page_sections import subtitle_pairs
from workers.methods.fairness_pruning.selecting.controls import (
    BEYOND_CHANCE,
    LIKE_IMPORTANCE,
    LIKE_RANDOM,
    MIN_HOLDOUT_PAIRS,
    NO_CONTROLS,
    NO_MORE_THAN_IMPORTANCE,
    SELECTION_ONLY,
    worded,
)
from workers.models.tensor_files import open_checkpoint
from workers.reports.document import Fact, sort_rows
from workers.reports.wording import counted, grouped, size_text

EXTENSION_NOTE = (
    "The article on the method knows MLPs with a gate only. This family has none, so the method "
    "was extended to it; published results say nothing about it."
)
_DONE = {"prune": "removed", "zero": "set to zero", "scale": "weakened"}
_DOES = {"prune": "takes them out", "zero": "sets them to zero", "scale": "weakens them"}
_IMPORTANCE = {
    "max_abs": "the largest weights that lead into the neuron",
    "ppm": "the range of the weights that lead into the neuron",
    "vow": "the variance of the weights that lead into the neuron",
    "pon": "the product of the sizes of the weights that lead into the neuron",
    "l2": "the length of the weights that lead into the neuron",
    "hybrid": "the weights around the neuron and how active it is on ordinary text",
}
_POINTS = {
    "gate_up": "where text enters the neurons ({entrance})",
    "down_input": "where the neurons hand on their result (input of the down projection)",
}
_REDUCTIONS = {
    "abs_then_mean": "mean over tokens of the absolute difference",
    "mean_then_abs": "absolute value of the mean difference over tokens",
}
_PRESETS = {
    "article": "the settings of the published experiment",
    "optipfair": "the defaults of the library optiPfair",
}
_CONTROLS = {
    BEYOND_CHANCE: (
        "On pairs that had no part in choosing the neurons, the reduction is {rank}, and its "
        "lead over the removal by importance and over the mean of the random ones is larger than "
        "chance between pairs explains. So this choice of neurons reduced the difference more "
        "than the removals it was compared with; a choice that was not tried may do as well."
    ),
    NO_MORE_THAN_IMPORTANCE: (
        "As a control, as many of the least important neurons were taken out without a look at "
        "the pairs. That reduces the difference at least as much. So no reduction can be put down "
        "to this choice of neurons."
    ),
    LIKE_IMPORTANCE: (
        "As a control, as many of the least important neurons were taken out without a look at "
        "the pairs. The choice that was made leads by so little that the pairs cannot tell the "
        "two apart. So no reduction can be put down to this choice of neurons."
    ),
    LIKE_RANDOM: (
        "As a control, as many neurons were taken out at random, several times. The choice that "
        "was made does not stand out from them clearly enough, so its effect may be chance."
    ),
    SELECTION_ONLY: (
        f"Fewer than {MIN_HOLDOUT_PAIRS} pairs were kept back from the choice of the neurons. So "
        "this report cannot say whether the result holds for sentences that the method has not "
        "seen."
    ),
    NO_CONTROLS: (
        "No controls were run: this report cannot say whether taking out as many neurons chosen "
        "in another way would have done the same."
    ),
}


def subtitle(evidence: Evidence) -> str:
    """Count neurons, layers and pairs in one line."""
    touched = [len(indices) for indices in evidence.removed.values() if indices]
    pairs = subtitle_pairs(evidence)
    where = f"{len(touched)} of {len(evidence.removed)} layers"
    neurons = f"{counted(sum(touched), 'neuron')} {_DONE[evidence.config.mode]} in {where}"
    heads = heads_subtitle(evidence.edit)
    if not heads:
        return f"{neurons}{pairs}"
    return f"{neurons}; {heads}{pairs}" if touched else f"{heads}{pairs}"


def in_short(evidence: Evidence) -> tuple[str, ...]:
    """Tell the whole story in a few plain paragraphs."""
    paragraphs = [_what_the_method_does(evidence), edit_sentence(evidence)]
    if evidence.nothing_changed:
        return tuple(paragraphs)
    if evidence.rows:
        paragraphs.append(_balance(evidence))
    verdict = evidence.verdict
    if verdict.wording in _CONTROLS:
        told = _CONTROLS[verdict.wording].format(rank=verdict.rank)
        paragraphs.append(worded(told, evidence.edited_parts))
    paragraphs += _cost(evidence)
    paragraphs.append(
        "All of this is about values inside the model. Whether the texts that it writes are "
        "fairer was not measured by this job."
    )
    return tuple(paragraphs)


def edit_sentence(evidence: Evidence) -> str:
    """Say how many neurons and heads were changed and how, or that nothing was, and why."""
    heads = head_sentence(evidence.edit)
    if heads is None:
        return _neuron_sentence(evidence)
    if any(evidence.removed.values()):
        return f"{_neuron_sentence(evidence)} {heads}"
    if evidence.nothing_changed:
        return "Nothing was changed: the attention heads named were zero already."
    return heads


def _neuron_sentence(evidence: Evidence) -> str:
    """Say it of neurons alone."""
    dimensions, config = evidence.shape.dimensions, evidence.config
    if not any(evidence.removed.values()):
        return f"Nothing was changed: {_why_none(evidence)}, so every tensor is the base model's."
    total = sum(map(len, evidence.removed.values()))
    of_all = dimensions.layers * dimensions.neurons
    each = in_layers([len(indices) for indices in evidence.removed.values()])
    neurons = (
        f"{grouped(total)} of {grouped(of_all)} neurons ({100 * total / of_all:.3g} %), {each},"
    )
    if evidence.nothing_changed:
        return (
            f"Nothing was changed: {neurons} were to be {_DONE[config.mode]}, but the stored "
            "numbers are the same as before, byte for byte. Such neurons were zero already, or "
            "the factor is too near to 1 for the precision of the file."
        )
    factor = (
        f" to {config.scale_factor:g} of what they contribute" if config.mode == "scale" else ""
    )
    return f"In this job {neurons} were {_DONE[config.mode]}{factor}."


def _why_none(evidence: Evidence) -> str:
    config = evidence.config
    if config.scope == "global" and config.category_rule == "intersection":
        return "no neuron is among those that react most to every category"
    asked = 100 * evidence.edit.state["requested_fraction"]
    return f"the neurons asked for ({asked:.4g} % of all) come to no whole neuron in any layer"


def changed_facts(evidence: Evidence) -> tuple[Fact, ...]:
    """Give model, job, edit, sizes and settings, in words."""
    return (*origin_facts(evidence), *_edit_facts(evidence), *_setting_facts(evidence))


def _what_the_method_does(evidence: Evidence) -> str:
    if evidence.edited_parts == "attention heads":
        return (
            "This job shows a language model pairs of sentences that differ in one demographic "
            "word, such as man and woman. It looks for the attention heads, the parts of a layer "
            "that carry information from one word to another, that react most to the swap and "
            "matter least for everything else, and takes them out. Here it was applied to "
            f"{model_name(evidence)}."
        )
    return (
        "Fairness Pruning shows a language model pairs of sentences that differ in one demographic "
        "word, such as man and woman. It looks for the small computing units inside the model, the "
        "neurons, that react most to the swap and matter least for everything else, and "
        f"{_DOES[evidence.config.mode]}. Here it was applied to {model_name(evidence)}."
    )


def _balance(evidence: Evidence) -> str:
    judged = sort_rows(evidence.rows)
    total = len(judged.improved) + len(judged.worse) + len(judged.unchanged)
    return (
        f"Of {counted(total, 'result')} on demographic words (each metric for each group of "
        f"pairs), {len(judged.improved)} got better, {len(judged.worse)} got worse, and "
        f"{len(judged.unchanged)} {'shows' if len(judged.unchanged) == 1 else 'show'} no reliable "
        "change."
    )


def _cost(evidence: Evidence) -> Iterator[str]:
    language = language_entry(evidence)
    if language is None:
        return
    perplexity = language["perplexity"]
    values = f"{perplexity['before']:.4g} before, {perplexity['after']:.4g} after"
    if costs_language(language):
        yield (
            "The edit has a price: the model predicts the words of the prompts worse than before "
            f"(perplexity {values}; higher is worse)."
        )
    else:
        yield (
            "On the words of the prompts, the edit did not make the model reliably worse at "
            f"predicting text (perplexity {values}; higher is worse)."
        )


def _edit_facts(evidence: Evidence) -> Iterator[Fact]:
    config, state = evidence.config, evidence.edit.state
    tensors = sum(len(shard.tensors) for shard in open_checkpoint(evidence.ctx.model_dir).shards)
    changed = 0 if evidence.nothing_changed else len(state["tensors_changed"])
    has_neurons = bool(changed) and any(evidence.removed.values())
    yield Fact("Done to the neurons", _DONE[config.mode] if has_neurons else "nothing")
    yield Fact("Tensors changed", f"{changed} of {tensors}; all others are the same bytes")
    before, after = state["intermediate_size_before"], state["intermediate_size_after"]
    yield Fact(
        "Neurons of a layer", f"{before} to {after}" if after != before else f"{before}, as before"
    )
    if evidence.takes_neurons:
        yield Fact("Fraction asked for", f"{100 * state['requested_fraction']:.4g} %")
        yield Fact("Fraction changed", f"{100 * state['effective_fraction']:.4g} %")
        yield from difference_fact(evidence)
    numbers = state["parameters_before"], state["parameters_after"]
    yield Fact("Parameters", f"{numbers[0]:,} to {numbers[1]:,}")
    yield Fact("Size of the weights", _sizes(evidence))
    if state["padding_neurons"]:
        padding = sum(state["padding_neurons"].values())
        yield Fact("Zero neurons added as padding", f"{padding}")
    if config.mode == "zero" and evidence.takes_neurons:
        yield Fact("Zeroed neurons", f"{sum(map(len, evidence.removed.values()))}, still stored")
    yield from head_facts(evidence.edit)
    if evidence.shape.layout.is_extension:
        yield Fact("Extension of the method", EXTENSION_NOTE)


def _setting_facts(evidence: Evidence) -> Iterator[Fact]:
    config = evidence.config
    if config.preset is not None:
        yield from _preset_facts(config)
    if not evidence.takes_neurons:
        return
    if config.neuron_indices is not None:
        yield Fact("Choice of neurons", "named in the request; nothing was ranked")
        return
    yield from choice_facts(evidence)
    bias = 100 * config.bias_weight
    yield Fact(
        "Choice of neurons",
        f"{bias:.4g} % by reaction to the swapped word, {100 - bias:.4g} % by lack of importance",
    )
    yield Fact("Importance", f"{_IMPORTANCE[config.importance]} ({config.importance})")
    has_gate = evidence.shape.layout.projection("gate") is not None
    entrance = "gate and up projection" if has_gate else "up projection"
    point = _POINTS[config.bias_point].format(entrance=entrance)
    yield Fact("Reaction", f"{_REDUCTIONS[config.token_reduction]}, {point}")


def _preset_facts(config: FairnessPruningConfig) -> Iterator[Fact]:
    """Say what a preset sets, and which of it the rest of the request set otherwise."""
    preset = PRESETS[config.preset or ""]
    actual = {name: getattr(config, name) for name in preset}
    kept = [f"{name} {preset[name]}" for name in preset if actual[name] == preset[name]]
    other = [
        f"{name} {'none' if actual[name] is None else actual[name]} instead of {preset[name]}"
        for name in preset
        if actual[name] != preset[name]
    ]
    yield Fact("Preset", f"{config.preset}, {_PRESETS[config.preset or '']}")
    yield Fact("Settings of the preset", ", ".join(kept) or "none is left")
    if other:
        yield Fact("Set otherwise by the request", ", ".join(other))


def _sizes(evidence: Evidence) -> str:
    stages = (evidence.ctx.provenance["model_files"], evidence.edit.state["files"])
    sizes = [
        sum(f["size_bytes"] for f in files if f["path"].endswith(".safetensors"))
        for files in stages
    ]
    return f"{size_text(sizes[0])} to {size_text(sizes[1])}"
