"""Activation norms over ordinary text, for the `hybrid` importance."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.methods.fairness_pruning.measuring.batches import DIAGNOSTIC_BATCH_TOKENS
from workers.methods.fairness_pruning.measuring.capture import CapturePoint, Decoder, capture


def activation_norms(
    decoder: Decoder,
    texts: Sequence[tuple[int, ...]],
    *,
    neurons: int,
    on_text: Callable[[], None] = lambda: None,
) -> npt.NDArray[np.float64]:
    """Square root of the sum of squares of h over all tokens of all texts, (layers, neurons).

    One global sum: the result depends neither on batches nor on padding, since each text runs
    by itself. Cut texts to the model's positions first; see `windows`.
    """
    device = next(decoder.model.parameters()).device
    sums = torch.zeros(decoder.layers, neurons, dtype=torch.float64, device=device)

    def observe(_point: CapturePoint, layer: int, activations: Tensor) -> None:
        sums[layer] += activations.float().square().sum(dim=(0, 1), dtype=torch.float64)

    body = decoder.model.get_decoder()  # type: ignore[operator]
    points = (CapturePoint.DOWN_PROJ_INPUT,)
    with torch.inference_mode(), capture(decoder, observe, points=points):
        for text in texts:
            on_text()
            body(input_ids=torch.tensor([text], device=device), use_cache=False)
    return np.asarray(sums.sqrt().cpu().numpy())


def windows(texts: Sequence[Sequence[int]], *, max_positions: int | None) -> list[tuple[int, ...]]:
    """Cut texts into windows that fit the model and keep the time between two polls short."""
    length = min(DIAGNOSTIC_BATCH_TOKENS, max_positions or DIAGNOSTIC_BATCH_TOKENS)
    return [
        tuple(text[start : start + length])
        for text in texts
        for start in range(0, len(text), length)
    ]
