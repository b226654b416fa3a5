"""Which systems can be told apart? Intervals and paired tests of an aggregate, from values per query.

Queries are what was sampled. A bootstrap draws them anew within each member; a randomisation test exchanges two systems
on single queries (Smucker, Allan and Carterette, CIKM 2007). Both reduce the members as the aggregate does, so that a
geometric mean is tested as one. `crumb_tasks.comparison` does the same for two runs on one task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.cards import Reduction
from crumb_tasks.comparison import holm
from crumb_tasks.measures import parse_measure
from crumb_tasks.report.ranking import Ranking, Row
from crumb_tasks.report.results import System

Floats = NDArray[np.float64]

SIGNIFICANCE: Final = 0.05
MOST_TESTED: Final = 12
"""Systems between which all pairs are tested; more tests would leave each with less power."""
N_DRAWS: Final = 2_000
N_EXCHANGES: Final = 10_000
_SEED: Final = 20250907
_CELLS: Final = 4_000_000
"""Numbers of a random matrix that are held at once."""
_SAME: Final = 1e-12


@dataclass(frozen=True, eq=False)
class QueryValues:
    """One measure's value for each query that is in the mean.

    Attributes:
        measure: Canonical name.
        query_ids: Which queries, ascending.
        values: float64, one for each.
    """

    measure: str
    query_ids: tuple[str, ...]
    values: Floats

    @classmethod
    def of(cls, measure: str, value_by_query: Mapping[str, float]) -> QueryValues:
        """Return the values in the order of their ids."""
        query_ids = tuple(sorted(value_by_query))
        return cls(measure, query_ids, np.array([value_by_query[query] for query in query_ids], dtype=np.float64))


Evidence = Mapping[System, Mapping[str, QueryValues]]
"""For each system its values per query of each task."""


def with_tests(ranking: Ranking, evidence: Evidence) -> Ranking:
    """Return the ranking with intervals, and with the systems that cannot be told apart."""
    if ranking.aggregate.key or ranking.aggregate.keys:
        return ranking  # a value that no measure's notation names has none per query
    measure = parse_measure(ranking.aggregate.measure).name
    known = {
        row.system: {
            task: found
            for task, found in evidence.get(row.system, {}).items()
            if found.measure == measure and _is_of(found, row.value_by_member.get(task))
        }
        for row in ranking.rows
    }
    complete = [
        row
        for row in ranking.rows
        if row.value is not None and all(task in known[row.system] for task in ranking.aggregate.task_names)
    ]
    tested = _same_queries(complete, known, ranking.aggregate.task_names)[:MOST_TESTED]
    alike = _not_told_apart([known[row.system] for row in tested], ranking.aggregate.reduction)
    rows = tuple(
        replace(
            row,
            interval=interval(known[row.system], ranking.aggregate.reduction) if row in complete else None,
            not_told_apart=tuple(tested[at].system for at in alike[tested.index(row)]) if row in tested else None,
            interval_by_member={task: interval({task: v}, _only(task)) for task, v in known[row.system].items()},
        )
        for row in ranking.rows
    )
    level = _level_with_best(rows, known, ranking.members)
    rows = tuple(replace(row, level_with_best=level.get(row.system, frozenset())) for row in rows)
    return replace(ranking, rows=rows, n_tested=len(tested))


def _is_of(found: QueryValues, value: float | None) -> bool:
    """Return whether values per query are those that a result is the mean of."""
    return value is not None and len(found.values) > 0 and abs(float(found.values.mean()) - value) < 1e-4


def _same_queries(rows: Sequence[Row], known: Evidence, tasks: Sequence[str]) -> list[Row]:
    """Return the rows with values for the very queries of the first one."""
    if not rows:
        return []
    first = {task: known[rows[0].system][task].query_ids for task in tasks}
    return [row for row in rows if all(known[row.system][task].query_ids == first[task] for task in tasks)]


def _not_told_apart(systems: Sequence[Mapping[str, QueryValues]], reduction: Reduction) -> list[list[int]]:
    pairs = list(combinations(range(len(systems)), 2))
    alike: list[list[int]] = [[] for _ in systems]
    for (first, second), p_value in zip(pairs, holm(p_values(systems, reduction, pairs)), strict=True):
        if p_value >= SIGNIFICANCE:
            alike[first].append(second)
            alike[second].append(first)
    return [sorted(others) for others in alike]


def _level_with_best(rows: Sequence[Row], known: Evidence, tasks: Sequence[str]) -> dict[System, frozenset[str]]:
    level: dict[System, set[str]] = {}
    for task in tasks:
        having = [row for row in rows if task in known[row.system]]
        having.sort(key=lambda row: -(row.value_by_member[task] or 0.0))
        tested = _same_queries(having, known, [task])[:MOST_TESTED]
        if not tested or _has_better(rows, task, tested[0]):
            continue
        pairs = [(0, at) for at in range(1, len(tested))]
        found = holm(p_values([{task: known[row.system][task]} for row in tested], _only(task), pairs))
        for (_, at), p_value in zip(pairs, found, strict=True):
            if p_value >= SIGNIFICANCE:
                level.setdefault(tested[at].system, set()).add(task)
    return {system: frozenset(names) for system, names in level.items()}


def _has_better(rows: Sequence[Row], task: str, best: Row) -> bool:
    """Return whether a system without values per query has a higher value, so that the best cannot be tested."""
    highest = best.value_by_member[task] or 0.0
    return any((row.value_by_member.get(task) or 0.0) > highest for row in rows)


def _only(task: str) -> Reduction:
    return Reduction(members=(task,))


def interval(values: Mapping[str, QueryValues], reduction: Reduction) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the aggregate, queries drawn anew within each member."""
    rng = np.random.default_rng(_SEED)
    means = {task: _drawn_means(values[task].values, rng) for task in reduction.task_names()}
    low, high = np.quantile(reduce_arrays(means, reduction), [0.025, 0.975])
    return float(low), float(high)


