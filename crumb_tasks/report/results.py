"""MTEB's result files, read one by one: what cannot be read is named and left out, the rest counts.

Files are found by their name, which is the task's, anywhere below a folder: MTEB's cache, its results repository, one
model's folder. Values are taken as they stand; nothing that a file says about an aggregate is believed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crumb_tasks.errors import UsageError

_META = "model_meta.json"
_EXPERIMENTS = "experiments"
_OUR_RECORDS = "crumb_tasks"  # `crumb-tasks run` keeps records under the tasks' names beside the results
_SUBSET = "default"
_SHOWN_REVISION = 12

Values = Mapping[str, float | None]


@dataclass(frozen=True)
class System:
    """Whose results these are: a model at a revision, under a condition.

    Attributes:
        model: MTEB's name of it.
        revision: Of the model.
        experiment: MTEB's ``experiment_kwargs``, as text; empty for MTEB's own setting.
        uses_instructions: Whether the model sees a task's instruction in MTEB's own setting, where that is known.
        has_others: Whether there are results of other revisions of the model, so that tables must name this one.
    """

    model: str
    revision: str
    experiment: tuple[tuple[str, str], ...] = ()
    uses_instructions: bool | None = field(default=None, compare=False)
    has_others: bool = field(default=False, compare=False)

    @property
    def name(self) -> str:
        """The model as a table shows it, with its revision where there are others."""
        return f"{self.model} @ {self.revision[:_SHOWN_REVISION]}" if self.has_others else self.model

    @property
    def condition(self) -> str:
        """The experiment as a table shows it."""
        return ", ".join(f"{key} {value}" for key, value in self.experiment) or "native"

    @property
    def label(self) -> str:
        """Model and condition in one line."""
        return f"{self.name} ({self.condition})" if self.experiment else self.name


@dataclass(frozen=True)
class Result:
    """One system's values on one task.

    Attributes:
        path: The file, below the folder that was read.
        data_revision: Revision of the data, ``None`` where the file does not say.
        mteb_version: That wrote it, ``""`` where the file does not say.
        values_by_split: For each split MTEB's scores; what is no finite number is ``None``.
        values_by_subset: By split and subset the same, where subsets were asked for.
        seconds: How long the evaluation took, ``None`` where the file does not say.
    """

    path: str
    data_revision: str | None
    mteb_version: str
    values_by_split: Mapping[str, Values]
    values_by_subset: Mapping[str, Mapping[str, Values]] = field(default_factory=dict)
    seconds: float | None = None


@dataclass(frozen=True)
class Skipped:
    """A file that was left out.

    Attributes:
        path: Below the folder that was read.
        reason: Why, in words.
    """

    path: str
    reason: str


@dataclass(frozen=True)
class Results:
    """What a folder holds.

    Attributes:
        by_system: For each system its result on each task.
        skipped: Files with a task's name that were left out.
    """

    by_system: Mapping[System, Mapping[str, Result]]
    skipped: tuple[Skipped, ...]


def read_results(folder: Path, tasks: Collection[str], with_subsets: Collection[str] = ()) -> Results:
    """Read the results on ``tasks`` below ``folder``.

    Args:
        folder: Where they lie, however deep.
        tasks: What is read.
        with_subsets: Tasks of which single subsets count. Of any other task with several the default one is taken,
            and a file without it is left out.

    Raises:
        UsageError: There is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: no such folder; --results names a folder with MTEB's result files, such as its cache"
        )
    by_system: dict[System, dict[str, Result]] = {}
    skipped: list[Skipped] = []
    systems: dict[Path, System] = {}
    for path in _find(folder, frozenset(tasks), skipped):
        shown = path.relative_to(folder).as_posix()
        try:
            task, result = _read(path, shown, with_subsets)
        except _UnreadableError as error:
            skipped.append(Skipped(shown, str(error)))
            continue
        if task not in tasks:
            skipped.append(Skipped(shown, f"it holds a result of '{task[:80]}', which is not asked for"))
            continue
        if path.parent not in systems:
            systems[path.parent] = _system_of(path.parent.resolve())
        of_system = by_system.setdefault(systems[path.parent], {})
        if task not in of_system:
            of_system[task] = result
        elif of_system[task].values_by_split != result.values_by_split:
            skipped.append(
                Skipped(shown, f"another result of the same system on {task} is used: {of_system[task].path}")
            )
    return Results(_with_revisions(by_system), tuple(skipped))


def _with_revisions(by_system: Mapping[System, Mapping[str, Result]]) -> dict[System, Mapping[str, Result]]:
    """Return the same with those systems marked that only their revision tells from another."""
    revisions: dict[str, set[str]] = {}
    for system in by_system:
        revisions.setdefault(system.model, set()).add(system.revision)
    return {
        replace(system, has_others=len(revisions[system.model]) > 1): by_task for system, by_task in by_system.items()
    }


class _UnreadableError(Exception):
    """A file is no result of MTEB; the text says why."""


