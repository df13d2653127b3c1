"""The encoders used last are kept, and no others."""

from app.integrations.tokenizer import TextEncoder
from app.services.model_tokenizer import EncoderCache


def encoder() -> TextEncoder:
    return TextEncoder(lambda text: [len(text)], 1, lambda: None)


def test_encoder_is_loaded_once() -> None:
    cache = EncoderCache()
    first = cache.get("a", encoder)

    assert cache.get("a", encoder) is first


def test_least_recently_used_encoder_goes_first() -> None:
    cache = EncoderCache(size=2)
    kept = cache.get("a", encoder)
    dropped = cache.get("b", encoder)
    cache.get("a", encoder)
    cache.get("c", encoder)

    assert cache.get("a", encoder) is kept
    assert cache.get("b", encoder) is not dropped
