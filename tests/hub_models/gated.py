"""The tensors of Llama and its relatives, line by line."""

from typing import Any


def attention(prefix: str, hidden: int, query: int, key: int) -> str:
    """Write the four projections of an attention without biases."""
    return f"""
    {prefix}self_attn.q_proj.weight {query} {hidden}
    {prefix}self_attn.k_proj.weight {key} {hidden}
    {prefix}self_attn.v_proj.weight {key} {hidden}
    {prefix}self_attn.o_proj.weight {hidden} {query}
    """


def query_biases(prefix: str, query: int, key: int) -> str:
    """Write the biases of queries, keys and values."""
    return f"""
    {prefix}self_attn.q_proj.bias {query}
    {prefix}self_attn.k_proj.bias {key}
    {prefix}self_attn.v_proj.bias {key}
    """


def gated(prefix: str, hidden: int, neurons: int) -> str:
    """Write an MLP with a gate."""
    return f"""
    {prefix}mlp.gate_proj.weight {neurons} {hidden}
    {prefix}mlp.up_proj.weight {neurons} {hidden}
    {prefix}mlp.down_proj.weight {hidden} {neurons}
    """


def fused(prefix: str, hidden: int, neurons: int) -> str:
    """Write an MLP whose gate and up projection are one matrix."""
    return f"""
    {prefix}mlp.gate_up_proj.weight {2 * neurons} {hidden}
    {prefix}mlp.down_proj.weight {hidden} {neurons}
    """


def weights(prefix: str, size: int, *names: str) -> str:
    """Write vectors of one size."""
    return "".join(f"{prefix}{name}.weight {size}\n" for name in names)


TWO_NORMS = ("input_layernorm", "post_attention_layernorm")
FOUR_NORMS = (*TWO_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def _sizes(config: dict[str, Any]) -> tuple[int, int, int, int, str]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    width = config.get("head_dim") or hidden // heads
    query, key = heads * width, config.get("num_key_value_heads", heads) * width
    return (
        hidden,
        config["intermediate_size"],
        query,
        key,
        f"model.layers.{{0-{config['num_hidden_layers'] - 1}}}.",
    )


def llama(config: dict[str, Any], *, layer_norms: tuple[str, ...] = TWO_NORMS) -> str:
    """Write the tensors of a Llama without a stored output head."""
    hidden, neurons, query, key, prefix = _sizes(config)
    return f"""
    model.embed_tokens.weight {config["vocab_size"]} {hidden}
    {attention(prefix, hidden, query, key)}
    {gated(prefix, hidden, neurons)}
    {weights(prefix, hidden, *layer_norms)}
    model.norm.weight {hidden}
    """


def head(config: dict[str, Any]) -> str:
    """Write an output head that is stored."""
    return f"lm_head.weight {config['vocab_size']} {config['hidden_size']}\n"
