"""The tables at the end of a run: what tasks gave, how conditions differ, what a rewriting did to single queries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mteb.abstasks.aggregated_task import AbsTaskAggregate

from crumb_tasks.cards import Published, read_cards
from crumb_tasks.measures import mteb_key, parse_measure
from crumb_tasks.running.cache import WholeFilesCache
from crumb_tasks.running.condition import label_of
from crumb_tasks.running.plan import Plan, Unit
from crumb_tasks.running.records import Record, changes

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

SAME = 1e-9
"""Values per query that differ by no more are equal: records round them to six decimals."""


@dataclass(frozen=True)
class Line:
    """One row of the table of tasks.

    Attributes:
        name: Task or aggregate.
        split: Split.
        measure: Its main score, as MTEB calls it.
        value: The number, ``None`` where there is none.
        coverage: Answered queries of all, or members of all.
        state: ``new``, ``cached``, ``failed``, ``not run`` (after an interrupt) or why there is no value.
        scorer: Whose scorer reports.
        published: A published number beside it.
    """

    name: str
    split: str
    measure: str
    value: float | None
    coverage: str
    state: str
    scorer: str
    published: str


def lines(plan: Plan, model: str) -> Iterator[Line]:
    """Yield the rows of a run: members, then their aggregates."""
    published = [value for card in read_cards() for value in card.published]
    for unit in plan.units:
        for split in unit.task.eval_splits:
            yield _unit_line(unit, split, _reference(published, unit.name, unit.task.metadata.main_score, model))
    for aggregate in plan.aggregates:
        for split in aggregate.eval_splits:
            name = aggregate.metadata.name
            yield _aggregate_line(
                aggregate, split, plan, _reference(published, name, aggregate.metadata.main_score, model)
            )


def _unit_line(unit: Unit, split: str, published: str) -> Line:
    entries = [] if unit.standing is None else unit.standing.scores.get(split, [])
    values = [entry["main_score"] for entry in entries if entry.get("main_score") is not None]
    value = sum(values) / len(values) if values else None
    state = "failed" if unit.failure else "new" if split in unit.computed else "cached" if entries else "not run"
    coverage = ""
    if entries and "n_queries" in entries[0]:
        missing, total = entries[0].get("n_missing", 0), entries[0]["n_queries"]
        coverage = f"{total - missing}/{total} queries"
    return Line(unit.name, split, unit.task.metadata.main_score, value, coverage, state, unit.scorer, published)


def _aggregate_line(aggregate: AbsTaskAggregate, split: str, plan: Plan, published: str) -> Line:
    name = aggregate.metadata.name
    members = [task.metadata.name for task in aggregate.tasks]
    card = getattr(aggregate, "card", None)
    results = {unit.name: unit.standing for unit in plan.units} | plan.results
    there = [
        member
        for member in members
        if _has_split(results.get(member), split if card is None else card.split_of(member, split))
    ]
    value = _value(plan.results.get(name), split)
    scorer = "MTEB" if card is None else "crumb_tasks"
    missing = [member for member in members if member not in there]
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    without = f"no value without {', '.join(missing[:3])}{more}" if missing else "no value"
    state = "combined" if value is not None else without
    coverage = f"{len(there)}/{len(members)} tasks"
    return Line(name, split, aggregate.metadata.main_score, value, coverage, state, scorer, published)


def _has_split(result: TaskResult | None, split: str) -> bool:
    return _value(result, split) is not None


def _value(result: TaskResult | None, split: str) -> float | None:
    if result is None:
        return None
    values = [entry["main_score"] for entry in result.scores.get(split, []) if entry.get("main_score") is not None]
    return sum(values) / len(values) if values else None


def _reference(published: Sequence[Published], name: str, key: str, model: str) -> str:
    """Return the published number of the model itself, else the highest one, for the same measure."""
    found = [value for value in published if value.task == name and _has_key(value.measure, key)]
    if not found:
        return ""
    own = [value for value in found if getattr(value, "model", None) == model]
    best = max(own or found, key=lambda value: value.value)
    setting = f", {best.setting}" if best.setting else ""
    return f"{best.value:.3f} {best.system}{setting}"


def _has_key(measure: str, key: str) -> bool:
    return measure == key or (measure != "accuracy" and mteb_key(parse_measure(measure)) == key)


@dataclass(frozen=True)
class ConditionLine:
    """One condition of a model on one task.

    Attributes:
        task: Task or aggregate.
        split: Split.
        condition: The condition.
        value: The main score.
        gain: Its difference from the first condition, ``None`` for that one.
    """

    task: str
    split: str
    condition: str
    value: float
    gain: float | None


def condition_lines(plan: Plan, meta: ModelMeta, cache: WholeFilesCache) -> list[ConditionLine]:
    """Return the values of all conditions of this model that are cached, for what was asked for.

    Conditions stand beside each other and are never averaged. One whose record differs in anything but the condition
    (another dataset revision, other rules) is left out. Nothing is returned when there is only one condition.
    """
    folders = _condition_folders(meta, cache, plan.notes)
    found: list[ConditionLine] = []
    aggregates = {aggregate.metadata.name: aggregate for aggregate in plan.aggregates}
    units = {unit.name: unit for unit in plan.units}
    results = {label: _results(folder, plan) for label, folder in folders.items()}
    for name in plan.asked:
        task = aggregates.get(name) or units[name].task
        for split in task.eval_splits:
            values = {
                label: value
                for label, by_task in results.items()
                if (value := _value(_combined(task, by_task), split)) is not None
            }
            if len(values) < 2:
                continue
            base = next(iter(values.values()))
            found += [
                ConditionLine(name, split, label, value, None if at == 0 else value - base)
                for at, (label, value) in enumerate(values.items())
            ]
    return found


def _condition_folders(meta: ModelMeta, cache: WholeFilesCache, notes: list[str]) -> dict[str, Path]:
    """Return the folders of results by condition, ``native`` first; what cannot be read goes into ``notes``."""
    plain = cache.folder(meta.model_copy(update={"experiment_kwargs": None}))
    folders = {"native": plain} if plain.is_dir() else {}
    for description in sorted(plain.glob("experiments/*/model_meta.json")):
        try:
            label = label_of(json.loads(description.read_text(encoding="utf-8")).get("experiment_kwargs"))
        except (OSError, ValueError, AttributeError) as error:
            notes.append(f"{description} cannot be read ({type(error).__name__}); its condition is not compared")
        else:
            folders[label] = description.parent
    return folders


def _results(folder: Path, plan: Plan) -> dict[str, TaskResult]:
    """Return the results in a folder that hold, their condition aside."""
    from mteb.results import TaskResult

    found: dict[str, TaskResult] = {}
    for unit in plan.units:
        path = folder / f"{unit.name}.json"
        record = Record.read(folder, unit.name)
        if not path.is_file() or (record is None and folder.parent.name == "experiments"):
            continue
        try:
            result = TaskResult.from_disk(path)
        except Exception:  # noqa: BLE001, S112 -- a broken file of another condition is that condition's matter
            continue
        splits = [split for split in unit.task.eval_splits if split in result.scores]
        if record is not None and record.describes(path) and _other_rules(record.identity, unit.identity, splits):
            continue
        if result.dataset_revision == unit.task.metadata.revision:
            found[unit.name] = result
    return found


def _other_rules(stored: Mapping[str, Any], current: Mapping[str, Any], splits: Sequence[str]) -> list[str]:
    return changes(
        {key: value for key, value in stored.items() if key != "condition"},
        {key: value for key, value in current.items() if key != "condition"},
        splits,
    )


def _combined(task: Any, results: Mapping[str, TaskResult]) -> TaskResult | None:
    if not isinstance(task, AbsTaskAggregate):
        return results.get(task.metadata.name)
    members = [_combined(member, results) for member in task.tasks]
    if any(member is None for member in members):
        return None
    return task.combine_task_results([member for member in members if member is not None])


@dataclass(frozen=True)
class Effect:
    """What rewriting did to the queries of a task.

    Attributes:
        task: The task.
        split: Split.
        measure: By which measure.
        helped: Queries whose value rose.
        hurt: Queries whose value fell.
        same: Queries whose value stayed.
        plain: Mean of the plain run.
        rewritten: Mean of the rewritten run.
    """

    task: str
    split: str
    measure: str
    helped: int
    hurt: int
    same: int
    plain: float
    rewritten: float

    def __str__(self) -> str:
        """Return it as a sentence."""
        return (
            f"{self.task} ({self.split}): rewriting helped {self.helped} queries, hurt {self.hurt}, left {self.same} "
            f"as they were; {self.measure} {self.plain:.4f} → {self.rewritten:.4f}"
        )


def rewriting_effects(plan: Plan, meta: ModelMeta, cache: WholeFilesCache) -> tuple[list[Effect], dict[str, str]]:
    """Compare a run with rewritten queries with the same run without, query by query.

    Returns:
        The comparisons, and for each task that cannot be compared the reason.
    """
    plain = {key: value for key, value in (meta.experiment_kwargs or {}).items() if key != "queries"}
    before = cache.folder(meta.model_copy(update={"experiment_kwargs": plain or None}))
    after = cache.folder(meta)
    effects: list[Effect] = []
    without: dict[str, str] = {}
    for unit in plan.units:
        if unit.standing is None:
            continue
        old, new = Record.read(before, unit.name), Record.read(after, unit.name)
        if old is None or new is None:
            without[unit.name] = "no plain run is cached"
        elif changed := _other_rules(
            old.identity,
            unit.identity,
            [split for split in unit.task.eval_splits if any(part.endswith(f"/{split}") for part in old.per_query)],
        ):
            without[unit.name] = f"the plain run is of other rules ({'; '.join(changed)})"
        else:
            effects += [
                _effect(unit.name, part.partition("/")[2], old.per_query[part], values)
                for part, values in new.per_query.items()
                if part in old.per_query
            ]
    return effects, without


def _effect(task: str, split: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Effect:
    shared = [query_id for query_id in new["values"] if query_id in old["values"]]
    moves = [new["values"][query_id] - old["values"][query_id] for query_id in shared]
    helped, hurt = sum(move > SAME for move in moves), sum(move < -SAME for move in moves)
    count = max(len(shared), 1)
    return Effect(
        task,
        split,
        new["measure"],
        helped,
        hurt,
        len(shared) - helped - hurt,
        sum(old["values"][query_id] for query_id in shared) / count,
        sum(new["values"][query_id] for query_id in shared) / count,
    )
