"""MTEB's tables of a benchmark: ranked by an aggregate's value, with conditions that can be read.

A row is a model, or a model under a condition (an experiment of MTEB's). MTEB keeps them apart by a column of text that
its leaderboard cannot show: it rounds every column that it does not know. In the file that `crumb_tasks.leaderboard`
writes that column therefore holds numbers, and the tables of this package then name the condition beside the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crumb_tasks.mteb_compat import EXPERIMENT_COLUMN, borda_ranks, with_experiments

if TYPE_CHECKING:
    import polars as pl

RANK_COLUMN = "Rank"
"""The one name of a rank column that MTEB's tables and API both know."""

BORDA_COLUMN = "Rank (Borda)"

Row = tuple[str, str]
"""A model's name, and its experiment's, empty for MTEB's own setting."""


def is_numbered(frame: pl.DataFrame) -> bool:
    """Return whether a frame of results tells experiments apart by numbers."""
    return EXPERIMENT_COLUMN in frame.columns and frame.schema[EXPERIMENT_COLUMN].is_numeric()


def with_names(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame of results that tells experiments apart by their names."""
    named: pl.DataFrame = with_experiments(frame.drop(EXPERIMENT_COLUMN) if is_numbered(frame) else frame)
    return named


def beside_models(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table whose experiments stand in brackets behind the model's name and in no column."""
    if EXPERIMENT_COLUMN not in table.columns:
        return table
    import polars as pl

    name, experiment = pl.col("Model"), pl.col(EXPERIMENT_COLUMN)
    label = pl.when(experiment == "").then(name).otherwise(pl.format("{} ({})", name, experiment))
    return table.with_columns(label.alias("Model")).drop(EXPERIMENT_COLUMN)


def ranked(table: pl.DataFrame, value_by_row: Mapping[Row, float | None], column: str) -> pl.DataFrame:
    """Return MTEB's summary with an aggregate's value, ranked by it; rows without a value come last.

    Args:
        table: The summary.
        value_by_row: What ranks.
        column: Its heading.
    """
    import polars as pl

    values = [value_by_row.get(row) for row in _rows(table)]
    df = table.with_columns(pl.Series(column, values, dtype=pl.Float64))
    names = [name for name in ("Model", EXPERIMENT_COLUMN) if name in df.columns]
    df = df.sort([column, *names], descending=[True, *(False for _ in names)], nulls_last=True)
    df = df.with_columns(pl.Series(RANK_COLUMN, ranks(df[column].to_list()), dtype=pl.Int64))
    hidden = {RANK_COLUMN, "Model", column, BORDA_COLUMN}
    if EXPERIMENT_COLUMN in df.columns and not any(df[EXPERIMENT_COLUMN].to_list()):
        hidden.add(EXPERIMENT_COLUMN)
    others = [name for name in df.columns if name not in hidden]
    at = others.index("Mean (Task)") if "Mean (Task)" in others else len(others)
    trailing = [BORDA_COLUMN] if BORDA_COLUMN in df.columns else []
    return df.select([RANK_COLUMN, "Model", *others[:at], column, *others[at:], *trailing])


def with_own_borda_ranks(table: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """Return MTEB's summary in which experiments have Borda ranks of their own: MTEB gives them their model's.

    Args:
        table: The summary.
        frame: The results that it was made from.
    """
    if EXPERIMENT_COLUMN not in table.columns or BORDA_COLUMN not in table.columns:
        return table
    if not any(table[EXPERIMENT_COLUMN].to_list()):
        return table
    import polars as pl

    rank_by_row = borda_ranks(with_names(frame), len(table))
    found = [rank_by_row.get(row) for row in _rows(table)]
    return table.with_columns(pl.Series(BORDA_COLUMN, found, dtype=pl.Int64))


def values_by_row(
    frame: pl.DataFrame, value_of: Callable[[Mapping[str, Mapping[tuple[str, str], float | None]]], float | None]
) -> dict[Row, float | None]:
    """Return each row's value.

    Args:
        frame: MTEB's long frame of results.
        value_of: Makes it of the row's scores, by task and then by split and subset; a score that stands there twice
            is ``None``.
    """
    scores_by_row: dict[Row, dict[str, dict[tuple[str, str], float | None]]] = {}
    wanted = ["model_name", EXPERIMENT_COLUMN, "task_name", "split", "subset", "score"]
    for model, experiment, task, split, subset, score in with_names(frame).select(wanted).iter_rows():
        of_task = scores_by_row.setdefault((model, experiment or ""), {}).setdefault(task, {})
        of_task[split, subset] = None if (split, subset) in of_task else score
    return {row: value_of(scores) for row, scores in scores_by_row.items()}


def ranks(values: Sequence[float | None]) -> list[int]:
    """Return the rank of each value, 1 for the highest; equal values share one, missing ones come last."""
    order = [-math.inf if value is None else value for value in values]
    return [1 + sum(other > value for other in order) for value in order]


def _rows(table: Any) -> list[Row]:
    keys = ["Model", EXPERIMENT_COLUMN] if EXPERIMENT_COLUMN in table.columns else ["Model"]
    return [(row[0], (row[1] or "") if len(row) > 1 else "") for row in table.select(keys).rows()]
