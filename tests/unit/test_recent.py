"""The results used last are kept, and no more than that."""

import pytest

from app.services.recent import Recent


def test_least_recently_used_result_goes_first() -> None:
    recent: Recent[object] = Recent(2)
    kept = recent.get("a", object)
    dropped = recent.get("b", object)
    recent.get("a", object)
    recent.get("c", object)

    assert recent.get("a", object) is kept
    assert recent.get("b", object) is not dropped


def test_result_without_a_key_is_computed_each_time() -> None:
    recent: Recent[object] = Recent(2)

    assert recent.get(None, object) is not recent.get(None, object)


def test_large_result_is_not_kept() -> None:
    recent: Recent[list[int]] = Recent(2, keeps=lambda found: len(found) < 3)

    assert recent.get("a", lambda: [1, 2, 3]) is not recent.get("a", lambda: [1, 2, 3])
    assert recent.get("b", lambda: [1]) is recent.get("b", lambda: [1])


def test_failure_is_not_kept() -> None:
    recent: Recent[int] = Recent(2)

    def fail() -> int:
        raise ValueError("once")

    with pytest.raises(ValueError, match="once"):
        recent.get("a", fail)

    assert recent.get("a", lambda: 1) == 1
