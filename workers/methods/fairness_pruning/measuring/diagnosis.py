"""One forward over all pairs, reduced on the fly to the differences inside each pair.

Only sums per pair, point and layer are kept, in fp64; full activations only where a picture needs
them. Whatever the model's dtype, activations are cast to fp32 before any subtraction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from app.domain.errors import JobErrorCode, JobFailure
from workers.methods.fairness_pruning.measuring.batches import PairBatch
from workers.methods.fairness_pruning.measuring.bias_scores import BiasScores
from workers.methods.fairness_pruning.measuring.capture import CapturePoint, Decoder, capture
from workers.methods.fairness_pruning.measuring.signed_means import SignedMeans

Array = npt.NDArray[np.float64]

KEPT_POINTS = (CapturePoint.GATE_PROJ, CapturePoint.UP_PROJ)
"""Points whose mean is taken over neurons, so that removing neurons changes it by itself."""

STATISTICS = ("mean", "affected_mean", "scale", "affected_scale", "max", "square_sum")


@dataclass(frozen=True, slots=True)
class PictureRequest:
    """Full activations to keep: these points and layers, for these pairs only."""

    keys: frozenset[tuple[CapturePoint, int]] = frozenset()
    pairs: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Differences of every pair at every point and layer.

    `statistics` maps `mean`, `affected_mean`, `scale`, `affected_scale`, `max` and `square_sum`
    to arrays (points, layers, pairs): the mean absolute difference over slots and neurons, half
    the sum of the two prompts' mean absolute values, the largest difference, and the sum of
    squared differences. "affected" counts only slots from the first difference on.
    `kept_mean` and `affected_kept_mean` hold the gate and up means over the neurons of each kept
    set, (sets, kept points, layers, pairs). `pictures` maps (pair, point, layer) to the fp32
    activations of prompt 1 and prompt 2, (tokens, width). `loss` is the model's mean
    cross-entropy per token on the prompts of each pair, in nats, where it was asked for, (pairs,).
    """

    points: tuple[CapturePoint, ...]
    statistics: Mapping[str, Array]
    kept_points: tuple[CapturePoint, ...]
    kept_mean: Array
    affected_kept_mean: Array
    pictures: Mapping[
        tuple[int, CapturePoint, int], tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
    ] = field(default_factory=dict)
    loss: Array | None = None

    def of(self, statistic: str, point: CapturePoint) -> Array:
        """One statistic at one point, (layers, pairs)."""
        values: Array = self.statistics[statistic][self.points.index(point)]
        return values

    def relative(self, point: CapturePoint, *, affected: bool = False) -> Array:
        """Mean difference over mean magnitude, (layers, pairs)."""
        prefix = "affected_" if affected else ""
        scale = self.of(f"{prefix}scale", point)
        return np.asarray(self.of(f"{prefix}mean", point) / (scale + 1e-12))


