"""Cards → MTEB's benchmarks: the rows of ``mteb run -b`` and of the leaderboard.

A benchmark is ranked by the value of its aggregate, computed by `crumb_tasks.aggregates.aggregate_value` like the
aggregate task's own.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mteb.benchmarks.benchmark import Benchmark, BenchmarkAggregation, CustomGroup, CustomGrouping

from crumb_tasks.aggregate_tasks import member_class, reduce_results
from crumb_tasks.aggregates import aggregate_key, aggregate_value
from crumb_tasks.cards import AggregateCard, BenchmarkCard
from crumb_tasks.errors import AggregateError, CardError
from crumb_tasks.mteb_compat import EXPERIMENT_COLUMN, experiment_of, with_experiments

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.results import BenchmarkResults, ModelResult, TaskResult

_logger = logging.getLogger("crumb_tasks")

GROUPS, BESIDE = "Groups", "Beside"
"""Names of the groupings: what ranks or is read alone, and what qualifies it."""

RANK_COLUMN = "Rank"
"""The one name of a rank column that MTEB's tables and API both know."""


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
    if aggregate:
        return CardBenchmark(**fields, aggregate=aggregate, column=card.column)
    return Benchmark(**fields) if card.overall else ColumnsBenchmark(**fields)


def _slice(card: BenchmarkCard, others: Mapping[str, Benchmark]) -> list[AbsTask]:
    """Return the tasks of one of MTEB's benchmarks that are of the card's types, with MTEB's splits and subsets."""
    if card.slice_of not in others:
        raise CardError(f"benchmark '{card.name}' is a slice of '{card.slice_of}', which this MTEB does not have")
    return [task for task in others[card.slice_of].tasks if task.metadata.type in card.types]


@dataclass
class ColumnsBenchmark(Benchmark):
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
class CardBenchmark(Benchmark):
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

    def _create_summary_table(self, pl_df: Any) -> Any:
        """Return MTEB's table with the aggregate's column, ranked by it; MTEB's own where that cannot be done."""
        table = super()._create_summary_table(pl_df)
        if table.is_empty:
            return table
        try:
            return self._ranked(table, pl_df)
        except Exception as error:  # noqa: BLE001 -- the shape of MTEB's table is private and has changed three times
            _logger.warning(
                "%s: MTEB's own table, without %s (%s: %s)", self.name, self.column, type(error).__name__, error
            )
            return table

    def _ranked(self, table: Any, pl_df: Any) -> Any:
        import polars as pl

        keys = ["Model", EXPERIMENT_COLUMN] if EXPERIMENT_COLUMN in table.df.columns else ["Model"]
        values = self._values_of_frame(pl_df)
        rows = table.df.select(keys).rows()
        column = [values.get((row[0], row[1] if len(row) > 1 else "")) for row in rows]
        df = table.df.with_columns(pl.Series(self.column, column, dtype=pl.Float64))
        df = df.sort([self.column, "Model"], descending=[True, False], nulls_last=True)
        ranks = _ranks(df[self.column].to_list())
        df = df.with_columns(pl.Series(RANK_COLUMN, ranks, dtype=pl.Int64))
        hidden = {RANK_COLUMN, "Model", self.column}
        if EXPERIMENT_COLUMN in df.columns and not any(df[EXPERIMENT_COLUMN].to_list()):
            hidden.add(EXPERIMENT_COLUMN)  # MTEB's styler rounds this column of strings
        others = [name for name in df.columns if name not in hidden and name != "Rank (Borda)"]
        at = others.index("Mean (Task)") if "Mean (Task)" in others else len(others)
        trailing = ["Rank (Borda)"] if "Rank (Borda)" in df.columns else []
        ordered = [RANK_COLUMN, "Model", *others[:at], self.column, *others[at:], *trailing]
        return dataclasses.replace(table, df=df.select(ordered), rank_col=RANK_COLUMN, primary_metric_col=self.column)

    def _values_of_frame(self, pl_df: Any) -> dict[tuple[str, str], float | None]:
        """Return the aggregate's value by model and experiment; ``None`` where a member is missing."""
        by_model: dict[tuple[str, str], dict[str, list[float | None]]] = {}
        frame = with_experiments(pl_df).select("model_name", EXPERIMENT_COLUMN, "task_name", "score")
        for model, experiment, task, score in frame.iter_rows():
            by_model.setdefault((model, experiment or ""), {}).setdefault(task, []).append(score)
        values: dict[tuple[str, str], float | None] = {}
        for model, scores_by_task in by_model.items():
            single = {
                task: scores[0] if len(scores) == 1 else None
                for task, scores in scores_by_task.items()
                if task in self._card.task_names
            }
            try:
                values[model] = aggregate_value(self._card, single).value
            except AggregateError:
                values[model] = None
        return values

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
        ranks = _ranks([entry[_key(self.column)] for entry in scores.values()])
        for entry, rank in zip(scores.values(), ranks, strict=True):
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


def _ranks(values: Sequence[float | None]) -> list[int]:
    """Return the rank of each value, 1 for the highest; equal values share one, missing ones come last."""
    order = [-math.inf if value is None else value for value in values]
    return [1 + sum(other > value for other in order) for value in order]
