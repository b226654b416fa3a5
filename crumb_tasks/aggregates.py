"""The value of an aggregate: the one function that aggregate task, benchmark, report and leaderboard call.

It refuses rather than guesses: a mean over the members that happen to be there is no mean of the aggregate, and a
result that stands there twice counts once too often.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from crumb_tasks.aggregators import Reduced, reduce_nested
from crumb_tasks.cards import AggregateCard
from crumb_tasks.errors import AggregateError
from crumb_tasks.measures import mteb_key, parse_measure


def aggregate_key(card: AggregateCard) -> str:
    """Return the key under which the aggregate's value stands, MTEB's of its measure, such as ``ndcg_at_10``."""
    return card.key or mteb_key(parse_measure(card.measure))


def member_key(card: AggregateCard, task: str) -> str:
    """Return the key of a member's value; a dot goes into what stands below a key."""
    return card.keys.get(task) or aggregate_key(card)


def value_below(scores: Mapping[str, Any], key: str) -> Any:
    """Return what stands under ``key`` in a score dictionary; a dot goes one level down.

    Raises:
        KeyError: Nothing does.
    """
    if key in scores:
        return scores[key]
    outer, _, inner = key.partition(".")
    return value_below(scores[outer], inner) if inner else scores[key]


def aggregate_value(card: AggregateCard, value_by_task: Mapping[str, float | None]) -> Reduced:
    """Reduce the members' values as the card says.

    Args:
        card: The aggregate.
        value_by_task: For each member its value of ``card.measure``, from 0 to 1; ``None`` and NaN are missing values.

    Raises:
        AggregateError: A member is missing, a task is no member, or a value is on another scale; the message names it.
    """
    known = {name: None if value is None or math.isnan(value) else value for name, value in value_by_task.items()}
    try:
        return reduce_nested(known, card.reduction)
    except AggregateError as error:
        raise AggregateError(f"{card.name} has no value: {error}") from error


def refuse_doubled(card: AggregateCard, names: Iterable[str]) -> None:
    """Check that no task stands in ``names`` twice.

    Raises:
        AggregateError: One does.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise AggregateError(f"{card.name}: there are two results of '{name}'; a task counts once")
        seen.add(name)


def refusal(card: AggregateCard, task: str, revision: str | None, *, expected: str | None = None) -> str | None:
    """Return why a member's result may not enter, or ``None`` when it may.

    Args:
        card: The aggregate.
        task: The member.
        revision: The dataset revision of its result.
        expected: The revision that the member reads now, where a difference makes the result a stale one.
    """
    for refused in card.refused:
        if refused.task == task and refused.revision == revision:
            return f"the result of '{task}' is on revision {revision}: {refused.reason}"
    if expected is not None and revision != expected:
        return (
            f"the result of '{task}' is on revision {revision} but the task now reads {expected}; "
            "evaluate it again with --overwrite-strategy always"
        )
    return None
