"""Run Fairness Pruning jobs and build small models for its tests."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from app.catalog.methods.fairness_pruning import METHOD
from tests.tiny_models import VOCABULARY, save_tiny_model
from workers.methods.fairness_pruning.engine import Engine
from workers.runtime.context import MethodResult
from workers.runtime.local import LocalContext, local_provenance, run_locally

SPECIAL = ("<pad>", "<s>", "</s>")
WORDS = ("the", "a", "man", "woman", "boy", "girl", "was", "is", "very", "old", "tall", "and",
         "happy", "doctor", "cook", "house", "in", "one", "day", "said", "to", "big", "small",
         "red", "who", "saw", "it", "then", "he", "she")  # fmt: skip
# The parts of a job that a test of numbers does not look at.
QUIET: Mapping[str, Any] = {
    "plots": [],
    "generation": {"max_pairs": 0},
    "controls": {"enabled": False},
}

PAIR_0 = {
    "prompt_1": "The boy was a doctor. He was very",
    "prompt_2": "The girl was a doctor. He was very",
}


@dataclass(frozen=True)
class Job:
    """A finished local job."""

    context: LocalContext
    result: MethodResult
    report: dict[str, Any]

    @property
    def checkpoint(self) -> Path:
        return self.context.out_dir / "checkpoint"


def job_context(
    model_dir: Path, root: Path, config: Mapping[str, Any], **options: Any
) -> LocalContext:
    return LocalContext(
        config=METHOD.resolve(METHOD.config.model_validate(config)),
        model_dir=model_dir,
        out_dir=root / "out",
        scratch_dir=root / "scratch",
        provenance=local_provenance(model_dir, method=METHOD.name, method_version=METHOD.version),
        **options,
    )


def run_job(model_dir: Path, root: Path, config: Mapping[str, Any], **options: Any) -> Job:
    context = job_context(model_dir, root, config, **options)
    result = run_locally(Engine(), context)
    report = json.loads((context.out_dir / "report.json").read_text(encoding="utf-8"))
    return Job(context, result, report)


def word_model(folder: Path, model_type: str = "llama", **options: Any) -> Path:
    """Save a tiny random model with a tokenizer of whole words, of word pieces for qwen2.

    transformers gives qwen2 its own byte-level pipeline whatever tokenizer.json says.
    """
    save_tiny_model(folder, model_type, **options)
    words = _piece_tokenizer() if model_type == "qwen2" else _word_tokenizer()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    tokenizer.save_pretrained(folder)
    return folder


def _word_tokenizer() -> Tokenizer:
    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def _piece_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(SPECIAL), show_progress=False)
    tokenizer.train_from_iterator([" ".join(WORDS)] * 2, trainer)
    return tokenizer


def pair(first: str, second: str, **fields: Any) -> dict[str, Any]:
    return {"prompt_1": first, "prompt_2": second, **fields}
