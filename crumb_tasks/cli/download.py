"""``crumb-tasks download NAME…``: get data before anything needs them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from crumb_tasks.cli._text import add_command


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``download``."""
    parser = add_command(
        subparsers,
        "download",
        "get the files of tasks ahead of a run",
        "Get each file that the tasks need, at the revision of their cards, and print where it lies. A file that "
        "cannot be had does not stop the others; then the exit code is 1. Gated data need a login (hf auth login).",
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="tasks, aggregates, benchmarks or cards")
    parser.add_argument(
        "--split",
        metavar="SPLIT",
        action="append",
        dest="splits",
        help="only this split; repeatable (default: all)",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="fill the data root DIR in the upstream repositories' layout (default: the cache of the Hub's client)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the path of each file; 1 when one could not be had."""
    from crumb_tasks.downloading import download

    n_failed = 0
    for got in download(args.names, args.data, splits=args.splits):
        if got.path is None:
            n_failed += 1
            print(f"crumb-tasks: {got.problem}", file=sys.stderr)
        else:
            print(got.path, flush=True)
    return 1 if n_failed else 0
