"""Bias score of every neuron: how strongly it reacts to the words swapped between two prompts.

The four choices differ in where they look (`bias_point`: the two first projections, or the input
of the down projection) and in the order of mean and absolute value (`token_reduction`).
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.methods.fairness_pruning.measuring.batches import PairBatch
from workers.methods.fairness_pruning.measuring.capture import CapturePoint


@dataclass(frozen=True, slots=True)
class ScoreRule:
    """How activations of a pair become one number per neuron, and pairs one vector."""

    bias_point: Literal["gate_up", "down_input"]
    token_reduction: Literal["abs_then_mean", "mean_then_abs"]
    score_tokens: Literal["all", "affected"]
    pair_aggregation: Literal["mean", "max"]


@dataclass(slots=True)
class BiasScores:
    """Running bias scores per category, layer and neuron.

    Sums are in fp64. A layer's first projections arrive one after the other; their per-pair parts
    are added before pairs are combined, because a maximum over pairs is taken of the sum.
    """

    rule: ScoreRule
    points: tuple[CapturePoint, ...]
    totals: Tensor  # (categories, layers, neurons)
    _waiting: dict[int, list[Tensor]] = field(default_factory=dict)

    def observe(
        self, point: CapturePoint, layer: int, *, signed: Tensor, flat: Tensor, batch: PairBatch
    ) -> None:
        """Add one batch at one point.

        Parameters
        ----------
        point, layer
            Where the activations were read; points that the rule does not use are ignored.
        signed
            Slot differences, shape (slots, neurons), fp32.
        flat
            Activations of all prompts, shape (rows, neurons), fp32.
        batch
            The batch they belong to.
        """
        if point not in self.points:
            return
        parts = self._waiting.setdefault(layer, [])
        parts.append(self._per_pair(signed, flat, batch))
        if len(parts) < len(self.points):
            return
        del self._waiting[layer]
        self._combine(layer, torch.stack(parts).sum(0), batch)

    def mean_or_max(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Scores per category, shape (categories, layers, neurons); `counts` are pairs of each."""
        totals: npt.NDArray[np.float64] = self.totals.cpu().numpy()
        if self.rule.pair_aggregation == "max":
            return totals
        return totals / np.maximum(counts, 1)[:, None, None]

    def _per_pair(self, signed: Tensor, flat: Tensor, batch: PairBatch) -> Tensor:
        values = values_by_pair(self.rule, signed, flat, batch)
        halved = self.rule.token_reduction == "mean_then_abs"  # noqa: S105 - tokens of text
        return values / len(self.points) if halved else values

    def _combine(self, layer: int, per_pair: Tensor, batch: PairBatch) -> None:
        aggregation = self.rule.pair_aggregation
        add_pairs(self.totals[:, layer], per_pair, batch, aggregation=aggregation)


def values_by_pair(rule: ScoreRule, signed: Tensor, flat: Tensor, batch: PairBatch) -> Tensor:
    """Reduce activations over tokens, shape (pairs, width) in fp64.

    Parameters
    ----------
    rule
        Gives the order of mean and absolute value, and which tokens count.
    signed
        Slot differences, shape (slots, width), fp32.
    flat
        Activations of all prompts, shape (rows, width), fp32.
    batch
        The batch they belong to.
    """
    is_affected = rule.score_tokens == "affected"
    if rule.token_reduction == "mean_then_abs":  # noqa: S105 - tokens of text
        weights = batch.affected_token_means if is_affected else batch.token_means
        return (weights @ flat).abs().double()
    weights = batch.affected_means if is_affected else batch.slot_means
    return (weights.to(signed.dtype) @ signed.abs()).double()


def add_pairs(
    totals: Tensor, per_pair: Tensor, batch: PairBatch, *, aggregation: Literal["mean", "max"]
) -> None:
    """Add the selection pairs of a batch, (pairs, width), to `totals`, (categories, width)."""
    for category in range(totals.shape[0]):
        rows = per_pair[batch.categories == category]
        if not len(rows):
            continue
        if aggregation == "mean":
            totals[category] += rows.sum(0)
        else:
            totals[category] = torch.maximum(totals[category], rows.amax(0))


def new_bias_scores(
    rule: ScoreRule,
    *,
    has_gate: bool,
    categories: int,
    layers: int,
    neurons: int,
    device: str = "cpu",
) -> BiasScores:
    """Start from zero; scores are never negative, so zero is also the neutral maximum."""
    if rule.bias_point == "down_input":
        points: tuple[CapturePoint, ...] = (CapturePoint.DOWN_PROJ_INPUT,)
    elif has_gate:
        points = (CapturePoint.GATE_PROJ, CapturePoint.UP_PROJ)
    else:
        points = (CapturePoint.UP_PROJ,)
    totals = torch.zeros(categories, layers, neurons, dtype=torch.float64, device=device)
    return BiasScores(rule=rule, points=points, totals=totals)


def pooled_scores(
    per_category: npt.NDArray[np.float64],
    counts: npt.NDArray[np.int64],
    *,
    pair_aggregation: Literal["mean", "max"],
) -> npt.NDArray[np.float64]:
    """Scores over all pairs, each pair weight 1: shape (layers, neurons)."""
    if pair_aggregation == "max":
        return np.asarray(per_category.max(axis=0))
    weights = counts / max(int(counts.sum()), 1)
    return np.asarray(np.tensordot(weights, per_category, axes=1))
