"""Sizes as people read them."""

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


def size_in_words(size_bytes: float) -> str:
    """Write a size with three digits at most and the unit that fits."""
    size, unit = float(size_bytes), 0
    while abs(size) >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / _STEP, unit + 1
    return f"{size:.3g} {_UNITS[unit]}" if abs(size) < 999.5 else f"{size:.0f} {_UNITS[unit]}"
