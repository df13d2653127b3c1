"""An exported GGUF file holds the model: read back, and run by a reader that is not ours."""

import hashlib
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations import GGUF_CONFIG_MAPPING

from app.domain.errors import JobFailure
from app.domain.gguf_families import GGUF_FAMILIES
from tests.gguf_models import FAMILIES, NEURONS, TEXTS, save_gguf_model
from tests.model_files import CONFIG, llama_shapes, with_header
from workers.models.gguf.export import GgufReport, export_gguf
from workers.models.gguf.recipes import RECIPES
from workers.runtime.context import Stopped

# Rows of the query projection are in another order and then back: the same sums, but the library
# may multiply matrices in another blocking. Logits are around 7, so this is the seventh digit.
TOLERANCE = 1e-5
# transformers reads these architectures. The others were run in llama.cpp; see docs/gguf.md.
READ_BY_TRANSFORMERS = [
    row.model_type
    for row in GGUF_FAMILIES
    if row.architecture in GGUF_CONFIG_MAPPING or row.model_type in GGUF_CONFIG_MAPPING
]


def export(folder: Path, **changes: Any) -> GgufReport:
    settings = {"name": "tiny", "should_stop": lambda: False, "on_progress": lambda done, total: 0}
    return export_gguf(folder, folder / "gguf" / "model.gguf", **{**settings, **changes})


def read(folder: Path) -> Any:
    return gguf.GGUFReader(folder / "gguf" / "model.gguf")


def fields(folder: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in read(folder).fields.items()}


def values(folder: Path) -> dict[str, np.ndarray]:
    """Every tensor as float32, in the shape of the library."""
    return {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])
        for tensor in read(folder).tensors
    }


def ids() -> torch.Tensor:
    return torch.tensor([[1, 5, 9, 77, 123, 200, 44, 8, 46, 17, 250, 99]])


def test_every_family_of_the_table_is_known_to_the_library_and_has_a_recipe() -> None:
    architectures = set(gguf.MODEL_ARCH_NAMES.values())

    assert {row.architecture for row in GGUF_FAMILIES} <= architectures
    assert [row.model_type for row in GGUF_FAMILIES] == list(RECIPES) == list(FAMILIES)


@pytest.mark.parametrize("model_type", READ_BY_TRANSFORMERS)
def test_plain_transformers_computes_the_same_from_the_file(
    tmp_path: Path, shared_data: Path, model_type: str
) -> None:
    folder = tmp_path / "model"
    model = save_gguf_model(folder, model_type, shared_data)
    export(folder)

    source = {"pretrained_model_name_or_path": folder / "gguf", "gguf_file": "model.gguf"}
    again = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, attn_implementation=model.config._attn_implementation
    )

    with torch.no_grad():
        difference = (again.eval()(ids()).logits - model(ids()).logits).abs().max()
    assert difference <= TOLERANCE
    assert (
        AutoTokenizer.from_pretrained(**source)(list(TEXTS))["input_ids"]
        == (AutoTokenizer.from_pretrained(folder)(list(TEXTS))["input_ids"])
    )


@pytest.mark.parametrize("model_type", FAMILIES)
def test_file_holds_every_value_of_the_checkpoint(
    tmp_path: Path, shared_data: Path, model_type: str
) -> None:
    folder = tmp_path / "model"
    model = save_gguf_model(folder, model_type, shared_data)
    export(folder)

    stored = load_file(folder / "model.safetensors")
    found = values(folder)
    offset = 1.0 if model_type.startswith(("gemma", "nemotron")) else 0.0
    expected = {
        name: tensor.numpy() + offset * (name.endswith("norm.weight") and tensor.ndim == 1)
        for name, tensor in stored.items()
    }
    copies = "output.weight" in found and "lm_head.weight" not in stored
    assert len(found) == len(expected) + copies
    # Rows change places and matrices are turned over, but no value is lost or made up.
    assert sorted(hash_of(tensor) for tensor in expected.values()) == sorted(
        hash_of(tensor)
        for name, tensor in found.items()
        if not (copies and name == "output.weight")
    )
    assert fields(folder)["general.file_type"] == gguf.LlamaFileType.ALL_F32
    assert model.config.vocab_size == len(fields(folder)["tokenizer.ggml.tokens"])


def hash_of(tensor: np.ndarray) -> str:
    """Digest of the values alone, whatever their order."""
    return hashlib.sha256(np.sort(tensor, axis=None).astype(np.float32).tobytes()).hexdigest()


