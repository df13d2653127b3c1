"""Keep what was computed last, for all threads of a process."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Recent(Generic[Result]):
    """The results used last, by a key that names everything they depend on.

    Parameters
    ----------
    size
        How many are kept.
    keeps
        Tells which results are small enough to be kept, so that the memory has a bound.
    """

    def __init__(self, size: int, *, keeps: Callable[[Result], bool] = lambda _: True) -> None:
        self._size = size
        self._keeps = keeps
        self._kept: OrderedDict[Hashable, Result] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable | None, compute: Callable[[], Result]) -> Result:
        """Return what is kept under `key`, else compute it: always where the key is None.

        Two threads may compute the same. What `compute` raises is not kept.
        """
        if key is None:
            return compute()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = compute()
        if self._keeps(found):
            with self._lock:
                self._kept[key] = found
                while len(self._kept) > self._size:
                    self._kept.popitem(last=False)
        return found
