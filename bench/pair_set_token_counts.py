"""Print, for each built-in pair set and tokenizer, the share of pairs of unequal token count.

    .venv/bin/python -m bench.pair_set_token_counts app/demo_models/* FOLDER ...

A folder needs the files of a tokenizer and no weights; a .gguf file will do as well. The table is
Markdown, ready for docs/pair-sets.md, and every column is named after its folder.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from app.catalog.pair_sets import Pair, load_pair_set, pair_set_names

PARTS = (("selection", "pairs"), ("held out", "holdout_pairs"), ("control", "control_pairs"))


def load_tokenizer(source: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer in a folder, or the one inside a GGUF file."""
    if source.suffix == ".gguf":
        return AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    return AutoTokenizer.from_pretrained(source)


def tokenizer_sources(paths: Sequence[Path]) -> list[Path]:
    """Leave out what holds no tokenizer, so that a pattern may name a whole folder of models."""
    return [p for p in paths if p.suffix == ".gguf" or (p / "tokenizer_config.json").is_file()]


def count_unequal(pairs: Sequence[Pair], tokenizer: PreTrainedTokenizerBase) -> int:
    """Count the pairs whose two prompts differ in their number of tokens."""
    return sum(
        len(tokenizer(pair.prompt_1).input_ids) != len(tokenizer(pair.prompt_2).input_ids)
        for pair in pairs
    )


def print_table(sources: Sequence[Path]) -> None:
    """Print one row for each part of each set, one column for each tokenizer."""
    tokenizers = [load_tokenizer(source) for source in sources]
    print("| set | part | pairs | " + " | ".join(source.stem for source in sources) + " |")
    print("|---|---|---:|" + "---:|" * len(sources))
    for name in pair_set_names():
        for title, attribute in PARTS:
            pairs: tuple[Pair, ...] = getattr(load_pair_set(name), attribute)
            counts = [count_unequal(pairs, tokenizer) for tokenizer in tokenizers]
            shares = (f"{count} ({100 * count / len(pairs):.0f} %)" for count in counts)
            print(f"| {name} | {title} | {len(pairs)} | " + " | ".join(shares) + " |")


def main() -> None:
    """Read the folders from the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    sources = tokenizer_sources(parser.parse_args().folders)
    if not sources:
        parser.error("none of these holds a tokenizer")
    print_table(sources)


if __name__ == "__main__":
    main()
