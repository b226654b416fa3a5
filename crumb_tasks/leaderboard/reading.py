"""The results in a cache of MTEB, one by one: what cannot be shown is named and left out, the rest counts."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mteb import get_benchmarks, get_model_meta
from mteb.cache import ResultCache
from mteb.results import BenchmarkResults, ModelResult, TaskResult

from crumb_tasks.aggregates import refusal
from crumb_tasks.benchmarks import CardBenchmark
from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.files import unreadable_folders
from crumb_tasks.mteb_compat import owner_of_results, task_classes
from crumb_tasks.tasks import CardTask

if TYPE_CHECKING:
    from crumb_tasks.cards import AggregateCard

_LAYOUT = "results/MODEL/REVISION/TASK.json"


@dataclass(frozen=True)
class LocalResults:
    """What a cache holds.

    Attributes:
        results: MTEB's results, conditions included.
        left_out: What is not among them, one line each.
    """

    results: BenchmarkResults
    left_out: tuple[str, ...]


def cache_root(folder: Path) -> Path:
    """Return the folder of MTEB's cache that ``folder`` is, or whose ``results`` it is.

    Raises:
        UsageError: There is no such folder.
        DataError: It has no results.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; name the one that mteb run or crumb-tasks run wrote to")
    candidates = [folder, *([folder.resolve().parent] if folder.resolve().name == "results" else [])]
    for root in candidates:
        if _result_files(root):
            return root
    raise DataError(f"{folder} holds no results of MTEB; they lie in {folder / _LAYOUT}")


def read_local_results(root: Path) -> LocalResults:
    """Read all results of a cache, those of a clone of MTEB's results beside them too.

    Raises:
        DataError: None of them can be shown.
    """
    classes = task_classes(sys.modules["mteb.tasks"])
    cards = [entry.aggregate for entry in get_benchmarks() if isinstance(entry, CardBenchmark) and entry.aggregate]
    found: dict[tuple[Any, ...], list[TaskResult]] = {}
    metas: dict[tuple[Any, ...], Any] = {}
    left_out = list(unreadable_folders(root))
    unknown: dict[str, int] = {}
    for path in _result_files(root):
        shown = path.relative_to(root).as_posix()
        try:
            result = TaskResult.from_disk(path)
            owner = owner_of_results(path.parent)
        except Exception as error:  # noqa: BLE001 -- whatever a broken file makes MTEB and pydantic raise
            left_out.append(f"{shown}: it cannot be read ({type(error).__name__})")
            continue
        if owner is None:
            left_out.append(f"{shown}: no model_meta.json says under which condition it was made")
        elif (model := _current_name(owner.model)) is None:
            unknown[owner.model] = unknown.get(owner.model, 0) + 1
        elif reason := _reason(result, classes, cards):
            left_out.append(f"{shown}: {reason}")
        else:
            key = (model, owner.revision, owner.experiment)
            found.setdefault(key, []).append(result)
            metas.setdefault(key, owner.meta)
    left_out += [
        f"{model}: not in MTEB's registry of models, so its leaderboard shows none of its {count} results"
        for model, count in sorted(unknown.items())
    ]
    if not found:
        raise DataError(f"{root}: none of the results can be shown ({left_out[0]})")
    left_out += _several_revisions(found)
    results = [
        ModelResult(
            model_name=key[0], model_revision=key[1], experiment_name=key[2], task_results=of, model_meta=metas[key]
        )
        for key, of in found.items()
    ]
    return LocalResults(BenchmarkResults(model_results=results), tuple(left_out))


def _several_revisions(found: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """Yield a line for each model of which MTEB's tables, with one row for all its revisions, leave results out."""
    revisions: dict[str, set[str]] = {}
    for model, revision, _ in found:
        revisions.setdefault(model, set()).add(str(revision))
    for model, own in sorted(revisions.items()):
        if len(own) > 1:
            yield (
                f"{model}: results of {len(own)} revisions ({', '.join(sorted(own))}), of which MTEB takes one for "
                "each task: its registry's, else that of the newest mteb"
            )


def _current_name(model: str) -> str | None:
    """Return what MTEB's registry calls a model today, ``None`` where it does not have it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it warns of names that have changed
        try:
            return get_model_meta(model).name
        except KeyError:
            return None


def _result_files(root: Path) -> list[Path]:
    return sorted(ResultCache(root).get_cache_paths(require_model_meta=False, load_experiments="match_name"))


def _reason(result: TaskResult, classes: dict[str, Any], cards: Sequence[AggregateCard]) -> str | None:
    """Return why no benchmark of this package would take a result, or ``None``."""
    name = result.task_name
    task = classes.get(name)
    expected = task.metadata.revision if task is not None and issubclass(task, CardTask) else None
    reasons = (
        refusal(card, name, result.dataset_revision, expected=expected) for card in cards if name in card.task_names
    )
    return next(filter(None, reasons), None)
