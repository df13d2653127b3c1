"""Make a demo model: text, tokenizer, training, measurement and README.

Run as `python -m workers.demo_models.train NAME`. It writes the folder that the package ships. With
`--measure-only` the weights stay, and only what was measured is written again.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from app.demo_models import DEMO_MODELS_DIR
from workers.demo_models.corpus import corpus, corpus_facts
from workers.demo_models.recipes import RECIPES

TRAINING_SEED = 1
FACTS = "measured.json"
README = "README.md"
PICTURE = "bias.png"
_LAST_STEPS = 100


def main() -> None:
    """Make the model named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=sorted(RECIPES))
    parser.add_argument("--output", type=Path, help="folder to write; default: the package's own")
    parser.add_argument("--measure-only", action="store_true", help="leave the weights as they are")
    chosen = parser.parse_args()
    folder = chosen.output or DEMO_MODELS_DIR / chosen.name
    if chosen.measure_only:
        made = json.loads((folder / FACTS).read_text(encoding="utf-8"))["made"]
    else:
        made = make(chosen.name, folder)
    write_facts(chosen.name, folder, made)


def make(name: str, folder: Path, *, steps: int | None = None) -> dict[str, Any]:
    """Train the model and save it with its tokenizer; return how it was made."""
    import torch

    from workers.demo_models.training import train

    recipe = RECIPES[name]
    began = time.process_time()
    texts = corpus()
    tokenizer = recipe.learn_tokenizer(texts)
    losses: list[float] = []

    def report(step: int, loss: float) -> None:
        losses.append(loss)
        if (step + 1) % _LAST_STEPS == 0:
            mean = sum(losses[-_LAST_STEPS:]) / _LAST_STEPS
            spent = time.process_time() - began
            print(f"step {step + 1}: loss {mean:.3f}, {spent:.0f} CPU s", flush=True)  # noqa: T201

    model = train(recipe, tokenizer, texts, seed=TRAINING_SEED, steps=steps, report=report)
    model.save_pretrained(folder)
    save_tokenizer(tokenizer, folder)
    last = losses[-_LAST_STEPS:]
    return {
        "corpus": corpus_facts(texts),
        "steps": len(losses),
        "batch_size": recipe.batch_size,
        "learning_rate": recipe.learning_rate,
        "seed": TRAINING_SEED,
        "final_loss": sum(last) / len(last),
        "cpu_seconds": round(time.process_time() - began),
        "torch": torch.__version__,
    }


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Save the tokenizer under a class name that older releases of transformers know, too."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    if config["tokenizer_class"] == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def write_facts(name: str, folder: Path, made: dict[str, Any]) -> None:
    """Measure the model in `folder`, and write numbers, README and picture beside it."""
    from workers.demo_models.card import draw_bias, readme
    from workers.demo_models.measuring import measure

    facts = {"made": made, "measured": measure(str(folder))}
    text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    (folder / FACTS).write_text(text, encoding="utf-8")
    (folder / README).write_text(readme(name, facts), encoding="utf-8")
    draw_bias(facts["measured"]["jobs"], folder / PICTURE)


if __name__ == "__main__":
    main()
