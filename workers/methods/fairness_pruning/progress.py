"""Steps of a phase, counted over everything that the phase does."""

from collections.abc import Callable
from dataclasses import dataclass

from workers.methods.fairness_pruning.measuring.phase_data import Arrays
from workers.runtime.context import Context, raise_if_stopped


@dataclass(slots=True)
class PhaseProgress:
    """Reports whole steps to the context and polls it for a stop before each."""

    ctx: Context
    total: int
    step: int = 0

    def advance(self, message: str, *, steps: int = 1) -> None:
        """Poll, then report that `steps` more steps begin."""
        raise_if_stopped(self.ctx)
        self.step = min(self.step + steps, self.total)
        self.ctx.progress(self.step, self.total, message)

    def on_batch(self, message: str) -> Callable[[int, int], None]:
        """Return a callback for `diagnose` that counts each batch as one step."""

        def callback(_number: int, _total: int) -> None:
            self.advance(message)

        return callback

    def resumed(self, make: Callable[[], Arrays]) -> Arrays:
        """Return the arrays of this phase's checkpoint, else those of `make`, and keep them."""
        checkpoint = self.ctx.load_checkpoint()
        if checkpoint is not None:
            self.step = checkpoint.step
            return dict(checkpoint.arrays)
        arrays = make()
        self.ctx.save_checkpoint(self.step, arrays, {})
        return arrays

    def poll(self) -> None:
        """Raise `Stopped` when the attempt asks for it, without counting a step."""
        raise_if_stopped(self.ctx)
