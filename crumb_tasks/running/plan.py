"""What is to be done: which tasks a request names, and which of them have a result that still holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from mteb.abstasks import AbsTask
from mteb.abstasks.aggregated_task import AbsTaskAggregate

from crumb_tasks.errors import UsageError
from crumb_tasks.running.cache import WholeFilesCache
from crumb_tasks.running.condition import Condition
from crumb_tasks.running.records import Record, differences
from crumb_tasks.scoring import VERSION
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
        is_computed: It was evaluated in this run.
        failure: Why it failed in this run.
        notes: What was found on the way.
    """

    task: AbsTask
    identity: Mapping[str, Any]
    state: State = "missing"
    reason: str = ""
    result: TaskResult | None = None
    is_computed: bool = False
    failure: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The task's name."""
        return str(self.task.metadata.name)

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
    """

    units: list[Unit]
    aggregates: list[AbsTaskAggregate]
    asked: list[str]
    results: dict[str, TaskResult] = field(default_factory=dict)

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
        benchmarks: Benchmark names, which stand for their tasks.
        eval_splits: Splits; by default each task's own.

    Raises:
        UsageError: There is no such task, benchmark or split.
    """
    import mteb

    found: list[AbsTask] = []
    splits = list(eval_splits) if eval_splits else None
    try:
        wanted = [*names, *(task.metadata.name for name in benchmarks for task in mteb.get_benchmark(name).tasks)]
        for name in dict.fromkeys(wanted):
            task = mteb.get_task(name, eval_splits=splits)
            if splits and not isinstance(task, AbsTaskAggregate):
                _refuse_unknown_splits(task, splits)
            found.append(task)
    except KeyError as error:
        raise UsageError(str(error.args[0]).removeprefix("KeyError: ") if error.args else str(error)) from error
    return found


def _refuse_unknown_splits(task: AbsTask, splits: Iterable[str]) -> None:
    known = list(task.card.splits) if isinstance(task, CardTask) else list(task.metadata.eval_splits)
    for split in splits:
        if isinstance(task, CardTask):
            task.card.upstream_split(split)
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
        if is_fresh and unit.state == "cached":
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
    else:
        identity |= {"scoring": "MTEB's", "depth": max(getattr(task, "k_values", ()), default=None)}
    return identity


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
        unit.state, unit.reason = "changed", f"the cached result is of other conditions: {'; '.join(changed)}"
    elif missing := unit.result.get_missing_evaluations(unit.task):
        unit.state, unit.reason = "missing", f"the cached result lacks {', '.join(missing)}"
    else:
        unit.state = "cached"


def _changes(unit: Unit, record: Record | None, condition: Condition) -> list[str]:
    """Return why a cached result no longer holds."""
    if record is not None:
        changed = differences(record.identity, unit.identity)
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
