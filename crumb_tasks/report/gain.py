"""What an instruction is worth: RAR-b's second published statistic (arXiv 2404.06347, Figure 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from crumb_tasks.aggregators import arithmetic_mean, reduce_nested
from crumb_tasks.cards import Reduction
from crumb_tasks.errors import AggregateError
from crumb_tasks.report.results import System, Values

_KEY = "instructions"
"""What `crumb-tasks run` calls the condition in MTEB's ``experiment_kwargs``."""


@dataclass(frozen=True)
class Gain:
    """What one system gains.

    Attributes:
        with_instruction: The system that sees the instruction.
        without: The same model, that does not.
        value: The gain.
        n_tasks: Over how many numbers it is a mean.
    """

    with_instruction: System
    without: System
    value: float
    n_tasks: int


def instruction_gain(with_instruction: Values, without: Values, reduction: Reduction) -> tuple[float, int]:
    """Return the mean of ``log2(x_with + 1) - log2(x_without + 1)`` and over how many numbers it is one.

    Args:
        with_instruction: Values of the members, 0 to 1.
        without: The same without the instruction.
        reduction: The aggregate. The numbers are what its top mean is of, as in the paper's table: a group of tasks
            enters once, as its own mean.

    Raises:
        AggregateError: A member is missing.
    """
    gains = []
    for member in reduction.members:
        part = Reduction(members=(member,))
        names = list(part.task_names())
        after, before = (
            reduce_nested({name: values.get(name) for name in names}, part).value
            for values in (with_instruction, without)
        )
        gains.append(math.log2(after + 1) - math.log2(before + 1))
    return arithmetic_mean(gains), len(gains)


def instruction_gains(reduction: Reduction, values_by_system: Mapping[System, Values]) -> tuple[Gain, ...]:
    """Return the gain of every system over the same model, options and all, without instruction.

    The latter is the condition ``none`` of `crumb-tasks run`, else MTEB's own setting where the model ignores
    instructions in it. Systems that lack a member have no gain.
    """
    gains: list[Gain] = []
    for system, values in values_by_system.items():
        without = _without(system, values_by_system)
        if without is None or without == system or _sees_none(system):
            continue
        try:
            value, n_tasks = instruction_gain(values, values_by_system[without], reduction)
        except AggregateError:
            continue
        gains.append(Gain(system, without, value, n_tasks))
    return tuple(sorted(gains, key=lambda gain: -gain.value))


def _without(system: System, known: Mapping[System, Values]) -> System | None:
    others = [other for other in known if _setting(other) == _setting(system)]
    named = [other for other in others if dict(other.experiment).get(_KEY) == "none"]
    return next(iter([*named, *filter(_sees_none, others)]), None)


def _setting(system: System) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Return what two systems must share to differ in the instruction only."""
    return system.model, system.revision, tuple(pair for pair in system.experiment if pair[0] != _KEY)


def _sees_none(system: System) -> bool:
    condition = dict(system.experiment).get(_KEY, "native")
    return condition == "none" or (condition == "native" and system.uses_instructions is False)
