"""What lies behind a value: runs, and values per query, from the records of `crumb-tasks run` and from run files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection
from crumb_tasks.errors import UsageError
from crumb_tasks.measures import mteb_key, parse_measure
from crumb_tasks.report.apart import QueryValues
from crumb_tasks.report.results import Result, Results, System
from crumb_tasks.running.records import Record, run_path
from crumb_tasks.runs import Run
from crumb_tasks.scoring import Scores

_RUN_FILE = (("run", "file"),)
"""Stands for MTEB's ``experiment_kwargs`` where a system is known from a run file alone."""
_SUBSET = "default"
_SAME = 1e-4


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """A run file, scored under the rules of its task.

    Attributes:
        name: The system, as the user or the file names it.
        path: The file.
        task: The task's card.
        run: As it was read.
        collection: What it was scored on.
        scores: Its scores.
    """

    name: str
    path: str
    task: TaskCard
    run: Run
    collection: Collection
    scores: Scores


@dataclass(frozen=True, eq=False)
class Backing:
    """What is known of one system on one task beside its result.

    Attributes:
        per_query: Values per query by canonical measure.
        read_run: Reads the run, ``None`` where none was kept.
    """

    per_query: Mapping[str, QueryValues]
    read_run: Callable[[], Run] | None = None


Backings = Mapping[System, Mapping[str, Backing]]
"""By system and task."""


def read_backings(folder: Path, results: Results, split: str) -> dict[System, dict[str, Backing]]:
    """Return what the records of `crumb-tasks run` below ``folder`` hold on ``split``.

    A record counts only while it is the one of the very result file that was read.
    """
    found: dict[System, dict[str, Backing]] = {}
    for system, by_task in results.by_system.items():
        for task, result in by_task.items():
            file = folder / result.path
            record = Record.read(file.parent, task)
            if record is None or not record.describes(file):
                continue
            kept = record.per_query.get(f"{_SUBSET}/{split}", {})
            values = {kept["measure"]: QueryValues.of(kept["measure"], kept["values"])} if kept else {}
            path = run_path(file.parent, task, split, _SUBSET)
            found.setdefault(system, {})[task] = Backing(values, _reader(path) if path.is_file() else None)
    return found


def _reader(path: Path) -> Callable[[], Run]:
    def read() -> Run:
        from crumb_tasks.runfiles import read_run

        return read_run(path, "parquet")

    return read


def with_runs(
    results: Results, backings: Backings, runs: Iterable[ScoredRun]
) -> tuple[Results, dict[System, dict[str, Backing]]]:
    """Return results and backings with those of run files.

    A run of a model whose result on that split is already there and has the same value stands behind that result. Any
    other run is a system of its own, with the condition ``run file``.

    Raises:
        UsageError: Two different runs of one system on one task.
    """
    by_system = {system: dict(by_task) for system, by_task in results.by_system.items()}
    backed = {system: dict(by_task) for system, by_task in backings.items()}
    paths: dict[tuple[System, str], str] = {}
    for entry in runs:
        result = _result_of(entry)
        system = _system_of(entry, result, by_system)
        if (other := paths.get((system, entry.task.name))) is not None:
            raise UsageError(
                f"{other} and {entry.path} are both runs of '{entry.name}' on {entry.task.name}; tell them apart as "
                f"NAME={entry.path}"
            )
        paths[system, entry.task.name] = entry.path
        by_system.setdefault(system, {}).setdefault(entry.task.name, result)
        values = {
            name: QueryValues.of(name, dict(zip(entry.scores.query_ids, column.tolist(), strict=True)))
            for name, column in entry.scores.per_query.items()
            if name in entry.scores.summary
        }
        backed.setdefault(system, {})[entry.task.name] = Backing(values, lambda run=entry.run: run)  # type: ignore[misc]
    return replace(results, by_system=by_system), backed


def _result_of(entry: ScoredRun) -> Result:
    values = {key: float(value) for key, value in entry.scores.mteb_scores().items()}
    return Result(
        path=entry.path,
        data_revision=entry.task.source.recorded_revision,
        mteb_version="",
        values_by_split={entry.scores.split: values},
    )


def _system_of(entry: ScoredRun, result: Result, known: Mapping[System, Mapping[str, Result]]) -> System:
    """Return the one system of that name whose result is the run's, or else one of its own."""
    key, split = mteb_key(parse_measure(entry.task.main_measure)), entry.scores.split
    value = result.values_by_split[split].get(key)
    same = [
        system
        for system, by_task in known.items()
        if system.model == entry.name and value is not None and entry.task.name in by_task
        if (other := by_task[entry.task.name].values_by_split.get(split, {}).get(key)) is not None
        if abs(other - value) < _SAME
    ]
    return same[0] if len(same) == 1 else System(entry.name, "", _RUN_FILE)


def evidence_of(backings: Backings, measure: str) -> dict[System, dict[str, QueryValues]]:
    """Return the values per query of one measure."""
    name = parse_measure(measure).name
    return {
        system: {task: backing.per_query[name] for task, backing in by_task.items() if name in backing.per_query}
        for system, by_task in backings.items()
    }
