"""Read and mask attention heads: both at the input of the attention's output projection.

There all heads of a layer lie side by side, `head_dim` values each, after attention weights and
values have been combined and before anything mixes them. A head acts on the rest of the model
through this input only, so multiplying its block by 0 equals taking the head out.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from app.domain.attention import Attention
from workers.methods.fairness_pruning.heads.scores import HeadScores
from workers.methods.fairness_pruning.measuring.batches import PairBatch
from workers.methods.fairness_pruning.measuring.capture import Decoder

OnBatch = Callable[[int, int], None]


@dataclass(slots=True)
class HeadObserver:
    """Hands the inputs of output projections to `scores`, with the batch that is running."""

    scores: HeadScores
    batches: Sequence[PairBatch]
    _batch: PairBatch | None = None

    def following(self, on_batch: OnBatch) -> OnBatch:
        """Wrap the callback of `diagnose`, which is called with its number before each batch."""

        def callback(number: int, total: int) -> None:
            on_batch(number, total)
            self._batch = self.batches[number]

        return callback

    def observe(self, layer: int, activations: Tensor) -> None:
        """Add one batch of one layer, activations of shape (prompts, length, width)."""
        if self._batch is None:
            raise RuntimeError("activations arrived outside of a batch")
        self.scores.observe(layer, activations, self._batch)


@contextmanager
def observed_heads(
    decoder: Decoder, attention: Attention, scores: HeadScores, batches: Sequence[PairBatch]
) -> Iterator[HeadObserver]:
    """Fill `scores` while the model runs over `batches`, in their order.

    The forward pass is the caller's, so that one pass serves neurons and heads; its callback must
    go through `following`.
    """
    observer = HeadObserver(scores, batches)
    with ExitStack() as stack:
        for layer in range(decoder.layers):
            stack.callback(_hook(decoder, attention, layer, _reader(observer, layer)).remove)
        yield observer


@contextmanager
def scaled_heads(decoder: Decoder, attention: Attention, factors: Tensor) -> Iterator[None]:
    """Multiply every head's block by its factor, `factors` being (layers, heads).

    A factor of 0 equals removing the head. The weights stay untouched.
    """
    with ExitStack() as stack:
        for layer in range(decoder.layers):
            factor = factors[layer].repeat_interleave(attention.shape.head_dim)
            stack.callback(_hook(decoder, attention, layer, _scaler(factor)).remove)
        yield


Hook = Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...] | None]


def _hook(decoder: Decoder, attention: Attention, layer: int, hook: Hook) -> Any:
    return decoder.module(layer, attention.layout.output).register_forward_pre_hook(hook)


def _reader(observer: HeadObserver, layer: int) -> Hook:
    def hook(_module: nn.Module, args: tuple[Any, ...]) -> None:
        observer.observe(layer, args[0])

    return hook


def _scaler(factor: Tensor) -> Hook:
    def hook(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0] * factor.to(args[0].dtype), *args[1:])

    return hook
