"""Getting the files of tasks into a data root or the cache, before anything needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crumb_tasks.cards import TaskCard, find_aggregate, find_benchmark, iter_tasks, read_cards
from crumb_tasks.errors import CrumbTasksError, UsageError, did_you_mean
from crumb_tasks.loaders import loader_of
from crumb_tasks.sources import fetch_into, open_source


@dataclass(frozen=True)
class Download:
    """One file that was asked for.

    Attributes:
        task: The first task that needs it.
        file: Its name inside the source's folder.
        path: Where it lies now; ``None`` when it could not be had.
        problem: Why not.
    """

    task: str
    file: str
    path: Path | None
    problem: str = ""


def tasks_called(names: Sequence[str]) -> tuple[TaskCard, ...]:
    """Return the tasks of this package that ``names`` stand for: tasks, aggregates, benchmarks or cards.

    Members that MTEB has are left out: MTEB fetches their data.

    Raises:
        UsageError: A name is none of these.
    """
    by_name = {task.name: task for task in iter_tasks()}
    cards = {card.name: card for card in read_cards()}
    found: dict[str, TaskCard] = {}
    for name in names:
        aggregate = find_aggregate(name)
        benchmark = find_benchmark(name)
        if name in by_name:
            members = [name]
        elif aggregate is not None:
            members = list(aggregate.task_names)
        elif benchmark is not None:
            inner = find_aggregate(benchmark.aggregate) if benchmark.aggregate else None
            members = list(benchmark.tasks or (inner.task_names if inner else ()))
        elif name in cards:
            members = [task.name for task in cards[name].tasks]
        else:
            known = {*by_name, *cards, *(entry.name for card in read_cards() for entry in card.aggregates)}
            raise UsageError(f"'{name}' is no task, aggregate, benchmark or card{did_you_mean(name, known)}")
        found.update({member: by_name[member] for member in members if member in by_name})
    return tuple(found.values())


def download(
    names: Sequence[str], target: Path | str | None = None, *, splits: Sequence[str] | None = None
) -> Iterator[Download]:
    """Get each file that the tasks called ``names`` need, once; a file that cannot be had does not stop the others.

    Args:
        names: Tasks, aggregates, benchmarks or cards.
        target: A data root, filled in the upstream layout; by default the hosts' caches.
        splits: Only these splits; by default all.

    Raises:
        UsageError: As `tasks_called`.
    """
    seen: set[tuple[str, str]] = set()
    for task in tasks_called(names):
        place = task.source.hub or task.source.github or task.source.sample or task.source.path
        for split in task.splits:
            if splits is not None and split not in splits:
                continue
            for file in loader_of(task).files(task, split):
                if (key := (f"{place}/{task.source.folder}", file)) not in seen:
                    seen.add(key)
                    yield _fetch(task, file, None if target is None else Path(target).expanduser())


def _fetch(task: TaskCard, file: str, target: Path | None) -> Download:
    try:
        if target is None or task.source.sample is not None or task.source.user is not None:
            return Download(task.name, file, open_source(task, root=target).path(file))
        return Download(task.name, file, fetch_into(task.source, file, target, task=task.name))
    except CrumbTasksError as error:
        return Download(task.name, file, None, str(error))
