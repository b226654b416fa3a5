"""Costs as tables and as objects of a file, for every form of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from crumb_tasks.cost import AXES, QUANTITIES
from crumb_tasks.report.costs import COLUMNS, cost_of, fronts, machines_of, missing_reasons, shown_columns, sources_of
from crumb_tasks.report.ranking import Ranking
from crumb_tasks.report.results import System

_SMALL_BYTES: Final = 1e5
"""Below that, megabytes with one decimal would be none."""


@dataclass(frozen=True)
class CostRow:
    """One system.

    Attributes:
        system: Which.
        cells: A text for each heading; a dash is not known.
        machines: Numbers of the machines that it was measured on.
        source: Where the values are from.
    """

    system: System
    cells: tuple[str, ...]
    machines: str
    source: str


@dataclass(frozen=True)
class CostTable:
    """The costs of a ranking's systems; without rows where none is known.

    Attributes:
        heads: Of the quantities that some system has.
        rows: In the order of the ranking.
        machines: What machines are, counted from 1.
        missing: Why values are missing: reason → which, and of whom unless all lack it.
    """

    heads: tuple[str, ...]
    rows: tuple[CostRow, ...]
    machines: tuple[str, ...]
    missing: Mapping[str, str]


def cost_table(ranking: Ranking) -> CostTable:
    """Return the costs of a ranking as a table."""
    keys = shown_columns(ranking)
    machines = list(dict.fromkeys(label for system in ranking.costs for label in machines_of(ranking, system)))
    rows = [
        CostRow(
            row.system,
            tuple(shown_cost(key, cost_of(ranking, row.system, key).value) for key in keys),
            ", ".join(f"{machines.index(label) + 1}" for label in machines_of(ranking, row.system)),
            "; ".join(sources_of(ranking, row.system)),
        )
        for row in ranking.rows
        if keys and row.system in ranking.costs
    ]
    reasons = missing_reasons(ranking, COLUMNS) if rows else {}
    return CostTable(
        heads=tuple(map(cost_heading, keys)),
        rows=tuple(rows),
        machines=tuple(machines),
        missing={
            reason: ", ".join(_of_whom(key, systems, len(ranking.costs)) for key, systems in missing.items())
            for reason, missing in reasons.items()
        },
    )


def _of_whom(key: str, systems: Sequence[System], n_systems: int) -> str:
    """Return a quantity's heading, with the systems that lack it where some have it, or lack it for another reason."""
    heading = cost_heading(key)
    return heading if len(systems) == n_systems else f"{heading} ({', '.join(system.label for system in systems)})"


def cost_heading(key: str) -> str:
    """Return the heading of a quantity's column."""
    return key.removesuffix("_bytes").replace("_per_second", "/s").replace("_", " ")


def shown_cost(key: str, value: float | None) -> str:
    """Return a quantity as a table shows it."""
    if value is None:
        return "-"
    if key.endswith("_bytes"):
        return f"{value / 1e6:,.1f} MB" if value >= _SMALL_BYTES else f"{value / 1e3:,.1f} kB"
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def cost_objects(ranking: Ranking, system: System) -> Mapping[str, object]:
    """Return a system's costs for a file: every quantity with its value or the reason, the machine, the source."""
    if system not in ranking.costs:
        return {}
    values = {key: cost_of(ranking, system, key) for key in QUANTITIES}
    return {
        "sources": list(sources_of(ranking, system)),
        "machines": list(machines_of(ranking, system)),
        "axes": {
            axis.key: {
                key: {"value": values[key].value, "unit": kind.unit}
                | ({"reason": values[key].reason} if values[key].reason else {})
                for key, kind in QUANTITIES.items()
                if kind.axis == axis.key
            }
            for axis in AXES
        },
    }


def front_objects(ranking: Ranking) -> dict[str, Any]:
    """Return which systems are on the front of quality against each axis; nothing where no cost is known."""
    found = [
        {
            "axis": front.axis.key,
            "quantity": front.axis.headline,
            "paid": front.axis.recurs,
            "machine": front.machine or None,
            "models": [{"model": system.model, "condition": system.condition} for system in front.systems],
        }
        for front in fronts(ranking)
    ]
    return {"pareto_fronts": found} if found else {}
