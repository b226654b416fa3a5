"""``crumb-tasks list``: every task, aggregate and benchmark that the cards describe."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from crumb_tasks.cards import AggregateCard, BenchmarkCard, Card, TaskCard, read_cards
from crumb_tasks.cli._text import add_command, table

NO_RETRIEVAL = "no retrieval"
"""Mark of a benchmark without a task."""

_LEGEND = (
    "sample: an original sample for trying things out; user data: a stranger cannot download it; schema unseen: the "
    "upstream layout was never checked on real data; no retrieval: nothing to run. crumb-tasks show NAME tells more."
)


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``list``."""
    parser = add_command(
        subparsers,
        "list",
        "list all tasks, aggregates and benchmarks",
        "List all tasks with their splits (queries) and corpus size, then aggregates and benchmarks.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    cards = read_cards()
    if args.json:
        print(json.dumps(describe(cards), ensure_ascii=False, indent=2))
        return 0
    if not cards:
        print("no cards: task_metadata holds none")
        return 0
    rows = [_task_row(task) for card in cards for task in card.tasks]
    rows += [_aggregate_row(aggregate) for card in cards for aggregate in card.aggregates]
    rows += [_benchmark_row(card, entry) for card in cards for entry in card.benchmarks if _is_all_there_is(card)]
    rows += [(card.name, card.name, "-", "-", NO_RETRIEVAL, card.need) for card in cards if card.no_retrieval]
    width = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
    print(table(("NAME", "BENCHMARK", "QUERIES", "CORPUS", "MARKS", "NEED"), rows, width=width))
    benchmarks = [benchmark for card in cards for benchmark in card.benchmarks]
    if benchmarks:
        print("\nFor mteb run -b: " + ", ".join(benchmark.name for benchmark in benchmarks))
    print()
    print(textwrap.fill(_LEGEND, width=100))
    return 0


def marks(entry: TaskCard | AggregateCard) -> tuple[str, ...]:
    """Return what sets ``entry`` apart from a public task with a known layout."""
    found = ["sample"] if entry.sample else []
    if not entry.public and not entry.sample:
        found.append("user data")
    if isinstance(entry, TaskCard) and not entry.schema_verified:
        found.append("schema unseen")
    if isinstance(entry, AggregateCard):
        found.append("aggregate")
    return tuple(found)


def describe(cards: Sequence[Card]) -> dict[str, Any]:
    """Return what ``list --json`` prints."""
    return {
        "tasks": [_task_entry(task) for card in cards for task in card.tasks],
        "aggregates": [_aggregate_entry(aggregate) for card in cards for aggregate in card.aggregates],
        "benchmarks": [_benchmark_entry(benchmark) for card in cards for benchmark in card.benchmarks],
        "no_retrieval": [
            {"name": card.name, "title": card.title, "need": card.need, "reason": card.no_retrieval}
            for card in cards
            if card.no_retrieval
        ],
    }


def _task_row(task: TaskCard) -> tuple[str, ...]:
    expected = task.expected.get(task.default_split)
    size = None if expected is None else expected.passages or expected.documents
    sizes = " ".join(f"{split}:{_number(_queries(task, split))}" for split in task.splits)
    return (task.name, task.benchmark, sizes, _number(size), ", ".join(marks(task)), task.need or task.description)


def _aggregate_row(card: AggregateCard) -> tuple[str, ...]:
    size = f"{len(card.task_names)} tasks"
    return (
        card.name,
        card.benchmark,
        " ".join(card.splits),
        size,
        ", ".join(marks(card)),
        card.need or card.description,
    )


def _is_all_there_is(card: Card) -> bool:
    """Return whether a card's benchmarks are made of MTEB's tasks alone, so that no other row says the need."""
    return not card.tasks and not card.aggregates


def _benchmark_row(card: Card, benchmark: BenchmarkCard) -> tuple[str, ...]:
    size = f"{len(benchmark.tasks)} tasks" if benchmark.tasks else f"a slice of {benchmark.slice_of}"
    return (benchmark.name, card.name, "", size, "benchmark", card.need or benchmark.description)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value}"


def _queries(task: TaskCard, split: str) -> int | None:
    counts = task.expected.get(split)
    return None if counts is None else counts.queries


def _task_entry(task: TaskCard) -> dict[str, Any]:
    counts = {"queries", "documents", "passages", "qrels"}
    sizes = {
        split: task.expected[split].model_dump(include=counts) if split in task.expected else None
        for split in task.splits
    }
    return {
        "name": task.name,
        "benchmark": task.benchmark,
        "title": task.title,
        "need": task.need or task.description,
        "kind": task.kind,
        "main_measure": task.main_measure,
        "splits": sizes,
        "sample": task.sample,
        "public": task.public,
        "schema_verified": task.schema_verified,
        "license": task.license,
    }


def _aggregate_entry(card: AggregateCard) -> dict[str, Any]:
    return {
        "name": card.name,
        "benchmark": card.benchmark,
        "title": card.title,
        "need": card.need or card.description,
        "measure": card.measured,
        "splits": list(card.splits),
        "tasks": list(card.task_names),
        "sample": card.sample,
        "public": card.public,
    }


def _benchmark_entry(card: BenchmarkCard) -> dict[str, Any]:
    return {
        "name": card.name,
        "benchmark": card.benchmark,
        "aliases": list(card.aliases),
        "description": card.description,
        "aggregate": card.aggregate,
        "tasks": list(card.tasks),
        "public": card.public,
    }
