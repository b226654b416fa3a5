"""Cards → MTEB's benchmarks: the rows of ``mteb run -b`` and of the leaderboard.

A benchmark is ranked by the value of its aggregate, computed by `crumb_tasks.aggregates.aggregate_value` like the
aggregate task's own.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mteb.benchmarks.benchmark import Benchmark, BenchmarkAggregation, CustomGroup, CustomGrouping

from crumb_tasks.aggregate_tasks import mean_of_subsets, member_class, reduce_results
from crumb_tasks.aggregates import aggregate_key, aggregate_value
from crumb_tasks.cards import AggregateCard, BenchmarkCard, Reduction
from crumb_tasks.errors import AggregateError, CardError
from crumb_tasks.mteb_compat import experiment_of
from crumb_tasks.summary_tables import (
    RANK_COLUMN,
    beside_models,
    is_numbered,
    ranked,
    ranks,
    values_by_row,
    with_names,
    with_own_borda_ranks,
)

if TYPE_CHECKING:
    import polars as pl
    from mteb.abstasks import AbsTask
    from mteb.results import BenchmarkResults, ModelResult, TaskResult

_logger = logging.getLogger("crumb_tasks")

GROUPS, BESIDE = "Groups", "Beside"
"""Names of the groupings: what ranks or is read alone, and what qualifies it."""


def benchmark(
    card: BenchmarkCard,
    aggregate: AggregateCard | None,
    classes: Mapping[str, type[AbsTask]],
    others: Mapping[str, Benchmark] | None = None,
) -> Benchmark:
    """Return MTEB's benchmark for ``card``.

    Args:
        card: The benchmark.
        aggregate: The aggregate that ranks it; without one it is MTEB's plain mean, or the groups' columns alone.
        classes: Task classes by name, this package's and MTEB's.
        others: MTEB's benchmarks by name, of which ``card`` may be a slice.

    Raises:
        CardError: A member does not exist, or its main score is not what the aggregate reduces: MTEB's tables hold main
            scores only.
    """
    names = card.tasks or (aggregate.task_names if aggregate else ())
    tasks = [member_class(name, card.name, classes)() for name in names] or _slice(card, others or {})
    if aggregate is not None:
        key = aggregate_key(aggregate)
        other = [task.metadata.name for task in tasks if task.metadata.main_score != key]
        if other:
            raise CardError(
                f"benchmark '{card.name}' ranks by {aggregate.measured}, not the main score of {', '.join(other)}"
            )
    by_name = {task.metadata.name: task for task in tasks}
    groupings = [
        CustomGrouping(name, tuple(CustomGroup(label, [by_name[task] for task in of]) for label, of in groups.items()))
        for name, groups in ((GROUPS, card.groups), (BESIDE, card.beside))
        if groups
    ]
    fields: dict[str, Any] = {
        "name": card.name,
        "tasks": tasks,
        "aliases": tuple(card.aliases),
        "description": card.description,
        "reference": card.reference or None,
        "citation": card.bibtex or None,
        "display_name": card.display_name or None,
        "aggregations": (*((BenchmarkAggregation.MEAN_TASK,) if card.overall else ()), *groupings),
    }
    ranking = aggregate or (_mean_of(card, tasks) if card.overall else None)
    if ranking:
        return CardBenchmark(**fields, aggregate=ranking, column=card.column)
    return PlainBenchmark(**fields) if card.overall else ColumnsBenchmark(**fields)


def _mean_of(card: BenchmarkCard, tasks: Sequence[AbsTask]) -> AggregateCard | None:
    """Return the plain mean over a benchmark's tasks; ``None`` where they report by several measures or splits."""
    keys = {task.metadata.main_score for task in tasks}
    splits = {tuple(task.metadata.eval_splits) for task in tasks}
    if len(keys) > 1 or len(splits) > 1 or card.slice_of:
        return None
    return AggregateCard(
        name=re.sub(r"[^A-Za-z0-9.]", "", card.name),
        description=card.description,
        key=keys.pop(),
        splits=splits.pop(),
        reduction=Reduction(members=tuple(task.metadata.name for task in tasks)),
    )


def _slice(card: BenchmarkCard, others: Mapping[str, Benchmark]) -> list[AbsTask]:
    """Return the tasks of one of MTEB's benchmarks that are of the card's types, with MTEB's splits and subsets."""
    if card.slice_of not in others:
        raise CardError(f"benchmark '{card.name}' is a slice of '{card.slice_of}', which this MTEB does not have")
    return [task for task in others[card.slice_of].tasks if task.metadata.type in card.types]


@dataclass
class PlainBenchmark(Benchmark):
    """MTEB's benchmark, whose tables name the condition beside the model where a column of text cannot be shown."""

    def _create_summary_table(self, pl_df: pl.DataFrame) -> Any:
        """Return MTEB's summary; where it cannot be what it should, MTEB's own and one log line."""
        try:
            return self._summary(pl_df)
        except Exception as error:  # noqa: BLE001 -- the shape of MTEB's table is private and has changed three times
            self._log(self._lacking, error)
            return super()._create_summary_table(pl_df)

    def _summary(self, pl_df: pl.DataFrame) -> Any:
        table = super()._create_summary_table(with_names(pl_df))
        if table.is_empty:
            return table
        df = self._ordered(with_own_borda_ranks(table.df, pl_df), pl_df)
        return dataclasses.replace(table, df=beside_models(df) if is_numbered(pl_df) else df)

    def _ordered(self, df: pl.DataFrame, pl_df: pl.DataFrame) -> pl.DataFrame:  # noqa: ARG002 -- for those that rank
        return df

    def _create_per_task_table(self, pl_df: pl.DataFrame, **options: Any) -> Any:
        """Return MTEB's table of the tasks."""
        make: Callable[..., Any] = super()._create_per_task_table
        if not is_numbered(pl_df):
            return make(pl_df, **options)
        try:
            return beside_models(make(with_names(pl_df)))
        except Exception as error:  # noqa: BLE001 -- as above
            self._log("the names of conditions", error)
            return make(pl_df, **options)

    @property
    def _lacking(self) -> str:
        return "the names of conditions"

    def _log(self, lacking: str, error: Exception) -> None:
        _logger.warning("%s: MTEB's own table, without %s (%s: %s)", self.name, lacking, type(error).__name__, error)


