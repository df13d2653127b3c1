"""What the README and docs/ promise: their code blocks, inline code and links."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

REPOSITORY = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    REPOSITORY / "README.md",
    REPOSITORY / "CHANGELOG.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]


@dataclass(frozen=True)
class Excerpt:
    """A piece of a document; `language` is that of a code block."""

    document: str
    line: int
    text: str
    language: str = ""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(language: str | None = None) -> list[Excerpt]:
    """All fenced code blocks, or those in one language."""
    found = [
        Excerpt(name, line, token.content, token.info)
        for name, line, token in _tokens()
        if token.type == "fence"
    ]
    return [block for block in found if language in (None, block.language)]


def inline_code() -> list[Excerpt]:
    """All inline code."""
    return [
        Excerpt(name, line, token.content)
        for name, line, token in _tokens()
        if token.type == "code_inline"
    ]


def links() -> list[Excerpt]:
    """All targets of links and images."""
    attributes = {"link_open": "href", "image": "src"}
    return [
        Excerpt(name, line, str(token.attrGet(attributes[token.type])))
        for name, line, token in _tokens()
        if token.type in attributes
    ]


def anchors(document: Path) -> set[str]:
    """Names that links may point to within a document: its headings, as forges spell them."""
    tokens = MarkdownIt("commonmark").parse(document.read_text())
    titles = [after.content for this, after in itertools.pairwise(tokens) if _is_heading(this)]
    return {
        "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_").replace(
            " ", "-"
        )
        for title in titles
    }


def _is_heading(token: Token) -> bool:
    return token.type == "heading_open"


def _tokens() -> Iterator[tuple[str, int, Token]]:
    parser = MarkdownIt("commonmark").enable("table")
    for path in DOCUMENTS:
        name = str(path.relative_to(REPOSITORY))
        for token in parser.parse(path.read_text()):
            line = (token.map or [0])[0] + 1
            yield name, line, token
            for child in token.children or ():
                yield name, line, child