def _drawn_means(values: Floats, rng: np.random.Generator) -> Floats:
    n, batch = len(values), max(1, _CELLS // len(values))
    parts = [
        values[rng.integers(0, n, size=(min(batch, N_DRAWS - start), n))].mean(axis=1)
        for start in range(0, N_DRAWS, batch)
    ]
    return np.concatenate(parts)


def p_values(
    systems: Sequence[Mapping[str, QueryValues]], reduction: Reduction, pairs: Sequence[tuple[int, int]]
) -> list[float]:
    """Return for each pair how likely a difference at least as large is if the two were interchangeable on each query.

    Two-sided, from 10,000 random exchanges; all systems have values for the same queries, in the same order.

    Args:
        systems: For each system its values on each member.
        reduction: The aggregate.
        pairs: Positions in ``systems``.
    """
    if not pairs:
        return []
    rng = np.random.default_rng(_SEED)
    tasks = tuple(reduction.task_names())
    middle, half = {}, {}
    for task in tasks:
        values = np.stack([system[task].values for system in systems], axis=1)
        first, second = (values[:, [pair[side] for pair in pairs]] for side in (0, 1))
        middle[task] = (first + second).mean(axis=0) / 2
        half[task] = (first - second) / 2 / len(values)
    observed = np.abs(_differences(middle, {task: half[task].sum(axis=0) for task in tasks}, reduction))
    extreme = np.zeros(len(pairs))
    batch = max(1, _CELLS // max(len(half[task]) for task in tasks))
    for start in range(0, N_EXCHANGES, batch):
        size = min(batch, N_EXCHANGES - start)
        moved = {task: _signs(rng, size, len(half[task])) @ half[task] for task in tasks}
        extreme += (np.abs(_differences(middle, moved, reduction)) >= observed - _SAME).sum(axis=0)
    return [float(p_value) for p_value in (extreme + 1) / (N_EXCHANGES + 1)]


def _signs(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    return rng.integers(0, 2, size=(rows, columns)).astype(np.float64) * 2 - 1


def _differences(middle: Mapping[str, Floats], moved: Mapping[str, Floats], reduction: Reduction) -> Floats:
    one = reduce_arrays({task: middle[task] + moved[task] for task in middle}, reduction)
    return one - reduce_arrays({task: middle[task] - moved[task] for task in middle}, reduction)


def reduce_arrays(values: Mapping[str, Floats], reduction: Reduction) -> Floats:
    """Return the aggregate of each element, as `aggregators.reduce_nested` has it for one."""
    parts = np.stack(
        [values[member] if isinstance(member, str) else reduce_arrays(values, member) for member in reduction.members]
    )
    if reduction.mean == "arithmetic":
        return np.asarray(parts.mean(axis=0))
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(np.log(np.maximum(parts, 0.0)).mean(axis=0)))
