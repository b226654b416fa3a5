"""The same questions over two snapshots of their sources: what changes for a question, and for the order of systems?

Absolute values of two snapshots are those of two collections, and the second may simply be harder. What "Still Fresh?"
asks is whether systems keep their order (Kendall's tau), and which questions lose what they had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crumb_tasks.cards import TaskCard
from crumb_tasks.comparison import Moved
from crumb_tasks.errors import DataError
from crumb_tasks.measures import mteb_key, parse_measure
from crumb_tasks.report.evidence import read_backings
from crumb_tasks.report.results import Results, System, read_results

_SAME = 1e-6
"""Values that differ by less are the same: records hold six decimals."""
_FEWEST = 2
"""Systems that have an order."""


@dataclass(frozen=True)
class QueryChange:
    """What one system's questions gained and lost.

    Attributes:
        measure: Canonical name.
        n_better: Questions that are better on the second snapshot.
        n_worse: Those that are worse.
        n_equal: Those that are equal.
        n_only_first: Questions that only the first snapshot judges; they are in no change.
        n_only_second: Likewise the second.
        moved: The questions that moved, most first.
    """

    measure: str
    n_better: int
    n_worse: int
    n_equal: int
    n_only_first: int
    n_only_second: int
    moved: tuple[Moved, ...]


@dataclass(frozen=True)
class OnBoth:
    """One system on two snapshots.

    Attributes:
        system: Which.
        values: By measure its value on the first and on the second, ``None`` where a result lacks it.
        change: Its questions, where `crumb-tasks run` has kept their values on both; else ``None``.
    """

    system: System
    values: Mapping[str, tuple[float | None, float | None]]
    change: QueryChange | None


@dataclass(frozen=True)
class Snapshots:
    """All systems with results on two snapshots.

    Attributes:
        first: Task of the one.
        second: Task of the other.
        measures: Of the first's card.
        systems: Those with a result on both, by the main measure on the second snapshot.
        only_one: Those with a result on one of the two.
        tau: By measure Kendall's tau-b of the two orders; ``None`` for less than two systems or one order of ties.
    """

    first: str
    second: str
    measures: tuple[str, ...]
    systems: tuple[OnBoth, ...]
    only_one: tuple[System, ...]
    tau: Mapping[str, float | None]


def compare_snapshots(first: TaskCard, second: TaskCard, folder: Path) -> tuple[Snapshots, Results]:
    """Compare the results on two tasks that ask the same questions over two snapshots.

    Args:
        first: The earlier one.
        second: The later one.
        folder: Where MTEB's results lie, however deep.

    Returns:
        The comparison, and what was read, with what was left out.

    Raises:
        UsageError: There is no such folder.
        DataError: No system has a result on both.
    """
    names = (first.name, second.name)
    results = read_results(folder, set(names))
    changes = _changes(folder, results, first, second)
    measures = tuple(parse_measure(name).name for name in (first.main_measure, *first.measures))
    both = [system for system, by_task in results.by_system.items() if set(names) <= set(by_task)]
    if not both:
        raise DataError(f"{folder} holds no system with a result on both {first.name} and {second.name}")
    systems = [
        OnBoth(
            system,
            {measure: _values(results, system, first, second, measure) for measure in measures},
            changes.get(system),
        )
        for system in both
    ]
    systems.sort(key=lambda entry: (-(entry.values[measures[0]][1] or 0.0), entry.system.label))
    one = [system for system in results.by_system if system not in both]
    tau = {measure: kendall_tau([entry.values[measure] for entry in systems]) for measure in measures}
    return Snapshots(*names, measures, tuple(systems), tuple(one), tau), results


def kendall_tau(values: Sequence[tuple[float | None, float | None]]) -> float | None:
    """Return Kendall's tau-b between the orders of two columns, over the rows that have both.

    ``None`` where less than two rows have both, or a column is constant.
    """
    from scipy import stats

    known = [(one, other) for one, other in values if one is not None and other is not None]
    if len(known) < _FEWEST:
        return None
    tau = float(stats.kendalltau(*zip(*known, strict=True)).statistic)
    return None if math.isnan(tau) else tau


def _values(
    results: Results, system: System, first: TaskCard, second: TaskCard, measure: str
) -> tuple[float | None, float | None]:
    key = mteb_key(parse_measure(measure))
    by_task = results.by_system[system]
    one, other = (by_task[task.name].values_by_split.get(task.default_split, {}).get(key) for task in (first, second))
    return one, other


def _changes(folder: Path, results: Results, first: TaskCard, second: TaskCard) -> dict[System, QueryChange]:
    of_first = read_backings(folder, results, first.default_split)
    of_second = read_backings(folder, results, second.default_split)
    name = parse_measure(first.main_measure).name
    found: dict[System, QueryChange] = {}
    for system in of_first:
        one = of_first[system].get(first.name)
        other = of_second.get(system, {}).get(second.name)
        if one is not None and other is not None and name in one.per_query and name in other.per_query:
            before, after = (
                dict(zip(of_query.query_ids, of_query.values.tolist(), strict=True))
                for of_query in (one.per_query[name], other.per_query[name])
            )
            found[system] = change_of(name, before, after)
    return found


def change_of(measure: str, before: Mapping[str, float], after: Mapping[str, float]) -> QueryChange:
    """Return what changed for the questions that both snapshots judge.

    Args:
        measure: Canonical name.
        before: Values per question on the first snapshot.
        after: On the second.
    """
    pairs = [Moved(query, value, after[query]) for query, value in before.items() if query in after]
    moved = [pair for pair in pairs if abs(pair.difference) > _SAME]
    moved.sort(key=lambda pair: (-abs(pair.difference), pair.query_id))
    n_better = sum(pair.difference > 0 for pair in moved)
    return QueryChange(
        measure,
        n_better,
        len(moved) - n_better,
        len(pairs) - len(moved),
        len(before.keys() - after.keys()),
        len(after.keys() - before.keys()),
        tuple(moved),
    )
