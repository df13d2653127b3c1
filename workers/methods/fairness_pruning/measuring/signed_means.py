"""Signed differences inside the pairs of each category, averaged for the layer maps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.methods.fairness_pruning.measuring.batches import PairBatch
from workers.methods.fairness_pruning.measuring.capture import CapturePoint

SIGNED_POINTS = (CapturePoint.MLP_OUTPUT, CapturePoint.ATTENTION_OUTPUT)
"""What a layer adds to the residual stream; all of them are as wide as it."""


@dataclass(slots=True)
class SignedMeans:
    """Running sums of prompt 1 minus prompt 2, one vector a category, point and layer."""

    points: tuple[CapturePoint, ...]
    sums: Tensor  # (points, layers, categories, width) fp64

    def observe(self, point: CapturePoint, layer: int, *, signed: Tensor, batch: PairBatch) -> None:
        """Add a batch's slot differences `signed` (slots, width) at one place."""
        if point not in self.points:
            return
        categories = torch.arange(self.sums.shape[2], device=signed.device)
        is_member = (batch.categories == categories[:, None]).double()  # (categories, pairs)
        weights = is_member @ batch.slot_means  # (categories, slots)
        self.sums[self.points.index(point), layer] += weights @ signed.double()

    def means(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Mean of prompt 2 minus prompt 1, over slots, then over the `counts` pairs of a category.

        Returns
        -------
        ndarray
            Shape (points, categories, layers, width).
        """
        totals = -self.sums.cpu().numpy().swapaxes(1, 2)
        means: npt.NDArray[np.float64] = totals / np.maximum(counts, 1)[:, None, None]
        return means


def new_signed_means(
    points: Sequence[CapturePoint], *, layers: int, categories: int, width: int, device: str
) -> SignedMeans:
    """Return empty sums for those of `points` that a layer map shows."""
    present = tuple(point for point in SIGNED_POINTS if point in points)
    shape = (len(present), layers, categories, width)
    return SignedMeans(present, torch.zeros(shape, dtype=torch.float64, device=device))
