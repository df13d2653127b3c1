"""Loading a model for measurement, and refusing what does not fit."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from app.domain.errors import JobErrorCode, JobFailure
from tests.tiny_models import save_tiny_model
from workers.models import load
from workers.models.load import float32_bytes, load_causal_lm, load_tokenizer, resolve_dtype


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "model", "llama", dtype=torch.bfloat16)


def rewrite(model_dir: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, model_dir / "model.safetensors", metadata={"format": "pt"})


def test_model_is_in_eval_mode_and_in_the_dtype_asked_for(model_dir: Path) -> None:
    loaded = load_causal_lm(model_dir, device="cpu", dtype="float16")

    assert not loaded.model.training
    assert loaded.dtype == "float16"
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.float16}


def test_small_models_run_in_float32_on_a_cpu(model_dir: Path) -> None:
    assert resolve_dtype(model_dir, device="cpu", dtype="auto") == "float32"


def test_large_models_run_in_bfloat16_on_a_cpu(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_MAX_FLOAT32_CPU_BYTES", float32_bytes(model_dir) - 1)

    assert resolve_dtype(model_dir, device="cpu", dtype="auto") == "bfloat16"


def test_an_accelerator_runs_the_dtype_of_the_checkpoint(model_dir: Path) -> None:
    assert resolve_dtype(model_dir, device="cuda:0", dtype="auto") == "bfloat16"


def test_float32_size_counts_every_stored_element(model_dir: Path) -> None:
    elements = sum(t.numel() for t in load_file(model_dir / "model.safetensors").values())

    assert float32_bytes(model_dir) == 4 * elements


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("drop", "missing keys"),
        ("add", "unexpected keys"),
        (
            "reshape",
            r"model\.layers\.1\.mlp\.up_proj\.weight has shape \[39, 32\], but .* \[40, 32\]",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(
    model_dir: Path, change: str, named: str
) -> None:
    tensors = load_file(model_dir / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    if change == "drop":
        del tensors[name]
    elif change == "add":
        tensors["model.layers.0.mlp.extra.weight"] = torch.zeros(2)
    else:
        tensors[name] = tensors[name][:-1].contiguous()
    rewrite(model_dir, tensors)

    with pytest.raises(JobFailure, match=named) as failed:
        load_causal_lm(model_dir, device="cpu", dtype="auto")

    assert failed.value.code is JobErrorCode.UNSAFE_MODEL_FORMAT
    assert "ignore_mismatched_sizes" not in failed.value.message


def test_a_checkpoint_of_our_own_fails_as_reload(model_dir: Path) -> None:
    config = json.loads((model_dir / "config.json").read_text())
    (model_dir / "config.json").write_text(json.dumps({**config, "intermediate_size": 12}))

    with pytest.raises(JobFailure) as failed:
        load_causal_lm(model_dir, device="cpu", dtype="auto", failure=JobErrorCode.RELOAD_FAILED)

    assert failed.value.code is JobErrorCode.RELOAD_FAILED
    assert str(model_dir) not in failed.value.message


@pytest.mark.parametrize(
    "values",
    [
        {"rms_norm_eps": "small"},
        {"num_attention_heads": 0},
        {"num_attention_heads": 3},
        {"hidden_act": "no_such_function"},
    ],
)
def test_config_of_a_stranger_that_does_not_load_is_no_defect_of_the_service(
    model_dir: Path, values: dict[str, object]
) -> None:
    config = json.loads((model_dir / "config.json").read_text())
    (model_dir / "config.json").write_text(json.dumps({**config, **values}))

    with pytest.raises(JobFailure) as failed:
        load_causal_lm(model_dir, device="cpu", dtype="auto")

    assert failed.value.code is JobErrorCode.UNSAFE_MODEL_FORMAT


def test_reason_of_a_tokenizer_that_does_not_load_is_told(model_dir: Path) -> None:
    config = json.loads((model_dir / "config.json").read_text())
    (model_dir / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": "yes"}))

    with pytest.raises(JobFailure, match=r"tie_word_embeddings.*bool"):
        load_tokenizer(model_dir)


def test_tokenizer_with_settings_of_the_wrong_type_is_refused(model_dir: Path) -> None:
    path = model_dir / "tokenizer_config.json"
    settings = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**settings, "model_max_length": "long"}))

    with pytest.raises(JobFailure) as failed:
        load_tokenizer(model_dir)

    assert failed.value.code is JobErrorCode.UNSAFE_MODEL_FORMAT


def test_a_model_without_a_tokenizer_is_refused(model_dir: Path) -> None:
    with pytest.raises(JobFailure, match="no tokenizer"):
        load_tokenizer(model_dir)
