"""How the checkpoints of each family differ from what GGUF readers expect: data.

Names of tensors come from the `gguf` library. What it does not know is here: which values readers
want in another form, and which settings they read beside the ones all families have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Recipe:
    """One family's differences.

    Attributes
    ----------
    norm
        Which kind of norm the model has, and so under which key readers look for epsilon.
    epsilon
        Field of the config with it.
    pairs_rotary
        Readers rotate neighbouring rows of a head, the library rows half a head apart: the rows
        of the query and key projections have to change places.
    unit_norms
        The library multiplies by 1 + weight, readers by the weight.
    transposed
        Ends of the names of weights that are stored as (in, out).
    needs_output
        Readers look for an output head also where it is tied.
    settings
        Further fields of the config, and the method of `GGUFWriter` that takes each.
    """

    norm: Literal["rms", "layer"] = "rms"
    epsilon: str = "rms_norm_eps"
    pairs_rotary: bool = False
    unit_norms: bool = False
    transposed: tuple[str, ...] = ()
    needs_output: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


_SOFT_CAPS = {
    "attn_logit_softcapping": "add_attn_logit_softcapping",
    "final_logit_softcapping": "add_final_logit_softcapping",
}
_WINDOW = {"sliding_window": "add_sliding_window"}

RECIPES: Mapping[str, Recipe] = {
    "llama": Recipe(pairs_rotary=True),
    "mistral": Recipe(pairs_rotary=True),
    "qwen2": Recipe(),
    "qwen3": Recipe(),
    "gemma": Recipe(unit_norms=True),
    "gemma2": Recipe(unit_norms=True, settings={**_SOFT_CAPS, **_WINDOW}),
    "gemma3_text": Recipe(unit_norms=True, settings={**_SOFT_CAPS, **_WINDOW}),
    "phi3": Recipe(),
    "gpt2": Recipe(
        norm="layer",
        epsilon="layer_norm_epsilon",
        transposed=("c_attn.weight", "c_proj.weight", "c_fc.weight"),
    ),
    "starcoder2": Recipe(norm="layer", epsilon="norm_epsilon"),
    "stablelm": Recipe(norm="layer", epsilon="layer_norm_eps", needs_output=True),
    "nemotron": Recipe(norm="layer", epsilon="norm_eps", unit_norms=True, needs_output=True),
    "olmo2": Recipe(needs_output=True),
    "granite": Recipe(
        pairs_rotary=True,
        settings={
            "logits_scaling": "add_logit_scale",
            "residual_multiplier": "add_residual_scale",
            "embedding_multiplier": "add_embedding_scale",
            "attention_multiplier": "add_attention_scale",
        },
    ),
}
