"""``crumb-tasks validate NAME…``: do the data keep what the cards promise."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from crumb_tasks.cards import AggregateCard, find_aggregate, find_benchmark, iter_tasks
from crumb_tasks.cli._text import add_command, add_data_option
from crumb_tasks.errors import CardError

if TYPE_CHECKING:
    from crumb_tasks.checks import Report


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``validate``."""
    parser = add_command(
        subparsers,
        "validate",
        "check tasks' data against their cards, without a model",
        "Load the data of tasks and report what breaks a promise of the card (a finding, exit code 1) and what is "
        "worth knowing (a note): counts, grades, references to nothing, empty and equal texts, ids that look alike, "
        "queries that two splits share. An aggregate's members are looked up in MTEB as well.",
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="tasks, aggregates, benchmarks or cards")
    parser.add_argument(
        "--split",
        metavar="SPLIT",
        action="append",
        dest="splits",
        help="only this split; repeatable (default: all)",
    )
    parser.add_argument("--no-text", action="store_true", help="do not compare texts: faster for large corpora")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each task and split")
    add_data_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the reports; 1 when there is a finding."""
    n_findings = 0
    for report in _reports(args.names, args.splits, texts=not args.no_text):
        n_findings += report.n_findings
        print(json.dumps(report.to_dict(), ensure_ascii=False) if args.json else describe(report), flush=True)
    if not args.json:
        print(f"{n_findings or 'no'} {'finding' if n_findings == 1 else 'findings'}")
    return 1 if n_findings else 0


def describe(report: Report) -> str:
    """Return a report for a person."""
    lines = [f"{report.task} {report.split}".rstrip() + (f" ({report.origin})" if report.origin else "")]
    for entry in report.findings:
        news = [example for example in entry.examples if example not in entry.message]
        examples = f" (such as {', '.join(news)})" if news else ""
        lines.append(f"  {entry.severity:<8}{entry.check}: {entry.message}{examples}")
    return "\n".join(lines)


def _reports(names: Sequence[str], splits: Sequence[str] | None, *, texts: bool) -> Iterator[Report]:
    from crumb_tasks.checks import check_task
    from crumb_tasks.downloading import tasks_called

    tasks = tasks_called(names)
    for name in names:
        benchmark = find_benchmark(name)
        if (aggregate := find_aggregate((benchmark and benchmark.aggregate) or name)) is not None:
            yield from _check_members(aggregate)
    for task in tasks:
        yield from check_task(task, splits, texts=texts)


def _check_members(card: AggregateCard) -> Iterator[Report]:
    import mteb.tasks

    from crumb_tasks.aggregate_tasks import aggregate_class
    from crumb_tasks.checks import Report
    from crumb_tasks.loaders._finding import finding
    from crumb_tasks.mteb_compat import task_classes
    from crumb_tasks.tasks import task_class

    known = task_classes(mteb.tasks) | {task.name: task_class(task) for task in iter_tasks()}
    try:
        aggregate_class(card, known)
    except CardError as error:
        yield Report(card.name, "", "", (finding("members", str(error)),))
