"""How many parts each layer loses, in words."""

import pytest

from workers.methods.fairness_pruning.reporting.amount_facts import in_layers


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([16, 16, 16], "16 in each of 3 layers"),
        ([0, 16, 16], "16 each in 2 of 3 layers"),
        ([26, 1, 0, 0], "from 1 to 26 in 2 of 4 layers"),
        ([3, 1, 2], "from 1 to 3 in 3 of 3 layers"),
        ([0, 8], "8 in 1 of 2 layers"),
        ([8], "8 in 1 of 1 layer"),
    ],
)
def test_counts_of_layers_are_worded(counts: list[int], words: str) -> None:
    assert in_layers(counts) == words
