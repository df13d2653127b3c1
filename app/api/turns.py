"""Costly requests of one project take turns, so that other projects find threads and cores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from app.domain.errors import RateLimited

AT_ONCE = 4
MAX_WAITING = 100
PATIENCE_S = 20
RETRY_AFTER_S = 5


@dataclass(slots=True)
class _Line:
    """The requests of one project: those whose turn it is, and those that wait in their order."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    requests: int = 0


class ProjectTurns:
    """Lets a few requests of each project go on at once; the others hold no thread.

    To check a job may take long: the hub is slow, or a tokenizer made to be. Without turns one
    project would fill the threads of the process with such requests, and its cores with
    tokenizers.
    """

    def __init__(self) -> None:
        self._lines: dict[UUID, _Line] = {}

    @asynccontextmanager
    async def take(self, project_id: UUID) -> AsyncIterator[None]:
        """Wait for a turn of the project, and have it until the end of the block.

        Raises
        ------
        RateLimited
            When too many of its requests wait, or this one has waited too long.
        """
        line = self._lines.setdefault(project_id, _Line())
        if line.requests >= AT_ONCE + MAX_WAITING:
            raise _refused()
        line.requests += 1
        try:
            await _turn_in(line)
            try:
                yield
            finally:
                line.turns.release()
        finally:
            line.requests -= 1
            if not line.requests:
                del self._lines[project_id]


async def _turn_in(line: _Line) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            await line.turns.acquire()
    except TimeoutError:
        raise _refused() from None


def _refused() -> RateLimited:
    return RateLimited(
        f"Too many jobs of this project are being checked: {AT_ONCE} at once, while at most "
        f"{MAX_WAITING} wait for up to {PATIENCE_S} s. Send fewer at a time.",
        retry_after_s=RETRY_AFTER_S,
    )
