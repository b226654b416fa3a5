"""Systems ranked by an aggregate that is computed again from their members' results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from crumb_tasks.aggregates import aggregate_value, member_key, refusal
from crumb_tasks.aggregators import reduce_nested
from crumb_tasks.cards import AggregateCard, Published, Reduction, iter_tasks, read_cards
from crumb_tasks.cost import Cost
from crumb_tasks.errors import AggregateError, UsageError
from crumb_tasks.measures import mteb_key, parse_measure
from crumb_tasks.report.gain import Gain, instruction_gains
from crumb_tasks.report.members import find_aggregate_of, tasks_of, values_of
from crumb_tasks.report.results import Result, Results, System, Values

Costs = Mapping[System, Mapping[str, Cost]]
"""By system and task."""


@dataclass(frozen=True)
class Row:
    """One system in a ranking.

    Attributes:
        system: Which.
        value: The aggregate, ``None`` where it has none.
        problem: Why it has none.
        n_members: How many of the aggregate's members have a value.
        value_by_member: Values of the measure on the aggregate's members and those of the card's other reductions,
            ``None`` where one is missing or refused.
        value_by_group: The aggregate's named groups.
        zeros: Members that are 0.
        reported: The aggregate of each further measure of the card.
        beside: The values of the card's other reductions.
        columns: The single values of tasks that the card shows as well.
        published: What the paper reports for this very system and setting.
        rank: 1 for the highest value, the same for equal ones.
        rank_beside: Its rank by each of the other reductions, among the systems that have both.
        interval: 95 % bootstrap interval of the aggregate, where each member has values per query.
        not_told_apart: The other systems from which a paired test cannot tell it, where both have values per query.
        interval_by_member: The same as ``interval`` for single members.
        level_with_best: Members on which a paired test cannot tell it from the system with the highest value.
    """

    system: System
    value: float | None
    problem: str
    n_members: int
    value_by_member: Values
    value_by_group: Mapping[str, float]
    zeros: tuple[str, ...]
    reported: Values
    beside: Values
    columns: Values
    published: Published | None = None
    rank: int | None = None
    rank_beside: Mapping[str, int | None] = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    not_told_apart: tuple[System, ...] | None = None
    interval_by_member: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    level_with_best: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Comparison:
    """How another mean orders the systems that have both.

    Attributes:
        name: Of the other mean.
        n_systems: How many have both values.
        n_pairs: Pairs of them.
        n_flipped: Pairs that the two means order in opposite ways.
        n_tied: Pairs that one of the two means does not order.
    """

    name: str
    n_systems: int
    n_pairs: int
    n_flipped: int
    n_tied: int


@dataclass(frozen=True)
class Ranking:
    """A ranking and what belongs beside it.

    Attributes:
        benchmark: The name that was asked for.
        aggregate: The card of what ranks.
        split: The one split that was read.
        rows: Best first; systems without a value stand last.
        comparisons: One for each other reduction of the card.
        gains: Systems with and without the task's instruction.
        published: The paper's values of the aggregate and what it is made of.
        data_revisions: For each member how many results are on which revision of its data.
        results: For each system the results that its row is made of; those that may not enter are not among them.
        n_tested: How many systems the paired tests were made between.
        costs: What the results cost, by system and task.
    """

    benchmark: str
    aggregate: AggregateCard
    split: str
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]
    gains: tuple[Gain, ...]
    published: tuple[Published, ...]
    data_revisions: Mapping[str, Mapping[str, int]]
    results: Mapping[System, Mapping[str, Result]] = field(default_factory=dict)
    n_tested: int = 0
    costs: Costs = field(default_factory=dict)

    @property
    def value_name(self) -> str:
        """Heading of the aggregate's value."""
        return f"{self.aggregate.reduction.mean}_mean"

    def reduced(self, system: System, key: str) -> float | None:
        """Return another of MTEB's scores under the aggregate's own reduction, ``None`` while a member lacks it."""
        results = self.results.get(system, {})
        values = {
            task: values_of(self.aggregate, task, results[task], self.split).get(key) if task in results else None
            for task in self.aggregate.task_names
        }
        return _reduced(self.aggregate.reduction, values)

    @property
    def members(self) -> tuple[str, ...]:
        """The tasks whose values are shown: the aggregate's, then those that only other reductions have."""
        return tasks_of(self.aggregate)


def rank(benchmark: str, results: Results, split: str | None = None) -> Ranking:
    """Rank all systems that have a result on a member.

    Args:
        benchmark: A benchmark that an aggregate ranks, or an aggregate.
        results: What was read; results on other tasks are ignored.
        split: By default the aggregate's first.

    Raises:
        UsageError: There is no such benchmark or split.
    """
    card = find_aggregate_of(benchmark)
    split = card.splits[0] if split is None else split
    if split not in card.splits:
        raise UsageError(f"{card.name} has no split '{split}'; it has: {', '.join(card.splits)}")
    members = tasks_of(card)
    of_members = {
        system: kept
        for system, by_task in results.by_system.items()
        if (kept := {task: result for task, result in by_task.items() if task in members})
    }
    published = () if card.sample else _published(card, members)
    rows = _ranked([_row(card, system, by_task, split, published) for system, by_task in of_members.items()], card)
    return Ranking(
        benchmark=benchmark,
        aggregate=card,
        split=split,
        rows=rows,
        comparisons=tuple(_compare(reduction.name, rows) for reduction in card.beside),
        gains=instruction_gains(card.reduction, {row.system: row.value_by_member for row in rows}),
        published=published,
        data_revisions={
            task: Counter(
                by_task[task].data_revision or "unknown" for by_task in of_members.values() if task in by_task
            )
            for task in members
        },
        results={
            system: {task: result for task, result in by_task.items() if task not in _refused(card, by_task)}
            for system, by_task in of_members.items()
        },
    )


