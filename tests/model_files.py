"""Small models as bytes: safetensors files and the folders around them, made without torch."""

import json
from collections.abc import Mapping
from typing import Any

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 8,
    "tie_word_embeddings": True,
}


def llama_shapes(config: Mapping[str, Any] = CONFIG) -> dict[str, list[int]]:
    """Names and shapes of a tied Llama of that config."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden]}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        for name in ("q", "o"):
            shapes[f"{prefix}.self_attn.{name}_proj.weight"] = [hidden, hidden]
        for name in ("k", "v"):
            shapes[f"{prefix}.self_attn.{name}_proj.weight"] = [hidden // 2, hidden]
        for name in ("gate", "up"):
            shapes[f"{prefix}.mlp.{name}_proj.weight"] = [inner, hidden]
        shapes[f"{prefix}.mlp.down_proj.weight"] = [hidden, inner]
        shapes[f"{prefix}.input_layernorm.weight"] = [hidden]
        shapes[f"{prefix}.post_attention_layernorm.weight"] = [hidden]
    shapes["model.norm.weight"] = [hidden]
    return shapes


def safetensors(shapes: Mapping[str, list[int]], *, fill: int = 0) -> bytes:
    """Make a safetensors file with float32 tensors of those shapes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, count = end, 4
        for size in shape:
            count *= size
        end = begin + count
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    return with_header(header, bytes([fill]) * end)


def with_header(header: object, data: bytes) -> bytes:
    """Put a header, as JSON or as raw bytes, before `data`."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def tokenizer_json(size: int = 8) -> bytes:
    """Make a word-level tokenizer with `size` tokens that puts <s> first."""
    vocabulary = {"<unk>": 0, "<s>": 1, **{f"word{index}": index for index in range(2, size)}}
    bos = {"id": "<s>", "ids": [1], "tokens": ["<s>"]}
    content = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {"<s>": bos},
        },
    }
    return json.dumps(content).encode()


def llama_folder(**changes: bytes | None) -> dict[str, bytes]:
    """Make the files of a tiny Llama; `changes` replace files, or drop them where None.

    Dots in names are written as two underscores.
    """
    files: dict[str, bytes | None] = {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": safetensors(llama_shapes()),
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": b'{"tokenizer_class": "PreTrainedTokenizerFast"}',
        "README.md": b"# tiny",
    }
    files.update({name.replace("__", "."): data for name, data in changes.items()})
    return {name: data for name, data in files.items() if data is not None}


def sharded_llama_folder(shards: int = 3, **changes: bytes | None) -> dict[str, bytes]:
    """Make the files of a tiny Llama whose weights lie in several shards with an index."""
    names = list(llama_shapes())
    files = llama_folder(model__safetensors=None)
    weight_map = {}
    for number in range(shards):
        shard = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: llama_shapes()[name] for name in names[number::shards]}
        files[shard] = safetensors(part)
        weight_map.update(dict.fromkeys(part, shard))
    total = sum(len(files[shard]) for shard in set(weight_map.values()))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    for name, data in changes.items():
        if data is None:
            del files[name.replace("__", ".")]
        else:
            files[name.replace("__", ".")] = data
    return files
