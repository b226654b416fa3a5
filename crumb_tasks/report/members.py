"""Which aggregate ranks, which tasks it is made of, and what of a task's result enters."""

from __future__ import annotations

from crumb_tasks.cards import AggregateCard, BenchmarkCard, Reduction, TaskCard, find_benchmark, iter_tasks, read_cards
from crumb_tasks.errors import UsageError, did_you_mean
from crumb_tasks.report.results import Result, Values


def find_aggregate_of(name: str) -> AggregateCard:
    """Return the aggregate that ranks the benchmark ``name``, or the aggregate of that name.

    A task of this package is an aggregate with one member, reduced by its main measure.

    Raises:
        UsageError: There is neither; the message names near ones.
    """
    aggregates = {aggregate.name: aggregate for card in read_cards() for aggregate in card.aggregates}
    benchmark = find_benchmark(name)
    ranking = name if benchmark is None else benchmark.aggregate or _only_task(benchmark)
    if ranking in aggregates:
        return aggregates[ranking]
    if (task := next((task for task in iter_tasks() if task.name == ranking), None)) is not None:
        return _aggregate_of_one(task)
    if benchmark is not None:
        raise UsageError(f"'{name}' has no aggregate that could rank it; ask for one of its tasks' aggregates")
    known = [*ranked_benchmarks(), *aggregates]
    raise UsageError(f"no benchmark or aggregate '{name}'{did_you_mean(name, known)} (there are {', '.join(known)})")


def _only_task(benchmark: BenchmarkCard) -> str:
    return benchmark.tasks[0] if len(benchmark.tasks) == 1 else ""


def _aggregate_of_one(task: TaskCard) -> AggregateCard:
    return AggregateCard(
        name=task.name,
        benchmark=task.benchmark,
        title=task.title,
        description=task.description,
        need=task.need,
        measure=task.main_measure,
        reduction=Reduction(members=(task.name,)),
        splits=tuple(task.splits),
        reported=tuple(measure for measure in ("nDCG@10", "R@100") if measure in task.measures),
        facts=task.facts,
        public=task.public,
        sample=task.sample,
        license=task.license,
        paper=task.paper,
        bibtex=task.bibtex,
    )


def ranked_benchmarks(split: str | None = None) -> list[str]:
    """Return the names of all benchmarks that an aggregate or their one task ranks, on ``split`` where one is named."""
    own = {task.name for task in iter_tasks()}
    return [
        benchmark.name
        for card in read_cards()
        for benchmark in card.benchmarks
        if (benchmark.aggregate is not None or _only_task(benchmark) in own)
        and (split is None or split in find_aggregate_of(benchmark.name).splits)
    ]


def tasks_of(card: AggregateCard) -> tuple[str, ...]:
    """Return the tasks whose results a ranking reads: the aggregate's members, then those of what stands beside it."""
    others = (name for reduction in card.beside for name in reduction.task_names())
    return tuple(dict.fromkeys([*card.task_names, *others, *(column.task for column in card.columns)]))


def tasks_with_subsets(card: AggregateCard) -> tuple[str, ...]:
    """Return the members of which named subsets count."""
    return tuple(task for task, scope in card.scopes.items() if scope.subsets and not isinstance(scope.subsets, str))


def values_of(card: AggregateCard, task: str, result: Result, split: str) -> Values:
    """Return what of a member's result enters: the scores on its split, averaged over the subsets that the card names.

    Nothing where a subset is missing, nor where the card says no more than what kind of subsets count: which ones
    there must be only MTEB knows.
    """
    of = card.split_of(task, split)
    scope = card.scopes.get(task)
    if scope is None or not scope.subsets:
        return result.values_by_split.get(of, {})
    found = result.values_by_subset.get(of, {})
    if isinstance(scope.subsets, str) or not all(subset in found for subset in scope.subsets):
        return {}
    chosen = [found[subset] for subset in scope.subsets]
    known = {key: [value for values in chosen if (value := values.get(key)) is not None] for key in chosen[0]}
    return {key: sum(values) / len(values) if len(values) == len(chosen) else None for key, values in known.items()}
