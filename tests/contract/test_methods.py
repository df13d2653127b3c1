"""Every method in the catalogue, held to the conformance suite."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.catalog.methods import fairness_pruning
from app.catalog.registry import load_registry
from tests.contract import method_suite
from tests.contract.method_suite import MethodConformance


class TestFairnessPruning(MethodConformance):
    method = fairness_pruning.METHOD

    @pytest.fixture(scope="class")
    @classmethod
    def config(cls) -> Mapping[str, Any]:
        subjects = [("boy", "girl"), ("man", "woman"), ("king", "queen"), ("boy", "man"),
                    ("girl", "woman"), ("boy", "woman"), ("man", "girl")]  # fmt: skip
        prompt = "The {} was a doctor. One day"
        pairs = [
            {"prompt_1": prompt.format(one), "prompt_2": prompt.format(two)}
            for one, two in subjects
        ]
        return {
            "preset": "article",
            "pairs": pairs[:5],
            "holdout_pairs": pairs[5:],
            "fraction": 0.02,
            "controls": {"random_seeds": 3},
            "generation": {"max_pairs": 1},
        }

    @pytest.fixture(scope="class")
    @classmethod
    def model_dir(cls, shared_data: Path) -> Path:
        return shared_data / "models" / "stories260k-llama"


def test_every_method_of_the_catalogue_is_in_the_suite() -> None:
    offered = {method.name for method in load_registry().newest()}
    covered = {case.method.name for case in method_suite.MethodConformance.__subclasses__()}

    assert offered <= covered
