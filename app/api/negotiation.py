"""Choose a representation by the `Accept` header (RFC 9110, section 12.5.1)."""

from collections.abc import Iterator, Sequence

from fastapi import Request

from app.domain.errors import NotAcceptable

JSON = "application/json"


class Represents:
    """Dependency that gives the best of the media types a route can answer with.

    The first type is the default. Without an `Accept` header everything is acceptable.
    """

    def __init__(self, *media_types: str) -> None:
        self.media_types = media_types

    async def __call__(self, request: Request) -> str:
        """Return the chosen type, or refuse with 406."""
        return choose_media_type(request.headers.getlist("accept"), self.media_types)


accepts_json = Represents(JSON)


def choose_media_type(accept: Sequence[str], offered: Sequence[str]) -> str:
    """Return the offered type of highest quality; the earlier one wins a tie.

    Raises
    ------
    NotAcceptable
        When every offered type is excluded.
    """
    ranges = list(_ranges(",".join(accept)))
    if not ranges:
        return offered[0]
    best = max(offered, key=lambda media_type: _quality(media_type, ranges))
    if _quality(best, ranges) <= 0:
        raise NotAcceptable(f"This resource is available as {', '.join(offered)} only.")
    return best


def _ranges(header: str) -> Iterator[tuple[str, float]]:
    for part in header.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if not name:
            continue
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        yield name, _number(quality)


def _number(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 1.0


def _quality(media_type: str, ranges: Sequence[tuple[str, float]]) -> float:
    """Quality by the most specific range that matches."""
    group = media_type.split("/", 1)[0]
    for wanted in (media_type, f"{group}/*", "*/*"):
        found = [quality for name, quality in ranges if name == wanted]
        if found:
            return max(found)
    return 0.0
