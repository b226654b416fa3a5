"""MTEB's long frame of local results, with what its leaderboard and API need beyond the results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import mteb
import polars as pl
from mteb.benchmarks.benchmarks import MTEB_multilingual_v2
from mteb.results import BenchmarkResults

from crumb_tasks.mteb_compat import EXPERIMENT_COLUMN, results_frame, with_experiments

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

_OPENED_WITH = MTEB_multilingual_v2.name
"""What MTEB's leaderboard shows first. It stops when there is no row of it."""

_STEP = 0.01
"""Between the numbers of experiments: MTEB shows a column that it does not know times 100."""


def complete_frame(results: BenchmarkResults) -> pl.DataFrame:
    """Return MTEB's frame of the results, with a row without score for each task that nobody has a result of.

    MTEB averages over the tasks that stand in the frame. Without these rows a mean would be one over the members that
    happen to be there; with them it has no value.

    Args:
        results: Results of models that MTEB's registry has, on any tasks.
    """
    frame: pl.DataFrame = results_frame(results)
    found = {_OPENED_WITH: frame.clear(), **frames_of_benchmarks(frame)}
    rows: dict[str, dict[str, Any]] = {}
    for name, of_benchmark in found.items():
        present = set(of_benchmark["task_name"].to_list())
        model = (of_benchmark if present else frame)["model_name"][0]
        for task in mteb.get_benchmark(name).tasks:
            if task.metadata.name not in present:
                rows.setdefault(task.metadata.name, _row_without_score(task, model))
    blank = dict.fromkeys(frame.columns)
    return pl.concat([frame, pl.DataFrame([blank | row for row in rows.values()], schema=frame.schema)])


def _row_without_score(task: AbsTask, model: str) -> dict[str, Any]:
    subset = next(iter(task.hf_subsets))
    return {
        "model_name": model,
        "task_name": task.metadata.name,
        "split": next(iter(task.eval_splits)),
        "subset": subset,
        "language": list(task.metadata.hf_subsets_to_langscripts.get(subset, task.metadata.languages)),
        "is_public": task.metadata.is_public,
        "trained_on": False,
    }


def frames_of_benchmarks(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return what of a frame each benchmark reads, by the benchmark's name; those that read nothing are left out."""
    of_benchmarks: dict[str, pl.DataFrame] = BenchmarkResults.split_leaderboard_frame(frame)
    return of_benchmarks


def numbered(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame that tells experiments apart by numbers: NaN for MTEB's own setting, then 0.01 and so on.

    MTEB would put a column of their names into every table, and its leaderboard stops when it rounds a name. Its tables
    take the column as it is when it is there.
    """
    named = with_experiments(frame)
    names = sorted(set(named[EXPERIMENT_COLUMN].to_list()) - {""})
    number_by_name = {"": math.nan} | {name: _STEP * at for at, name in enumerate(names, 1)}
    numbers = [number_by_name[name] for name in named[EXPERIMENT_COLUMN]]
    return frame.with_columns(pl.Series(EXPERIMENT_COLUMN, numbers, dtype=pl.Float64))


def without_experiments(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of MTEB's own setting."""
    named = with_experiments(frame)
    return frame.filter(named[EXPERIMENT_COLUMN] == "")
