"""Outputs that cannot be had: the part of the table of bad input about `outputs`."""

from typing import Any

from tests.integration.api.bad_input import Row, job
from tests.integration.api.bad_models import GENERATION, PAIR, config_of
from tests.model_files import llama_folder

REPOS: dict[str, dict[str, bytes]] = {
    "org/yarn": llama_folder(config__json=config_of(rope_scaling={"type": "yarn", "factor": 2.0})),
}
BOTH = ["safetensors", "gguf"]
DIAGNOSIS = {"pairs": [PAIR], "diagnose_only": True, "generation": GENERATION}
PLACE = "/outputs/formats"


def formats(name: str, advice: str, asked: list[str], pointer: str = PLACE, **fields: Any) -> Row:
    """A row about the formats of a job."""
    outputs = {"formats": asked}
    return job(name, "validation_failed", advice, pointer, outputs=outputs, **fields)


ROWS = [
    formats("gguf alone", "beside safetensors", ["gguf"]),
    formats("format twice", "once", ["safetensors", "safetensors"]),
    formats("no format", "at least 1", []),
    formats("unknown format", "'gguf'", ["safetensors", "onnx"], "/outputs/formats/1"),
    formats("gguf of a model without tokenizer", "no tokenizer.json", BOTH),
    formats("gguf of whole words", "WordLevel, not BPE", BOTH, model={"hub": "org/tiny"}),
    formats("gguf of an encoder", "exportable: llama", BOTH, model={"hub": "org/encoder"}),
    formats("gguf of scaled positions", "'yarn'", BOTH, model={"hub": "org/yarn"}),
    formats(
        "gguf of a diagnosis",
        "makes no model",
        BOTH,
        model={"hub": "org/tiny"},
        method="fairness_pruning",
        config=DIAGNOSIS,
    ),
    job(
        "name for the model of a diagnosis",
        "validation_failed",
        "leave register_as out",
        "/outputs/register_as",
        outputs={"register_as": "fairer"},
        model={"hub": "org/tiny"},
        method="fairness_pruning",
        config=DIAGNOSIS,
    ),
]
