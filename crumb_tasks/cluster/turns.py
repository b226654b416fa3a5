"""Several tasks at once on the driver, one at a time in its code.

Each task has a thread. Neither MTEB nor the result cache is made for threads, so a thread runs only while it has the
turn, and gives it away while it waits for workers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A lock that a thread gives away while it waits elsewhere."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own = threading.local()

    @contextmanager
    def turn(self, paused: threading.Event) -> Iterator[None]:
        """Run with the turn; ``paused`` is set when it is first given away, at the latest at the end."""
        self._own.paused = paused
        try:
            with self._lock:
                yield
        finally:
            paused.set()

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Give the turn away and take it again afterwards."""
        self._own.paused.set()
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()
