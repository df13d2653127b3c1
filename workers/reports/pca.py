"""Principal components of a few activation rows, with signs that do not flip between runs."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# The plane is drawn; fewer rows than this always fit a plane exactly and show nothing.
MIN_ROWS = 3


@dataclass(frozen=True, slots=True)
class Pca:
    """The first two principal components of some rows.

    `coordinates` has shape (n, 2), `components` (2, width), `explained_variance_ratio` (2,).
    """

    coordinates: npt.NDArray[np.float64]
    components: npt.NDArray[np.float64]
    explained_variance_ratio: npt.NDArray[np.float64]


def fit_pca(rows: npt.NDArray[np.floating]) -> Pca | None:
    """Project rows on their first two principal components, centred and not scaled.

    A singular vector is fixed up to its sign; here the loading of largest magnitude (the first
    on ties) is positive. Components beyond the rank of the data are zero, and the ratios of
    explained variance are all zero if the rows are all equal.

    Parameters
    ----------
    rows
        Shape (n, width), finite.

    Returns
    -------
    Pca or None
        None with fewer than `MIN_ROWS` rows.
    """
    if len(rows) < MIN_ROWS:
        return None
    matrix = np.asarray(rows, dtype=np.float64)
    centred = matrix - matrix.mean(axis=0)
    _, singular, right = np.linalg.svd(centred, full_matrices=False)
    power = singular**2
    total = float(power.sum())
    components = np.zeros((2, matrix.shape[1]))
    ratio = np.zeros(2)
    count = min(2, len(right))
    components[:count] = right[:count]
    ratio[:count] = power[:count] / total if total > 0 else 0.0
    strongest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[[0, 1], strongest])
    components *= np.where(signs < 0, -1.0, 1.0)[:, None]
    return Pca(centred @ components.T, components, ratio)
