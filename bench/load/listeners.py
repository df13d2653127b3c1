"""A process full of patient clients: event streams, and requests that wait for a change."""

import asyncio
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
def listening(url: str, listeners: Sequence[Listener]) -> Iterator["Ear"]:
    """Keep all listeners connected in a process of their own."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_listen, args=(url, list(listeners), theirs), daemon=True
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
    def __init__(self, url: str) -> None:
        self._url = url
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
        url = f"{self._url}/v1/jobs/{job_id}/events"
        async with client.stream("GET", url, headers=headers) as response:
            response.raise_for_status()
            self.open_streams += 1
            try:
                async for line in response.aiter_lines():
                    self.events += line.startswith("event:")
            finally:
                self.open_streams -= 1

    async def _wait(self, client: httpx.AsyncClient, listener: Listener, job_id: str) -> None:
        """Ask for a job until it has ended."""
        url = f"{self._url}/v1/jobs/{job_id}"
        while True:
            response = await client.get(url, params={"wait": WAIT_S}, headers=_headers(listener))
            response.raise_for_status()
            self.answers += 1
            if response.json()["finished_at"] is not None:
                return


def _headers(listener: Listener) -> dict[str, str]:
    return {"Authorization": f"Bearer {listener.key}"}


def _listen(url: str, listeners: list[Listener], connection: Connection) -> None:
    asyncio.run(_serve(url, listeners, connection))


async def _serve(url: str, listeners: list[Listener], connection: Connection) -> None:
    crowd = _Crowd(url)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    timeout = httpx.Timeout(LATE_S, read=None, pool=None)
    async with httpx.AsyncClient(limits=limits, timeout=timeout) as client:
        tasks = [asyncio.create_task(crowd.follow(client, one)) for one in listeners]
        while True:
            await asyncio.to_thread(connection.recv)
            connection.send(Heard(crowd.open_streams, crowd.events, crowd.answers, crowd.failures))
            if all(task.done() for task in tasks):
                return
