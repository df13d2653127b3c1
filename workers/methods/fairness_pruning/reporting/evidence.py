"""Everything that the phases found, put together once for report, page and card."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.widths import Width, describe_width
from workers.evaluation.bootstrap import generator_for, mean_interval, summary_row
from workers.methods.fairness_pruning.editing.unchanged import changes_a_tensor
from workers.methods.fairness_pruning.measuring.capture import capture_points
from workers.methods.fairness_pruning.measuring.diagnosis import Array, Diagnosis
from workers.methods.fairness_pruning.measuring.metrics import METRICS, PARITY, pair_metrics
from workers.methods.fairness_pruning.measuring.neuron_map import neuron_map, top_counts
from workers.methods.fairness_pruning.measuring.outcomes import EditOutcome, outcome_of_edited
from workers.methods.fairness_pruning.measuring.pair_plan import (
    SPLIT_LABELS,
    SPLITS,
    UNLABELLED,
    PairPlan,
    Split,
)
from workers.methods.fairness_pruning.measuring.phase_data import unpack_diagnosis, unpack_removed
from workers.methods.fairness_pruning.measuring.subject import Shape, read_plan, read_shape
from workers.methods.fairness_pruning.run_controls import SELECTION
from workers.methods.fairness_pruning.selecting.controls import (
    IMPORTANCE_ONLY,
    NO_CONTROLS,
    NOTHING_REMOVED,
    Verdict,
    judge,
    random_name,
    removal_counts_of,
)
from workers.runtime.context import Context, PhaseOutput, SummaryRow

BENCHMARK = "activation differences"
UNIT = "pair"


@dataclass(frozen=True)
class Evidence:
    """The stored phases, unpacked. Without any measured pair, the diagnoses are None.

    In a job that only diagnoses, nothing is removed and `edited` is None.
    """

    ctx: Context
    before: PhaseOutput
    edit: PhaseOutput
    after: PhaseOutput
    plan: PairPlan
    shape: Shape
    base: Diagnosis | None
    edited: Diagnosis | None

    @property
    def config(self) -> FairnessPruningConfig:
        """The resolved config of the job."""
        config: FairnessPruningConfig = self.ctx.config
        return config

    @cached_property
    def removed(self) -> dict[int, list[int]]:
        """Neurons removed from each layer."""
        return unpack_removed(self.edit.state["removed"])

    @property
    def edited_parts(self) -> str:
        """Name what the job takes out: neurons, attention heads, or both."""
        parts = ["neurons"] if self.takes_neurons else []
        return " and ".join([*parts, "attention heads"] if self._has_heads else parts)

    @property
    def takes_neurons(self) -> bool:
        """Whether the job is about neurons: not where it takes out attention heads alone."""
        return any(self.removed.values()) or not self._has_heads

    @property
    def _has_heads(self) -> bool:
        return self.config.attention_heads is not None

    @cached_property
    def neuron_map(self) -> dict[str, Any] | None:
        """The overlap of the categories' neurons; None where the config does not ask for it."""
        categories = self.plan.categories
        if not (self.config.neuron_map and categories):
            return None
        counts = [len(self.plan.columns("selection", name)) for name in categories]
        return neuron_map(
            dict(zip(categories, self.before.arrays["bias_scores"], strict=True)),
            counts=top_counts(self.removed, neurons=self.shape.dimensions.neurons),
            importance=dict(enumerate(self.edit.arrays["importance"])),
            pair_counts=dict(zip(categories, counts, strict=True)),
            seed=self.ctx.seed,
        )

    @cached_property
    def width(self) -> Width:
        """The number of neurons that every layer stores, and what it is no longer fit for."""
        counts = removal_counts_of(self.removed)
        return describe_width(self.config, self.shape.dimensions, counts)

    @cached_property
    def metrics_before(self) -> Mapping[str, Array]:
        """Metrics of the base model per pair; empty without pairs."""
        return {} if self.base is None else pair_metrics(self.base)

    @cached_property
    def outcome(self) -> EditOutcome | None:
        """What the edit did to each pair."""
        if self.edited is None:
            return None
        kept = self.edit.arrays[f"before_on_kept/{SELECTION}"]
        return outcome_of_edited(self.edited, kept)

    @cached_property
    def controls(self) -> dict[str, EditOutcome]:
        """What each control did to each pair; empty without controls."""
        return {
            name: EditOutcome.from_array(self.edit.arrays[f"outcome/{name}"])
            for name in self.edit.state["controls"]
        }

    @cached_property
    def nothing_changed(self) -> bool:
        """Whether the edited checkpoint holds the very tensors of the base model."""
        names = self.edit.state.get("tensors_changed", ())
        return not changes_a_tensor(self.ctx.model_dir, self.ctx.out_dir / "checkpoint", names)

    @cached_property
    def verdict(self) -> Verdict:
        """What the controls allow to say."""
        columns = self.plan.columns("holdout")
        if self.nothing_changed:
            return Verdict(NOTHING_REMOVED, claim=False, n_holdout=len(columns))
        if self.outcome is None or not self.controls:
            return Verdict(NO_CONTROLS, claim=False, n_holdout=len(columns))
        draws = [
            self.controls[random_name(draw)].behavioural[columns]
            for draw in range(self.config.controls.random_seeds)
        ]
        return judge(
            self.outcome.behavioural[columns],
            draws,
            self.controls[IMPORTANCE_ONLY].behavioural[columns],
            seed=self.ctx.seed,
        )

    @cached_property
    def rows(self) -> tuple[SummaryRow, ...]:
        """The before/after table: every metric, by category and split."""
        if self.outcome is None:
            return self.base_rows
        rows = (
            self._row(metric, group, columns, split)
            for split, group, columns in self.groups
            for metric in METRICS
        )
        # Noise of a device must not make an improvement of a model that is the base model.
        return tuple(replace(row, improved=None) if self.nothing_changed else row for row in rows)

    @cached_property
    def base_rows(self) -> tuple[SummaryRow, ...]:
        """The table of the base model alone: the very numbers of `rows`, before."""
        if self.base is None:
            return ()
        return tuple(
            self._measured_row(metric, group, columns, split)
            for split, group, columns in self.groups
            for metric in METRICS
        )

    @cached_property
    def groups(self) -> tuple[tuple[Split, str, list[int]], ...]:
        """Groups of pairs with their columns: each category of each split, then all together."""
        groups: list[tuple[Split, str, list[int]]] = []
        for split in SPLITS:
            categories = self._categories(split)
            for category in categories:
                if category != UNLABELLED or len(categories) > 1:
                    name = f"{category}, {SPLIT_LABELS[split]}"
                    groups.append((split, name, self.plan.columns(split, category)))
            if len(categories) > 1 or categories == [UNLABELLED]:
                prefix = "all " if len(categories) > 1 else ""
                name = f"{prefix}{SPLIT_LABELS[split]}"
                groups.append((split, name, self.plan.columns(split)))
        return tuple(groups)

    def stage_means(self, metrics: Mapping[str, Array], split: Split) -> dict[str, float | None]:
        """Mean of each metric over the pairs of a split, None without pairs."""
        columns = self.plan.columns(split)
        return {
            name: float(np.mean(metrics[name][columns])) if metrics and columns else None
            for name in METRICS
        }

    def _categories(self, split: Split) -> list[str]:
        return sorted({pair.category for pair in self.plan.measured if pair.split == split})

    def _row(self, metric: str, group: str, columns: list[int], split: Split) -> SummaryRow:
        outcome = self.outcome
        if outcome is None:
            raise ValueError("no edited model was measured")
        return summary_row(
            benchmark=BENCHMARK,
            metric=metric,
            group=group,
            before=self.metrics_before[metric][columns],
            after=outcome.after[metric][columns],
            unit=UNIT,
            seed=self.ctx.seed,
            ideal=_ideal(split),
            lower_is_better=None if _ideal(split) is None else True,
        )

    def _measured_row(
        self, metric: str, group: str, columns: list[int], split: Split
    ) -> SummaryRow:
        """Give the row of a job without an edit: the very numbers of an edit's row, before."""
        values = self.metrics_before[metric][columns]
        rng = generator_for(self.ctx.seed, f"{BENCHMARK}/{metric}/{group}")
        interval = mean_interval(values, rng=rng)
        return SummaryRow(
            benchmark=BENCHMARK,
            metric=metric,
            group=group,
            before=float(np.mean(values)),
            after=None,
            delta=None,
            ideal=_ideal(split),
            improved=None,
            ci95_before=None if interval is None else interval.ends,
            ci95_after=None,
            ci95_delta=None,
            n=len(columns),
            unit=UNIT,
        )


