"""Documents with a marked place for the newest run of each kind."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def replace_section(document: str, name: str, text: str) -> None:
    """Put `text` between the marks of section `name` of a page of the documentation.

    Raises
    ------
    ValueError
        When the page has no such place.
    """
    path = DOCS / document
    begin, end = (f"<!-- {name}: {word} -->" for word in ("begin", "end"))
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    content = path.read_text()
    if not pattern.search(content):
        raise ValueError(f"{path} has no place for this: {begin}")
    section = f"{begin}\n{text.rstrip()}\n{end}"
    path.write_text(pattern.sub(lambda _: section, content))
