"""The page on pair sets shows what its script prints for the demo models."""

from pathlib import Path

import pytest

from bench.pair_set_token_counts import print_table

ROOT = Path(__file__).resolve().parents[2]
DEMO_MODELS = ("tiny-llama", "tiny-bert")


def cells(table: str, columns: list[str]) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return [[row[rows[0].index(column)] for column in columns] for row in rows]


def test_token_counts_on_the_page_are_those_of_the_shipped_tokenizers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = (ROOT / "docs/pair-sets.md").read_text(encoding="utf-8")
    start = page.index("| set | part | pairs |")
    shown = page[start : page.index("\n\n", start)]

    print_table([ROOT / "app/demo_models" / name for name in DEMO_MODELS])

    columns = ["set", "part", "pairs", *DEMO_MODELS]
    assert cells(shown, columns) == cells(capsys.readouterr().out.strip(), columns)
