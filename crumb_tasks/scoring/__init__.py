"""A run's scores on a collection, under a task's rules: the one scorer behind ``mteb run`` and ``crumb-tasks score``.

`matching` brings a run and a collection together (queries, MaxP, candidates, exclusions), `depth` says how deep the run
goes, the measures look at what results, `derived` adds what is no mean over queries (Robustness, accuracy, parts), and
`Scores` says all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import UsageError
from crumb_tasks.measures import Measure, delegated, kernels, parse_measure
from crumb_tasks.measures.kernels import JudgedRanks
from crumb_tasks.measures.nuggets import coverage, nugget_reciprocal_rank
from crumb_tasks.runs import Run
from crumb_tasks.scoring import dictionaries
from crumb_tasks.scoring.depth import depth_notes, too_deep
from crumb_tasks.scoring.derived import choice_values, group_values, mean_of, part_index, part_values, weights_of
from crumb_tasks.scoring.matching import Rules, match
from crumb_tasks.scoring.result import Coverage, Scores

__all__ = ["CRUMB_MEASURES", "MTEB_MEASURES", "VERSION", "Coverage", "Scores", "score"]

Floats = NDArray[np.float64]
Find = Callable[[Run, Qrels], JudgedRanks]

_OF_NUGGETS: Final = {"Coverage": coverage, "nugget_RR": nugget_reciprocal_rank}

VERSION: Final = 1
"""Raised whenever a run's values change, so that a cached result of the old rules is computed again."""

CRUMB_MEASURES: Final = ("nDCG@10", "nDCG@5", "P@10", "P@5", "R@10", "RR", "R@1000", "R@100", "RR@10")
"""The defaults of CRUMB's evaluator, and of a collection without a card."""
MTEB_MEASURES: Final = tuple(
    f"{kernel}@{cutoff}"
    for kernel in ("nDCG", "AP", "R", "P", "RR", "Success")
    for cutoff in (1, 3, 5, 10, 20, 100, 1000)
)
"""What MTEB's standard score dictionary holds: ndcg, map, recall, precision, mrr and hit_rate at its cutoffs."""


def score(
    run: Run | Mapping[str, Mapping[str, object]],
    collection: Collection,
    task: TaskCard | None = None,
    measures: Sequence[str] | None = None,
    *,
    max_passage: Literal["auto", "on", "off"] = "auto",
    depth: int | None = None,
) -> Scores:
    """Score a run.

    The mean is over the collection's judged queries (or, where the card says so, first over those of a part and then
    over the parts); one that the run lacks counts 0. Queries without judgements and,
    where the card says so, those whose judgements are all zero are left out and counted.

    Args:
        run: Rankings; also ``{query id: {document id: score}}``. It is not changed.
        collection: What was searched, and its judgements.
        task: The rules; without it: relevant from 1, no MaxP, all-zero queries count 0, CRUMB's nine measures.
        measures: Notation of ir_measures, such as ``nDCG@10``; by default the task's.
        max_passage: ``auto`` follows the card. ``on`` is refused where labels are not those of whole documents.
        depth: How deep the search went, where the caller knows: rankings that are shorter are complete. By default the
            longest ranking. A measure that looks deeper has no value, unless some ranking holds all documents that its
            query could retrieve; without a corpus nobody knows how many those are.

    Raises:
        RunError: The run shares no query, or no document, with the collection.
        UsageError: An unknown measure, or one that the collection has no data for.
        MissingExtraError: A measure needs a tool that is not installed.
        DataError: No query of the collection is judged.
    """
    rules = Rules.of(task)
    wanted = _read_measures(task, measures)
    _refuse_unsupported(wanted, collection)
    ranked, find = _read_run(run, collection, rules, wanted)
    matched = match(ranked, collection, rules, max_passage=max_passage, depth=depth)
    per_query = _evaluate(wanted, matched.run, collection, rules, find)
    flagged = {measure.name: reason for measure in wanted if (reason := too_deep(measure, matched.coverage))}
    parts = part_index(matched.run.query_ids, collection.query_labels, rules.mean_over)
    means = {name: mean_of(values, parts) for name, values in per_query.items()}
    extras: dict[str, float] = {}
    if collection.groups:
        ranks = JudgedRanks.find(matched.run, collection.graded.select(matched.run.query_ids))
        robustness, at_10 = group_values(wanted, ranks, matched.run.query_ids, collection.groups)
        means |= robustness
        if not too_deep(parse_measure("Robustness@10"), matched.coverage):
            extras |= at_10
    if rules.is_choice:
        extras |= {name: means[name] for name in ("accuracy", "accuracy_argmax")}
    summary = {measure.name: means[measure.name] for measure in wanted if measure.name not in flagged}
    of_parts = {name: per_query[name] for name in _own_measures(task, wanted) if name in summary and name in per_query}
    extras |= part_values(of_parts, matched.run.query_ids, collection.query_labels, parts)
    return Scores(
        task=collection.name,
        split=collection.split,
        measures=wanted,
        query_ids=matched.run.query_ids,
        per_query=per_query,
        summary=summary,
        extras=extras,
        flagged=flagged,
        coverage=matched.coverage,
        notes=(*matched.notes, *depth_notes(tuple(flagged), matched.coverage)),
        weights=weights_of(parts),
    )


