"""Small random models of every family that can be exported to GGUF, with real tokenizers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as QWEN2_SPLIT

TEXTS = (
    "Once upon a time there was a little dog.",
    "She's 1234 years old; they DON'T know 7!",
    "na\u00efve caf\u00e9 \u2013 \u00fcber\n\n  two  spaces",
    "\u65e5\u672c and an emoji \U0001f642 at the end ",
)
_CORPUS = [
    "The little dog went to the big park, and they were happy there. Don't they know it's 12 34?",
    "Many men and women of the town said that it was the best of all days they had known.",
]
_END = "<|endoftext|>"
_BYTE_VOCABULARY = 300
# A width that no block of a quantised format divides.
NEURONS = 43
_SIZES: Mapping[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": NEURONS,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
# What transformers does not read back from a GGUF file has to be the default of its class: the
# head size of qwen3 and gemma, and the number of positions and of neurons of gpt2.
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {"head_dim": 32, "tie_word_embeddings": False},
    "mistral": {"head_dim": 16, "sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 128},
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "num_hidden_layers": 4, "sliding_window": 8},
    "gemma3_text": {"head_dim": 256, "num_hidden_layers": 7, "sliding_window": 8},
    "phi3": {"num_key_value_heads": 4, "pad_token_id": 0, "sliding_window": None},
    "gpt2": {"max_position_embeddings": 1024},
    "starcoder2": {"sliding_window": None},
    "stablelm": {},
    "nemotron": {},
    "olmo2": {},
    "granite": {
        "attention_multiplier": 0.25,
        "residual_multiplier": 0.3,
        "embedding_multiplier": 2.0,
        "logits_scaling": 3.0,
    },
}
# The others have byte-level tokenizers.
SENTENCEPIECE = ("llama", "mistral", "phi3", "gemma", "gemma2", "gemma3_text")


def save_gguf_model(
    folder: Path,
    model_type: str,
    shared: Path,
    *,
    dtype: torch.dtype = torch.float32,
    max_shard_size: str = "1GB",
    **changes: Any,
) -> Any:
    """Save a model with its tokenizer; give the model. Equal arguments give equal weights."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    if model_type in SENTENCEPIECE:
        size = _copy_tokenizer(folder, shared, is_gemma=model_type.startswith("gemma"))
        special = {"bos_token_id": 1, "eos_token_id": 2}
    else:
        size = save_byte_tokenizer(folder, is_qwen=model_type.startswith("qwen"))
        special = {"bos_token_id": 0, "eos_token_id": 0}
    settings = {**_SIZES, **FAMILIES[model_type], **special, "vocab_size": size, **changes}
    if model_type == "gpt2":
        for name in ("intermediate_size", "num_key_value_heads"):
            settings.pop(name)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **settings))
    _randomise_vectors(model, around_zero=model_type.startswith(("gemma", "nemotron")))
    model = model.to(dtype).eval()
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return model


def _randomise_vectors(model: Any, *, around_zero: bool) -> None:
    """Give norms and biases values that show when they are left out or get an offset twice."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            is_scale = "norm" in name and name.endswith("weight") and not around_zero
            torch.nn.init.normal_(parameter, mean=1.0 if is_scale else 0.0, std=0.3)


def _copy_tokenizer(folder: Path, shared: Path, *, is_gemma: bool) -> int:
    source = shared / "models" / "stories260k-llama"
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    settings = json.loads((source / "tokenizer_config.json").read_text())
    if is_gemma:
        settings["tokenizer_class"] = "GemmaTokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    # 512 pieces; the classes add special tokens of their own, and a few rows stay without a token.
    return 520


def save_byte_tokenizer(folder: Path, *, is_qwen: bool = False) -> int:
    """Train a byte-level tokenizer and save it; give the number of its tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.decoder = decoders.ByteLevel()
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = plain
    if is_qwen:
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated")
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    trainer = trainers.BpeTrainer(
        vocab_size=_BYTE_VOCABULARY,
        special_tokens=[_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 2, trainer)
    saved = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=_END, eos_token=_END)
    saved.chat_template = "{{ messages[0]['content'] }}"
    saved.save_pretrained(folder)
    return int(tokenizer.get_vocab_size())