def test_settings_of_a_llama(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "llama", shared_data)
    export(folder)

    found = fields(folder)
    assert {name.partition(".")[2]: found[name] for name in found if name.startswith("llama.")} == {
        "context_length": 64,
        "embedding_length": 64,
        "block_count": 3,
        "feed_forward_length": NEURONS,
        "vocab_size": 520,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.layer_norm_rms_epsilon": pytest.approx(1e-6),
        "rope.dimension_count": 32,
        "rope.freq_base": 10000.0,
    }
    assert found["general.architecture"] == "llama"
    assert found["general.name"] == "tiny"
    assert found["tokenizer.ggml.bos_token_id"] == 1
    assert found["tokenizer.ggml.add_bos_token"] is True
    assert found["tokenizer.ggml.add_eos_token"] is False


@pytest.mark.parametrize(
    ("model_type", "field", "value"),
    [
        ("gemma2", "gemma2.attn_logit_softcapping", 50.0),
        ("gemma2", "gemma2.final_logit_softcapping", 30.0),
        ("gemma2", "gemma2.attention.sliding_window", 8),
        ("gemma3_text", "gemma3.attention.sliding_window", 8),
        ("gemma3_text", "gemma3.rope.freq_base", 1e6),
        ("gemma3_text", "gemma3.rope.freq_base_swa", 1e4),
        ("qwen3", "qwen3.attention.key_length", 128),
        ("stablelm", "stablelm.rope.dimension_count", 4),
        ("stablelm", "stablelm.use_parallel_residual", False),
        ("granite", "granite.attention.scale", 0.25),
        ("granite", "granite.logit_scale", 3.0),
        ("gpt2", "gpt2.attention.layer_norm_epsilon", pytest.approx(1e-5)),
        ("gpt2", "tokenizer.ggml.pre", "gpt-2"),
        ("qwen2", "tokenizer.ggml.pre", "qwen2"),
        ("qwen2", "tokenizer.chat_template", "{{ messages[0]['content'] }}"),
    ],
)
def test_settings_that_only_some_families_have(
    tmp_path: Path, shared_data: Path, model_type: str, field: str, value: object
) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, model_type, shared_data)
    export(folder)

    assert fields(folder)[field] == value


def test_a_pruned_gpt2_says_its_own_number_of_neurons(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "gpt2", shared_data, n_inner=NEURONS)

    report = export(folder)

    assert report.neurons == NEURONS == fields(folder)["gpt2.feed_forward_length"]
    weight = load_file(folder / "model.safetensors")["transformer.h.0.mlp.c_fc.weight"]
    assert np.array_equal(values(folder)["blk.0.ffn_up.weight"], weight.T.numpy())


