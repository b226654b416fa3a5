"""How far a run has got: a display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

EVERY = 10.0
"""Seconds between plain lines while a task is running."""


@dataclass
class Pace:
    """Documents done, and how long the rest will take at the same pace.

    Attributes:
        n_tasks: Tasks to evaluate.
        n_expected: Documents of each of them by name, as far as known beforehand.
        clock: Seconds.
        noun: What is counted.
    """

    n_tasks: int
    n_expected: dict[str, int] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    noun: str = "documents"
    task: str = ""
    at: int = 0
    n_documents: int = 0
    done: int = 0
    started: float = 0.0

    def start(self, task: str, n_documents: int) -> None:
        """Begin with a task of that many documents."""
        self.task, self.at, self.done, self.n_documents = task, self.at + 1, 0, n_documents
        self.n_expected.pop(task, None)
        self.started = self.clock()

    def skip(self, task: str) -> None:
        """Count a task that does not begin."""
        self.task, self.at = task, self.at + 1
        self.n_expected.pop(task, None)

    def advance(self, count: int) -> None:
        """Count documents that were done; of documents that stand for passages there may be more than expected."""
        self.done += count
        self.n_documents = max(self.n_documents, self.done)

    def finish(self) -> float:
        """Return the seconds that the task took."""
        return self.clock() - self.started

    @property
    def rate(self) -> float:
        """Documents per second of the running task."""
        return self.done / max(self.clock() - self.started, 1e-9)

    @property
    def knows_all(self) -> bool:
        """Whether the size of every later task is known."""
        return self.n_tasks - self.at <= len(self.n_expected)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last task ends, or this one while others are of unknown size; ``None`` at the start."""
        if not self.done:
            return None
        later = sum(self.n_expected.values()) if self.knows_all else 0
        return (max(self.n_documents - self.done, 0) + later) / self.rate

    def line(self) -> str:
        """Return the state in words."""
        parts = [f"{self.done:,}/{self.n_documents:,} {self.noun}"]
        if (left := self.seconds_left) is not None:
            parts.append(f"{self.rate:,.0f} {self.noun}/s")
            parts.append(f"{duration(left)} left{'' if self.knows_all else ' in this task'}")
        return ", ".join(parts)


class Reports(Protocol):
    """What is told about a run: to `Reporter`, or to the view of a cluster."""

    def say(self, text: str) -> None:
        """Print one line that stays."""

    def start(self, task: str, n_documents: int, n_queries: int) -> None:
        """A task begins."""

    def finish(self, outcome: str) -> None:
        """The task is over."""

    def fail(self, task: str, reason: str) -> None:
        """A task has failed, perhaps before it began."""


class Reporter:
    """Shows a run's progress.

    Args:
        stream: Where to; a display is drawn when it is a terminal.
        pace: What is counted.
    """

    def __init__(self, stream: TextIO, pace: Pace) -> None:
        self.pace = pace
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._display: Progress | None = None
        self._last = pace.clock()
        self._is_over = False  # what a model does after a task is none of its documents
        if self._console.is_terminal:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[state]}"),
            )
            self._display = Progress(*columns, TimeElapsedColumn(), console=self._console, transient=True)
            self._row = self._display.add_task("", total=None, state="")

    def __enter__(self) -> Self:
        if self._display is not None:
            self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.stop()

    def say(self, text: str) -> None:
        """Print one line that stays."""
        self._console.print(text, markup=False)

    def start(self, task: str, n_documents: int, n_queries: int) -> None:
        """A task begins."""
        self._is_over = False
        self.pace.start(task, n_documents)
        self._last = self.pace.clock()
        self.say(f"{self._place} {task}: {n_documents:,} {self.pace.noun}, {n_queries:,} queries")
        self._draw()

    def observe(self, kind: str, count: int) -> None:
        """Take note of what a model has done; see `crumb_tasks.models.Observer`."""
        if kind == "query" or self._is_over:
            return
        self.pace.advance(count)
        if self._display is not None:
            self._draw()
        elif self.pace.clock() - self._last >= EVERY:
            self._last = self.pace.clock()
            self.say(f"{self._place} {self.pace.task}: {self.pace.line()}")

    def finish(self, outcome: str) -> None:
        """The task is over."""
        self._is_over = True
        done, rate, took = self.pace.done, self.pace.rate, self.pace.finish()
        speed = f", {rate:,.0f} {self.pace.noun}/s" if done else ""
        self.say(f"{self._place} {self.pace.task}: {outcome} in {duration(took)}{speed}")

    def fail(self, task: str, reason: str) -> None:
        """A task has failed, perhaps before it began."""
        if self.pace.task != task:
            self.pace.skip(task)
        self.say(f"{self._place} {task}: failed: {reason}")

    @property
    def _place(self) -> str:
        return f"[{self.pace.at}/{self.pace.n_tasks}]"

    def _draw(self) -> None:
        if self._display is not None:
            total = self.pace.n_documents or None
            description = f"{self._place} {self.pace.task}"
            self._display.update(
                self._row, description=description, total=total, completed=self.pace.done, state=self.pace.line()
            )


def duration(seconds: float) -> str:
    """Return a time in the unit that a person would choose."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
