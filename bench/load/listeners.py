"""A process full of patient clients: event streams, and requests that wait for a change."""

import asyncio
import itertools
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import httpx

WAIT_S = 30
LATE_S = 10.0


@dataclass(frozen=True, slots=True)
class Listener:
    """One client: the jobs it follows one after the other, by stream or by waiting."""

    key: str
    job_ids: tuple[str, ...]
    streams: bool


@dataclass(frozen=True, slots=True)
class Heard:
    """What the listeners saw: open connections, events, answers, and what was refused or broke."""

    open_streams: int
    events: int
    answers: int
    failures: int


@contextmanager
def listening(urls: Sequence[str], listeners: Sequence[Listener]) -> Iterator["Ear"]:
    """Keep all listeners connected, in turn to each of `urls`, in a process of their own."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_listen, args=(urls, list(listeners), theirs), daemon=True
    )
    process.start()
    try:
        yield Ear(ours)
    finally:
        process.kill()
        process.join()


@dataclass(frozen=True, slots=True)
class Ear:
    """The other end of the listeners' process."""

    connection: Connection

    def heard(self) -> Heard:
        """Ask what was heard so far."""
        self.connection.send("?")
        found: Heard = self.connection.recv()
        return found


class _Crowd:
    def __init__(self) -> None:
        self.open_streams = self.events = self.answers = self.failures = 0

    async def follow(self, client: httpx.AsyncClient, listener: Listener) -> None:
        """Listen to one job after the other; a broken line is counted, and connected again."""
        visit = self._stream if listener.streams else self._wait
        for job_id in listener.job_ids:
            while True:
                try:
                    await visit(client, listener, job_id)
                    break
                except httpx.HTTPError:
                    self.failures += 1
                    await asyncio.sleep(1)

    async def _stream(self, client: httpx.AsyncClient, listener: Listener, job_id: str) -> None:
        """Follow a job to its end."""
        headers = _headers(listener) | {"Accept": "text/event-stream"}
        path = f"/v1/jobs/{job_id}/events"
        async with client.stream("GET", path, headers=headers) as response:
            response.raise_for_status()
            self.open_streams += 1
            try:
                async for line in response.aiter_lines():
                    self.events += line.startswith("event:")
            finally:
                self.open_streams -= 1

    async def _wait(self, client: httpx.AsyncClient, listener: Listener, job_id: str) -> None:
        """Ask for a job until it has ended."""
        path = f"/v1/jobs/{job_id}"
        while True:
            response = await client.get(path, params={"wait": WAIT_S}, headers=_headers(listener))
            response.raise_for_status()
            self.answers += 1
            if response.json()["finished_at"] is not None:
                return


def _headers(listener: Listener) -> dict[str, str]:
    return {"Authorization": f"Bearer {listener.key}"}


def _listen(urls: Sequence[str], listeners: list[Listener], connection: Connection) -> None:
    asyncio.run(_serve(urls, listeners, connection))


async def _serve(urls: Sequence[str], listeners: list[Listener], connection: Connection) -> None:
    crowd = _Crowd()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    timeout = httpx.Timeout(LATE_S, read=None, pool=None)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=url, limits=limits, timeout=timeout)
            )
            for url in urls
        ]
        tasks = [
            asyncio.create_task(crowd.follow(client, one))
            for client, one in zip(itertools.cycle(clients), listeners, strict=False)
        ]
        while True:
            await asyncio.to_thread(connection.recv)
            connection.send(Heard(crowd.open_streams, crowd.events, crowd.answers, crowd.failures))
            if all(task.done() for task in tasks):
                return
