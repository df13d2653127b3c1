"""Every method in the catalogue, held to the conformance suite."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.catalog.methods import fairness_pruning
from app.catalog.registry import load_registry
from tests.contract import method_suite
from tests.contract.method_suite import MethodConformance
from tests.fairness_pruning_jobs import word_model


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


class TestFairnessPruningWithAttentionHeads(TestFairnessPruning):
    """The same suite where a job removes attention heads beside neurons."""

    @pytest.fixture(scope="class")
    @classmethod
    def config(cls) -> Mapping[str, Any]:
        tails = ("was very old", "is happy", "said it", "saw the house", "was in the house")
        pairs = [{"prompt_1": f"the man {t}", "prompt_2": f"the woman {t}"} for t in tails]
        held_out = [{"prompt_1": f"a man {t}", "prompt_2": f"a woman {t}"} for t in tails]
        return {
            "pairs": pairs,
            "holdout_pairs": held_out,
            "neurons_per_layer": 2,
            "attention_heads": {"heads_per_layer": 2, "mode": "remove"},
            "controls": {"random_seeds": 3},
            "generation": {"max_pairs": 1, "max_new_tokens": 4},
            "plots": [],
        }

    @pytest.fixture(scope="class")
    @classmethod
    def model_dir(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return word_model(tmp_path_factory.mktemp("model") / "llama")
