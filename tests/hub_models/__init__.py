"""Published checkpoints as the model hub has them: config.json, names, shapes, types, shards.

The weights are left out: see `headers.write_hub_model`. Models that their publishers offer as
pickles only are here as a conversion to safetensors has them, all buffers included.
"""

from tests.hub_models.experts import EXPERTS
from tests.hub_models.gemma import GEMMAS
from tests.hub_models.gpt_like import GPT_LIKE
from tests.hub_models.headers import HubModel
from tests.hub_models.llama_like import LLAMA_LIKE
from tests.hub_models.other_gated import OTHER_GATED
from tests.hub_models.plain_mlp import PLAIN_MLP

DECODERS: tuple[HubModel, ...] = (*GPT_LIKE, *PLAIN_MLP, *LLAMA_LIKE, *GEMMAS, *OTHER_GATED)

__all__ = ["DECODERS", "EXPERTS", "HubModel"]
