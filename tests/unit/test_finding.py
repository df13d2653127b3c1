"""The sentences that bench/finding.py writes into the README come from the report."""

from pathlib import Path

from bench.finding import END_MARKER, MARKER, cost, fill

LANGUAGE: dict[str, object] = {
    "n": 96,
    "loss": {"before": 6.0, "after": 6.5, "importance_only": 6.25},
    "perplexity": {"before": 403.4, "after": 665.1, "importance_only": 518.0},
    "ci95_loss_increase": [0.25, 0.75],
}


def test_cost_of_language_stands_beside_that_of_another_removal() -> None:
    lines = list(cost({"language": LANGUAGE}))

    assert "**403.4 to 665.1**" in lines[0]
    assert "+0.500 nats per token (+0.250 to +0.750, over 96 pairs)" in lines[0]
    assert lines[1].endswith("518.0.")


def test_only_the_text_between_the_markers_is_replaced(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"head\n{MARKER}\nold\n{END_MARKER}\ntail\n")

    fill(readme, "new")

    assert readme.read_text() == f"head\n{MARKER}\nnew\n{END_MARKER}\ntail\n"
