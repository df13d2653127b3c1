"""Keys, log redaction, numbers in answers, and the estimate."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.job_views import finite, nonfinite_name
from app.domain.estimate import Workload, estimate
from app.domain.models import FileFact, ModelFacts, TensorFact
from app.logging import HIDDEN, hide_secrets
from app.security.auth import new_key, read_authorization, read_key


def test_new_key_has_the_documented_form_and_is_read_back() -> None:
    key = new_key()

    assert re.fullmatch(r"dbk_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}", key.text)
    read = read_authorization(f"Bearer {key.text}")
    assert read is not None
    assert (read.prefix, read.sha256) == (key.prefix, key.sha256)


def test_two_keys_differ() -> None:
    assert new_key().text != new_key().text


@given(st.text(max_size=80))
def test_text_that_is_no_key_is_not_read(text: str) -> None:
    assert read_key(text) is None


def test_scheme_is_not_case_sensitive() -> None:
    assert read_authorization(f"bearer {new_key().text}") is not None


def test_secrets_are_hidden_by_name() -> None:
    event = hide_secrets(None, "info", {"event": "x", "api_key": "dbk_1", "Authorization": "y"})

    assert event == {"event": "x", "api_key": HIDDEN, "Authorization": HIDDEN}


@pytest.mark.parametrize(
    ("value", "name"), [(1.5, None), (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")]
)
def test_number_that_json_cannot_carry_is_null_with_a_name(value: float, name: str | None) -> None:
    assert nonfinite_name(value) == name
    assert finite({"a": [value]}) == {"a": [value if name is None else None]}


def work(*, device_class: str = "cpu", trains: bool = False, dtype: str = "auto") -> Workload:
    facts = ModelFacts(
        config={"hidden_size": 0, "num_hidden_layers": 0},
        tensors={"w": TensorFact("F32", (1000, 1000), "model.safetensors", 4_000_000)},
        files=(FileFact("model.safetensors", 4_000_100),),
    )
    return Workload(facts, device_class, dtype, trains, kept_checkpoints=0)


def test_weights_are_counted_in_the_stored_width() -> None:
    found = estimate(work(device_class="gpu"))

    context = int(0.6 * 2**30)
    assert found.peak_gpu_bytes == int(4_000_000 * 1.2) + context
    assert found.peak_host_bytes == 2 * 4_000_100 + int(1.5 * 2**30)
    assert found.disk_bytes == 2 * 4_000_100 + 2**30


def test_half_precision_halves_the_weights() -> None:
    gpu = estimate(work(device_class="gpu", dtype="bfloat16")).peak_gpu_bytes

    assert gpu == int(2_000_000 * 1.2) + int(0.6 * 2**30)


def test_training_adds_gradients_moments_and_a_master_copy() -> None:
    full = estimate(work(device_class="gpu", trains=True)).peak_gpu_bytes
    half = estimate(work(device_class="gpu", trains=True, dtype="bfloat16")).peak_gpu_bytes

    context = int(0.6 * 2**30)
    assert full - context == int(1_000_000 * (4 + 4 + 8) * 1.2)
    assert half - context == int(1_000_000 * (2 + 2 + 8 + 4) * 1.2)


def test_job_on_the_cpu_needs_the_memory_from_the_host() -> None:
    cpu, gpu = estimate(work()), estimate(work(device_class="gpu"))

    assert cpu.peak_gpu_bytes == 0
    assert cpu.peak_host_bytes == gpu.peak_host_bytes + int(4_000_000 * 1.2)


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_size": 8, "num_hidden_layers": 3},
        {"model_type": "gpt2", "n_embd": 8, "n_layer": 3},
        {
            "model_type": "gemma3",
            "text_config": {"hidden_size": 8, "num_hidden_layers": 3, "intermediate_size": 9},
        },
    ],
)
def test_activations_are_counted_by_the_names_of_each_family(config: dict[str, Any]) -> None:
    plain = work(device_class="gpu")
    facts = replace(plain.facts, config=config)

    added = estimate(replace(plain, facts=facts)).peak_gpu_bytes - estimate(plain).peak_gpu_bytes

    # 1,024 tokens, 8 values of 4 bytes in 3 layers, twice, and a fifth more; 1 byte of rounding.
    assert added == pytest.approx(1024 * 8 * 4 * 3 * 2 * 1.2, abs=1)


@pytest.mark.parametrize("config", [{}, {"n_layer": "3"}, {"text_config": []}])
def test_sizes_that_cannot_be_read_count_nothing(config: dict[str, Any]) -> None:
    plain = work()
    facts = replace(plain.facts, config={"model_type": "gemma3", **config})

    assert estimate(replace(plain, facts=facts)) == estimate(plain)