@dataclass(slots=True)
class _Recorder:
    """Receives activations from the hooks and adds them to the accumulators."""

    points: tuple[CapturePoint, ...]
    kept_points: tuple[CapturePoint, ...]
    sums: dict[str, Tensor]  # each (points, layers, pairs)
    not_finite: Tensor  # (points, layers, pairs)
    kept_weights: Tensor | None  # (layers, neurons, sets), each set sums to 1
    kept_sums: Tensor  # (2, sets, kept points, layers, pairs)
    scores: BiasScores | None
    signed: SignedMeans | None
    request: PictureRequest
    pictures: dict[
        tuple[int, CapturePoint, int], tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
    ]
    losses: Tensor | None = None  # (pairs,)
    batch: PairBatch | None = None

    def __call__(self, point: CapturePoint, layer: int, activations: Tensor) -> None:
        batch = self.batch
        if batch is None:
            raise RuntimeError("activations arrived outside of a batch")
        width = activations.shape[-1]
        flat = activations.reshape(-1, width).float()
        first, second = batch.side_1.take(flat), batch.side_2.take(flat)
        scale = (_row_norms(first, 1) + _row_norms(second, 1)) / (2 * width)
        signed = first.sub_(second)
        self._add(point, layer, signed=signed, scale=scale, batch=batch)
        if self.scores is not None:
            self.scores.observe(point, layer, signed=signed, flat=flat, batch=batch)
        if self.signed is not None:
            self.signed.observe(point, layer, signed=signed, batch=batch)
        if self.kept_weights is not None and point in self.kept_points:
            self._add_kept(point, layer, signed.abs() @ self.kept_weights[layer], batch)
        if (point, layer) in self.request.keys:
            self._keep(point, layer, flat, batch)

    def _add(
        self, point: CapturePoint, layer: int, *, signed: Tensor, scale: Tensor, batch: PairBatch
    ) -> None:
        where = self.points.index(point), layer
        mean = _row_norms(signed, 1) / signed.shape[1]
        squares = _row_norms(signed, 2).square()
        largest = _row_norms(signed, float("inf"))
        is_in_pair = batch.slot_means > 0
        values = {
            "mean": batch.slot_means @ mean,
            "affected_mean": batch.affected_means @ mean,
            "scale": batch.slot_means @ scale,
            "affected_scale": batch.affected_means @ scale,
            "max": torch.where(is_in_pair, largest, 0.0).amax(1),
            "square_sum": is_in_pair.double() @ squares,
        }
        for name, value in values.items():
            self.sums[name][where].index_copy_(0, batch.numbers, value)
        # The sums do not tell whose it was: in a product a NaN spreads to the other pairs.
        broken = (is_in_pair & ~torch.isfinite(scale)).any(1)
        self.not_finite[where].index_copy_(0, batch.numbers, broken)

    def _add_kept(self, point: CapturePoint, layer: int, means: Tensor, batch: PairBatch) -> None:
        position = self.kept_points.index(point)
        for row, weights in enumerate((batch.slot_means, batch.affected_means)):
            per_pair = (weights @ means.double()).T  # (sets, pairs)
            self.kept_sums[row, :, position, layer].index_copy_(1, batch.numbers, per_pair)

    def _keep(self, point: CapturePoint, layer: int, flat: Tensor, batch: PairBatch) -> None:
        for position, pair in enumerate(batch.pairs):
            if pair.number in self.request.pairs:
                rows_1, rows_2 = batch.rows_of(position)
                both = flat[rows_1].cpu().numpy().copy(), flat[rows_2].cpu().numpy().copy()
                self.pictures[pair.number, point, layer] = both


def diagnose(
    decoder: Decoder,
    batches: Sequence[PairBatch],
    *,
    n_pairs: int,
    points: Sequence[CapturePoint],
    kept: npt.NDArray[np.bool_] | None = None,
    scores: BiasScores | None = None,
    signed: SignedMeans | None = None,
    pictures: PictureRequest | None = None,
    with_loss: bool = False,
    on_batch: Callable[[int, int], None] = lambda _done, _total: None,
) -> Diagnosis:
    """Run the model over `batches`, which hold the pairs 0 to `n_pairs` - 1, and reduce.

    Parameters
    ----------
    points
        Where to read. Reading less is faster.
    kept
        Sets of neurons, (sets, layers, neurons), over which gate and up means are also taken.
    scores
        Accumulator of bias scores, filled on the way.
    signed
        Accumulator of signed differences, likewise.
    pictures
        Which full activations to keep.
    with_loss
        Whether to measure the loss on the prompts too; it costs the language model head.
    on_batch
        Called with (done, total) before each batch; may raise to stop.

    Raises
    ------
    JobFailure
        `numerical_failure` naming the first point, layer and pair with a non-finite activation.
    """
    recorder = _new_recorder(decoder, tuple(points), n_pairs, kept, batches)
    recorder.scores, recorder.signed = scores, signed
    recorder.request = pictures or PictureRequest()
    recorder.losses = recorder.sums["mean"].new_zeros(n_pairs) if with_loss else None
    _run(decoder, recorder, batches, on_batch)
    return _reduced(recorder)


