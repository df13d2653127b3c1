"""config.json is a stranger's: what could select code is refused or dropped."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import DebiasError, MethodModelIncompatible, UnsafeModelFormat
from app.domain.models import TensorFact
from app.security.model_config import clean_config, clean_file, parse_config
from app.security.native_tensors import verify_native_tensors
from tests.model_files import CONFIG, llama_shapes

AUTO_MAP = {"AutoModelForCausalLM": "modeling_custom.CustomModel"}


def with_keys(**keys: Any) -> dict[str, Any]:
    return {**CONFIG, **keys}


@pytest.mark.parametrize(
    "key",
    [
        "_attn_implementation",
        "_attn_implementation_internal",
        "attn_implementation",
        "experts_implementation",
        "use_kernels",
        "kernel_config",
        "hub_Kernel",
    ],
)
def test_key_that_selects_code_is_refused(key: str) -> None:
    with pytest.raises(UnsafeModelFormat) as caught:
        clean_config(with_keys(**{key: "someone/attention"}))

    assert caught.value.findings[0].code == "code_selecting_key"
    assert key in caught.value.detail


def test_key_that_selects_code_is_refused_inside_a_sub_config() -> None:
    config = with_keys(text_config={"vision": [{"_attn_implementation": "someone/attention"}]})

    with pytest.raises(UnsafeModelFormat):
        clean_config(config)


def test_sizes_of_convolution_kernels_are_kept() -> None:
    config = {"model_type": "vit", "conv_kernel": [3, 3], "kernel_size": 7}

    assert clean_config(config).config == config


@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
def test_quantised_weights_are_refused(key: str) -> None:
    with pytest.raises(MethodModelIncompatible) as caught:
        clean_config(with_keys(**{key: {"quant_method": "gptq"}}))

    assert caught.value.findings[0].code == "quantized_checkpoint"


def test_empty_quantisation_is_no_quantisation() -> None:
    assert clean_config(with_keys(quantization_config=None)).config == CONFIG


@pytest.mark.parametrize("value", [None, "", 3, ["llama"]])
def test_missing_model_type_is_named(value: object) -> None:
    with pytest.raises(UnsafeModelFormat) as caught:
        clean_config(with_keys(model_type=value))

    assert caught.value.findings[0].code == "model_type_missing"


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("torch_dtype", {"torch_dtype": "os"}),
        ("dtype", {"dtype": 7}),
        ("dtype", {"text_config": {"dtype": "int8"}}),
        ("layer_types", {"layer_types": ["full_attention", "evil"]}),
        ("layer_types", {"layer_types": "full_attention"}),
        ("rope_scaling.type", {"rope_scaling": {"type": "evil"}}),
        ("rope_scaling.rope_type", {"rope_scaling": {"rope_type": ["yarn"]}}),
        ("rope_parameters.rope_type", {"rope_parameters": {"full": {"rope_type": "evil"}}}),
    ],
)
def test_name_that_the_library_does_not_know_is_refused_with_its_key(
    key: str, keys: dict[str, Any]
) -> None:
    with pytest.raises(UnsafeModelFormat) as caught:
        clean_config(with_keys(**keys))

    (finding,) = caught.value.findings
    assert finding.code == "config_invalid"
    assert key in finding.message


@pytest.mark.parametrize(
    "keys",
    [
        {"torch_dtype": "bfloat16"},
        {"dtype": None},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"rope_scaling": None},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6}}},
    ],
)
def test_names_that_the_library_knows_are_kept(keys: dict[str, Any]) -> None:
    assert clean_config(with_keys(**keys)).config == with_keys(**keys)


def test_own_code_of_a_native_type_is_dropped_with_a_warning() -> None:
    cleaned = clean_config(with_keys(auto_map=AUTO_MAP))

    assert cleaned.config == CONFIG
    assert cleaned.named_code
    assert len(cleaned.warnings) == 1


@pytest.mark.parametrize("model_type", ["phi3", "mpt", "falcon"])
def test_own_code_is_dropped_where_other_keys_are_kept(model_type: str) -> None:
    config = {"model_type": model_type, "unknown": 1, "attn_config": {"auto_map": AUTO_MAP}}

    cleaned = clean_config({**config, "auto_map": AUTO_MAP})

    assert cleaned.config == {**config, "attn_config": {}}
    assert cleaned.named_code


@pytest.mark.parametrize("model_type", ["gemma2", "cohere2"])
def test_choice_of_a_cache_is_dropped(model_type: str) -> None:
    config = {"model_type": model_type, "hidden_size": 8}

    cleaned = clean_config({**config, "cache_implementation": "hybrid"})

    assert (cleaned.config, cleaned.warnings) == (config, ())
    assert clean_config({**config, "text": {"cache_implementation": "x"}}).warnings == ()


def test_choice_of_a_cache_is_dropped_for_generation() -> None:
    data = b'{"cache_implementation": "quantized", "pad_token_id": 0}'

    assert json.loads(clean_file("generation_config.json", data)) == {"pad_token_id": 0}


def test_own_code_of_another_type_is_refused() -> None:
    with pytest.raises(UnsafeModelFormat) as caught:
        clean_config({"model_type": "custom", "auto_map": AUTO_MAP})

    assert caught.value.findings[0].code == "custom_code"


def test_keys_that_the_config_class_does_not_know_are_dropped() -> None:
    assert clean_config(with_keys(secret_plan=1, torch_dtype="float32")).config == with_keys(
        torch_dtype="float32"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"model_type": "llama", "model_type": "gpt2"}',
        b'{"eps": NaN}',
        b'{"eps": Infinity}',
        b"\xff\xfe{}",
        b'{"a":' * 50 + b"1" + b"}" * 50,
        b"[" * 200_000,
        b"version https://git-lfs.github.com/spec/v1\n",
    ],
)
def test_file_that_is_not_a_plain_object_is_refused(data: bytes) -> None:
    with pytest.raises(UnsafeModelFormat) as caught:
        parse_config(data)

    assert "config.json" in caught.value.detail


def test_cleaned_tokenizer_config_has_no_code_of_its_own() -> None:
    data = json.dumps({"auto_map": {"AutoTokenizer": ["a.B", None]}, "bos_token": "<s>"}).encode()

    assert json.loads(clean_file("tokenizer_config.json", data)) == {"bos_token": "<s>"}


def test_file_without_anything_to_clean_keeps_its_bytes() -> None:
    data = b'{"bos_token":   "<s>"}'

    assert clean_file("tokenizer_config.json", data) is data
    assert clean_file("tokenizer.json", data) is data


ANY_JSON = st.recursive(
    st.none() | st.text("auto_mp", max_size=4) | st.integers() | st.just("llama"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["auto_map", "_attn_implementation", "y"]), inner)
    ),
    max_leaves=4,
)


@given(
    st.fixed_dictionaries(
        {"model_type": st.sampled_from(["llama", "gpt2", "not_a_type"])},
        optional=dict.fromkeys(["auto_map", "attn_implementation", "kernels", "x"], ANY_JSON),
    )
)
def test_cleaned_config_never_names_code(config: dict[str, Any]) -> None:
    try:
        cleaned = clean_config(config)
    except DebiasError:
        return

    assert "auto_map" not in json.dumps(cleaned.config)
    assert clean_config(cleaned.config).config == cleaned.config


def facts(shapes: dict[str, list[int]]) -> dict[str, TensorFact]:
    return {
        name: TensorFact("F32", tuple(shape), "model.safetensors", 0)
        for name, shape in shapes.items()
    }


def test_tensors_of_the_library_class_are_accepted() -> None:
    verify_native_tensors(CONFIG, facts(llama_shapes()))


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"model.layers.0.alibi.weight": [3]}, "does not have"),
        ({"model.norm.weight": None}, "is missing"),
        ({"model.norm.weight": [5]}, "[5] where [4]"),
    ],
)
def test_first_difference_from_the_library_class_is_named(
    change: dict[str, list[int] | None], difference: str
) -> None:
    shapes = {name: shape for name, shape in {**llama_shapes(), **change}.items() if shape}

    with pytest.raises(UnsafeModelFormat) as caught:
        verify_native_tensors(CONFIG, facts(shapes))

    assert next(iter(change)) in caught.value.detail
    assert difference in caught.value.detail


@pytest.mark.parametrize("layers", [-1, 0, 10**9, "2", True, None])
def test_layer_count_that_makes_no_sense_is_refused(layers: object) -> None:
    with pytest.raises(UnsafeModelFormat):
        verify_native_tensors(with_keys(num_hidden_layers=layers), {})


def test_lone_surrogate_survives_cleaning() -> None:
    data = rb'{"model_type": "llama", "_name_or_path": "\ud800"}'

    assert json.loads(clean_file("config.json", data)) == json.loads(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("eos_token_id", [[1]]),
        ("eos_token_id", "</s>"),
        ("eos_token_id", [1, 2.0]),
        ("pad_token_id", {"id": 1}),
        ("bos_token_id", True),
        ("eos_token_id", 2**70),
    ],
)
def test_token_ids_of_the_wrong_type_are_refused(key: str, value: object) -> None:
    content = json.dumps({key: value}).encode()

    with pytest.raises(UnsafeModelFormat, match=f"must give {key} as a token id"):
        clean_file("generation_config.json", content)


@pytest.mark.parametrize("value", [None, 2, -1, [2, 3], []])
def test_token_ids_as_the_library_writes_them_are_kept(value: object) -> None:
    content = json.dumps({"eos_token_id": value}).encode()

    assert clean_file("generation_config.json", content) == content
