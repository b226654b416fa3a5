"""``crumb-tasks snapshots``: the same questions over two snapshots of their sources."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb_tasks.cli._text import add_command, table
from crumb_tasks.cli.report import print_skipped
from crumb_tasks.errors import UsageError

if TYPE_CHECKING:
    from crumb_tasks.report.snapshots import OnBoth, Snapshots

_FIRST, _SECOND = "StillFreshOct2024", "StillFreshOct2025"
_DESCRIPTION = (
    "Read MTEB's results on two tasks that ask the same questions over two snapshots of their sources: each measure on "
    "both, Kendall's tau-b between the two orders of the systems, and the questions that gained or lost (of results of "
    "crumb-tasks run, which keeps values per question). Questions that only one snapshot judges are counted and are in "
    "no change."
)


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``snapshots``."""
    parser = add_command(subparsers, "snapshots", "compare two snapshots of the same sources", _DESCRIPTION)
    parser.add_argument(
        "--results", metavar="DIR", type=Path, required=True, help="folder with result files, however deep"
    )
    parser.add_argument("--first", metavar="TASK", default=_FIRST, help="the earlier one (default: %(default)s)")
    parser.add_argument("--second", metavar="TASK", default=_SECOND, help="the later one (default: %(default)s)")
    parser.add_argument(
        "--most-moved", metavar="N", type=int, default=5, help="how many questions to name (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every question that moved")


def run(args: argparse.Namespace) -> int:
    """Print the comparison."""
    from crumb_tasks.cards import find_task
    from crumb_tasks.report.snapshots import compare_snapshots

    if args.most_moved < 0:
        raise UsageError(f"--most-moved {args.most_moved} is negative; 0 names no question")
    first, second = find_task(args.first), find_task(args.second)
    if first.name == second.name:
        raise UsageError(f"--first and --second are both {first.name}; name two snapshots")
    found, results = compare_snapshots(first, second, args.results)
    print_skipped(results.skipped)
    print(_as_json(found) if args.json else "\n".join(_as_text(found, args.most_moved)))
    return 0


def _as_json(found: Snapshots) -> str:
    systems = [
        {
            "model": entry.system.model,
            "revision": entry.system.revision,
            "condition": entry.system.condition,
            "values": {
                measure: dict(zip(("first", "second"), pair, strict=True)) for measure, pair in entry.values.items()
            },
            "change": None if entry.change is None else asdict(entry.change),
        }
        for entry in found.systems
    ]
    value = {"first": found.first, "second": found.second, "systems": systems, "tau": dict(found.tau)}
    value["only_one"] = [system.label for system in found.only_one]
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1)


def _as_text(found: Snapshots, most_moved: int) -> Iterator[str]:
    yield f"{found.first} (first) and {found.second} (second), {len(found.systems)} systems with results on both"
    head = ("system", "measure", "first", "second", "change")
    yield table(head, [row for entry in found.systems for row in _rows(entry)])
    yield ""
    for measure, tau in found.tau.items():
        says = "none (less than two systems, or all equal)" if tau is None else f"{tau:.3f}"
        yield f"Kendall's tau by {measure}: {says}"
    for entry in found.systems:
        yield ""
        yield from _changes(entry, most_moved)
    if found.only_one:
        yield f"\nwith a result on one of the two only: {', '.join(system.label for system in found.only_one)}"


def _rows(entry: OnBoth) -> Iterator[tuple[str, ...]]:
    for measure, (one, other) in entry.values.items():
        change = "-" if one is None or other is None else f"{other - one:+.4f}"
        yield (
            entry.system.label,
            measure,
            *("-" if value is None else f"{value:.4f}" for value in (one, other)),
            change,
        )


def _changes(entry: OnBoth, most_moved: int) -> Iterator[str]:
    change = entry.change
    if change is None:
        yield f"{entry.system.label}: no values per question; evaluate it with crumb-tasks run"
        return
    yield (
        f"{entry.system.label}: by {change.measure} {change.n_better} questions better, {change.n_worse} worse, "
        f"{change.n_equal} equal; {change.n_only_first} only in the first snapshot, {change.n_only_second} only in the "
        "second"
    )
    for moved in change.moved[:most_moved]:
        yield f"  {moved.query_id}  {moved.first:.4f} to {moved.second:.4f} ({moved.difference:+.4f})"
