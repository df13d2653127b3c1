"""What one edit does to every pair: plain metrics, and the part that is mere arithmetic.

Removed neurons drop out of the gate and up means, and they were chosen for being large there. The
parity metric is therefore also taken over the kept neurons alone, before and after:
`mechanical` is what leaving them out of the mean changes by itself, `behavioural` the rest. The
split is the same for neurons that are removed, set to zero, or replaced by padding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from workers.methods.fairness_pruning.measuring.diagnosis import Array, Diagnosis
from workers.methods.fairness_pruning.measuring.metrics import (
    METRICS,
    PARITY,
    pair_metrics,
    parity_from_parts,
    parity_on_kept,
)

Removed = Mapping[int, Sequence[int]]
Mode = Literal["prune", "zero", "scale"]


@dataclass(frozen=True, slots=True)
class EditOutcome:
    """Metrics of every pair after one edit.

    `after` has the metrics as measured. The other two are the parity metric over the kept
    neurons, of the base model and of the edited one. All arrays are (pairs,).
    """

    after: Mapping[str, Array]
    before_on_kept: Array
    after_on_kept: Array

    def mechanical(self, before: Array) -> Array:
        """Reduction of the parity metric that leaving neurons out of the means brings about."""
        return np.asarray(before - self.before_on_kept)

    @property
    def behavioural(self) -> Array:
        """Reduction of the parity metric on the neurons that stay."""
        return np.asarray(self.before_on_kept - self.after_on_kept)

    def to_array(self) -> Array:
        """Stack everything into one array for storage; `from_array` is the inverse."""
        rows = [*(self.after[name] for name in METRICS), self.before_on_kept, self.after_on_kept]
        return np.stack(rows)

    @classmethod
    def from_array(cls, rows: Array) -> "EditOutcome":
        """Restore what `to_array` stacked."""
        after = {name: rows[position] for position, name in enumerate(METRICS)}
        return cls(after, before_on_kept=rows[-2], after_on_kept=rows[-1])


def kept_mask(removed: Removed, *, layers: int, neurons: int) -> npt.NDArray[np.bool_]:
    """Which neurons of the base model stay, (layers, neurons)."""
    mask = np.ones((layers, neurons), dtype=bool)
    for layer, indices in removed.items():
        mask[layer, list(indices)] = False
    return mask


def kept_mask_after(
    removed: Removed, *, mode: Mode, layers: int, neurons: int, stored_neurons: int
) -> npt.NDArray[np.bool_]:
    """Which neurons of the edited model are kept ones, (layers, `stored_neurons`).

    Pruning moves kept neurons to the front, and padding follows them.
    """
    before = kept_mask(removed, layers=layers, neurons=neurons)
    if mode != "prune":
        return before
    return np.asarray(np.arange(stored_neurons) < before.sum(axis=1, keepdims=True))


def outcome_of_edited(edited: Diagnosis, before_on_kept: Array) -> EditOutcome:
    """Outcome from a diagnosis of the edited model with its kept mask as the only kept set."""
    return EditOutcome(
        after=pair_metrics(edited),
        before_on_kept=before_on_kept,
        after_on_kept=parity_on_kept(edited, 0),
    )


def outcome_of_masked(
    masked: Diagnosis,
    before_on_kept: Array,
    removed: Removed,
    *,
    mode: Mode,
    neurons: int,
    stored_neurons: int,
) -> EditOutcome:
    """Outcome of an edit that was only simulated by scaling neurons in memory.

    Gate and up projections of a masked model still compute the masked neurons. What the stored
    model would show follows from the kept means: the same in mode `prune`, diluted by neurons
    without any difference where zeros are stored, and unchanged in mode `scale`. The base has
    `neurons` in each layer, the stored model `stored_neurons`.
    """
    after = pair_metrics(masked)
    if mode != "scale":
        kept = np.array([neurons - len(removed[layer]) for layer in sorted(removed)])
        diluted = masked.kept_mean[0] * (kept / stored_neurons)[None, :, None]
        after[PARITY] = parity_from_parts(masked, diluted, masked.kept_points)
    return EditOutcome(
        after=after, before_on_kept=before_on_kept, after_on_kept=parity_on_kept(masked, 0)
    )
