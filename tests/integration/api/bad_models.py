"""Bad models and bad configs: the part of the table of bad input that methods and intake answer."""

import json
from typing import Any

from tests.integration.api.bad_input import Row, job
from tests.model_files import CONFIG, llama_folder, safetensors, sharded_llama_folder

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
PAIR = {"prompt_1": "word2 word3", "prompt_2": "word2 word4"}
UNEVEN_PAIR = {"prompt_1": "word2 word3", "prompt_2": "word2 word4 word5"}
IDENTICAL_PAIR = {"prompt_1": "word2 word3", "prompt_2": "word2 word3"}
GENERATION = {"max_length": 8}


def config_of(**changes: object) -> bytes:
    return json.dumps({**CONFIG, **changes}).encode()


REPOS: dict[str, dict[str, bytes]] = {
    "org/tiny": llama_folder(),
    "org/pickle": {**llama_folder(model__safetensors=None), "pytorch_model.bin": b"x"},
    "org/moe": llama_folder(config__json=config_of(model_type="mixtral", num_local_experts=4)),
    "org/encoder": llama_folder(config__json=config_of(model_type="bert")),
    "org/quantised": llama_folder(
        config__json=config_of(quantization_config={"quant_method": "gptq", "bits": 4})
    ),
    "org/pointer": llama_folder(model__safetensors=LFS_POINTER),
    "org/shards": {
        name: data for name, data in sharded_llama_folder(3).items() if "00002-of" not in name
    },
    "org/code": llama_folder(config__json=config_of(_attn_implementation_internal="x/y")),
    "org/adapter": {
        "adapter_config.json": b"{}",
        "adapter_model.safetensors": safetensors({"a": [1]}),
    },
    "org/mute": llama_folder(tokenizer__json=None, tokenizer_config__json=None),
    "org/cut": llama_folder(model__safetensors=llama_folder()["model.safetensors"][:-1]),
}


def model(name: str, code: str, advice: str, repo: str, pointer: str | None = "/model") -> Row:
    """A row about a model of the hub."""
    fields = {"model": {"hub": repo}, "method": "fairness_pruning"}
    return job(name, code, advice, pointer, **fields, config={"pairs": [PAIR], "fraction": 0.2})


def pruning(name: str, advice: str, pointer: str, **config: Any) -> Row:
    """A row about the config of Fairness Pruning on a model that fits."""
    settings = {"pairs": [PAIR], "fraction": 0.2, "generation": GENERATION, **config}
    fields = {"model": {"hub": "org/tiny"}, "method": "fairness_pruning"}
    given = {key: value for key, value in settings.items() if value is not ...}
    return job(name, "config_invalid", advice, pointer, **fields, config=given)