def _read_run(
    run: Run | Mapping[str, Mapping[str, Any]], collection: Collection, rules: Rules, measures: Sequence[Measure]
) -> tuple[Run, Find]:
    """Return the run, and what finds the places of judged documents in it."""
    if isinstance(run, Run):
        return run, JudgedRanks.find
    if dictionaries.suffice(collection, rules, measures) and (lengths := dictionaries.lengths(run)) is not None:
        return lengths, partial(dictionaries.judged_ranks, run)
    return Run.from_dict(run), JudgedRanks.find


def _read_measures(task: TaskCard | None, measures: Sequence[str] | None) -> tuple[Measure, ...]:
    if measures is None:
        measures = CRUMB_MEASURES if task is None else (task.main_measure, *task.measures)
    by_name = {measure.name: measure for measure in map(parse_measure, measures)}
    if not by_name:
        raise UsageError("no measure was asked for; name at least one, such as nDCG@10")
    return tuple(by_name.values())


def _own_measures(task: TaskCard | None, wanted: Sequence[Measure]) -> tuple[str, ...]:
    """Return the measures that parts of the queries get as well: a card's own, not MTEB's whole dictionary."""
    own = {measure.name for measure in wanted} if task is None else {task.main_measure, *task.measures}
    return tuple(measure.name for measure in wanted if measure.name in own)


def _refuse_unsupported(measures: Sequence[Measure], collection: Collection) -> None:
    available = {
        "nuggets": bool(collection.nuggets),
        "groups": bool(collection.groups),
        "choices": collection.candidates is not None,
    }
    for measure in measures:
        if measure.needs and not available[measure.needs]:
            raise UsageError(f"{measure.name} needs {measure.needs}, which {collection.name} does not have")


def _evaluate(
    measures: Sequence[Measure], run: Run, collection: Collection, rules: Rules, find: Find
) -> dict[str, Floats]:
    """Return the values of all measures whose unit is a query, in the order of ``measures``."""
    graded = collection.graded.select(run.query_ids)
    binary = collection.qrels["binary"].select(run.query_ids) if "binary" in collection.qrels else None
    ours = [measure for measure in measures if not measure.is_delegated and not measure.needs]
    values = kernels.evaluate(
        ours,
        find(run, graded),
        None if binary is None else find(run, binary),
        relevant_from=rules.relevant_from,
    )
    nuggets = [collection.nuggets.get(query_id, {}) for query_id in run.query_ids] if collection.nuggets else None
    for measure in measures:
        if measure.kernel in _OF_NUGGETS and nuggets is not None and measure.cutoff is not None:
            values[measure.name] = _OF_NUGGETS[measure.kernel](run, nuggets, measure.cutoff)
    if theirs := [measure for measure in measures if measure.is_delegated]:
        values |= delegated.evaluate(theirs, run, graded, binary, relevant_from=rules.relevant_from, nuggets=nuggets)
    if rules.is_choice or any(measure.needs == "choices" for measure in measures):
        values |= choice_values(run, collection, graded, rules.relevant_from)
    in_order = dict.fromkeys(measure.name for measure in measures if measure.name in values)
    return {name: values[name] for name in in_order | dict.fromkeys(values)}
