"""The options of ``crumb-tasks run`` that measure what a result costs, and the table of it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb_tasks.cli._text import table
from crumb_tasks.errors import UsageError

if TYPE_CHECKING:
    from mteb.models import ModelMeta

    from crumb_tasks.cost import Cost, Quantity
    from crumb_tasks.running.cache import WholeFilesCache
    from crumb_tasks.running.condition import Condition
    from crumb_tasks.running.costs import CostMeter
    from crumb_tasks.running.plan import Plan

_QUERIES = 100


def add_cost_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    costs = parser.add_argument_group("costs", "kept beside each result, and shown by crumb-tasks report")
    costs.add_argument(
        "--cost",
        action="store_true",
        help="measure what a result costs: queries one by one and in batches, encoding, memory; a cached result whose "
        "cost was not measured, or with fewer queries than --cost-queries asks for, is evaluated again",
    )
    costs.add_argument(
        "--cost-queries", type=int, metavar="N", help=f"queries that are asked one by one (default: {_QUERIES})"
    )
    costs.add_argument("--price-per-hour", type=float, metavar="AMOUNT", help="what the machine costs, in any currency")
    costs.add_argument(
        "--price-per-million-tokens", type=float, metavar="AMOUNT", help="what reading tokens costs, instead"
    )


def refuse_cost_contradictions(args: argparse.Namespace) -> None:
    """Check the options.

    Raises:
        UsageError: One is given without ``--cost``, or is out of range.
    """
    for name in ("cost_queries", "price_per_hour", "price_per_million_tokens"):
        if getattr(args, name) is not None and not args.cost:
            raise UsageError(f"--{name.replace('_', '-')} belongs to --cost, which measures")
    if args.cost_queries is not None and args.cost_queries < 1:
        raise UsageError(f"--cost-queries must be 1 or more, not {args.cost_queries}")


def cost_meter(
    args: argparse.Namespace, plan: Plan, cache: WholeFilesCache, meta: ModelMeta, condition: Condition
) -> CostMeter | None:
    """Return what measures, ``None`` without ``--cost``; what has no cost yet joins what is to be done."""
    if not args.cost:
        return None
    from crumb_tasks.cost import Price
    from crumb_tasks.running.costs import CostMeter, CostSettings, at_price, without_cost

    settings = CostSettings(
        n_queries=args.cost_queries or _QUERIES,
        batch_size=args.batch_size or 32,
        price=Price(args.price_per_hour, args.price_per_million_tokens),
    )
    folder = cache.folder(meta.model_copy(update={"experiment_kwargs": condition.experiment or None}))
    without_cost(plan, folder, args.cost_queries)
    at_price(plan, folder, settings.price)
    return CostMeter(settings)


def print_costs(plan: Plan, folder: Path) -> None:
    """Print one table for each axis, and why what is missing is missing."""
    from crumb_tasks.cost import AXES, QUANTITIES, read_cost

    costs = {
        (unit.name, part.removeprefix("default/")): cost
        for unit in plan.units
        for part, cost in read_cost(folder, unit.name).items()
        if part.rpartition("/")[2] in unit.task.eval_splits
    }
    if not costs:
        return
    reasons: dict[str, list[str]] = {}
    for axis in AXES:
        keys = [key for key, kind in QUANTITIES.items() if kind.axis == axis.key]
        print(f"\n{axis.title}: paid {axis.recurs}")
        shown = [key for key in keys if any(cost[key].value is not None for cost in costs.values())]
        head = ["task", "split", *(_heading(key) for key in shown)]
        if shown:
            rows = [[*name, *(_shown(key, cost[key]) for key in shown)] for name, cost in costs.items()]
            print(table(head, rows))
        for key in keys:
            for reason in dict.fromkeys(cost[key].reason for cost in costs.values() if cost[key].reason):
                reasons.setdefault(reason, []).append(key)
    if reasons:
        print("\nnot known:")
        for reason, missing in reasons.items():
            print(f"  {', '.join(missing)}: {reason}")
    print()
    for line in dict.fromkeys(map(_measured_on, costs.values())):
        print(line)
    print("the five axes are a reading of the lecture and are never added up")


def _measured_on(cost: Cost) -> str:
    machine, how = cost.machine, cost.how
    return (
        f"measured on {machine.get('processors')} x {machine.get('processor')}, {machine.get('threads')} threads, "
        f"{load_of(machine)}; {how.get('single_queries')} single queries after {how.get('warm_up_queries')} to warm "
        f"up, then batches of {how.get('batch_size')} (their median, and lowest to highest)"
    )


def load_of(machine: Mapping[str, Any]) -> str:
    """Return the load of a machine's record in words; what the system does not tell is no zero."""
    load = machine.get("load")
    return "load not known" if load is None else f"load {load:.1f}"


def _heading(key: str) -> str:
    return key.replace("_per_second", "/s").replace("_", " ")


def _shown(key: str, quantity: Quantity) -> str:
    if quantity.value is None:
        return "-"
    text = amount(key, quantity.value)
    if quantity.spread is not None and quantity.spread[0] != quantity.spread[1]:
        text += f" ({amount(key, quantity.spread[0])} to {amount(key, quantity.spread[1])})"
    return text


def amount(key: str, value: float) -> str:
    """Return a value as a table shows it; bytes in units that can be read."""
    if key.endswith("bytes"):
        for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if value >= size:
                return f"{value / size:.3g} {unit}"
        return f"{value:.0f} B"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"
