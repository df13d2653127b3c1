"""The encoders used last are kept, and no others."""

from app.integrations.tokenizer import TextEncoder
from app.services.model_tokenizer import EncoderCache, RememberedTexts


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


def counting(asked: list[str]) -> TextEncoder:
    def encode(text: str) -> list[int]:
        asked.append(text)
        return [len(text)]

    return TextEncoder(encode, 1, lambda: None)


def test_a_text_is_encoded_once() -> None:
    asked: list[str] = []
    kept = EncoderCache().get("a", lambda: counting(asked))

    assert [kept.encode("one"), kept.encode("three"), kept.encode("one")] == [[3], [5], [3]]
    assert asked == ["one", "three"]


def test_who_changes_the_ids_given_to_him_changes_nobody_elses() -> None:
    kept = EncoderCache().get("a", encoder)
    kept.encode("one").clear()
    kept.encode("one").clear()

    assert kept.encode("one") == [3]


def test_texts_are_remembered_up_to_a_limit() -> None:
    asked: list[str] = []
    remembered = RememberedTexts(counting(asked).encode, max_characters=4)
    for text in ("one", "two", "two", "one"):
        remembered.encode(text)

    assert asked == ["one", "two", "one"]
