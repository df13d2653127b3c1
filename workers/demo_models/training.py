"""Train a demo model on stories, on one thread: the same seed gives the same bytes."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from workers.demo_models.recipes import Batch, Recipe

WEIGHT_DECAY = 0.05
BETAS = (0.9, 0.98)
CLIPPED_NORM = 1.0
WARM_UP_SHARE = 0.04
# Batches are cut from this many times as many stories sorted by length: little is filled up.
_POOL_BATCHES = 16


def train(
    recipe: Recipe,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    seed: int,
    steps: int | None = None,
    report: Any = None,
) -> PreTrainedModel:
    """Train for `steps` (default: the recipe's), calling `report(step, loss)` after each."""
    torch.set_num_threads(1)  # sums over several threads have no fixed order
    torch.manual_seed(seed)
    steps = recipe.steps if steps is None else steps
    model = recipe.build(tokenizer).train()
    loss_of = recipe.loss(tokenizer)
    rng = random.Random(seed)
    batches = endless_batches(tokenizer, texts, recipe.batch_size, rng)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY
    )
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * pace(step, steps)
        loss = loss_of(model, next(batches), rng, step)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIPPED_NORM)
        optimizer.step()
        if report is not None:
            report(step, float(loss.detach()))
    return model.eval()


def pace(step: int, steps: int) -> float:
    """Give the share of the learning rate at `step`: up in a line, down in half a cosine."""
    warm_up = max(1, round(WARM_UP_SHARE * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def endless_batches(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], size: int, rng: random.Random
) -> Iterator[Batch]:
    """Give batches of stories of like length, again and again in another order."""
    encoded = encode(tokenizer, texts)
    while True:
        order = list(range(len(encoded)))
        rng.shuffle(order)
        pools = [
            sorted(order[start : start + size * _POOL_BATCHES], key=lambda i: len(encoded[i]))
            for start in range(0, len(order), size * _POOL_BATCHES)
        ]
        batches = [pool[at : at + size] for pool in pools for at in range(0, len(pool), size)]
        rng.shuffle(batches)
        for batch in batches:
            yield collate([encoded[index] for index in batch], tokenizer.pad_token_id)


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Turn texts into ids with all that begins and ends a text, its end token included."""
    rows: list[list[int]] = tokenizer(list(texts))["input_ids"]
    if tokenizer.eos_token_id is None:
        return rows
    return [[*row, tokenizer.eos_token_id] for row in rows]


def collate(rows: Sequence[Sequence[int]], pad_id: int) -> Batch:
    """Fill rows up to the longest."""
    length = max(len(row) for row in rows)
    ids = torch.tensor([[*row, *[pad_id] * (length - len(row))] for row in rows])
    attention = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    return Batch(ids, attention)
