"""How far a run on a cluster has got: a table that is drawn again and again in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from crumb_tasks.cluster.states import Progress

EVERY = 10.0
"""Seconds between plain lines while workers are busy."""

_REDRAW = 0.5


class View:
    """Shows a run's progress; what `crumb_tasks.running` tells a reporter, it tells this.

    Args:
        stream: Where to; a table is drawn when it is a terminal.
        n_tasks: Tasks to evaluate.
        n_expected: Documents of each of them by name, as far as known beforehand.
        noun: What is counted.
    """

    def __init__(self, stream: TextIO, n_tasks: int, n_expected: Mapping[str, int], noun: str = "documents") -> None:
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._n_tasks = n_tasks
        self._n_expected = dict(n_expected)
        self._noun = noun
        self._n_begun = 0
        self._n_done = 0
        self._own = threading.local()
        self._progress: Callable[[], Progress] = Progress
        self._is_over = threading.Event()
        self._live: Live | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._thread = threading.Thread(target=self._run, name="view", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        if self._live is not None:
            self._live.stop()

    def watch(self, progress: Callable[[], Progress]) -> None:
        """Show what ``progress`` returns from now on."""
        self._progress = progress

    def say(self, text: str) -> None:
        """Print one line that stays."""
        self._console.print(text, markup=False)

    def start(self, task: str, n_documents: int, n_queries: int) -> None:
        """A task begins, in the thread that calls."""
        self._n_begun += 1
        self._n_expected.pop(task, None)
        self._own.place, self._own.task, self._own.started = self._n_begun, task, time.monotonic()
        self.say(f"[{self._n_begun}/{self._n_tasks}] {task}: {n_documents:,} {self._noun}, {n_queries:,} queries")

    def observe(self, kind: str, count: int) -> None:
        """Ignore what a model in this process does: there is none."""

    def finish(self, outcome: str) -> None:
        """The task of the thread that calls is over."""
        self._n_done += 1
        took = duration(time.monotonic() - self._own.started)
        self.say(f"[{self._own.place}/{self._n_tasks}] {self._own.task}: {outcome} in {took}")

    def fail(self, task: str, reason: str) -> None:
        """A task has failed, perhaps before it began."""
        if getattr(self._own, "task", "") != task:
            self._n_begun += 1
            self._n_expected.pop(task, None)
            self._own.place, self._own.task = self._n_begun, task
        self.say(f"[{self._own.place}/{self._n_tasks}] {task}: failed: {reason}")

    def _run(self) -> None:
        last = time.monotonic()
        while not self._is_over.wait(_REDRAW):
            if self._live is not None:
                self._live.update(self.drawn(self._progress()), refresh=True)
            elif time.monotonic() - last >= EVERY:
                last = time.monotonic()
                progress = self._progress()
                self.say(f"{self.line(progress)}; {'; '.join(map(str, progress.workers))}")

    def line(self, progress: Progress) -> str:
        """Return how far all of it is, in words."""
        parts = [f"{self._n_done} of {self._n_tasks} tasks", f"{progress.done:,}/{progress.total:,} {self._noun}"]
        if progress.encoded:
            parts.append(f"{progress.rate:,.0f} {self._noun}/s")
            if (left := self.seconds_left(progress)) is not None:
                parts.append(f"{duration(left)} left{'' if self._knows_all else ' in the tasks that have begun'}")
        return ", ".join(parts)

    @property
    def _knows_all(self) -> bool:
        """Whether the size of every task that has not begun is known."""
        return self._n_tasks - self._n_begun <= len(self._n_expected)

    def seconds_left(self, progress: Progress) -> float | None:
        """Return how long the rest takes at the pace of all workers so far; ``None`` at the start."""
        if not progress.rate:
            return None
        later = sum(self._n_expected.values()) if self._knows_all else 0
        return (max(progress.total - progress.done, 0) + later) / progress.rate

    def drawn(self, progress: Progress) -> Group:
        """Return the table of workers under the line of all."""
        table = Table(box=None, padding=(0, 2, 0, 0))
        for head in ("worker", "place", "doing"):
            table.add_column(head)
        table.add_column(self._noun, justify="right")
        for worker in progress.workers:
            of = f"{worker.done:,}/{worker.total:,}" if worker.total else ""
            table.add_row(str(worker.number), Text(worker.place), Text(worker.doing), of)
        return Group(Text(self.line(progress)), table)


def duration(seconds: float) -> str:
    """Return a time in the unit that a person would choose."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
