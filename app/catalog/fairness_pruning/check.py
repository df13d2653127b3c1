"""Check a Fairness Pruning config against a model's config, headers and tokenizer."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from app.catalog.fairness_pruning.amount_words import amount_difference
from app.catalog.fairness_pruning.amounts import (
    amount_findings,
    global_count,
    removal_counts,
)
from app.catalog.fairness_pruning.config import MIN_CATEGORIES, FairnessPruningConfig
from app.catalog.fairness_pruning.heads import head_findings
from app.catalog.fairness_pruning.pairs import PromptPair
from app.catalog.fairness_pruning.widths import describe_width
from app.catalog.method import CheckResult
from app.domain.architectures import (
    MlpDimensions,
    MlpLayout,
    check_diagnosis,
    check_mlps,
    find_layout,
)
from app.domain.errors import Finding
from app.domain.models import ModelFacts
from app.domain.native_tensors import check_native_tensors

Encode = Callable[[str], list[int]]

# Enough to see what is wrong with a list of pairs without an answer of megabytes.
_MAX_FINDINGS = 100
_SHOWN_CHARACTERS = 60


def check(config: FairnessPruningConfig, facts: ModelFacts) -> CheckResult:
    """Find whatever would make the job fail, as far as it shows without weights."""
    if config.diagnose_only:
        unfit = check_diagnosis(facts)
    else:
        unfit = check_mlps(facts, resizes=config.mode == "prune")
    incompatible = unfit or check_native_tensors(facts)
    layout = find_layout(facts.model_type)
    if incompatible or layout is None:
        return CheckResult(incompatible=incompatible)
    dimensions = layout.dimensions(facts.config)
    any_pairs = config.pairs or config.holdout_pairs or config.control_pairs
    if any_pairs and facts.encode is None:
        message = "The model has no tokenizer files, and prompts cannot be read without them."
        finding = Finding(pointer="/model", code="tokenizer_missing", message=message)
        return CheckResult(incompatible=(finding,))
    invalid = list(amount_findings(config, dimensions))
    if config.attention_heads is not None:
        invalid += islice(head_findings(config.attention_heads, facts), _MAX_FINDINGS)
    warnings = [] if invalid else list(_amount_warnings(config, dimensions))
    if facts.encode is not None:
        tokens = _PairTokens(config, facts.encode)
        positions = layout.max_positions(facts.config)
        limit = min(config.max_prompt_tokens, positions or config.max_prompt_tokens)
        invalid += islice(_pair_findings(tokens, limit), _MAX_FINDINGS)
        invalid += _generation_findings(tokens, positions)
        warnings += [*_length_warnings(tokens), *_generation_warnings(tokens)]
    warnings += [*_repetition_warnings(config), *_neuron_warnings(config, layout)]
    return CheckResult(invalid=tuple(invalid), warnings=tuple(warnings))


class _PairTokens:
    """The token ids of every pair of a config, each prompt encoded once."""

    def __init__(self, config: FairnessPruningConfig, encode: Encode) -> None:
        self.config = config
        self.by_field: dict[str, list[tuple[PromptPair, list[int], list[int]]]] = {
            field: [(pair, encode(pair.prompt_1), encode(pair.prompt_2)) for pair in pairs]
            for field, pairs in (
                ("pairs", config.pairs),
                ("holdout_pairs", config.holdout_pairs),
                ("control_pairs", config.control_pairs),
            )
        }

    def __iter__(self) -> Iterator[tuple[str, PromptPair, list[int], list[int]]]:
        for field, entries in self.by_field.items():
            for index, (pair, first, second) in enumerate(entries):
                yield f"/config/{field}/{index}", pair, first, second


def _pair_findings(tokens: _PairTokens, limit: int) -> Iterator[Finding]:
    rule = tokens.config.on_length_mismatch
    for pointer, pair, first, second in tokens:
        longest = max(len(first), len(second))
        if first == second:
            message = f"Both prompts give the same tokens ({_shown(pair)}); swap a word."
            yield Finding(pointer=pointer, code="pair_identical", message=message)
        elif longest > limit:
            message = f"A prompt has {longest} tokens, the limit is {limit} ({_shown(pair)})."
            yield Finding(pointer=pointer, code="pair_too_long", message=message)
        elif rule == "error" and len(first) != len(second):
            message = (
                f"The prompts have {len(first)} and {len(second)} tokens ({_shown(pair)}); choose "
                "words of equal length, or set `on_length_mismatch` to `align` or `skip`."
            )
            yield Finding(pointer=pointer, code="pair_length_mismatch", message=message)
        elif rule == "align" and _continues(first, second):
            message = (
                f"One prompt is the beginning of the other ({_shown(pair)}), so no token differs "
                "that both have; swap a word instead of adding one at the end."
            )
            yield Finding(pointer=pointer, code="pair_length_mismatch", message=message)
    if rule == "skip":
        yield from _skip_findings(tokens)


def _continues(first: list[int], second: list[int]) -> bool:
    """Say whether one prompt goes on where the other ends."""
    shorter = min(len(first), len(second))
    return first[:shorter] == second[:shorter]


def _skip_findings(tokens: _PairTokens) -> Iterator[Finding]:
    """Find selections of which too little is left once pairs of unequal length are skipped."""
    chosen = [entry for entry in tokens.by_field["pairs"] if entry[0].split != "holdout"]
    measured = [pair for pair, first, second in chosen if len(first) == len(second)]
    advice = "set `on_length_mismatch` to `align` or choose other words."
    if chosen and not measured:
        message = (
            "Every pair for selection has prompts of different token counts, so all would be "
            f"skipped; {advice}"
        )
        yield Finding(pointer="/config/pairs", code="pair_length_mismatch", message=message)
    elif (
        tokens.config.category_rule != "pooled"
        and len({pair.category for pair in measured}) < MIN_CATEGORIES
    ):
        message = (
            f"`category_rule` `{tokens.config.category_rule}` needs two or more categories, and "
            f"all pairs but those of one have prompts of different token counts; {advice}"
        )
        yield Finding(pointer="/config/category_rule", code="pair_length_mismatch", message=message)


def _generation_findings(tokens: _PairTokens, positions: int | None) -> Iterator[Finding]:
    settings = tokens.config.generation
    if positions is None or not settings.max_pairs or not tokens.by_field["pairs"]:
        return
    field, total = "max_length", settings.max_length or 0
    if settings.max_new_tokens is not None:
        field, total = "max_new_tokens", _longest(tokens)[-1] + settings.max_new_tokens
    if total > positions:
        yield Finding(
            pointer=f"/config/generation/{field}",
            code="generation_too_long",
            message=f"{total} tokens are more than the model's {positions} positions.",
        )


def _longest(tokens: _PairTokens) -> list[int]:
    """Count the tokens of the longer prompt of each of `pairs`, in ascending order."""
    return sorted(max(len(one), len(other)) for _, one, other in tokens.by_field["pairs"])


def _generation_warnings(tokens: _PairTokens) -> Iterator[str]:
    settings = tokens.config.generation
    if settings.max_length is None or not settings.max_pairs:
        return
    too_long = sum(length >= settings.max_length for length in _longest(tokens))
    if too_long:
        filled = "1 pair fills" if too_long == 1 else f"{too_long} pairs fill"
        yield (
            f"{filled} generation.max_length of {settings.max_length} tokens with the prompts "
            "alone, so nothing is written after them; raise it or give max_new_tokens."
        )


def _length_warnings(tokens: _PairTokens) -> Iterator[str]:
    unequal = sum(len(first) != len(second) for _, _, first, second in tokens)
    if not unequal or tokens.config.on_length_mismatch == "error":
        return
    what = {
        "align": "the tokens after the swapped words sit at shifted positions, and part of their "
        "difference comes from that",
        "skip": "they are left out",
    }
    having = "1 pair has" if unequal == 1 else f"{unequal} pairs have"
    yield (f"{having} prompts of different token counts: {what[tokens.config.on_length_mismatch]}.")


def _repetition_warnings(config: FairnessPruningConfig) -> Iterator[str]:
    for field in ("pairs", "holdout_pairs", "control_pairs"):
        pairs: Sequence[PromptPair] = getattr(config, field)
        repeated = len(pairs) - len({(pair.key, pair.category) for pair in pairs})
        if repeated:
            yield (
                f"`{field}` repeats pairs: {repeated} of {len(pairs)} are there already. Remove "
                "them: they add no evidence, but count in every mean and narrow the intervals."
            )


def _neuron_warnings(config: FairnessPruningConfig, layout: MlpLayout) -> Iterator[str]:
    if config.neuron_map and not layout.is_editable:
        yield (
            "There will be no neuron map: the layers of this model have experts in place of one "
            "set of neurons, and neurons of experts are not measured."
        )


def _amount_warnings(config: FairnessPruningConfig, dimensions: MlpDimensions) -> Iterator[str]:
    if config.diagnose_only:
        return
    if config.mode == "scale" and config.scale_factor == 0:
        yield "`scale_factor` is 0, which is the mode `zero`; give a factor above 0 to scale."
    if config.scope == "global":
        yield from _global_warnings(config, dimensions)
        return
    counts = removal_counts(config, dimensions)
    if not any(counts.values()):
        yield from _nothing_removed(config)
        return
    difference = amount_difference(config, dimensions, sum(counts.values()))
    if difference is not None:
        yield difference
    width = describe_width(config, dimensions, counts)
    if config.mode == "prune" and len(set(counts.values())) > 1:
        effect = "no smaller than before" if width.stored == width.base else "padded"
        yield (
            f"Layers lose different numbers of neurons, so all keep {width.stored} and shorter "
            f"ones are filled with zero neurons: the model is {effect}."
        )
    if width.advice is not None:
        yield width.advice


def _nothing_removed(config: FairnessPruningConfig) -> Iterator[str]:
    if config.attention_heads is None:
        yield "No neuron is removed: the result equals the base model."


def _global_warnings(config: FairnessPruningConfig, dimensions: MlpDimensions) -> Iterator[str]:
    """Say what is known before the neurons are ranked, and what is not."""
    count = global_count(config, dimensions)
    if not count:
        yield from _nothing_removed(config)
        return
    if config.category_rule != "pooled":
        outcome = {
            "intersection": f"at most {count} neurons are removed, and none where the sets have "
            "no neuron in common",
            "union": f"{count} neurons or more are removed, the more the sets differ",
        }[config.category_rule]
        yield (
            f"`category_rule` `{config.category_rule}` makes a top set of {count} neurons for "
            f"each category: {outcome}."
        )
    if config.mode == "prune":
        yield _padding_warning(config, dimensions, count)


def _padding_warning(config: FairnessPruningConfig, dimensions: MlpDimensions, count: int) -> str:
    may_pass_by = config.layers is not None and len(config.layers) < dimensions.layers
    if may_pass_by or (config.category_rule != "union" and count < dimensions.layers):
        size = "and since some layers lose none, the model is no smaller than before"
    else:
        size = "and the model is no smaller than before if a layer loses none"
    return (
        "Scope `global` takes neurons wherever they score highest, so it is known only after "
        "scoring how many each layer loses. A model has one width for all layers: those that lose "
        f"more are filled with zero neurons, {size}."
    )


def _shown(pair: PromptPair) -> str:
    return " / ".join(
        prompt if len(prompt) <= _SHOWN_CHARACTERS else f"{prompt[:_SHOWN_CHARACTERS]}..."
        for prompt in (pair.prompt_1, pair.prompt_2)
    )