def _find(folder: Path, tasks: frozenset[str], skipped: list[Skipped]) -> Iterator[Path]:
    """Yield the files that are named after a task, sorted, without going into the records of `crumb-tasks run`.

    A folder that cannot be read is added to ``skipped``.
    """

    def skip(error: OSError) -> None:
        shown = os.path.relpath(error.filename, folder)
        skipped.append(Skipped(shown, f"the folder cannot be read ({error.strerror})"))

    for place, folders, files in os.walk(folder, onerror=skip):
        folders[:] = sorted(name for name in folders if name != _OUR_RECORDS)
        yield from (Path(place, name) for name in sorted(files) if name.endswith(".json") and name[:-5] in tasks)


def _read(path: Path, shown: str, with_subsets: Collection[str]) -> tuple[str, Result]:
    content = _read_json(path)
    scores = content.get("scores")
    task = content.get("task_name", content.get("mteb_dataset_name"))
    if not isinstance(task, str):
        raise _UnreadableError("it names no task, so it is no result of MTEB")
    by_subset: dict[str, dict[str, Values]] = {}
    if isinstance(scores, dict) and task in with_subsets:
        by_subset = {split: _values_of_subsets(entries) for split, entries in scores.items()}
        by_split = {split: values.get(_SUBSET) or _only(values) for split, values in by_subset.items()}
    elif isinstance(scores, dict):
        by_split = {split: _values_of_split(split, entries) for split, entries in scores.items()}
    elif "mteb_dataset_name" in content:  # until mteb 1.11 a split stood at the top, with its scores right in it
        by_split = {split: _numbers(value) for split, value in content.items() if isinstance(value, dict)}
    else:
        raise _UnreadableError("it has no scores, so it is no result of MTEB")
    revision, version = content.get("dataset_revision"), content.get("mteb_version")
    return task, Result(
        path=shown,
        data_revision=revision if isinstance(revision, str) else None,
        mteb_version=version if isinstance(version, str) else "",
        values_by_split=by_split,
        values_by_subset=by_subset,
        seconds=_numbers({"seconds": content.get("evaluation_time")}).get("seconds"),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _UnreadableError(f"it cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise _UnreadableError("it is not UTF-8") from error
    if not text.strip():
        raise _UnreadableError("it is empty")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UnreadableError(f"it is not JSON, or cut short ({error})") from error
    if not isinstance(content, dict):
        raise _UnreadableError("it is no JSON object, so it is no result of MTEB")
    return content


def _values_of_split(split: str, entries: Any) -> Values:
    """Return the scores of the one subset, or of MTEB's default subset where there are more."""
    by_subset = _values_of_subsets(entries)
    if not by_subset:
        raise _UnreadableError(f"split '{split}' has no scores")
    if len(by_subset) > 1 and _SUBSET not in by_subset:
        raise _UnreadableError(f"split '{split}' has {len(by_subset)} subsets, of which none is the default")
    return by_subset.get(_SUBSET, next(iter(by_subset.values())))


def _only(values: Mapping[str, Values]) -> Values:
    return next(iter(values.values())) if len(values) == 1 else {}


def _values_of_subsets(entries: Any) -> dict[str, Values]:
    return {
        str(entry.get("hf_subset", _SUBSET)): _numbers(entry)
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    }


def _numbers(scores: Mapping[str, Any]) -> Values:
    """Return what is a number, also one level down, where a dot stands between the keys."""
    below = {
        f"{key}.{inner}": value
        for key, nested in scores.items()
        if isinstance(nested, dict)
        for inner, value in nested.items()
    }
    return {
        key: float(value) if math.isfinite(value) else None
        for key, value in {**scores, **below}.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _system_of(folder: Path) -> System:
    """Return whose results lie in ``folder``: what MTEB wrote beside them, or else the names of the folders."""
    is_experiment = folder.parent.name == _EXPERIMENTS
    of_model = folder.parent.parent if is_experiment else folder
    meta = _meta_of(folder) or _meta_of(of_model)
    name, revision = meta.get("name"), meta.get("revision")
    return System(
        model=name if isinstance(name, str) else of_model.parent.name.replace("__", "/"),
        revision=revision if isinstance(revision, str) else of_model.name,
        experiment=_experiment_of(meta, folder.name) if is_experiment else (),
        uses_instructions=uses if isinstance(uses := meta.get("use_instructions"), bool) else None,
    )


def _experiment_of(meta: Mapping[str, Any], folder_name: str) -> tuple[tuple[str, str], ...]:
    kwargs = meta.get("experiment_kwargs")
    if isinstance(kwargs, dict) and kwargs:
        return tuple(sorted((str(key), str(value)) for key, value in kwargs.items()))
    return (("experiment", folder_name),)


def _meta_of(folder: Path) -> dict[str, Any]:
    try:
        return _read_json(folder / _META)
    except _UnreadableError:
        return {}
