"""Take secrets out of texts that others will read: logs, and the errors of jobs."""

import json
import re
from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from app.security.masking import mask_passwords

HIDDEN = "[hidden]"
# Shorter values would be found in innocent words; no secret of the service is as short.
MIN_LENGTH = 8
# Tokens that a process has used; the oldest are forgotten, so that none of them lives for ever.
MAX_VALUES = 256

# What a secret looks like, whoever it belongs to: API keys (the prefix stays, to find the key by),
# tokens of the hub, and the signatures of download links, ours and the store's.
_FORMS = (
    (re.compile(r"\b(dbk_[0-9A-Za-z]{8})_[0-9A-Za-z]{43}\b"), rf"\1_{HIDDEN}"),
    (re.compile(r"\bhf_[0-9A-Za-z]{20,}\b"), HIDDEN),
    (re.compile(r"(?i)((?:\?|&|&amp;)(?:x-amz-)?signature=)[^&\s\"']+"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)\b(bearer )[^\s\"',]{8,}"), rf"\1{HIDDEN}"),
)


class _Values:
    """Secrets that this process knows. Lines of log are written by any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._forms: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def add(self, value: str) -> None:
        if len(value) < MIN_LENGTH:
            return
        # As it is, and as it looks inside a JSON text.
        forms = tuple({value, json.dumps(value)[1:-1]})
        with self._lock:
            self._forms[value] = forms
            self._forms.move_to_end(value)
            if len(self._forms) > MAX_VALUES:
                self._forms.popitem(last=False)

    def hide_in(self, text: str) -> str:
        with self._lock:
            known = [form for forms in self._forms.values() for form in forms]
        for form in known:
            if form in text:
                text = text.replace(form, HIDDEN)
        return text


_values = _Values()


def hide_value(value: str) -> None:
    """Hide this very text in all that `redact` is given from now on."""
    _values.add(value)


def hide_values(values: Iterable[str]) -> None:
    """Hide each of these texts from now on."""
    for value in values:
        hide_value(value)


def redact(text: str) -> str:
    """Return the text without secrets: registered ones, and what looks like one."""
    text = mask_passwords(_values.hide_in(text))
    for form, hidden in _FORMS:
        text = form.sub(hidden, text)
    return text
