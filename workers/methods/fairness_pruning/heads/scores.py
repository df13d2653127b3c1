"""Bias score of every attention head: how strongly its output reacts to the swapped words.

The method's own reduction is taken of every value at the input of the attention's output
projection, and a head's score is the mean over its `head_dim` values. Pairs become one number
after that, as they do for neurons.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from app.domain.attention import AttentionShape
from workers.methods.fairness_pruning.measuring.batches import PairBatch
from workers.methods.fairness_pruning.measuring.bias_scores import (
    ScoreRule,
    add_pairs,
    values_by_pair,
)


@dataclass(slots=True)
class HeadScores:
    """Running bias scores of the heads of every layer, over the selection pairs, in fp64."""

    rule: ScoreRule
    totals: Tensor  # (categories, layers, heads)

    def observe(self, layer: int, activations: Tensor, batch: PairBatch) -> None:
        """Add one batch at the input of a layer's output projection.

        Parameters
        ----------
        layer
            Number of the layer.
        activations
            Heads of all prompts side by side, shape (prompts, length, heads * head_dim).
        batch
            The batch they belong to.
        """
        flat = activations.reshape(-1, activations.shape[-1]).float()
        signed = batch.side_1.take(flat) - batch.side_2.take(flat)
        by_value = values_by_pair(self.rule, signed, flat, batch)  # (pairs, heads * head_dim)
        by_head = by_value.reshape(len(by_value), self.totals.shape[2], -1).mean(2)
        add_pairs(self.totals[:, layer], by_head, batch, aggregation=self.rule.pair_aggregation)

    def mean_or_max(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Scores per category, shape (categories, layers, heads); `counts` are pairs of each."""
        totals: npt.NDArray[np.float64] = self.totals.cpu().numpy()
        if self.rule.pair_aggregation == "max":
            return totals
        return totals / np.maximum(counts, 1)[:, None, None]


def new_head_scores(
    rule: ScoreRule, shape: AttentionShape, *, categories: int, device: str = "cpu"
) -> HeadScores:
    """Start from zero; scores are never negative, so zero is also the neutral maximum."""
    totals = torch.zeros(categories, shape.layers, shape.heads, dtype=torch.float64, device=device)
    return HeadScores(rule=rule, totals=totals)
