"""Evaluating several units at once, for workers that would wait for a single one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from crumb_tasks.cluster.turns import Turns
from crumb_tasks.running.plan import Unit

_TICK = 0.05


class SideBySide:
    """Evaluates units in threads that take turns; a unit is begun while workers have little left to do.

    Args:
        turns: Who of them runs.
        has_room: Whether workers can take more.
        interrupt: Makes all that wait for workers stop.
    """

    def __init__(self, turns: Turns, has_room: Callable[[], bool], interrupt: Callable[[], None]) -> None:
        self._turns = turns
        self._has_room = has_room
        self._interrupt = interrupt
        self._error: BaseException | None = None

    def __call__(self, units: Sequence[Unit], attempt: Callable[[Unit], None]) -> None:
        """Evaluate ``units``; what ``attempt`` raises in one stops all.

        Raises:
            BaseException: The first that was raised.
        """
        threads: list[threading.Thread] = []
        try:
            for unit in units:
                paused = threading.Event()
                thread = threading.Thread(target=self._attempt, args=(unit, attempt, paused), name=unit.name)
                threads.append(thread)
                thread.start()
                while self._error is None and not (paused.is_set() and self._has_room()):
                    time.sleep(_TICK)
                if self._error is not None:
                    break
            while self._error is None and any(thread.is_alive() for thread in threads):
                time.sleep(_TICK)
        except KeyboardInterrupt as error:
            self._error = error
        if self._error is not None:
            self._interrupt()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _attempt(self, unit: Unit, attempt: Callable[[Unit], None], paused: threading.Event) -> None:
        try:
            with self._turns.turn(paused):
                attempt(unit)
        except BaseException as error:  # noqa: BLE001 -- raised again where all were started
            self._error = self._error or error
