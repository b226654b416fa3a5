"""``crumb-tasks report``: rankings from MTEB's result files and from run files, as a page, a table or data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb_tasks.cli._report_runs import score_runs
from crumb_tasks.cli._text import add_command, add_data_option, visible
from crumb_tasks.errors import CrumbTasksError, DataError, UsageError, did_you_mean

if TYPE_CHECKING:
    from crumb_tasks.collection import Collection
    from crumb_tasks.report import Backings, Ranking, Results, Skipped, System, TaskViews

_DESCRIPTION = (
    "Rank the models whose result files lie in a folder, by the benchmark's own aggregate, computed again from its "
    "members' results: a stored aggregate is never believed, and a model that lacks a member has no rank. Published "
    "values stand beside the model only in the setting that is MTEB's for it. Where results of crumb-tasks run or run "
    "files give values per query, intervals and what cannot be told apart stand there too. Files that cannot be read "
    "are named on standard error and left out."
)
_MOST_SKIPPED = 10
_PAGE = ".html"
_MOST_VIEWED = 3


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``report``."""
    parser = add_command(subparsers, "report", "rank models from MTEB's result files", _DESCRIPTION)
    parser.add_argument(
        "--results",
        metavar="DIR",
        type=Path,
        help="folder with result files, however deep: MTEB's cache, its results repository, one model's folder",
    )
    parser.add_argument(
        "--runs",
        metavar="[NAME=]FILE",
        nargs="+",
        default=[],
        help="run files in any format that score reads, or folders of them, named after tasks; NAME is the system's "
        "(default: as the file says, else the folder's)",
    )
    parser.add_argument(
        "--benchmark",
        metavar="NAME",
        action="append",
        help="benchmark, aggregate or task, as in 'RAR-b (geometric)'; may be given again (default: all benchmarks "
        "that have results)",
    )
    parser.add_argument("--split", metavar="SPLIT", help="split of the results (default: the aggregate's first)")
    parser.add_argument(
        "--models",
        metavar="NAME",
        nargs="+",
        help="models that have colours in the page's charts and whose queries it shows (default: the best)",
    )
    parser.add_argument(
        "--queries",
        metavar="N",
        type=int,
        default=3,
        help="how many queries of each task the page shows where runs and data are there (default: %(default)s)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="write there: .html (a page), .json (everything), .csv (one ranking) or .md (default: Markdown on "
        "standard output)",
    )
    add_data_option(parser)


def run(args: argparse.Namespace) -> int:
    """Write the rankings."""
    from crumb_tasks.files import output
    from crumb_tasks.report import RENDERERS, Content, evidence_of, rank, read_costs, to_html, with_costs, with_tests

    suffix = ".md" if args.output is None else args.output.suffix.lower()
    if suffix not in (known := (_PAGE, *RENDERERS)):
        raise UsageError(f"{args.output}: cannot tell the form from the name; it ends in {', '.join(known)}")
    if args.queries < 0:
        raise UsageError(f"--queries {args.queries} is negative; 0 shows none")
    if args.results is None and not args.runs:
        raise UsageError("the following arguments are required: --results, --runs, or both")
    names, results, backings, collections = _read(args)
    print_skipped(results.skipped, most=None if suffix == ".csv" else _MOST_SKIPPED)  # CSV has no place for them
    rankings = [ranking for name in names if (ranking := rank(name, results, args.split)).rows]
    if not rankings:
        wanted = ", ".join(names) or f"a benchmark with split '{args.split}'"
        raise DataError(
            f"{args.results or 'the runs'} holds no readable result of {wanted}; files are named after tasks, as "
            "HellaSwag.json"
        )
    rankings = [
        with_tests(ranking, evidence_of(backings.get(ranking.split, {}), ranking.aggregate.measure))
        for ranking in rankings
    ]
    if args.results is not None:
        rankings = [with_costs(ranking, read_costs(args.results, results, ranking.split)) for ranking in rankings]
    chosen = _chosen(args.models, rankings)
    if suffix == _PAGE:
        views, notes = _views(rankings, backings, collections, chosen, args.queries)
        text = to_html(Content(rankings, results.skipped, views, notes, chosen))
    else:
        text = RENDERERS[suffix](rankings, results.skipped)
    if args.output is None:
        sys.stdout.write(text)
        return 0
    with output(args.output) as file:
        file.write(text.encode("utf-8"))
    return 0


def _read(
    args: argparse.Namespace,
) -> tuple[list[str], Results, dict[str, Backings], dict[tuple[str, str], Collection]]:
    """Return which benchmarks to rank, all results, what lies behind them by split, and the collections of runs."""
    from crumb_tasks.report import (
        Results,
        find_aggregate_of,
        ranked_benchmarks,
        read_backings,
        read_results,
        tasks_of,
        tasks_with_subsets,
        with_runs,
    )

    names = list(dict.fromkeys(args.benchmark or ranked_benchmarks(args.split)))
    aggregates = [find_aggregate_of(name) for name in names]
    tasks = {task for card in aggregates for task in tasks_of(card)}
    with_subsets = {task for card in aggregates for task in tasks_with_subsets(card)}
    results = Results({}, ()) if args.results is None else read_results(args.results, tasks, with_subsets)
    backings: dict[str, Backings] = {}
    if args.results is not None:
        splits = {args.split} if args.split else {card.splits[0] for card in aggregates}
        backings = {split: read_backings(args.results, results, split) for split in sorted(splits)}
    runs = score_runs(args.runs, args.split)
    if foreign := next((entry for entry in runs if entry.task.name not in tasks), None):
        raise UsageError(
            f"{foreign.path} is a run of {foreign.task.name}, which none of the rankings has; name one that "
            f"does, as in --benchmark {foreign.task.name}"
        )
    for split in sorted({entry.scores.split for entry in runs}):
        of_split = [entry for entry in runs if entry.scores.split == split]
        results, backings[split] = with_runs(results, backings.get(split, {}), of_split)
    collections = {(entry.task.name, entry.scores.split): entry.collection for entry in runs}
    return names, results, backings, collections


def _chosen(models: Sequence[str] | None, rankings: Sequence[Ranking]) -> dict[str, list[System]]:
    """Return for each benchmark the systems that were asked for; every name must stand in one of the rankings."""
    from crumb_tasks.report.charts import MOST_MARKED

    if not models:
        return {}
    known = {name for ranking in rankings for row in ranking.rows for name in (row.system.model, row.system.label)}
    for model in models:
        if model not in known:
            raise UsageError(f"--models: no results of '{model}'{did_you_mean(model, known)}")
    found = {
        ranking.benchmark: [row.system for row in ranking.rows if {row.system.model, row.system.label} & set(models)]
        for ranking in rankings
    }
    for benchmark, systems in found.items():
        if len(systems) > MOST_MARKED:
            raise UsageError(
                f"--models chooses {len(systems)} rows of {benchmark}, and the charts have {MOST_MARKED} colours; "
                "name fewer, with their condition where one is meant, as in 'model (instructions none)'"
            )
    return {benchmark: systems for benchmark, systems in found.items() if systems}


def _views(
    rankings: Sequence[Ranking],
    backings: dict[str, Backings],
    collections: dict[tuple[str, str], Collection],
    chosen: dict[str, list[System]],
    n_queries: int,
) -> tuple[dict[str, list[TaskViews]], list[str]]:
    """Return the queries that are shown of each benchmark, and why there are none where runs would be there."""
    views: dict[str, list[TaskViews]] = {}
    notes: list[str] = []
    for ranking in rankings if n_queries else ():
        systems = chosen.get(ranking.benchmark) or [row.system for row in ranking.rows]
        behind = backings.get(ranking.split, {})
        for task in ranking.members:
            of_task = {system: by_task[task] for system in systems if task in (by_task := behind.get(system, {}))}
            readers = {system: backing.read_run for system, backing in of_task.items() if backing.read_run is not None}
            if not readers:
                continue
            try:
                shown = dict(list(readers.items())[: len(systems) if chosen else _MOST_VIEWED])
                found = _view(task, ranking.split, shown, collections, n_queries)
            except CrumbTasksError as error:
                notes.append(f"No queries of {task} are shown: {error}")
                continue
            views.setdefault(ranking.benchmark, []).append(found)
    return views, notes


def _view(
    task: str,
    split: str,
    readers: dict[System, Any],
    collections: dict[tuple[str, str], Collection],
    n_queries: int,
) -> TaskViews:
    from crumb_tasks.cards import find_task
    from crumb_tasks.loaders import load_collection
    from crumb_tasks.report import view_queries

    card = find_task(task)
    if (task, split) not in collections:
        collections[task, split] = load_collection(card, split)
    runs = {system.label: read() for system, read in readers.items()}
    return view_queries(card, collections[task, split], runs, n_queries)


def print_skipped(skipped: Sequence[Skipped], most: int | None = _MOST_SKIPPED) -> None:
    """Name the files that were left out on standard error; of many the first, all where ``most`` is ``None``."""
    for entry in skipped[:most]:
        print(visible(f"left out: {entry.path}: {entry.reason}"), file=sys.stderr)
    if most is not None and len(skipped) > most:
        print(f"left out: {len(skipped) - most} more, which the report lists", file=sys.stderr)
