"""What a GGUF file says of the rotary embedding of a model."""

from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

FREQUENCIES = "rope_freqs.weight"


def write_rotary(writer: gguf.GGUFWriter, config: Any, head_dim: int) -> None:
    """Write width, base and scaling; does nothing for a family without rotary embedding."""
    rope = _global_parameters(config)
    if rope is None:
        return
    writer.add_rope_dimension_count(rotary_width(rope, head_dim))
    writer.add_rope_freq_base(float(rope["rope_theta"]))
    local = config.rope_parameters.get("sliding_attention")
    if local is not None:
        writer.add_rope_freq_base_swa(float(local["rope_theta"]))
    if rope.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(rope["factor"]))


def rotary_width(rope: Mapping[str, Any], head_dim: int) -> int:
    """Count the dimensions of a head that are rotated."""
    return int(head_dim * rope.get("partial_rotary_factor", 1.0))


def frequency_factors(config: Any, head_dim: int) -> npt.NDArray[np.float32] | None:
    """Give the divisors of the frequencies, shape (width / 2,), of a `llama3` embedding.

    None for other kinds. The library computes the scaled frequencies; what readers want is by how
    much each is lower than without scaling.
    """
    rope = _global_parameters(config)
    if rope is None or rope.get("rope_type") != "llama3":
        return None
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaled = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0].double().numpy()
    width = rotary_width(rope, head_dim)
    plain = float(rope["rope_theta"]) ** -(np.arange(0, width, 2, dtype=np.float64) / width)
    return np.asarray(plain / scaled, dtype=np.float32)


def _global_parameters(config: Any) -> Mapping[str, Any] | None:
    """Return the parameters of the layers that attend to everything."""
    rope: Mapping[str, Any] | None = getattr(config, "rope_parameters", None)
    if not rope:
        return None
    full: Mapping[str, Any] | None = rope.get("full_attention")
    return full or rope
