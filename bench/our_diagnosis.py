"""A loaded model with its pairs, measured by this project's engine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from workers.methods.fairness_pruning.measure_base import category_counts, score_rule
from workers.methods.fairness_pruning.measuring.batches import make_batches
from workers.methods.fairness_pruning.measuring.bias_scores import new_bias_scores
from workers.methods.fairness_pruning.measuring.capture import CapturePoint, Decoder
from workers.methods.fairness_pruning.measuring.diagnosis import Diagnosis, PictureRequest, diagnose
from workers.methods.fairness_pruning.measuring.metrics import PARITY, PARITY_POINTS, pair_metrics
from workers.methods.fairness_pruning.measuring.pair_plan import PairPlan, plan_pairs
from workers.methods.fairness_pruning.measuring.subject import Shape, read_shape
from workers.models.load import load_causal_lm, load_tokenizer


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model and its tokenizer; every measurement tokenises the pairs anew."""

    decoder: Decoder
    shape: Shape
    tokenizer: Any
    config: FairnessPruningConfig

    def metrics(self) -> list[float]:
        """Measure every pair."""
        values: list[float] = pair_metrics(self.diagnosis(self.plan()))[PARITY].tolist()
        return values

    def neuron_bias(self) -> Any:
        """Score every neuron over all pairs, (layers, neurons)."""
        plan = self.plan()
        dimensions = self.shape.dimensions
        scores = new_bias_scores(
            score_rule(self.config), has_gate=True, categories=len(plan.categories),
            layers=dimensions.layers, neurons=dimensions.neurons,
        )  # fmt: skip
        points = (CapturePoint.GATE_PROJ, CapturePoint.UP_PROJ)
        self.diagnosis(plan, points=points, scores=scores)
        return scores.mean_or_max(category_counts(plan))[0]

    def plan(self) -> PairPlan:
        """Tokenise and align the pairs."""
        return plan_pairs(self.config, self.tokenizer, max_positions=self.shape.max_positions)

    def diagnosis(
        self,
        plan: PairPlan,
        *,
        points: tuple[CapturePoint, ...] = PARITY_POINTS,
        scores: Any = None,
        pictures: PictureRequest | None = None,
    ) -> Diagnosis:
        """Run the model once over all pairs."""
        pairs = plan.token_pairs()
        return diagnose(
            self.decoder, make_batches(pairs), n_pairs=len(pairs), points=points,
            scores=scores, pictures=pictures,
        )  # fmt: skip


def load_for_diagnosis(folder: Path, config: FairnessPruningConfig) -> Loaded:
    """Load a model in float32 on one thread."""
    torch.set_num_threads(1)
    model = load_causal_lm(folder, device="cpu", dtype="float32").model
    shape = read_shape(folder)
    decoder = Decoder(model, shape.layout, shape.dimensions.layers)
    return Loaded(decoder, shape, load_tokenizer(folder), config)
