"""``crumb-tasks export TASK``: a collection for other tools."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crumb_tasks.cards import find_aggregate, find_task
from crumb_tasks.cli._text import add_command, add_data_option
from crumb_tasks.errors import UsageError


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``export``."""
    parser = add_command(
        subparsers,
        "export",
        "write a task's corpus, queries and judgements for other tools",
        "Write a task's collection as TREC files (topics.tsv, qrels.txt, corpus/corpus.jsonl) for Anserini, PyTerrier "
        "and ir_measures, or as a BEIR folder (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv). Prints the files.",
    )
    parser.add_argument("task", metavar="TASK", help="a task of this package")
    parser.add_argument("--format", choices=("trec", "beir"), required=True, help="what to write")
    parser.add_argument("--output", metavar="DIR", type=Path, required=True, help="folder, made when it is missing")
    parser.add_argument("--split", metavar="SPLIT", help="the split (default: the task's first)")
    add_data_option(parser)


def run(args: argparse.Namespace) -> int:
    """Write the files and print their paths."""
    from crumb_tasks.exporting import export
    from crumb_tasks.loaders import load_collection

    if (aggregate := find_aggregate(args.task)) is not None:
        members = ", ".join(aggregate.task_names)
        raise UsageError(
            f"{args.task} is an aggregate and has no data of its own; export one of its members: {members}"
        )
    task = find_task(args.task)
    for path in export(load_collection(task, args.split), task, args.format, args.output):
        print(path)
    return 0
