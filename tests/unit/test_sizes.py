import pytest

from app.domain.sizes import size_in_words


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "0.977 KiB"),
        (1 << 20, "1 MiB"),
        (10 * 2**30, "10 GiB"),
        (1.5 * 2**40, "1.5 TiB"),
        (5000 * 2**40, "5000 TiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_size_has_three_digits_and_a_unit(size: float, words: str) -> None:
    assert size_in_words(size) == words
