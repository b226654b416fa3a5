"""A cache of MTEB with results as `mteb run` and `crumb-tasks run` leave them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mteb
from mteb.cache import ResultCache
from mteb.results.task_result import TaskResult

BM25, RANDOM = "mteb/baseline-bm25s", "mteb/baseline-random-encoder"


def task_result(task: str, value: float, *, revision: str | None = None, split: str | None = None) -> TaskResult:
    """Return a result of a task of MTEB's or of this package, with one main score for all subsets."""
    made = mteb.get_task(task)
    subsets = [
        {"hf_subset": subset, "languages": list(languages), "main_score": value, made.metadata.main_score: value}
        for subset, languages in made.metadata.hf_subsets_to_langscripts.items()
    ]
    return TaskResult(
        task_name=task,
        dataset_revision=made.metadata.revision if revision is None else revision,
        mteb_version="2.26.0",
        evaluation_time=1.0,
        scores={split or made.metadata.eval_splits[0]: subsets},
    )


def store(
    root: Path, model: str, values: Mapping[str, float], experiment: Mapping[str, Any] | None = None, **options: Any
) -> Path:
    """Store results of a model, under an experiment, and return their folder."""
    meta = mteb.get_model_meta(model).model_copy(update={"experiment_kwargs": experiment})
    cache = ResultCache(root)
    for task, value in values.items():
        cache.save_to_cache(task_result(task, value, **options), meta)
    return cache.get_task_result_path("any", meta).parent


def combine(root: Path, aggregate: str, model: str) -> float:
    """Store the result of an aggregate as MTEB makes it, and return its value."""
    cache, meta, task = ResultCache(root), mteb.get_model_meta(model), mteb.get_task(aggregate)
    results = cache.load_results(models=[model], tasks=task.tasks, include_remote=False)
    combined = task.combine_task_results(results.model_results[0].task_results)
    cache.save_to_cache(combined, meta)
    value: float = combined.scores["test"][0]["main_score"]
    return value
