"""Save a random Llama with the tokenizer of another model: the same arguments, the same weights.

.venv/bin/python -m bench.random_llama FOLDER TOKENIZER_FROM HIDDEN NEURONS LAYERS
"""

import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM


def save_random_llama(folder: Path, tokenizer_from: Path, sizes: tuple[int, int, int]) -> None:
    """Save model and tokenizer; `sizes` are hidden size, neurons of a layer, and layers."""
    hidden, neurons, layers = sizes
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_from)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=neurons,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=512,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    target, source, *numbers = sys.argv[1:]
    save_random_llama(Path(target), Path(source), tuple(map(int, numbers)))