def _run(
    decoder: Decoder,
    recorder: _Recorder,
    batches: Sequence[PairBatch],
    on_batch: Callable[[int, int], None],
) -> None:
    # Without losses the head is not needed: the decoder below it ends with the last layer.
    body = decoder.model if recorder.losses is not None else decoder.model.get_decoder()  # type: ignore[operator]
    with torch.inference_mode(), capture(decoder, recorder, points=recorder.points):
        for number, batch in enumerate(batches):
            on_batch(number, len(batches))
            recorder.batch = batch
            output = body(
                input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False
            )
            if recorder.losses is not None:
                recorder.losses[batch.numbers] = _pair_losses(output.logits, batch)
            _require_finite(recorder, batch)


def _pair_losses(logits: Tensor, batch: PairBatch) -> Tensor:
    """Mean cross-entropy per predicted token of each prompt, averaged over a pair's two prompts."""
    targets, is_real = batch.input_ids[:, 1:], batch.attention_mask[:, 1:].double()
    losses = torch.nn.functional.cross_entropy(
        logits[:, :-1].transpose(1, 2).float(), targets, reduction="none"
    )
    by_prompt = (losses.double() * is_real).sum(1) / is_real.sum(1).clamp(min=1)
    first, second = batch.prompt_rows()
    return (by_prompt[first] + by_prompt[second]) / 2


def _reduced(recorder: _Recorder) -> Diagnosis:
    return Diagnosis(
        points=recorder.points,
        statistics={name: value.cpu().numpy() for name, value in recorder.sums.items()},
        kept_points=recorder.kept_points,
        kept_mean=recorder.kept_sums[0].cpu().numpy(),
        affected_kept_mean=recorder.kept_sums[1].cpu().numpy(),
        pictures=recorder.pictures,
        loss=None if recorder.losses is None else recorder.losses.cpu().numpy(),
    )


def _new_recorder(
    decoder: Decoder,
    points: tuple[CapturePoint, ...],
    n_pairs: int,
    kept: npt.NDArray[np.bool_] | None,
    batches: Sequence[PairBatch],
) -> _Recorder:
    device = batches[0].input_ids.device if batches else torch.device("cpu")
    kept_points = tuple(point for point in KEPT_POINTS if point in points)
    n_sets = 0 if kept is None else len(kept)
    shape = (len(points), decoder.layers, n_pairs)
    kept_shape = (2, n_sets, len(kept_points), decoder.layers, n_pairs)
    return _Recorder(
        points=points,
        kept_points=kept_points,
        not_finite=torch.zeros(shape, dtype=torch.bool, device=device),
        sums={name: torch.zeros(shape, dtype=torch.float64, device=device) for name in STATISTICS},
        kept_weights=None if kept is None else _kept_weights(kept).to(device),
        kept_sums=torch.zeros(kept_shape, dtype=torch.float64, device=device),
        scores=None,
        signed=None,
        request=PictureRequest(),
        pictures={},
    )


def _kept_weights(kept: npt.NDArray[np.bool_]) -> Tensor:
    """Averaging weights (layers, neurons, sets) of boolean sets (sets, layers, neurons)."""
    counts = np.maximum(kept.sum(axis=2, keepdims=True), 1)
    return torch.from_numpy(np.moveaxis(kept / counts, 0, 2).astype(np.float32))


def _row_norms(rows: Tensor, order: float) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, order, dim=1)
    return norms.double()


def _require_finite(recorder: _Recorder, batch: PairBatch) -> None:
    broken = recorder.not_finite[:, :, batch.numbers]
    if bool(broken.any()):
        # A NaN spreads from its layer to all later ones: name the first.
        layer, point, column = (int(n) for n in broken.transpose(0, 1).nonzero()[0])
        raise _not_finite(f"{recorder.points[point]}_layer_{layer}", int(batch.numbers[column]))
    if recorder.losses is not None:
        is_finite = torch.isfinite(recorder.losses[batch.numbers])
        if not bool(is_finite.all()):
            raise _not_finite("logits", int(batch.numbers[(~is_finite).nonzero()[0, 0]]))


def _not_finite(key: str, pair: int) -> JobFailure:
    return JobFailure(
        JobErrorCode.NUMERICAL_FAILURE,
        f"non_finite_activation: {key} has a non-finite value for pair {pair}.",
        "Check the weights for NaN and infinities, or run the diagnosis in float32.",
        fields={"reason": "non_finite_activation", "key": key, "pair": pair},
    )
