"""The text that the demo models learn from, and the text that they are measured on."""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from workers.data.demo_world import stories

CORPUS_SEED = 1
CORPUS_STORIES = 60_000
HELD_OUT_SEED = 2


@cache
def corpus() -> tuple[str, ...]:
    """Tell the stories that the demo models learn from."""
    return tuple(story.text for story in stories(CORPUS_STORIES, CORPUS_SEED))


def corpus_facts(texts: Sequence[str]) -> dict[str, Any]:
    """Say what the text is, down to its bytes."""
    content = "".join(f"{text}\n" for text in texts).encode()
    return {
        "stories": len(texts),
        "words": sum(len(text.split()) for text in texts),
        "seed": CORPUS_SEED,
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def held_out_texts(count: int, *, held_out: bool) -> list[str]:
    """Tell `count` stories about people that are not in the corpus.

    With `held_out` their templates are not in it either. Stories of things are few, and most of
    them are in the corpus; they are left out.
    """
    known = frozenset(corpus())
    texts: list[str] = []
    for story in stories(10 * count, HELD_OUT_SEED, held_out=held_out):
        if story.gender is not None and story.text not in known:
            texts.append(story.text)
        if len(texts) == count:
            break
    return texts