@dataclass
class ColumnsBenchmark(PlainBenchmark):
    """A benchmark whose columns stand side by side: there is no mean over them, since their scales differ.

    A column has a value when all of its members have one, whatever other columns lack.
    """

    def get_score(self, results: BenchmarkResults, *, raise_error: bool = False) -> dict[str, dict[str, float | None]]:
        """Return for each model and experiment each column's value, ``None`` where a member is missing.

        Args:
            results: MTEB's results.
            raise_error: Raise instead of giving ``None``.

        Raises:
            AggregateError: With ``raise_error``, when a column has no value.
        """
        scores: dict[str, dict[str, float | None]] = {}
        for model_result in results.join_revisions():
            value_by_task = {result.task_name: _main_score(result) for result in model_result.task_results}
            scores[experiment_of(model_result)] = dict(self._columns(value_by_task))
        for model, columns in scores.items():
            lacking = [name for name, value in columns.items() if value is None]
            if lacking and raise_error:
                raise AggregateError(f"{self.name}: {model} has no value for {', '.join(lacking)}")
        return scores

    def _columns(self, value_by_task: Mapping[str, float | None]) -> Iterator[tuple[str, float | None]]:
        for grouping in self.aggregations:
            if isinstance(grouping, CustomGrouping):
                for group in grouping.groups:
                    values = [value_by_task.get(task.metadata.name) for task in group.tasks]
                    known = [value for value in values if value is not None]
                    yield group.label, sum(known) / len(known) if len(known) == len(values) else None


def _main_score(result: TaskResult) -> float | None:
    try:
        score = result.get_score()
    except ValueError:
        return None
    return None if score is None or math.isnan(score) else float(score)


@dataclass
class CardBenchmark(PlainBenchmark):
    """A benchmark that is ranked by an aggregate's value.

    Attributes:
        aggregate: The card of that aggregate.
        column: Heading of its value in tables.
    """

    aggregate: AggregateCard | None = None
    column: str = "Mean (Task)"

    @property
    def _card(self) -> AggregateCard:
        if self.aggregate is None:
            raise AggregateError(f"{self.name} has no aggregate")
        return self.aggregate

    @property
    def _lacking(self) -> str:
        return self.column

    def _summary(self, pl_df: pl.DataFrame) -> Any:
        table = super()._summary(pl_df)
        if table.is_empty:
            return table
        return dataclasses.replace(table, rank_col=RANK_COLUMN, primary_metric_col=self.column)

    def _ordered(self, df: pl.DataFrame, pl_df: pl.DataFrame) -> pl.DataFrame:
        return ranked(df, values_by_row(pl_df, self._value_of_scores), self.column)

    def _value_of_scores(self, scores_by_task: Mapping[str, Mapping[tuple[str, str], float | None]]) -> float | None:
        """Return the aggregate's value of main scores by task, split and subset; ``None`` where a member is missing."""
        values: dict[str, float | None] = {}
        for task in self.tasks:
            name = task.metadata.name
            if name in self._card.task_names:
                split = self._card.split_of(name, self._card.splits[0])
                of_split = {
                    subset: score for (at, subset), score in scores_by_task.get(name, {}).items() if at == split
                }
                values[name] = mean_of_subsets(of_split, task.hf_subsets)
        try:
            return aggregate_value(self._card, values).value
        except AggregateError:
            return None

    def get_score(self, results: BenchmarkResults, *, raise_error: bool = False) -> dict[str, dict[str, float | None]]:
        """Return for each model and experiment the aggregate's value, its groups', MTEB's task mean, and the rank.

        Args:
            results: MTEB's results.
            raise_error: Raise instead of giving ``None`` where a member is missing.

        Raises:
            AggregateError: With ``raise_error``, when a model has no value.
        """
        scores: dict[str, dict[str, float | None]] = {}
        for model_result in results.join_revisions():
            try:
                scores[experiment_of(model_result)] = self._get_model_score(model_result)
            except AggregateError as error:
                if raise_error:
                    raise
                _logger.warning("%s: %s", experiment_of(model_result), error)
                scores[experiment_of(model_result)] = {_key(self.column): None}
        found = ranks([entry[_key(self.column)] for entry in scores.values()])
        for entry, rank in zip(scores.values(), found, strict=True):
            entry[RANK_COLUMN] = None if entry[_key(self.column)] is None else rank
        return scores

    def _get_model_score(self, model_result: ModelResult) -> dict[str, float | None]:
        members = [task for task in self.tasks if task.metadata.name in self._card.task_names]
        results = [result for result in model_result.task_results if result.task_name in self._card.task_names]
        reduced = reduce_results(self._card, members, results, self._card.splits[0])
        values = reduced.value_by_member.values()
        return {
            _key(self.column): reduced.value,
            "Mean(Task)": sum(values) / len(values),
            **{f"Mean({name})": value for name, value in reduced.value_by_group.items()},
        }


def _key(column: str) -> str:
    """Return a column's name as MTEB's ``get_score`` writes such names, without the space."""
    return column.replace(" (", "(")