def _ideal(split: Split) -> float | None:
    """Ideal of a row: a neutral word may change as much as it likes, so its pairs have none."""
    return None if split == "control" else 0.0


def gather(ctx: Context, before: PhaseOutput, edit: PhaseOutput, after: PhaseOutput) -> Evidence:
    """Unpack the phases of a job."""
    plan, shape = read_plan(ctx), read_shape(ctx.model_dir)
    points = capture_points(shape.layout)
    has_pairs = bool(plan.measured)
    is_compared = has_pairs and not ctx.config.diagnose_only
    return Evidence(
        ctx=ctx,
        before=before,
        edit=edit,
        after=after,
        plan=plan,
        shape=shape,
        base=unpack_diagnosis(before.arrays, points) if has_pairs else None,
        edited=unpack_diagnosis(after.arrays, points) if is_compared else None,
    )


def evaluation_rows(ctx: Context, before: PhaseOutput) -> list[dict[str, Any]]:
    """Give what the first phase found as rows that can be shown when it ends.

    They equal the "before" of the final table: value, interval, number of pairs.
    """
    plan, shape = read_plan(ctx), read_shape(ctx.model_dir)
    if not plan.measured:
        return []
    nothing = PhaseOutput(state={})
    evidence = Evidence(
        ctx=ctx,
        before=before,
        edit=nothing,
        after=nothing,
        plan=plan,
        shape=shape,
        base=unpack_diagnosis(before.arrays, capture_points(shape.layout)),
        edited=None,
    )
    return [
        {
            "benchmark": row.benchmark,
            "metric": row.metric,
            "group": row.group,
            "value": row.before,
            "n": row.n,
            "unit": row.unit,
            "ideal": row.ideal,
            "ci95": row.ci95_before and list(row.ci95_before),
        }
        for row in evidence.base_rows
    ]


def group_outcomes(evidence: Evidence, columns: list[int]) -> dict[str, dict[str, Any]]:
    """Means over some pairs for the selection and every control."""
    outcomes: dict[str, EditOutcome] = dict(evidence.controls)
    if evidence.outcome is not None:
        outcomes = {SELECTION: evidence.outcome, **outcomes}
    parity = evidence.metrics_before[PARITY]
    return {
        name: {
            **{metric: float(values[columns].mean()) for metric, values in made.after.items()},
            "mechanical": float(made.mechanical(parity)[columns].mean()),
            "behavioural": float(made.behavioural[columns].mean()),
        }
        for name, made in outcomes.items()
    }
