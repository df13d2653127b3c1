"""The engine of the fake method: deterministic output, and trouble on demand."""

import json
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from app.catalog.testkit.fake import FakeConfig
from workers.runtime.context import (
    Context,
    MethodResult,
    PhaseOutput,
    SummaryRow,
    raise_if_stopped,
)
from workers.testkit.troubles import cause_trouble

POLL_S = 0.02
# One pixel, so that the plot is a picture.
_PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c636001000000050001a5f645400000000049454e44ae426082"
)

log = logging.getLogger(__name__)


class Engine:
    """Steps through every phase; what it computes depends on the seed alone."""

    def evaluate_before(self, ctx: Context) -> PhaseOutput:
        """Measure a made-up bias."""
        total = _run_steps(ctx, "evaluating_before")
        value = 2.0 + ctx.seed
        state: dict[str, Any] = {
            "fake_bias": float("nan") if _is_due(ctx, "nan", "evaluating_before") else value,
            "steps": total,
            "evaluation_rows": [_row(value)],
        }
        return PhaseOutput(state=state, arrays={"values": _numbers(ctx.seed, 4)})

    def debias(self, ctx: Context, before: PhaseOutput) -> PhaseOutput:
        """Write a tensor and a config."""
        _wait_for_file(ctx)
        total = _run_steps(ctx, "debiasing")
        folder = ctx.out_dir / "checkpoint"
        folder.mkdir()
        count = ctx.config.output_bytes // 4
        save_file({"weight": _numbers(ctx.seed, count)}, folder / "model.safetensors")
        config = {"model_type": "fake", "architectures": ["FakeModel"]}
        (folder / "config.json").write_text(json.dumps(config))
        ctx.metric("fake_loss", 1.0 / (1 + total), total)
        return PhaseOutput(state={"steps": total, "before": before.state["fake_bias"]})

    def evaluate_after(self, ctx: Context, before: PhaseOutput, edit: PhaseOutput) -> PhaseOutput:
        """Measure a smaller bias."""
        _run_steps(ctx, "evaluating_after")
        value = before.state["fake_bias"] / 2
        nonfinite = _is_due(ctx, "nan", "evaluating_after") or _is_due(ctx, "nan", "debiasing")
        return PhaseOutput(
            state={"fake_bias": float("nan") if nonfinite else value, "edit": edit.state["steps"]}
        )

    def package(
        self, ctx: Context, before: PhaseOutput, edit: PhaseOutput, after: PhaseOutput
    ) -> MethodResult:
        """Write report and plot."""
        _run_steps(ctx, "packaging")
        first, second = before.state["fake_bias"], after.state["fake_bias"]
        for number in range(ctx.config.warnings):
            ctx.warn("fake_warning", f"Warning {number + 1} of {ctx.config.warnings}.")
        report = {"fake_bias": {"before": first, "after": second}, "steps": edit.state["steps"]}
        (ctx.out_dir / "report.json").write_text(json.dumps(report))
        (ctx.out_dir / "report.html").write_text("<!doctype html><title>Fake</title>")
        plots = ctx.out_dir / "plots"
        plots.mkdir()
        (plots / "steps.png").write_bytes(_PIXEL)
        (plots / "steps.json").write_text(json.dumps({"steps": edit.state["steps"]}))
        return MethodResult(
            before={"fake_bias": first},
            after={"fake_bias": second},
            summary=(_line(first, second),),
        )


def _run_steps(ctx: Context, phase: str) -> int:
    """Go through the phase's steps, from where an earlier attempt came to."""
    config: FakeConfig = ctx.config
    found = ctx.load_checkpoint() if config.checkpoint_every else None
    done = found.step if found else 0
    tries = int(found.state["tries"]) if found else 0
    spared = config.trouble_times is not None and tries >= config.trouble_times
    if config.checkpoint_every:
        ctx.save_checkpoint(done, {}, {"tries": tries + 1})
    for step in range(done + 1, config.steps + 1):
        if config.trouble_phase == phase and config.trouble_step == step and not spared:
            cause_trouble(config)
        _wait(ctx, config.step_s)
        ctx.progress(step, config.steps, f"step {step} of {config.steps}")
        if config.checkpoint_every and step % config.checkpoint_every == 0:
            ctx.save_checkpoint(step, {}, {"tries": tries + 1})
        raise_if_stopped(ctx)
    for number in range(config.log_lines):
        log.info("fake line %d of %s", number + 1, phase)
    return config.steps


def _is_due(ctx: Context, trouble: str, phase: str) -> bool:
    return bool(ctx.config.trouble == trouble and ctx.config.trouble_phase == phase)


def _wait(ctx: Context, seconds: float) -> None:
    """Wait as a computation would: in pieces, and with an eye on the wish to stop."""
    pause = threading.Event()
    remaining = seconds
    while remaining > 0 and not ctx.should_stop():
        pause.wait(min(remaining, POLL_S))
        remaining -= POLL_S


def _wait_for_file(ctx: Context) -> None:
    if ctx.config.wait_for is None:
        return
    pause = threading.Event()
    while not Path(ctx.config.wait_for).exists():
        raise_if_stopped(ctx)
        pause.wait(POLL_S)


def _numbers(seed: int, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def _row(value: float) -> dict[str, Any]:
    return {
        "benchmark": "fake",
        "metric": "fake_bias",
        "group": None,
        "value": value,
        "n": 4,
        "unit": "points",
        "ideal": 0.0,
        "ci95": [value - 0.5, value + 0.5],
    }


def _line(before: float, after: float) -> SummaryRow:
    return SummaryRow(
        benchmark="fake",
        metric="fake_bias",
        group=None,
        before=before,
        after=after,
        delta=after - before,
        ideal=0.0,
        improved=True,
        ci95_before=(before - 0.5, before + 0.5),
        ci95_after=(after - 0.25, after + 0.25),
        ci95_delta=(after - before - 0.5, after - before + 0.5),
        n=4,
        unit="points",
    )
