"""Which tokenizer class transformers 5.24's AutoTokenizer takes for a model with tokenizer.json."""

from collections.abc import Mapping
from typing import Any

AS_SAVED = "TokenizersBackend"  # the class that takes tokenizer.json as it is

# The class registered for a model type; types that are not listed have none. The tests compare
# the table with the library's.
REGISTERED: Mapping[str, str] = {
    "bert": "BertTokenizer",
    "distilbert": "BertTokenizer",
    "electra": "BertTokenizer",
    "gemma": "GemmaTokenizer",
    "gemma2": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "gpt_neo": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer",
    "granite": AS_SAVED,
    "mistral": AS_SAVED,
    "mixtral": AS_SAVED,
    "olmo2": AS_SAVED,
    "opt": "GPT2Tokenizer",
    "phi": "GPT2Tokenizer",
    "phi3": AS_SAVED,
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "roberta": "RobertaTokenizer",
    "stablelm": AS_SAVED,
    "starcoder2": "GPT2Tokenizer",
    "t5": "T5Tokenizer",
}
# Types whose published files often declare a wrong class, so that the registered one is taken.
DECLARED_IN_ERROR = frozenset({"phi3", "qwen2"})
_GENERIC = frozenset({AS_SAVED, "PythonBackend", "PreTrainedTokenizer", "PreTrainedTokenizerFast"})


def tokenizer_class(
    tokenizer_config: Mapping[str, Any], model_config: Mapping[str, Any], *, byte_level: bool
) -> str:
    """Name the class, without a `Fast` suffix.

    `byte_level` says whether tokenizer.json works on bytes, which `LlamaTokenizer` does not.
    """
    model_type = str(model_config.get("model_type", ""))
    declared = _declared(tokenizer_config, model_config)
    registered = REGISTERED.get(model_type)
    if declared == "LlamaTokenizer" and byte_level and model_type not in DECLARED_IN_ERROR:
        return AS_SAVED
    if declared is None:
        return registered or AS_SAVED
    if registered is not None and (registered == AS_SAVED or model_type in DECLARED_IN_ERROR):
        return registered
    return AS_SAVED if declared in _GENERIC else declared


def _declared(tokenizer_config: Mapping[str, Any], model_config: Mapping[str, Any]) -> str | None:
    name = tokenizer_config.get("tokenizer_class") or model_config.get("tokenizer_class")
    return name.removesuffix("Fast") if isinstance(name, str) else None
