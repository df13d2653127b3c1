"""Score attention heads in the forward pass that diagnoses the base model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.attention import Attention, read_attention
from app.domain.errors import JobErrorCode, JobFailure
from workers.methods.fairness_pruning.heads.observe import HeadObserver, OnBatch, observed_heads
from workers.methods.fairness_pruning.heads.scores import new_head_scores
from workers.methods.fairness_pruning.measuring.bias_scores import ScoreRule
from workers.methods.fairness_pruning.measuring.phase_data import Arrays
from workers.methods.fairness_pruning.measuring.subject import Subject
from workers.models.tensor_files import open_checkpoint
from workers.runtime.context import Context

HEAD_BIAS = "head_bias_scores"
"""Array of bias scores of heads, (categories, layers, heads)."""


@dataclass(frozen=True, slots=True)
class HeadMeasurement:
    """What a diagnosis needs to score heads as well; without an observer it does nothing."""

    observer: HeadObserver | None = None

    def following(self, on_batch: OnBatch) -> OnBatch:
        """Wrap the callback of `diagnose`."""
        return on_batch if self.observer is None else self.observer.following(on_batch)

    def arrays(self, counts: npt.NDArray[np.int64]) -> Arrays:
        """Give the scores as the arrays of a phase; `counts` are selection pairs by category."""
        if self.observer is None:
            return {}
        return {HEAD_BIAS: self.observer.scores.mean_or_max(counts)}


@contextmanager
def measured_heads(ctx: Context, subject: Subject, rule: ScoreRule) -> Iterator[HeadMeasurement]:
    """Score the heads of `subject` meanwhile, if the job takes out heads by their scores."""
    config: FairnessPruningConfig = ctx.config
    section = config.attention_heads
    if section is None or section.head_indices is not None:
        yield HeadMeasurement()
        return
    attention = attention_of(ctx.model_dir)
    scores = new_head_scores(
        rule, attention.shape, categories=len(subject.plan.categories), device=ctx.device
    )
    with observed_heads(subject.decoder, attention, scores, subject.batches) as observer:
        yield HeadMeasurement(observer)


def attention_of(model_dir: Path) -> Attention:
    """Read the attention of a model from its headers.

    Raises
    ------
    JobFailure
        The family is not supported. The check before the job finds the same.
    """
    try:
        return read_attention(open_checkpoint(model_dir).facts())
    except ValueError as exc:
        raise JobFailure(
            JobErrorCode.UNSUPPORTED_ARCHITECTURE,
            f"The attention heads of this model cannot be told apart: {exc}.",
            "Leave `attention_heads` out.",
        ) from exc
