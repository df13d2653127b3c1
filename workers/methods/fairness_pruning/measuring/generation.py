"""Deterministic continuations of prompts: beam search with the settings of the article."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from app.catalog.fairness_pruning.sections import GenerationConfig as GenerationSettings
from workers.methods.fairness_pruning.measuring.subject import Subject
from workers.runtime.seeds import seed_everything


@dataclass(frozen=True, slots=True)
class Continuation:
    """One generated text: whole, without its prompt, and as token ids without the prompt's."""

    text: str
    continuation: str
    ids: tuple[int, ...]


class _Poll(StoppingCriteria):  # type: ignore[misc]
    """Calls back after every token, so that a stop request does not wait for the whole text."""

    def __init__(self, on_token: Callable[[], None]) -> None:
        self._on_token = on_token

    def __call__(self, input_ids: Any, _scores: Any, **_kwargs: Any) -> Any:
        """Poll, and never end the search by itself."""
        self._on_token()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def continue_prompts(
    subject: Subject,
    prompts: Sequence[tuple[int, ...]],
    settings: GenerationSettings,
    *,
    seed: int,
    on_group: Callable[[], None] = lambda: None,
    on_token: Callable[[], None] = lambda: None,
) -> dict[tuple[int, ...], Continuation]:
    """Continue each distinct prompt, given as token ids.

    Prompts of equal length share a batch. Others do not: `max_length` counts the padding of a
    padded prompt, so that a batch would give shorter texts than a single prompt.
    """
    search = _beam_search(subject, settings)
    # Sampling fields of the checkpoint would be merged into the call and cause warnings.
    subject.model.generation_config = search
    results: dict[tuple[int, ...], Continuation] = {}
    for length in sorted({len(ids) for ids in prompts}):
        on_group()
        group = sorted({ids for ids in prompts if len(ids) == length})
        seed_everything(seed)
        with torch.inference_mode():
            batch = torch.tensor(group, device=subject.model.device)
            output = subject.model.generate(
                batch,
                attention_mask=torch.ones_like(batch),
                generation_config=search,
                stopping_criteria=StoppingCriteriaList([_Poll(on_token)]),
            )
        for ids, row in zip(group, output.tolist(), strict=True):
            results[ids] = _continuation(subject, row, length)
    return results


def n_groups(prompts: Sequence[tuple[int, ...]]) -> int:
    """Count the batches of `continue_prompts`."""
    return len({len(ids) for ids in prompts})


def first_difference(before: Sequence[int], after: Sequence[int]) -> int | None:
    """Index of the first generated token that differs, None for equal sequences."""
    for position, (first, second) in enumerate(zip(before, after, strict=False)):
        if first != second:
            return position
    return None if len(before) == len(after) else min(len(before), len(after))


def _beam_search(subject: Subject, settings: GenerationSettings) -> GenerationConfig:
    eos = _end_tokens(subject)
    pad = subject.tokenizer.pad_token_id
    return GenerationConfig(
        do_sample=False,
        num_beams=settings.num_beams,
        temperature=None,
        top_p=None,
        max_length=settings.max_length,
        max_new_tokens=settings.max_new_tokens,
        early_stopping=settings.early_stopping if settings.num_beams > 1 else None,
        no_repeat_ngram_size=settings.no_repeat_ngram_size,
        num_return_sequences=1,
        eos_token_id=eos or None,
        pad_token_id=pad if pad is not None else next(iter(eos), 0),
    )


def _end_tokens(subject: Subject) -> list[int]:
    """Token ids that end a text: those of the generation config, else the tokenizer's."""
    stored = subject.model.generation_config.eos_token_id
    if stored is None:
        stored = subject.tokenizer.eos_token_id
    if stored is None:
        return []
    return list(stored) if isinstance(stored, list) else [int(stored)]


def _continuation(subject: Subject, row: list[int], prompt_length: int) -> Continuation:
    ids = _without_padding(row[prompt_length:], subject)
    decode = subject.tokenizer.decode
    whole = str(decode(row[:prompt_length] + ids, skip_special_tokens=True))
    prompt = str(decode(row[:prompt_length], skip_special_tokens=True))
    return Continuation(text=whole, continuation=whole.removeprefix(prompt), ids=tuple(ids))


def _without_padding(ids: list[int], subject: Subject) -> list[int]:
    """Drop what fills a finished text up to the longest of its batch."""
    ends = set(_end_tokens(subject))
    stop = next((position + 1 for position, token in enumerate(ids) if token in ends), len(ids))
    return ids[:stop]
