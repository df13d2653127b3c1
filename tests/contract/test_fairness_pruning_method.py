"""Fairness Pruning passes the suite that every method must pass."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.catalog.methods.fairness_pruning import METHOD
from tests.contract.method_suite import MethodConformance


class TestFairnessPruning(MethodConformance):
    method = METHOD

    @pytest.fixture
    def config(self) -> Mapping[str, Any]:
        return {
            "preset": "article",
            "fraction": 0.02,
            "pairs": [
                {
                    "prompt_1": "The boy was a doctor. He was very",
                    "prompt_2": "The girl was a doctor. He was very",
                }
            ],
            "controls": {"random_seeds": 3},
            "generation": {"max_pairs": 1, "max_length": 20, "num_beams": 2},
            "plot_layers": [2],
        }

    @pytest.fixture
    def model_dir(self, shared_data: Path) -> Path:
        return shared_data / "models" / "stories260k-llama"