ROWS = [
    # Methods and their configs.
    job(
        "unknown method",
        "validation_failed",
        "Did you mean 'fairness_pruning'?",
        "/method",
        method="fairness_prunning",
    ),
    job(
        "unknown version",
        "validation_failed",
        "the newest is 1.0.0",
        "/method_version",
        method_version="9",
    ),
    job(
        "misspelt setting",
        "config_invalid",
        "Did you mean 'steps'?",
        "/config/stepz",
        config={"stepz": 1},
    ),
    job(
        "setting of a wrong type",
        "config_invalid",
        "whole number",
        "/config/steps",
        config={"steps": "many"},
    ),
    job(
        "setting out of range",
        "config_invalid",
        "greater than or equal to 1",
        "/config/steps",
        config={"steps": 0},
    ),
    job(
        "no pairs",
        "config_invalid",
        "pairs",
        "/config",
        model={"hub": "org/tiny"},
        method="fairness_pruning",
        config={"fraction": 0.2},
    ),
    pruning("unknown pair set", "gender", "/config/pairs", pairs="gendre"),
    pruning(
        "pairs of different length",
        "on_length_mismatch",
        "/config/pairs/0",
        pairs=[UNEVEN_PAIR],
        on_length_mismatch="error",
    ),
    pruning("identical pair", "swap a word", "/config/pairs/0", pairs=[IDENTICAL_PAIR]),
    pruning("fraction too small", "less than one", "/config/fraction", fraction=0.01),
    pruning("two amounts", "one of", "/config", neurons_per_layer=1),
    pruning(
        "neuron index too high",
        "6",
        "/config/neuron_indices/0",
        fraction=...,
        neuron_indices={"0": [6]},
    ),
    pruning(
        "layer too high",
        "0 to 1",
        "/config/neuron_indices",
        fraction=...,
        neuron_indices={"5": [0]},
    ),
    # Models.
    job(
        "two sources",
        "validation_failed",
        "exactly one of demo, hub, path and version_id",
        "/model",
        model={"hub": "org/tiny", "path": "tiny"},
    ),
    job(
        "no source",
        "validation_failed",
        "exactly one of demo, hub, path and version_id",
        "/model",
        model={},
    ),
    job(
        "demo beside a path",
        "validation_failed",
        "not demo and path together",
        "/model",
        model={"demo": "tiny-llama", "path": "tiny"},
    ),
    job(
        "misspelt demo model",
        "model_not_found",
        "there are tiny-bert, tiny-llama.",
        "/model/demo",
        model={"demo": "tiny-lama"},
    ),
    job(
        "unknown demo model",
        "model_not_found",
        "there are tiny-bert, tiny-llama.",
        "/model/demo",
        model={"demo": "gpt-5"},
    ),
    job("demo path", "model_not_found", "tiny-llama", "/model/demo", model={"demo": "../services"}),
    job(
        "masked demo model for pruning",
        "method_model_incompatible",
        "bert",
        "/model",
        model={"demo": "tiny-bert"},
        method="fairness_pruning",
        config={"pairs": [PAIR], "fraction": 0.2},
    ),
    job(
        "revision of a demo model",
        "validation_failed",
        "Leave out revision",
        "/model",
        model={"demo": "tiny-llama", "revision": "main"},
    ),
    job(
        "revision of a path",
        "validation_failed",
        "Leave out revision",
        "/model",
        model={"path": "tiny", "revision": "main"},
    ),
    job(
        "page address as model",
        "validation_failed",
        "org/",
        "/model/hub",
        model={"hub": "https://huggingface.co/org/tiny/tree/main"},
    ),
    job(
        "address as revision",
        "validation_failed",
        "revision",
        "/model/revision",
        model={"hub": "org/tiny", "revision": "https://huggingface.co/org/tiny"},
    ),
    job(
        "path traversal", "uri_not_allowed", "segment", "/model/path", model={"path": "../outside"}
    ),
    job("absolute path", "uri_not_allowed", "segment", "/model/path", model={"path": "/etc"}),
    job("missing path", "model_not_found", "none", "/model/path", model={"path": "none"}),
    job(
        "wrong id as version",
        "model_not_found",
        "mv_",
        "/model/version_id",
        model={"version_id": "job_00000000000000000000000000"},
    ),
    job(
        "missing version",
        "model_not_found",
        "result.model_version_id",
        "/model/version_id",
        model={"version_id": "mv_00000000000000000000000000"},
    ),
    model("missing model", "model_not_found", "org/none", "org/none", "/model/hub"),
    model("gated model", "model_gated", "token", "org/gated", "/model/hub"),
    model("pickle only", "unsafe_model_format", "safe_serialization=True", "org/pickle"),
    model("lfs pointer", "unsafe_model_format", "git lfs pull", "org/pointer"),
    model("missing shards", "unsafe_model_format", "1 file", "org/shards"),
    model("cut weights", "unsafe_model_format", "Upload the file again", "org/cut"),
    model("code in config", "unsafe_model_format", "Remove it", "org/code"),
    model("quantised", "method_model_incompatible", "bfloat16", "org/quantised"),
    model("adapter", "method_model_incompatible", "Merge it", "org/adapter"),
    model("mixture of experts", "method_model_incompatible", "expert", "org/moe"),
    model("encoder", "method_model_incompatible", "llama", "org/encoder"),
    model("no tokenizer", "method_model_incompatible", "tokenizer", "org/mute"),
]
