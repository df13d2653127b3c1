"""What readers call the places inside a layer that a method reads."""

_LABELS = {
    "attention_output": "attention output",
    "mlp_output": "MLP output",
    "gate_proj": "gate projection",
    "up_proj": "up projection",
    "down_proj": "down projection",
    "input_norm": "input norm",
    "down_proj_input": "input of the down projection",
}


def component_label(name: str) -> str:
    """Name a component for readers, as in "MLP output"; an unknown one by its own name."""
    return _LABELS.get(name, name.replace("_", " "))
