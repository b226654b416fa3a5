"""Cards → MTEB's aggregate tasks.

They are reduced by `crumb_tasks.aggregates.aggregate_value` and by nothing else. An aggregate without all of its
members has no value and stores none: MTEB takes a stored null for a finished evaluation and never computes it again.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mteb.abstasks.aggregate_task_metadata import AggregateTaskMetadata
from mteb.abstasks.aggregated_task import AbsTaskAggregate
from mteb.results.task_result import TaskResult

from crumb_tasks.aggregates import aggregate_key, aggregate_value, member_key, refusal, refuse_doubled, value_below
from crumb_tasks.cards import AggregateCard, Scope
from crumb_tasks.errors import AggregateError, CardError, did_you_mean
from crumb_tasks.mteb_compat import emitted_by_retrieval
from crumb_tasks.mteb_metadata import computed_statistics
from crumb_tasks.mteb_scores import emitted_keys
from crumb_tasks.tasks import SUBSET, CardTask

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask

    from crumb_tasks.aggregators import Reduced

_logger = logging.getLogger("crumb_tasks")


class CardAggregateMetadata(AggregateTaskMetadata):
    """MTEB's metadata of an aggregate, with descriptive statistics outside MTEB's folder."""

    @property
    def descriptive_stat_path(self) -> Path:
        """A file in the cache folder; an aggregate has no data and hence no statistics of its own."""
        return computed_statistics(self.name)


def aggregate_class(card: AggregateCard, classes: Mapping[str, type[AbsTask]]) -> type[CardAggregate]:
    """Return the class of the aggregate task that ``card`` describes.

    Args:
        card: The aggregate.
        classes: Task classes by name, this package's and MTEB's.

    Raises:
        CardError: A member does not exist or does not emit the measure that is reduced.
    """
    members = [scoped(member_class(name, card.name, classes)(), card.scopes.get(name)) for name in card.task_names]
    without = [
        name
        for member in members
        if member_key(card, name := member.metadata.name).rpartition(".")[2] not in _emitted(member)
    ]
    if without:
        raise CardError(f"aggregate '{card.name}' reduces {card.measured}, which {', '.join(without)} does not report")
    names = {"__doc__": card.description, "__module__": __name__, "card": card, "metadata": _metadata(card, members)}
    return type(card.name.replace(".", "_"), (CardAggregate,), names)


def member_class(name: str, owner: str, classes: Mapping[str, type[AbsTask]]) -> type[AbsTask]:
    """Return the class of the task ``name``.

    Raises:
        CardError: Neither this package nor MTEB has it; the message names ``owner`` and near names.
    """
    if name not in classes:
        raise CardError(
            f"'{owner}' names the task '{name}', which neither this package nor MTEB has{did_you_mean(name, classes)}"
        )
    return classes[name]


def scoped(task: AbsTask, scope: Scope | None) -> AbsTask:
    """Return ``task``, a fresh instance, restricted to the split and subsets of ``scope``.

    Raises:
        CardError: It lacks one of them.
    """
    if scope is None:
        return task
    languages = task.metadata.hf_subsets_to_langscripts
    cross = [name for name in task.metadata.hf_subsets if len(set(languages[name])) > 1]
    wanted = cross if scope.subsets == "cross-lingual" else list(scope.subsets)
    unknown = sorted({*wanted} - {*task.metadata.hf_subsets} | {scope.split} - {"", *task.metadata.eval_splits})
    if unknown or (scope.subsets and not wanted):
        raise CardError(f"{task.metadata.name} has no {scope.subsets if not unknown else unknown[0]} to be scoped to")
    if wanted:
        task.hf_subsets = wanted
    return task.filter_eval_splits([scope.split]) if scope.split else task


def _emitted(member: AbsTask) -> frozenset[str]:
    if isinstance(member, AbsTaskAggregate):
        return frozenset({member.metadata.main_score})
    return emitted_keys(member.card) if isinstance(member, CardTask) else emitted_by_retrieval(member)


def _metadata(card: AggregateCard, members: Sequence[AbsTask]) -> CardAggregateMetadata:
    annotations = {member.metadata.annotations_creators for member in members}
    fields: dict[str, Any] = {
        "name": card.name,
        "description": card.description,
        "dataset": {"path": "aggregate tasks do not have a path", "revision": _revision(card, members)},
        "tasks": list(members),
        "type": next((m.metadata.type for m in members if m.metadata.type == "Retrieval"), members[0].metadata.type),
        "category": "t2t",
        "modalities": ["text"],
        "eval_splits": [card.splits[0]],
        "main_score": aggregate_key(card),
        "domains": sorted({domain for member in members for domain in member.metadata.domains or ()}) or None,
        "task_subtypes": [],
        "dialect": [],
        # MTEB warns while it is imported when members differ and nothing is said
        "annotations_creators": annotations.pop() if len(annotations) == 1 else "derived",
        "license": None if card.license == "not specified" else card.license,
        "reference": card.paper if card.paper.startswith("http") else None,
        "bibtex_citation": card.bibtex,
        "is_public": card.public,
    }
    return CardAggregateMetadata.model_validate(fields)


def _revision(card: AggregateCard, members: Sequence[AbsTask]) -> str:
    """Return a revision that changes with the reduction, the measure, and any member's data."""
    parts = [
        card.measured,
        card.reduction.model_dump_json(),
        *(f"{task}={key}" for task, key in card.keys.items()),
        *(f"{task}={scope.model_dump_json()}" for task, scope in card.scopes.items()),
        *(f"{m.metadata.name}@{m.metadata.revision}" for m in members),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class CardAggregate(AbsTaskAggregate):
    """Several tasks reduced to one value; see `aggregate_class`."""

    card: ClassVar[AggregateCard]

    def filter_eval_splits(self, eval_splits: Sequence[str] | None) -> Self:
        """Keep only the named splits, of the members too: MTEB's method leaves them on their default.

        The members are made anew, since the class shares its own among all instances.
        """
        super().filter_eval_splits(eval_splits)
        self.__dict__.pop("metadata", None)
        if eval_splits:
            scopes = self.card.scopes
            members = [
                scoped(type(task)(), scope)
                if (scope := scopes.get(task.metadata.name)) is not None and scope.split
                else scoped(type(task)().filter_eval_splits(eval_splits), scope)
                for task in self.metadata.tasks
            ]
            self.metadata = self.metadata.model_copy(update={"tasks": members, "eval_splits": list(eval_splits)})
        self.tasks = self.metadata.tasks
        self.taskname_to_task = {task.metadata.name: task for task in self.tasks}
        return self

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Load the members' data."""
        for task in self.tasks:
            task.load_data(num_proc=num_proc, **kwargs)
        self.data_loaded = True

    def unload_data(self) -> None:
        """Free the members' data."""
        for task in self.tasks:
            if task.data_loaded:
                task.unload_data()
        self.data_loaded = False

    def task_results_to_scores(self, task_results: list[TaskResult]) -> dict[str, Any]:
        """Reduce the members' results, split by split; a split without a value is left out and the log says why.

        Raises:
            AggregateError: Two results of one task, or a result of a task that is no member.
        """
        refuse_doubled(self.card, (result.task_name for result in task_results))
        scores: dict[str, Any] = {}
        for split in self.metadata.eval_splits:
            try:
                reduced = reduce_results(self.card, self.tasks, task_results, split)
            except AggregateError as error:
                if foreign := [
                    result.task_name for result in task_results if result.task_name not in self.card.task_names
                ]:
                    raise AggregateError(
                        f"{self.card.name}: '{foreign[0]}' is no member; leave its result out"
                    ) from error
                _logger.warning("%s (split %s)", error, split)
                continue
            scores[split] = {SUBSET: self._score_dict(reduced)}
        return scores

    def _score_dict(self, reduced: Reduced) -> dict[str, Any]:
        return {
            self.metadata.main_score: reduced.value,
            "main_score": reduced.value,
            "mean": self.card.reduction.mean,
            "measure": self.card.measured,
            "n_members": len(reduced.value_by_member),
            "groups": dict(reduced.value_by_group),
            "members": dict(reduced.value_by_member),
            "zeros": list(reduced.zeros),
            "sample": self.card.sample,
        }

    def combine_task_results(self, task_results: list[TaskResult]) -> TaskResult:
        """Combine as MTEB does, with null where it writes a NaN that no strict JSON parser reads."""
        combined = super().combine_task_results(task_results)
        return combined.model_copy(
            update={
                name: None
                for name in ("evaluation_time", "kg_co2_emissions")
                if (value := getattr(combined, name)) is not None and math.isnan(value)
            }
        )


def reduce_results(card: AggregateCard, tasks: Sequence[AbsTask], results: Sequence[TaskResult], split: str) -> Reduced:
    """Return the value of an aggregate from its members' stored results.

    Args:
        card: The aggregate.
        tasks: The members, for the revisions they read now.
        results: MTEB's results of the members.
        split: The one split that is reduced.

    Raises:
        AggregateError: A result is missing, refused, stale, doubled or foreign, or lacks the measure.
    """
    refuse_doubled(card, (result.task_name for result in results))
    expected = {task.metadata.name: task.metadata.revision for task in tasks if isinstance(task, CardTask)}
    subsets = {task.metadata.name: list(task.hf_subsets) for task in tasks}
    values: dict[str, float | None] = {}
    for result in results:
        name = result.task_name
        if (reason := refusal(card, name, result.dataset_revision, expected=expected.get(name))) is not None:
            raise AggregateError(f"{card.name} has no value: {reason}")
        values[name] = _member_value(card, result, card.split_of(name, split), subsets.get(name, [SUBSET]))
    return aggregate_value(card, values)


def _member_value(card: AggregateCard, result: TaskResult, split: str, subsets: Sequence[str]) -> float | None:
    """Return a member's value, the mean of its subsets; ``None`` while one of them is missing."""
    name, key = result.task_name, member_key(card, result.task_name)
    entry_by_subset = {entry["hf_subset"]: entry for entry in result.scores.get(split, [])}
    if not all(subset in entry_by_subset for subset in subsets):
        return None
    try:
        values = {subset: value_below(entry_by_subset[subset], key) for subset in subsets}
    except KeyError as error:
        raise AggregateError(f"{card.name} has no value: the result of '{name}' does not have {key}") from error
    return mean_of_subsets(values, subsets)


def mean_of_subsets(value_by_subset: Mapping[str, float | None], subsets: Sequence[str]) -> float | None:
    """Return the mean over a task's subsets; ``None`` while one of them is missing."""
    values = [value_by_subset.get(subset) for subset in subsets]
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
