from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from app.db.events import add_to_outbox
from app.db.session import Database
from app.dispatch.outbox import Message, Relay
from tests.clock import FakeClock
from tests.execution import TIMING


class Recorder:
    """A handler that keeps what it was given, and fails while `broken`."""

    def __init__(self) -> None:
        self.seen: list[UUID] = []
        self.broken = False

    def __call__(self, messages: Sequence[Message]) -> None:
        if self.broken:
            raise ConnectionError("no")
        self.seen += [message.aggregate_id for message in messages]


def ask(database: Database, *, topic: str = "dispatch", delay_s: float = 0.0) -> UUID:
    aggregate = uuid4()
    with database.write() as session:
        now = database.now(session)
        add_to_outbox(session, topic, aggregate, now=now, delay_s=delay_s)
    return aggregate


def test_a_message_is_acted_on_once(timed: Database) -> None:
    handler = Recorder()
    relay = Relay(timed, {"dispatch": handler}, timing=TIMING)
    aggregate = ask(timed)

    counts = [relay.run_once(), relay.run_once()]

    assert counts == [1, 0]
    assert handler.seen == [aggregate]


def test_messages_are_acted_on_in_the_order_written(timed: Database, clock: FakeClock) -> None:
    handler = Recorder()
    relay = Relay(timed, {"dispatch": handler}, timing=TIMING)
    written = []
    for _ in range(3):
        written.append(ask(timed))
        clock.advance(0.01)

    relay.run_once()

    assert handler.seen == written


def test_a_message_that_is_not_due_waits(timed: Database, clock: FakeClock) -> None:
    handler = Recorder()
    relay = Relay(timed, {"dispatch": handler}, timing=TIMING)
    ask(timed, delay_s=5)

    early = relay.run_once()
    clock.advance(5)

    assert (early, relay.run_once()) == (0, 1)


def test_a_failed_message_comes_again_later_with_its_error_noted(
    timed: Database, clock: FakeClock
) -> None:
    handler = Recorder()
    handler.broken = True
    relay = Relay(timed, {"dispatch": handler}, timing=TIMING)
    aggregate = ask(timed)

    relay.run_once()
    handler.broken = False
    at_once = relay.run_once()
    clock.advance(2.5)
    later = relay.run_once()

    assert (at_once, later) == (0, 1)
    assert handler.seen == [aggregate]


def test_a_message_of_a_relay_that_died_is_taken_again(timed: Database, clock: FakeClock) -> None:
    class Died(BaseException):
        pass

    def die(_messages: Sequence[Message]) -> None:
        raise Died

    aggregate = ask(timed)
    with pytest.raises(Died):
        Relay(timed, {"dispatch": die}, timing=TIMING).run_once()
    handler = Recorder()
    relay = Relay(timed, {"dispatch": handler}, timing=TIMING)

    hidden = relay.run_once()
    clock.advance(TIMING.outbox_retry_s)
    taken = relay.run_once()

    assert (hidden, taken) == (0, 1)
    assert handler.seen == [aggregate]


def test_a_topic_without_a_handler_is_left_for_others(timed: Database) -> None:
    handler = Recorder()
    ask(timed, topic="webhook")

    assert Relay(timed, {"dispatch": handler}, timing=TIMING).run_once() == 0
