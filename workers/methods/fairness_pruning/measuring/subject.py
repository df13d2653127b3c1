"""The model under measurement: loaded, with its layout, its pairs and their batches."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import MlpDimensions, MlpLayout, find_layout
from app.domain.errors import JobErrorCode, JobFailure
from workers.methods.fairness_pruning.measuring.batches import PairBatch, make_batches
from workers.methods.fairness_pruning.measuring.capture import Decoder
from workers.methods.fairness_pruning.measuring.pair_plan import PairPlan, plan_pairs
from workers.models.load import load_causal_lm, load_tokenizer, resolve_dtype
from workers.runtime.context import Context


@dataclass(frozen=True, slots=True)
class Shape:
    """Layout and dimensions of a model, from its config.json."""

    layout: MlpLayout
    dimensions: MlpDimensions
    max_positions: int | None


@dataclass(frozen=True, slots=True)
class Subject:
    """A model in eval mode with everything that a measurement needs."""

    model: Any
    tokenizer: PreTrainedTokenizerBase
    dtype: str
    decoder: Decoder
    shape: Shape
    plan: PairPlan
    batches: list[PairBatch]


def read_shape(model_dir: Path) -> Shape:
    """Read layout and dimensions from a model's config.json.

    Raises
    ------
    JobFailure
        The family is not supported. The check before the job finds the same.
    """
    config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
    model_type = str(config.get("model_type", ""))
    layout = find_layout(model_type)
    if layout is None:
        raise JobFailure(
            JobErrorCode.UNSUPPORTED_ARCHITECTURE,
            f"model_type `{model_type}` is not supported.",
            "Choose a model of a supported family.",
        )
    return Shape(
        layout=layout.fitted_to(config),
        dimensions=layout.dimensions(config),
        max_positions=layout.max_positions(config),
    )


def read_plan(ctx: Context) -> PairPlan:
    """Tokenise and align the pairs of the job; no pairs need no tokenizer."""
    config: FairnessPruningConfig = ctx.config
    if not (config.pairs or config.holdout_pairs or config.control_pairs):
        return PairPlan(pairs=(), categories=())
    shape = read_shape(ctx.model_dir)
    tokenizer = load_tokenizer(ctx.model_dir)
    return plan_pairs(config, tokenizer, max_positions=shape.max_positions)


def load_subject(
    ctx: Context,
    model_dir: Path,
    plan: PairPlan,
    *,
    failure: JobErrorCode = JobErrorCode.UNSAFE_MODEL_FORMAT,
) -> Subject:
    """Load the model in `model_dir` and batch the pairs of `plan` for it.

    Tokenizer and pairs are always those of the base model, whose files an edit copies unchanged.
    """
    config: FairnessPruningConfig = ctx.config
    wanted = config.dtype if config.dtype != "auto" else ctx.dtype
    # The base decides for both models: an edit may bring a model under the limit of float32, and
    # numbers of two precisions do not compare.
    dtype = resolve_dtype(ctx.model_dir, device=ctx.device, dtype=wanted)
    loaded = load_causal_lm(model_dir, device=ctx.device, dtype=dtype, failure=failure)
    shape = read_shape(model_dir)
    decoder = Decoder(loaded.model, shape.layout, shape.dimensions.layers)
    return Subject(
        model=loaded.model,
        tokenizer=load_tokenizer(ctx.model_dir),
        dtype=loaded.dtype,
        decoder=decoder,
        shape=shape,
        plan=plan,
        batches=make_batches(plan.token_pairs(), device=ctx.device) if plan.pairs else [],
    )