def _row(
    card: AggregateCard,
    system: System,
    results: Mapping[str, Result],
    split: str,
    published: Iterable[Published],
) -> Row:
    refused = _refused(card, results)
    by_task = {task: values_of(card, task, result, split) for task, result in results.items() if task not in refused}
    values = {task: by_task.get(task, {}).get(member_key(card, task)) for task in tasks_of(card)}
    value: float | None = None
    problem, groups, zeros = "", dict[str, float](), tuple[str, ...]()
    try:
        reduced = aggregate_value(card, {task: values[task] for task in card.task_names})
        value, groups, zeros = reduced.value, dict(reduced.value_by_group), reduced.zeros
    except AggregateError as error:
        valueless = [task for task in card.task_names if task in by_task and values[task] is None]
        no_numbers = [
            f"the result of '{task}' has no number there (NaN, null or another measure)" for task in valueless
        ]
        refusals = [reason for task, reason in refused.items() if task in card.task_names]
        problem = "; ".join([str(error), *no_numbers, *refusals])
    reported = {}
    for measure in card.reported:
        key = mteb_key(parse_measure(measure))
        reported[measure] = _reduced(card.reduction, {task: by_task.get(task, {}).get(key) for task in card.task_names})
    beside = {
        reduction.name: _reduced(reduction, {task: values[task] for task in reduction.task_names()})
        for reduction in card.beside
    }
    return Row(
        system=system,
        value=value,
        problem=problem,
        n_members=sum(values[task] is not None for task in card.task_names),
        value_by_member=values,
        value_by_group=groups,
        zeros=zeros,
        reported=reported,
        beside=beside,
        columns={column.name: by_task.get(column.task, {}).get(column.key) for column in card.columns},
        published=None if system.experiment else _published_of(system.model, card, published),
    )


def _refused(card: AggregateCard, results: Mapping[str, Result]) -> dict[str, str]:
    """Return for each result that may not enter why: the card refuses it, or our task reads other data now."""
    pinned = {task.name: task.source.revision for task in iter_tasks() if task.source.revision}
    return {
        task: reason
        for task, result in results.items()
        if (reason := refusal(card, task, result.data_revision, expected=pinned.get(task))) is not None
    }


def _reduced(reduction: Reduction, values: Values) -> float | None:
    try:
        return reduce_nested(values, reduction).value
    except AggregateError:
        return None


def _published(card: AggregateCard, members: Sequence[str]) -> tuple[Published, ...]:
    named = {card.name, *members, *card.reduction.group_names()}
    measures = {card.measure, *card.reported}
    return tuple(
        value
        for file in read_cards()
        if card in file.aggregates or any(card.name == task.name for task in file.tasks)
        for value in file.published
        if value.task in named and value.measure in measures
    )


def _published_of(model: str, card: AggregateCard, published: Iterable[Published]) -> Published | None:
    own = (value for value in published if value.model == model and value.task == card.name)
    return next((value for value in own if value.measure == card.measure), None)


def _ranked(rows: Sequence[Row], card: AggregateCard) -> tuple[Row, ...]:
    ranks = _ranks([row.value for row in rows])
    beside = {
        reduction.name: _ranks([None if row.value is None else row.beside[reduction.name] for row in rows])
        for reduction in card.beside
    }
    placed = [
        replace(row, rank=ranks[at], rank_beside={name: of_mean[at] for name, of_mean in beside.items()})
        for at, row in enumerate(rows)
    ]

    def order(row: Row) -> tuple[float, float, str, str, tuple[tuple[str, str], ...]]:
        last = float("inf")
        system = row.system
        return (row.rank or last, -row.n_members, system.model.casefold(), system.revision, system.experiment)

    return tuple(sorted(placed, key=order))


def _ranks(values: Sequence[float | None]) -> list[int | None]:
    """Return the rank of each value: 1 for the highest, equal values share one, a missing value has none."""
    known = [value for value in values if value is not None]
    return [None if value is None else 1 + sum(other > value for other in known) for value in values]


def _compare(name: str, rows: Iterable[Row]) -> Comparison:
    both = [(row.value, other) for row in rows if row.value is not None and (other := row.beside[name]) is not None]
    products = [(left[0] - right[0]) * (left[1] - right[1]) for left, right in combinations(both, 2)]
    return Comparison(
        name=name,
        n_systems=len(both),
        n_pairs=len(products),
        n_flipped=sum(product < 0 for product in products),
        n_tied=sum(product == 0 for product in products),
    )
