"""What is to be done: which tasks a request names, and which of them have a result that still holds."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mteb.abstasks import AbsTask
from mteb.abstasks.aggregated_task import AbsTaskAggregate

from crumb_tasks.cards import TaskCard
from crumb_tasks.errors import CrumbTasksError, UsageError
from crumb_tasks.loaders import check_split, loader_of
from crumb_tasks.running.cache import WholeFilesCache
from crumb_tasks.running.condition import Condition
from crumb_tasks.running.records import DATA, Record, changes, differences
from crumb_tasks.scoring import VERSION
from crumb_tasks.sources import open_source
from crumb_tasks.tasks import CardTask

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

State = Literal["cached", "missing", "changed", "broken"]
_RULES = (
    "loader", "options", "main_measure", "measures", "qrels", "relevant_from", "labels", "all_zero", "max_passage",
    "exclude_self", "query_text", "prompt", "empty_text", "groups", "mean_over",
)  # fmt: skip
"""Fields of a card that decide a value; those that a card leaves at their defaults are not recorded."""


@dataclass
class Unit:
    """One task that is evaluated by itself.

    Attributes:
        task: MTEB's task.
        identity: What decides its values now.
        state: Whether there is a result that still holds.
        reason: Why there is none, in words.
        result: The result, once there is one.
        keeps: The result's other splits still hold, and stay when those of the task are evaluated.
        record: What such a result was made of, ``None`` where MTEB made it.
        computed: Splits that were evaluated in this run.
        failure: Why it failed in this run.
        notes: What was found on the way.
    """

    task: AbsTask
    identity: Mapping[str, Any]
    state: State = "missing"
    reason: str = ""
    result: TaskResult | None = None
    keeps: bool = False
    record: Record | None = None
    computed: tuple[str, ...] = ()
    failure: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The task's name."""
        return str(self.task.metadata.name)

    @property
    def standing(self) -> TaskResult | None:
        """The result as far as it holds: none of a task that failed, or was to be evaluated again and was not."""
        holds = not self.failure and (self.state in {"cached", "missing"} or bool(self.computed))
        return self.result if holds else None

    @property
    def scorer(self) -> str:
        """Whose scorer reports."""
        return "crumb_tasks" if isinstance(self.task, CardTask) else "MTEB"


@dataclass
class Plan:
    """The tasks of a request.

    Attributes:
        units: Tasks that are evaluated, each once, in order.
        aggregates: Aggregates over them, members before those they belong to.
        asked: Names in the order in which they were asked for.
        results: Results by task and aggregate, once the plan has been run.
        notes: What was found beside the tasks.
    """

    units: list[Unit]
    aggregates: list[AbsTaskAggregate]
    asked: list[str]
    results: dict[str, TaskResult] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def pending(self) -> list[Unit]:
        """Tasks without a result that holds."""
        return [unit for unit in self.units if unit.state != "cached"]

    def expected_documents(self) -> dict[str, int]:
        """Return how many documents the pending tasks have, where their cards say so."""
        found: dict[str, int] = {}
        for unit in self.pending:
            if isinstance(unit.task, CardTask):
                counts = [unit.task.card.expected.get(split) for split in unit.task.eval_splits]
                sizes = [count.passages or count.documents for count in counts if count is not None]
                if sizes and all(sizes):
                    found[unit.name] = sum(size for size in sizes if size)
        return found


def find_tasks(names: Sequence[str], benchmarks: Sequence[str], eval_splits: Sequence[str] | None) -> list[AbsTask]:
    """Return the tasks and aggregates that are asked for.

    Args:
        names: Task names.
        benchmarks: Benchmark names, which stand for their tasks with the subsets and splits that these have there.
        eval_splits: Splits; by default each task's own.

    Raises:
        UsageError: There is no such task, benchmark or split.
    """
    import mteb

    try:
        wanted = [mteb.get_task(name) for name in dict.fromkeys(names)]
        # copies: MTEB's benchmarks share their tasks with whoever asks
        wanted += [copy.copy(task) for name in benchmarks for task in mteb.get_benchmark(name).tasks]
    except KeyError as error:
        raise UsageError(str(error.args[0]).removeprefix("KeyError: ") if error.args else str(error)) from error
    found: dict[str, AbsTask] = {}
    for task in wanted:
        if eval_splits:
            task.filter_eval_splits(list(eval_splits))
            _refuse_unknown_splits(task)
        other = found.setdefault(task.metadata.name, task)
        if other is not task and not isinstance(task, AbsTaskAggregate):
            _widen(other, task)
    return list(found.values())


def _widen(task: AbsTask, other: AbsTask) -> None:
    """Let ``task`` have the subsets and splits of ``other`` too."""
    task.hf_subsets = list(dict.fromkeys([*task.hf_subsets, *other.hf_subsets]))
    if set(other.eval_splits) - set(task.eval_splits):
        task.filter_eval_splits(list(dict.fromkeys([*task.eval_splits, *other.eval_splits])))


def _refuse_unknown_splits(task: AbsTask) -> None:
    """Refuse splits that the task, or a member of it, is to be evaluated on but lacks."""
    if isinstance(task, AbsTaskAggregate):
        for member in task.tasks:
            _refuse_unknown_splits(member)
        return
    known = list(task.metadata.eval_splits)
    for split in task.eval_splits:
        if isinstance(task, CardTask):
            check_split(task.card, split)
        elif split not in known:
            raise UsageError(f"{task.metadata.name} has no split '{split}'; it has: {', '.join(known)}")


