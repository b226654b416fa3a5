"""``crumb-tasks report``: rankings from MTEB's result files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb_tasks.cli._text import add_command
from crumb_tasks.errors import DataError, UsageError

if TYPE_CHECKING:
    from crumb_tasks.report import Skipped

_DESCRIPTION = (
    "Rank the models whose result files lie in a folder, by the benchmark's own aggregate, computed again from its "
    "members' results: a stored aggregate is never believed, and a model that lacks a member has no rank. Published "
    "values stand beside the model only in the setting that is MTEB's for it. Files that cannot be read are named on "
    "standard error and left out."
)
_MOST_SKIPPED = 10


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``report``."""
    parser = add_command(subparsers, "report", "rank models from MTEB's result files", _DESCRIPTION)
    parser.add_argument(
        "--results",
        metavar="DIR",
        type=Path,
        required=True,
        help="folder with result files, however deep: MTEB's cache, its results repository, one model's folder",
    )
    parser.add_argument(
        "--benchmark",
        metavar="NAME",
        action="append",
        help="benchmark or aggregate, as in 'RAR-b (geometric)'; may be given again (default: all that have results)",
    )
    parser.add_argument("--split", metavar="SPLIT", help="split of the results (default: the aggregate's first)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="write there: .json (everything), .csv (one ranking) or .md (default: Markdown on standard output)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the rankings."""
    from crumb_tasks.report import RENDERERS, find_aggregate_of, rank, ranked_benchmarks, read_results, tasks_of

    suffix = ".md" if args.output is None else args.output.suffix.lower()
    if suffix not in RENDERERS:
        raise UsageError(f"{args.output}: cannot tell the form from the name; it ends in {', '.join(RENDERERS)}")
    names = list(dict.fromkeys(args.benchmark or ranked_benchmarks(args.split)))
    results = read_results(args.results, {task for name in names for task in tasks_of(find_aggregate_of(name))})
    print_skipped(results.skipped)
    rankings = [ranking for name in names if (ranking := rank(name, results, args.split)).rows]
    if not rankings:
        wanted = ", ".join(names) or f"a benchmark with split '{args.split}'"
        raise DataError(
            f"{args.results} holds no readable result of {wanted}; files are named after tasks, as HellaSwag.json"
        )
    text = RENDERERS[suffix](rankings, results.skipped)
    if args.output is None:
        sys.stdout.write(text)
        return 0
    from crumb_tasks.sources import written_whole

    with written_whole(args.output) as file:
        file.write(text.encode("utf-8"))
    return 0


def print_skipped(skipped: Sequence[Skipped]) -> None:
    """Name the files that were left out on standard error; of many the first."""
    for entry in skipped[:_MOST_SKIPPED]:
        print(f"left out: {entry.path}: {entry.reason}", file=sys.stderr)
    if len(skipped) > _MOST_SKIPPED:
        print(f"left out: {len(skipped) - _MOST_SKIPPED} more, which the report lists", file=sys.stderr)