def test_linear_scaling_of_positions_is_named(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    rope = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
    save_gguf_model(folder, "llama", shared_data, rope_parameters=rope)
    export(folder)

    found = fields(folder)
    assert found["llama.rope.scaling.type"] == "linear"
    assert found["llama.rope.scaling.factor"] == 4.0


def test_scaling_of_llama3_divides_the_frequencies(tmp_path: Path, shared_data: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    folder = tmp_path / "model"
    model = save_gguf_model(folder, "llama", shared_data, rope_parameters=rope)
    export(folder)

    factors = values(folder)["rope_freqs.weight"]

    plain = 5e5 ** (-np.arange(0, 32, 2) / 32)
    # What the model itself rotates with; in fp32, like the file.
    wanted = model.model.rotary_emb.inv_freq.numpy()
    np.testing.assert_allclose(plain / factors, wanted, rtol=1e-6)
    assert factors[0] == pytest.approx(1.0)
    assert factors[-1] == pytest.approx(8.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_matrices_keep_their_dtype_and_vectors_become_single(
    tmp_path: Path, shared_data: Path, dtype: torch.dtype
) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "llama", shared_data, dtype=dtype, max_shard_size="100KB")
    export(folder)

    stored: dict[str, torch.Tensor] = {}
    for shard in folder.glob("*.safetensors"):
        stored |= load_file(shard)
    types = {tensor.name: tensor.tensor_type.name for tensor in read(folder).tensors}
    short = {torch.bfloat16: "BF16", torch.float16: "F16"}[dtype]
    assert {kind for name, kind in types.items() if "norm" in name} == {"F32"}
    assert {kind for name, kind in types.items() if "norm" not in name} == {short}
    down = stored["model.layers.1.mlp.down_proj.weight"].float().numpy()
    assert np.array_equal(values(folder)["blk.1.ffn_down.weight"], down)


def test_same_checkpoint_gives_the_same_bytes(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "llama", shared_data)
    path = folder / "gguf" / "model.gguf"

    export(folder)
    first = path.read_bytes()
    export(folder)

    assert path.read_bytes() == first


def test_file_appears_only_when_it_is_complete(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "llama", shared_data)
    seen: list[bool] = []

    def look(done: int, total: int) -> None:
        seen.append((folder / "gguf" / "model.gguf").exists())

    export(folder, on_progress=look)

    assert seen
    assert not any(seen)
    assert [path.name for path in (folder / "gguf").iterdir()] == ["model.gguf"]


def test_progress_ends_at_all_bytes(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "llama", shared_data)
    steps: list[tuple[int, int]] = []

    export(folder, on_progress=lambda done, total: steps.append((done, total)))

    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1] > 0


def test_a_stop_leaves_nothing_behind(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "llama", shared_data)
    polls = iter([False, False, True])

    with pytest.raises(Stopped):
        export(folder, should_stop=lambda: next(polls))

    assert list((folder / "gguf").iterdir()) == []


def test_a_tensor_that_gguf_has_no_place_for_is_named(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "llama", shared_data)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.flux.weight"] = torch.zeros(4, 4)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(JobFailure, match="flux"):
        export(folder)


def test_tokens_beyond_the_embedding_are_refused(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "llama", shared_data, vocab_size=500)

    with pytest.raises(JobFailure, match="511"):
        export(folder)


def test_rows_without_a_token_are_marked_unused(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "llama", shared_data)
    export(folder)

    found = fields(folder)
    assert found["tokenizer.ggml.tokens"][519] == "[PAD519]"
    assert found["tokenizer.ggml.token_type"][519] == gguf.TokenType.UNUSED
    assert found["tokenizer.ggml.token_type"][:4] == [
        gguf.TokenType.UNKNOWN,
        gguf.TokenType.CONTROL,
        gguf.TokenType.CONTROL,
        gguf.TokenType.BYTE,
    ]


def join_by_score(text: str, tokens: list[str], scores: list[float]) -> list[str]:
    """Join neighbours as readers of GGUF do: the best score first, the leftmost of equals."""
    score_of = dict(zip(tokens, scores, strict=True))
    pieces = list(text)
    while True:
        joined = [left + right for left, right in itertools.pairwise(pieces)]
        known = [n for n, piece in enumerate(joined) if piece in score_of]
        if not known:
            return pieces
        best = max(known, key=lambda n: (score_of[joined[n]], -n))
        pieces[best : best + 2] = [joined[best]]


def test_scores_say_what_the_merges_say(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "llama", shared_data)
    export(folder)
    found = fields(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    for text in TEXTS[:2]:
        escaped = "\u2581" + text.replace(" ", "\u2581")
        pieces = join_by_score(
            escaped, found["tokenizer.ggml.tokens"], found["tokenizer.ggml.scores"]
        )
        assert [p for p in pieces if len(p) > 1] == [
            p
            for p in tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])[1:]
            if len(p) > 1 and not p.startswith("<0x")
        ]


# Not `ru_maxrss`, which a process inherits from the one that started it.
MEASURED = """
import re, sys
from pathlib import Path
from workers.models.gguf.export import export_gguf

def resident(field):
    status = Path("/proc/self/status").read_text()
    return int(re.search(field + r":\\s+(\\d+) kB", status)[1]) * 1024

small, large = map(Path, sys.argv[1:])
quiet = {"name": "m", "should_stop": lambda: False, "on_progress": lambda done, total: None}
export_gguf(small, small / "a.gguf", **quiet)
Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is in use
before = resident("VmRSS")
export_gguf(large, large / "a.gguf", **quiet)
print(resident("VmHWM") - before)
"""
LARGE = {
    **CONFIG,
    "hidden_size": 2048,
    "intermediate_size": 4_097,
    "vocab_size": 32_000,
    "head_dim": 1024,
    "max_position_embeddings": 64,
}


def save_sparse_model(folder: Path, tokenizer: Path) -> int:
    """Write a checkpoint of zeros without storing them; give its size."""
    folder.mkdir()
    header, end = {}, 0
    for name, shape in llama_shapes(LARGE).items():
        begin, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    with (folder / "model.safetensors").open("wb") as file:
        start = file.write(with_header(header, b""))
        file.truncate(start + end)
    (folder / "config.json").write_text(json.dumps(LARGE))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder)
    return end


def test_memory_does_not_grow_with_the_model(tmp_path: Path, shared_data: Path) -> None:
    save_gguf_model(tmp_path / "small", "llama", shared_data)
    assert save_sparse_model(tmp_path / "large", tmp_path / "small") > 5e8
    script = [sys.executable, "-c", MEASURED, str(tmp_path / "small"), str(tmp_path / "large")]

    result = subprocess.run(script, check=True, capture_output=True, text=True, timeout=100)

    # One block of 32 MiB in and one out, and the texts of 32,000 tokens; the largest tensor alone
    # has 262 MB.
    assert 0 < int(result.stdout) < 100e6