def make_plan(
    tasks: Sequence[AbsTask], meta: ModelMeta, condition: Condition, cache: WholeFilesCache, *, is_fresh: bool = False
) -> Plan:
    """Return what is to be done for ``tasks``.

    Args:
        tasks: Tasks and aggregates.
        meta: The model with its experiment.
        condition: What it runs under.
        cache: Where results are.
        is_fresh: Evaluate everything again.
    """
    units: dict[str, Unit] = {}
    aggregates: dict[str, AbsTaskAggregate] = {}
    for task in tasks:
        _add(task, units, aggregates, condition)
    for unit in units.values():
        _look_up(unit, meta, condition, cache)
        if is_fresh and unit.state in {"cached", "missing"} and unit.result is not None:
            unit.state, unit.reason = "changed", "asked for again"
    return Plan(list(units.values()), list(aggregates.values()), [task.metadata.name for task in tasks])


def _add(task: AbsTask, units: dict[str, Unit], aggregates: dict[str, AbsTaskAggregate], condition: Condition) -> None:
    name = task.metadata.name
    if isinstance(task, AbsTaskAggregate):
        if name not in aggregates:
            for member in task.tasks:
                _add(member, units, aggregates, condition)
            aggregates[name] = task
    elif name not in units:
        units[name] = Unit(task, identity_of(task, condition))


def identity_of(task: AbsTask, condition: Condition) -> dict[str, Any]:
    """Return what decides a task's values under a condition, beside the model."""
    identity: dict[str, Any] = {"dataset_revision": task.metadata.revision, "condition": condition.describe()}
    if isinstance(task, CardTask):
        rules = task.card.model_dump(mode="json", include=set(_RULES), exclude_defaults=True)
        identity |= {"scoring": VERSION, "depth": task.card.depth, "rules": rules}
        if local := dict(_local_data(task.card, task.eval_splits)):
            identity[DATA] = local
    else:
        identity |= {"scoring": "MTEB's", "depth": max(getattr(task, "k_values", ()), default=None)}
    return identity


def _local_data(card: TaskCard, splits: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield by split a digest of the files in the data root that it needs, by name, size and time: they may be edited.

    It is empty where one is missing, and nothing is yielded where all files come from a host, at the card's revision.
    """
    source = open_source(card)
    if not any(
        open_source(card.model_copy(update={"source": part})).root or part.user or part.path
        for part in (source.source, *source.source.parts.values())
    ):
        return
    for split in splits:
        digest = hashlib.sha256()
        try:
            for file in sorted(loader_of(card).files(card, split)):
                owner, name = source.source.locate(file)
                opened = open_source(card.model_copy(update={"source": owner}))
                if opened.root or owner.user or owner.path:
                    digest.update("\n".join([file, *_state_of(opened.path(name)), ""]).encode())
        except (CrumbTasksError, OSError):
            yield split, ""
        else:
            yield split, digest.hexdigest()[:16]


def _state_of(path: Path) -> Iterator[str]:
    """Yield name, size and time of a file, or of those in a folder."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if not file.is_dir():
            state = file.stat()
            yield f"{file.relative_to(path)} {state.st_size} {state.st_mtime_ns}"


def _look_up(unit: Unit, meta: ModelMeta, condition: Condition, cache: WholeFilesCache) -> None:
    try:
        unit.result = cache.read(unit.name, meta)
    except ValueError as error:
        unit.state, unit.reason = "broken", f"{error}; it is evaluated again"
        return
    if unit.result is None:
        return
    folder = cache.folder(meta)
    record = Record.read(folder, unit.name)
    is_its_record = record is not None and record.describes(folder / f"{unit.name}.json")
    changed = _changes(unit, record if is_its_record else None, condition)
    if changed:
        unit.keeps = record is not None and is_its_record and not changes(record.identity, unit.identity, [])
        unit.record = record if unit.keeps else None
        unit.state, unit.reason = "changed", f"the cached result is of other conditions: {'; '.join(changed)}"
        return
    unit.keeps, unit.record = True, record if is_its_record else None
    if missing := unit.result.get_missing_evaluations(unit.task):
        unit.state, unit.reason = "missing", f"the cached result lacks {', '.join(missing)}"
    else:
        unit.state = "cached"


def _changes(unit: Unit, record: Record | None, condition: Condition) -> list[str]:
    """Return why a cached result no longer holds."""
    if record is not None:
        known = unit.result.scores if unit.result is not None else {}
        changed = changes(record.identity, unit.identity, [split for split in unit.task.eval_splits if split in known])
        if condition.first_stage is not None:
            for part, origin in record.first_stage.items():
                subset, split = part.split("/", 1)
                current = condition.first_stage.sha256(unit.name, split, subset)
                if current not in {None, origin.get("sha256")}:
                    changed.append(f"the run of '{condition.first_stage.name}' (split {split}) is another")
        return changed
    if condition.experiment:
        return ["it has no record of what it was made of"]
    result = unit.result
    if result is None:
        return []
    changed = differences(
        {"dataset_revision": result.dataset_revision}, {"dataset_revision": unit.task.metadata.revision}
    )
    if isinstance(unit.task, CardTask):
        versions = {entry.get("scoring") for entries in result.scores.values() for entry in entries}
        changed += [f"scoring {version} → {VERSION}" for version in versions if version != VERSION]
    return changed
