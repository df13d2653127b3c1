"""Write what a GGUF file says of the architecture: sizes, norms, embedding of positions."""

from typing import Any

import gguf

from workers.models.gguf.recipes import Recipe
from workers.models.gguf.rotary import write_rotary


def head_width(config: Any) -> int:
    """Give the size of one attention head."""
    named = getattr(config, "head_dim", None)
    return int(named or config.hidden_size // config.num_attention_heads)


def neuron_count(config: Any) -> int:
    """Give the number of neurons of each MLP."""
    if config.model_type == "gpt2":
        return int(config.n_inner or 4 * config.n_embd)
    return int(config.intermediate_size)


def write_architecture(writer: gguf.GGUFWriter, config: Any, recipe: Recipe) -> None:
    """Write the settings of the model, read from the loaded config with its defaults."""
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(neuron_count(config))
    writer.add_vocab_size(config.vocab_size)
    _write_heads(writer, config)
    epsilon = float(getattr(config, recipe.epsilon))
    if recipe.norm == "rms":
        writer.add_layer_norm_rms_eps(epsilon)
    else:
        writer.add_layer_norm_eps(epsilon)
    if config.model_type == "stablelm":
        writer.add_parallel_residual(config.use_parallel_residual)
    write_rotary(writer, config, head_width(config))
    for field, method in recipe.settings.items():
        value = getattr(config, field, None)
        if value is not None:
            getattr(writer, method)(value)


def _write_heads(writer: gguf.GGUFWriter, config: Any) -> None:
    heads = config.num_attention_heads
    writer.add_head_count(heads)
    shared = getattr(config, "num_key_value_heads", None)
    if shared is not None:
        writer.add_head_count_kv(shared)
    width = head_width(config)
    # Readers derive the width from the hidden size unless the file says otherwise.
    if getattr(config, "head_dim", None) or width * heads != config.hidden_size:
        writer.add_key_length(width)
        writer.add_value_length(width)
