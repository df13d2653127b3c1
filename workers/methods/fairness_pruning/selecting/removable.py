"""Refuse units of a layer, neurons or heads, that cannot be taken out."""

from collections.abc import Mapping, Sequence

from app.domain.errors import JobErrorCode, JobFailure


def require_removable(
    removed: Mapping[int, Sequence[int]], *, units: str, layers: int, width: int
) -> None:
    """Check what is to go from each layer; `units` is their name, `width` their number there.

    Raises
    ------
    JobFailure
        A layer or unit does not exist, is named twice, or a layer would lose all of them.
    """
    for layer, indices in removed.items():
        distinct = set(indices)
        inside = all(0 <= index < width for index in distinct)
        if not 0 <= layer < layers or not inside or len(distinct) != len(indices):
            raise refused(f"The {units} named for layer {layer} do not exist or repeat.")
        if len(distinct) >= width:
            raise refused(f"Layer {layer} would lose all of its {units}.")


def refused(message: str) -> JobFailure:
    """Give the failure of an edit that its check before the job should have refused."""
    return JobFailure(
        code=JobErrorCode.CONFIG_INVALID,
        message=message,
        hint="Submit the job again; if this comes back, check the model's files.",
    )
