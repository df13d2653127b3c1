"""Jobs on the models that people use, asked for over HTTP and decided from headers alone."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub_models import DECODERS, EXPERTS, refused
from tests.hub_models.gemma import GEMMA3
from tests.hub_models.gpt_like import BLOOM, GPT2
from tests.hub_models.headers import HubModel, parameters_of, size_of, write_hub_model
from tests.hub_models.llama_like import LLAMA_32
from tests.hub_models.other_gated import GLM_4
from tests.hub_models.plain_mlp import FALCON_7B, MPT, PHI_2
from tests.hub_stand_in import HubStandIn
from tests.integration.api.callers import Caller
from tests.integration.api.conftest import run_app, settings_for

PAIR = {"prompt_1": "a", "prompt_2": "b"}
# Their classes fix the number of neurons.
FIXED_WIDTH = {"bloom", "mpt"}
GIB = 1024**3
EDIT = {
    "pairs": [PAIR],
    "fraction": 0.2,
    "attention_heads": {"head_indices": {"0": [0]}},
}
DIAGNOSIS = {"pairs": [PAIR], "diagnose_only": True}

IGNORED_CODE = (
    "The model names code of its own (auto_map). It was ignored: the library has its own."
)

# What publishers say, in millions of parameters. A head that is stored beside the embedding it is
# tied to counts twice, as in the file.
PUBLISHED = {
    "openai-community/gpt2": 124.4,
    "distilbert/distilgpt2": 81.9,
    "EleutherAI/pythia-70m": 70.4,
    "EleutherAI/gpt-neo-125m": 125.2,
    "EleutherAI/gpt-j-6b": 6050.9,
    "Salesforce/codegen-350M-mono": 356.7,
    "bigscience/bloom-560m": 559.2,
    "mosaicml/mpt-7b": 6649.3,
    "tiiuae/falcon-7b": 7217.2,
    "tiiuae/falcon-40b": 41836,
    "bigcode/starcoder2-3b": 3030.4,
    "microsoft/phi-1_5": 1418.3,
    "microsoft/phi-2": 2779.7,
    "nvidia/Minitron-4B-Base": 4190.5,
    "meta-llama/Llama-3.2-1B": 1235.8,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1100.0,
    "huggyllama/llama-7b": 6738.4,
    "HuggingFaceTB/SmolLM2-135M-Instruct": 134.5,
    "HuggingFaceTB/SmolLM3-3B": 3075.1,
    "mistralai/Mistral-7B-v0.1": 7241.7,
    "Qwen/Qwen2.5-0.5B": 494.0,
    "Qwen/Qwen3-0.6B": 751.6,
    "google/gemma-2b": 2506.2,
    "google/gemma-2-2b": 2614.3,
    "google/gemma-3-1b-it": 999.9,
    "google/gemma-3-4b-it": 4300.1,
    "allenai/OLMo-1B-hf": 1176.8,
    "allenai/OLMo-2-0425-1B": 1484.9,
    "ibm-granite/granite-3.1-2b-base": 2533.5,
    "stabilityai/stablelm-2-1_6b": 1644.5,
    "CohereLabs/c4ai-command-r-v01": 34980.8,
    "CohereLabs/c4ai-command-r7b-12-2024": 8028.0,
    "microsoft/Phi-3-mini-4k-instruct": 3821.1,
    "microsoft/Phi-4-mini-instruct": 3836.0,
    "zai-org/glm-4-9b-hf": 9400.0,
    "mistralai/Mixtral-8x7B-v0.1": 46702.8,
    "Qwen/Qwen3-30B-A3B": 30532.1,
    "Qwen/Qwen1.5-MoE-A2.7B": 14315.8,
    "deepseek-ai/DeepSeek-V2-Lite": 15706.5,
}


class DryRuns:
    """Asks about one model at a time, and once for each config."""

    def __init__(self, caller: Caller, models_dir: Path) -> None:
        self._caller = caller
        self._models_dir = models_dir
        self._answers: dict[tuple[str, str], dict[str, Any]] = {}

    def __call__(self, model: HubModel, config: dict[str, Any]) -> dict[str, Any]:
        key = (model.name, json.dumps(config))
        if key not in self._answers:
            self._answers[key] = self._ask(model, config)
        return self._answers[key]

    def _ask(self, model: HubModel, config: dict[str, Any]) -> dict[str, Any]:
        folder = self._models_dir / model.name.rpartition("/")[2]
        if not folder.exists():
            write_hub_model(folder, model)
        body = {"model": {"path": folder.name}, "method": "fairness_pruning", "config": config}
        answer = self._caller.post("/v1/jobs?dry_run=true", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture(scope="module")
def dry_run(
    tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path, hub: HubStandIn
) -> Iterator[DryRuns]:
    """One application for all models: it reads folders, and stores nothing."""
    home = tmp_path_factory.mktemp("hub-models")
    shutil.copy2(migrated_sqlite, home / "debias.db")
    settings = settings_for(home, hub)
    with run_app(settings) as running:
        yield DryRuns(running.caller(), home / "models")


def named(model: HubModel) -> str:
    return model.name


def edit_of(model: HubModel) -> dict[str, Any]:
    return {**EDIT, "mode": "zero"} if model.config["model_type"] in FIXED_WIDTH else EDIT


@pytest.mark.parametrize(
    "model", [m for m in (*DECODERS, *EXPERTS) if m.name in PUBLISHED], ids=named
)
def test_tables_here_hold_as_many_parameters_as_were_published(model: HubModel) -> None:
    # Published numbers are rounded to a tenth of a million, or less.
    assert parameters_of(model) / 1e6 == pytest.approx(PUBLISHED[model.name], rel=1e-3)


@pytest.mark.parametrize("model", DECODERS, ids=named)
def test_neurons_and_heads_of_every_decoder_can_be_edited(
    dry_run: DryRuns, model: HubModel
) -> None:
    found = dry_run(model, edit_of(model))

    assert (found["valid"], found["problems"]) == (True, [])
    assert [warning for warning in found["warnings"] if "auto_map" in warning] == (
        [IGNORED_CODE] if "auto_map" in model.config else []
    )


@pytest.mark.parametrize("model", [*DECODERS, *EXPERTS], ids=named)
def test_needs_follow_from_the_size(dry_run: DryRuns, model: HubModel) -> None:
    found = dry_run(model, DIAGNOSIS if model in EXPERTS else edit_of(model))

    size = size_of(model)
    # Room for the weights and for reading the largest file; far from twice all of that.
    assert size < found["estimate"]["peak_host_bytes"] < 4 * size + 2 * GIB
    assert size < found["estimate"]["disk_bytes"] < 3 * size + 2 * GIB


@pytest.mark.parametrize(
    ("model", "width", "best"),
    [
        (LLAMA_32, "6554 of 8192", "256 gives 6400"),
        (FALCON_7B, "14541 of 18176", "256 gives 14336"),
        (GLM_4, "10957 of 13696", "128 gives 10880"),
        (GPT2, "2458 of 3072", "256 gives 2304"),
    ],
    ids=str,
)
def test_warning_names_a_width_for_quantisers(
    dry_run: DryRuns, model: HubModel, width: str, best: str
) -> None:
    (warning,) = (w for w in dry_run(model, EDIT)["warnings"] if w != IGNORED_CODE)

    assert f"Layers store {width} neurons" in warning
    assert f"; {best} " in warning


@pytest.mark.parametrize("model", [PHI_2, GEMMA3], ids=named)
def test_width_that_stays_a_multiple_needs_no_warning(dry_run: DryRuns, model: HubModel) -> None:
    warnings = dry_run(model, EDIT)["warnings"]

    assert [warning for warning in warnings if warning != IGNORED_CODE] == []


@pytest.mark.parametrize("model", EXPERTS, ids=named)
def test_experts_can_be_diagnosed(dry_run: DryRuns, model: HubModel) -> None:
    assert dry_run(model, DIAGNOSIS)["problems"] == []


@pytest.mark.parametrize("model", EXPERTS, ids=named)
def test_experts_are_not_pruned(dry_run: DryRuns, model: HubModel) -> None:
    (problem,) = dry_run(model, EDIT)["problems"]

    assert problem["code"] == "unsupported_mlp"
    assert "routes tokens to experts" in problem["message"]


@pytest.mark.parametrize("model", [BLOOM, MPT], ids=named)
def test_fixed_width_is_not_pruned(dry_run: DryRuns, model: HubModel) -> None:
    (problem,) = dry_run(model, EDIT)["problems"]

    assert problem["code"] == "unsupported_mlp"
    assert "choose mode `zero` or `scale`" in problem["message"]


@pytest.mark.parametrize(
    ("model", "code", "reason"),
    [
        (refused.BERT, "unsupported_architecture", "`bert` is an encoder, not a decoder"),
        (refused.T5, "unsupported_architecture", "`t5` is an encoder-decoder, not a decoder"),
        (refused.GPTQ, "quantized_checkpoint", "declares quantised weights"),
        (refused.OLD_GPTQ, "quantized_checkpoint", "quantize_config.json"),
        (refused.AWQ, "quantized_checkpoint", "declares quantised weights"),
        (refused.GPT_OSS, "quantized_checkpoint", "declares quantised weights"),
        (refused.DEEPSEEK_V3, "quantized_checkpoint", "declares quantised weights"),
        (refused.ADAPTER, "adapter_checkpoint", "Merge it into its base model"),
        (refused.PICKLE_ONLY, "unsafe_weights_only", "safe_serialization=True"),
        (
            refused.CUSTOM_FALCON,
            "custom_architecture",
            'tensor "transformer.h.0.mlp.gate.weight", which that architecture does not have',
        ),
        (
            refused.CUSTOM_PHI,
            "custom_architecture",
            'tensor "model.layers.0.self_attn.o_proj.weight", of shape [3072, 1536] where '
            "[3072, 3072] is expected",
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("config", [EDIT, DIAGNOSIS], ids=["edit", "diagnosis"])
def test_refusal_names_its_reason(
    dry_run: DryRuns, config: dict[str, Any], model: HubModel, code: str, reason: str
) -> None:
    (problem,) = dry_run(model, config)["problems"]

    assert problem["code"] == code
    assert reason in problem["message"]
