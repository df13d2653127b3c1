"""Text of foreign origin, made fit for every column and every JSON document."""

MESSAGE_LIMIT = 4000


def storable(text: str, *, limit: int = MESSAGE_LIMIT) -> str:
    """Give `text` with what PostgreSQL refuses escaped, and cut to `limit` characters.

    It takes neither NUL nor half a surrogate pair, both of which a message that quotes a file may
    hold: one such message must not cost an attempt its outcome.
    """
    encodable = text.encode("utf-8", errors="backslashreplace").decode("utf-8")
    clean = encodable.replace("\x00", "\\x00")
    if len(clean) <= limit:
        return clean
    mark = f"… ({len(clean)} characters)"
    return clean[: limit - len(mark)] + mark
