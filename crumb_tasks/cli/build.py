"""``crumb-tasks build NAME``: a collection that no host offers, from raw public files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crumb_tasks.cli._text import add_command, paragraph


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``build``."""
    parser = add_command(
        subparsers,
        "build",
        "make the collection of a task from raw public files",
        "Make a collection that no host offers: NQ320k from the two simplified Natural Questions files, TriviaQANCI "
        "from the unpacked folder of triviaqa-rc. The recipe is the authors', its mistakes included, since they decide "
        "the text of record. Parquet files and a manifest (counts, hashes, recipe) go into the data root. A build that "
        "was interrupted goes on with the same command; memory does not grow with the input.",
    )
    parser.add_argument("name", metavar="NAME", help="NQ320k or TriviaQANCI")
    parser.add_argument(
        "--from", metavar="DIR", type=Path, required=True, dest="raw", help="folder with the raw files, plain or gzip"
    )
    parser.add_argument("--to", metavar="DIR", type=Path, required=True, help="the data root that gets the collection")
    parser.add_argument(
        "--fixed",
        action="store_true",
        help="without the recipe's mistakes: another recipe, and a task of its own (NQ320kFixed, TriviaQANCIFixed)",
    )


def run(args: argparse.Namespace) -> int:
    """Build, and print what came out."""
    from crumb_tasks.builders import build, find_buildable

    task = find_buildable(args.name, is_fixed=args.fixed)
    manifest, folder, was_there = build(task, args.raw, args.to)
    print(f"{folder}{' (was there already)' if was_there else ''}")
    print(paragraph("recipe", f"{manifest.recipe}, version {manifest.version}"))
    for name, count in manifest.counts.items():
        print(paragraph(name.replace("_", " "), str(count), indent=28))
    for text in manifest.notes:
        print(paragraph("note", text))
    print(paragraph("next", f"CRUMB_TASKS_DATA={args.to} crumb-tasks validate {task.name}"))
    return 0
