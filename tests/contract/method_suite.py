"""The conformance suite that every method must pass.

A method joins by a test class that inherits `MethodConformance` and gives it a config and a
model. Everything here uses the method as the worker does: descriptor, engine, context, files.
"""

import hashlib
import importlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from safetensors import safe_open

from app.catalog.method import MethodDescriptor
from workers.runtime.context import Engine, MethodResult, Stopped
from workers.runtime.local import LocalContext, local_provenance, run_locally


def load_engine(method: MethodDescriptor) -> Engine:
    module, _, attribute = method.engine.partition(":")
    engine: Engine = getattr(importlib.import_module(module), attribute)()
    return engine


@dataclass(frozen=True)
class FinishedRun:
    """What a run left: its context, result, and digests of its inputs before and its outputs."""

    context: LocalContext
    result: MethodResult
    inputs_before: dict[str, str]
    outputs: dict[str, str]


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def refuse_constant(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


class MethodConformance:
    """What holds for every method."""

    method: ClassVar[MethodDescriptor]

    @pytest.fixture(scope="class")
    @classmethod
    def config(cls) -> Mapping[str, Any]:
        """A config that runs in seconds on `model_dir`."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def model_dir(cls) -> Path:
        """A small model that the method accepts."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def finished(
        cls,
        config: Mapping[str, Any],
        model_dir: Path,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> FinishedRun:
        """One whole run, shared by the tests that only look at what it left."""
        inputs = digests(model_dir)
        context = cls.make_context(config, model_dir, tmp_path_factory.mktemp("finished"))
        result = cls.run(context)
        return FinishedRun(context, result, inputs, digests(context.out_dir))

    @classmethod
    def make_context(
        cls, config: Mapping[str, Any], model_dir: Path, root: Path, **overrides: Any
    ) -> LocalContext:
        resolved = cls.method.resolve(cls.method.config.model_validate(config))
        provenance = local_provenance(
            model_dir, method=cls.method.name, method_version=cls.method.version
        )
        return LocalContext(
            config=resolved,
            model_dir=model_dir,
            out_dir=root / "out",
            scratch_dir=root / "scratch",
            provenance=provenance,
            **overrides,
        )

    @classmethod
    def run(cls, context: LocalContext) -> MethodResult:
        return run_locally(load_engine(cls.method), context)

    def test_example_config_is_valid_and_resolving_it_twice_changes_nothing(self) -> None:
        config = self.method.config.model_validate(self.method.example_config)

        once = self.method.resolve(config)
        stored = json.loads(json.dumps(once.model_dump(mode="json"), allow_nan=False))

        again = self.method.resolve(self.method.config.model_validate(stored))
        assert again == once

    def test_config_refuses_unknown_fields(self, config: Mapping[str, Any]) -> None:
        with pytest.raises(ValueError, match="no_such_field"):
            self.method.config.model_validate({**config, "no_such_field": 1})

    def test_every_config_field_is_described(self) -> None:
        properties = self.method.config.model_json_schema()["properties"]

        undescribed = [name for name, field in properties.items() if not field.get("description")]
        assert undescribed == []

    def test_run_leaves_checkpoint_report_and_strict_json(self, finished: FinishedRun) -> None:
        names = set(finished.outputs)
        assert {"report.json", "report.html"} <= names
        assert any(name.startswith("checkpoint/") for name in names)
        for name in names:
            if name.endswith(".json"):
                json.loads(
                    (finished.context.out_dir / name).read_text(), parse_constant=refuse_constant
                )

    def test_checkpoint_weights_are_readable_safetensors(self, finished: FinishedRun) -> None:
        weights = sorted((finished.context.out_dir / "checkpoint").glob("*.safetensors"))
        assert weights
        for path in weights:
            with safe_open(path, framework="numpy") as file:
                assert list(file.keys())

    def test_same_seed_gives_the_same_bytes(
        self, config: Mapping[str, Any], model_dir: Path, tmp_path: Path, finished: FinishedRun
    ) -> None:
        again = self.make_context(config, model_dir, tmp_path)

        self.run(again)

        assert digests(again.out_dir) == finished.outputs

    @pytest.mark.parametrize("fraction", [0.15, 0.5, 0.85])
    def test_stop_at_any_point_and_resume_elsewhere_gives_the_same_bytes(
        self,
        config: Mapping[str, Any],
        model_dir: Path,
        tmp_path: Path,
        finished: FinishedRun,
        fraction: float,
    ) -> None:
        poll = max(1, int(finished.context.polls * fraction))
        stopped = self.make_context(config, model_dir, tmp_path / "part", stop_after_polls=poll)
        with pytest.raises(Stopped):
            self.run(stopped)

        # Another worker has the stored phases and checkpoints, but none of the files.
        shutil.rmtree(stopped.out_dir, ignore_errors=True)
        shutil.rmtree(stopped.scratch_dir / "phases" / "debiasing", ignore_errors=True)
        shutil.rmtree(stopped.scratch_dir / "phases" / "evaluating_after", ignore_errors=True)
        resumed = self.make_context(config, model_dir, tmp_path / "part")
        self.run(resumed)

        assert digests(resumed.out_dir) == finished.outputs

    def test_engine_polls_for_stop_and_obeys_at_once(
        self, config: Mapping[str, Any], model_dir: Path, tmp_path: Path
    ) -> None:
        context = self.make_context(config, model_dir, tmp_path / "run", stop_after_polls=1)

        with pytest.raises(Stopped):
            self.run(context)

        assert context.polls == 1

    def test_the_input_model_is_not_touched(self, finished: FinishedRun) -> None:
        assert digests(finished.context.model_dir) == finished.inputs_before

    def test_declared_metrics_are_reported_and_no_others(self, finished: FinishedRun) -> None:
        declared = {metric.name for metric in self.method.metrics}
        reported = {row.metric for row in finished.result.summary}
        assert reported == declared
        for row in finished.result.summary:
            assert row.n > 0
            assert row.unit

    def test_progress_never_goes_back_within_a_phase(self, finished: FinishedRun) -> None:
        assert finished.context.steps
        last: dict[str, int] = {}
        for phase, step, total, _ in finished.context.steps:
            assert last.get(phase, 0) <= step <= total
            last[phase] = step
