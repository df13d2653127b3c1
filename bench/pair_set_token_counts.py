"""Print, for each built-in pair set and tokenizer, the share of pairs of unequal token count.

Usage: python bench/pair_set_token_counts.py MODEL [MODEL ...]

MODEL is a model directory or a .gguf file. The table is Markdown, ready for docs/pair-sets.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from app.catalog.pair_sets import Pair, load_pair_set, pair_set_names

PARTS = (("selection", "pairs"), ("held out", "holdout_pairs"), ("control", "control_pairs"))


def load_tokenizer(model: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model directory, or the one inside a GGUF file."""
    if model.suffix == ".gguf":
        return AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name)
    return AutoTokenizer.from_pretrained(model)


def count_unequal(pairs: Sequence[Pair], tokenizer: PreTrainedTokenizerBase) -> int:
    """Count the pairs whose two prompts differ in their number of tokens."""
    return sum(
        len(tokenizer(pair.prompt_1).input_ids) != len(tokenizer(pair.prompt_2).input_ids)
        for pair in pairs
    )


def print_table(models: Sequence[Path]) -> None:
    """Print one row for each part of each set, one column for each model."""
    tokenizers = [load_tokenizer(model) for model in models]
    print("| set | part | pairs | " + " | ".join(model.stem for model in models) + " |")
    print("|---|---|---:|" + "---:|" * len(models))
    for name in pair_set_names():
        for title, attribute in PARTS:
            pairs: tuple[Pair, ...] = getattr(load_pair_set(name), attribute)
            counts = [count_unequal(pairs, tokenizer) for tokenizer in tokenizers]
            shares = (f"{count} ({100 * count / len(pairs):.0f} %)" for count in counts)
            print(f"| {name} | {title} | {len(pairs)} | " + " | ".join(shares) + " |")


def main() -> None:
    """Read the model paths from the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    print_table(parser.parse_args().models)


if __name__ == "__main__":
    main()
