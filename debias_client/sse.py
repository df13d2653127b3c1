"""A parser of server-sent events, after the WHATWG HTML standard, section 9.2.6.

`httpx.Response.iter_lines` does not serve: it also splits at characters such as U+2028, which
JSON may hold unescaped.
"""

import re
from dataclasses import dataclass, field

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Message:
    """One event: its type, its data lines joined, and the last id seen so far."""

    event: str
    data: str
    last_id: str


@dataclass(slots=True)
class EventStreamParser:
    """Turns the bytes of one connection, however cut, into messages.

    `reconnect_s` is what the service asked for with `retry:`, None until it does. An event
    that the end of the stream cuts off is never given out. Unlike in a browser, an event with
    a type and no data counts: `done` needs none.
    """

    reconnect_s: float | None = None
    _rest: bytes = b""
    _at_start: bool = True
    _event: str = ""
    _data: list[str] = field(default_factory=list)
    _last_id: str = ""

    def feed(self, chunk: bytes) -> list[Message]:
        """Take the next bytes and give the messages that they complete."""
        self._rest += chunk
        if self._at_start and not self._skip_byte_order_mark():
            return []
        # A final CR may be the first half of CR LF: it stays until its successor is known.
        end = len(self._rest) - self._rest.endswith(b"\r")
        *lines, unfinished = _LINE_END.split(self._rest[:end])
        self._rest = unfinished + self._rest[end:]
        taken = (self._take_line(line.decode("utf-8", "replace")) for line in lines)
        return [message for message in taken if message is not None]

    def _skip_byte_order_mark(self) -> bool:
        if len(self._rest) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(self._rest):
            return False
        self._rest = self._rest.removeprefix(_BYTE_ORDER_MARK)
        self._at_start = False
        return True

    def _take_line(self, line: str) -> Message | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._last_id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.reconnect_s = int(value) / 1000
        return None

    def _dispatch(self) -> Message | None:
        event, data = self._event, self._data
        self._event, self._data = "", []
        if not event and not data:
            return None
        return Message(event or "message", "\n".join(data), self._last_id)
