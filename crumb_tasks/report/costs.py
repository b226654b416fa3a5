"""Costs beside quality: what was measured with results, or what MTEB's phases tell; quality against each axis.

Axes stay apart: a front is of quality and one quantity. Times are compared on one machine only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from crumb_tasks.cost import (
    AXES,
    QUANTITIES,
    Axis,
    Cost,
    Quantity,
    from_phases,
    known,
    machine_label,
    read_cost,
    unknown,
)
from crumb_tasks.report.ranking import Costs, Ranking
from crumb_tasks.report.results import Results, System

_SUBSET: Final = "default"
_OF_ONE_MACHINE: Final = frozenset({"latency", "indexing"})
"""Axes whose quantities depend on the machine."""

COLUMNS: Final = (
    "total_ms_p50",
    "total_ms_p95",
    "batch_queries_per_second",
    "tokens_per_query",
    "reranker_calls_per_query",
    "money_per_1000_queries",
    "encoding_seconds",
    "documents_per_second",
    "index_bytes",
    "peak_process_bytes",
    "parameters",
)
"""Quantities that tables show, where a system has them."""


@dataclass(frozen=True)
class Front:
    """The systems of which none is beaten in both quality and one cost.

    Attributes:
        axis: The axis.
        machine: That all were measured on; empty where the quantity does not depend on one.
        points: Systems with cost (less is better, see `cost_of_front`) and quality.
        systems: Those on the front, cheapest first.
    """

    axis: Axis
    machine: str
    points: tuple[tuple[System, float, float], ...]
    systems: tuple[System, ...]


def read_costs(folder: Path, results: Results, split: str) -> Costs:
    """Return the costs of the results below ``folder`` on a split, by system and task."""
    found: dict[System, dict[str, Cost]] = {}
    for system, by_task in results.by_system.items():
        for task, result in by_task.items():
            file = folder / result.path
            cost = read_cost(file.parent, task).get(f"{_SUBSET}/{split}") or _from_phases(file, split)
            if cost is not None:
                found.setdefault(system, {})[task] = cost
    return found


def _from_phases(file: Path, split: str) -> Cost | None:
    try:
        return from_phases(json.loads(file.read_text(encoding="utf-8-sig")), split)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def with_costs(ranking: Ranking, costs: Costs) -> Ranking:
    """Return ``ranking`` with the costs of its results; those of results that may not enter are left out."""
    kept = {
        system: {task: cost for task, cost in by_task.items() if task in ranking.results.get(system, {})}
        for system, by_task in costs.items()
    }
    return replace(ranking, costs={system: by_task for system, by_task in kept.items() if by_task})


def cost_of(ranking: Ranking, system: System, key: str) -> Quantity:
    """Return a quantity of a system: the mean over the aggregate's members, unknown while one lacks it."""
    by_task = ranking.costs.get(system, {})
    tasks = ranking.aggregate.task_names
    quantities = [by_task[task][key] if task in by_task else unknown("its cost was not measured") for task in tasks]
    values = [quantity.value for quantity in quantities if quantity.value is not None]
    if len(values) == len(tasks) == 1:
        return quantities[0]
    if len(values) == len(tasks):
        return known(sum(values) / len(values))
    reason = next(quantity.reason for quantity in quantities if quantity.reason)
    return unknown(reason if not values else f"{len(values)} of {len(tasks)} members have it; of another: {reason}")


def machines_of(ranking: Ranking, system: System) -> tuple[str, ...]:
    """Return the machines that a system's costs were measured on."""
    found = (machine_label(cost.machine) for cost in ranking.costs.get(system, {}).values())
    return tuple(dict.fromkeys(label for label in found if label))


def sources_of(ranking: Ranking, system: System) -> tuple[str, ...]:
    """Return where a system's costs are from."""
    return tuple(dict.fromkeys(cost.source for cost in ranking.costs.get(system, {}).values()))


def shown_columns(ranking: Ranking) -> list[str]:
    """Return the quantities of `COLUMNS` that some system has."""
    return [key for key in COLUMNS if any(cost_of(ranking, system, key).value is not None for system in ranking.costs)]


def missing_reasons(ranking: Ranking, keys: Sequence[str]) -> dict[str, dict[str, list[System]]]:
    """Return why systems lack quantities of ``keys``: reason → quantity → the systems."""
    found: dict[str, dict[str, list[System]]] = {}
    for system in ranking.costs:
        for key in keys:
            if reason := cost_of(ranking, system, key).reason:
                found.setdefault(reason, {}).setdefault(key, []).append(system)
    return found


def fronts(ranking: Ranking) -> Iterator[Front]:
    """Yield a front for each axis whose headline some ranked system has; on axes of time one for each machine."""
    for axis in AXES:
        by_machine: dict[str, list[tuple[System, float, float]]] = {}
        for row in ranking.rows:
            quantity = cost_of(ranking, row.system, axis.headline)
            if row.value is None or quantity.value is None:
                continue
            machines = machines_of(ranking, row.system) if axis.key in _OF_ONE_MACHINE else ("",)
            if len(machines) == 1 and (cost := cost_of_front(axis, quantity.value)) is not None:
                by_machine.setdefault(machines[0], []).append((row.system, cost, row.value))
        for machine, points in by_machine.items():
            yield Front(axis, machine, tuple(points), tuple(_unbeaten(points)))


def cost_of_front(axis: Axis, value: float) -> float | None:
    """Return the headline of an axis as a cost of which less is better: a rate as milliseconds for one."""
    if not QUANTITIES[axis.headline].higher_is_better:
        return value
    return 1000 / value if value > 0 else None


def front_label(axis: Axis) -> str:
    """Return what `cost_of_front` is, in words."""
    kind = QUANTITIES[axis.headline]
    if kind.higher_is_better:
        return "ms to encode a document"
    return kind.title if kind.unit in kind.title else f"{kind.title}, {kind.unit}"


def _unbeaten(points: list[tuple[System, float, float]]) -> Iterator[System]:
    best: tuple[float, float] | None = None
    for system, cost, quality in sorted(points, key=lambda point: (point[1], -point[2])):
        if best is None or quality > best[1]:
            best = cost, quality
        if (cost, quality) == best:  # systems that are equal in both do not beat each other
            yield system
