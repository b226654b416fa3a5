"""``crumb-tasks compare RUN RUN…``: is one run better than another by more than luck, and on which queries?"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crumb_tasks.cli._pandas import leave_pandas_out
from crumb_tasks.cli._runs import (
    Collections,
    Scored,
    add_run_options,
    print_notes,
    query_texts,
    refuse_shared_input,
    score_file,
    write_output,
)
from crumb_tasks.cli._text import add_command, paragraph, table, visible
from crumb_tasks.comparison import Comparison, compare
from crumb_tasks.errors import UsageError
from crumb_tasks.files import refuse_folder

_TEXT_LENGTH = 160
_DESCRIPTION = (
    "Score runs on the same queries and compare each pair by one measure: difference of the means with its 95 percent "
    "bootstrap interval, p of a paired two-sided randomisation test (10,000 resamples, the same input always gives the "
    "same p), corrected after Holm over all pairs, and the queries that moved most."
)


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``compare``."""
    parser = add_command(subparsers, "compare", "compare runs query by query", _DESCRIPTION)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="two or more run files")
    parser.add_argument("--measure", metavar="M", help="measure to compare by (default: the task's main measure)")
    parser.add_argument(
        "--most-moved", metavar="N", type=int, default=10, help="how many queries to name (default: %(default)s)"
    )
    parser.add_argument(
        "--plot", metavar="FILE", type=Path, help="draw the difference of each query (.svg, .pdf, .png)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object a line, one for each pair")
    form.add_argument("--csv", action="store_true", help="one row for each pair")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write there instead of standard output")
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Compare."""
    leave_pandas_out()
    if args.most_moved < 0:
        raise UsageError(f"--most-moved {args.most_moved} is negative; 0 names no query")
    if len(set(args.runs)) < max(len(args.runs), 2):
        raise UsageError("compare needs at least two different run files")
    refuse_folder(args.output)
    refuse_shared_input(args.runs, args.qrels)
    refuse_folder(args.plot)
    collections = Collections(args.subset)
    measures = None if args.measure is None else [args.measure]
    scored = [score_file(path, args, collections, measures) for path in args.runs]
    for result in scored:
        print_notes(result.file.path, result.notes)
    measure = args.measure or scored[0].scores.measures[0].name
    found = compare({result.name: result.scores for result in scored}, measure, most_moved=args.most_moved)
    if args.plot is not None:
        draw(scored, found, args.plot)
    texts = query_texts(scored[0].collection)
    if args.json:
        text = "".join(f"{_as_json(scored[0], comparison, texts)}\n" for comparison in found)
    else:
        text = _as_csv(found) if args.csv else "\n".join(_as_text(scored[0], found, texts)) + "\n"
    write_output(text, args.output)
    return 0


def _as_json(result: Scored, comparison: Comparison, texts: dict[str, str]) -> str:
    value = {"task": result.scores.task, "split": result.scores.split, **asdict(comparison)}
    value["moved"] = [
        {**asdict(moved), "difference": moved.difference, "text": texts.get(moved.query_id, "")}
        for moved in comparison.moved
    ]
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _as_csv(found: Sequence[Comparison]) -> str:
    text = io.StringIO()
    names = [name for name in asdict(found[0]) if name != "moved"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([getattr(comparison, name) for name in names] for comparison in found)
    return text.getvalue()


def _as_text(result: Scored, found: Sequence[Comparison], texts: dict[str, str]) -> Iterator[str]:
    yield f"{result.scores.task} ({result.scores.split}), {found[0].measure}, {found[0].n_queries} judged queries"
    head = (
        "first",
        "second",
        "mean",
        "mean",
        "difference",
        "95 % interval",
        "p",
        "p (Holm)",
        "better",
        "worse",
        "equal",
    )
    yield table(head, [_row(comparison) for comparison in found])
    for comparison in found:
        if not comparison.moved:
            yield f"\n{comparison.first} and {comparison.second} do not differ on any query"
            continue
        yield f"\nqueries that moved most from {comparison.first} to {comparison.second}"
        for moved in comparison.moved:
            values = f"{moved.first:.4f} to {moved.second:.4f} ({moved.difference:+.4f})"
            yield f"  {visible(moved.query_id)}  {values}"
            yield paragraph("", _short(texts.get(moved.query_id, "")), indent=4)


def _row(comparison: Comparison) -> tuple[str, ...]:
    return (
        comparison.first,
        comparison.second,
        f"{comparison.mean_first:.4f}",
        f"{comparison.mean_second:.4f}",
        f"{comparison.difference:+.4f}",
        f"{comparison.low:+.4f} to {comparison.high:+.4f}",
        f"{comparison.p_value:.4f}",
        f"{comparison.p_holm:.4f}",
        f"{comparison.n_wins}",
        f"{comparison.n_losses}",
        f"{comparison.n_ties}",
    )


def _short(text: str) -> str:
    line = visible(" ".join(text.split()))
    return line if len(line) <= _TEXT_LENGTH else f"{line[: _TEXT_LENGTH - 1]}…"


def draw(scored: Sequence[Scored], found: Sequence[Comparison], path: Path) -> None:
    """Draw for each pair the difference of each query, sorted.

    Raises:
        MissingExtraError: matplotlib is not installed.
        UsageError: The name's ending tells no format that it writes.
    """
    from crumb_tasks.cli._plots import save_figure

    values = {result.name: result.scores.per_query for result in scored}

    def paint(figure: Any) -> None:
        all_axes = figure.subplots(len(found), squeeze=False)[:, 0]
        for axes, comparison in zip(all_axes, found, strict=True):
            one, other = (values[name][comparison.measure] for name in (comparison.first, comparison.second))
            differences = sorted((other - one).tolist(), reverse=True)
            colours = ["#2a6f97" if value > 0 else "#c44536" for value in differences]
            axes.bar(range(len(differences)), differences, width=1.0, color=colours)
            axes.axhline(comparison.difference, color="black", linewidth=0.8, linestyle="--")
            axes.axhline(0, color="black", linewidth=0.8)
            axes.set_ylabel(f"difference of {comparison.measure}")
            axes.set_xlabel("queries, sorted by difference; dashed: the mean difference")
            axes.set_title(
                f"{comparison.second} against {comparison.first}\n{comparison.n_wins} better, "
                f"{comparison.n_losses} worse, {comparison.n_ties} equal; p (Holm) {comparison.p_holm:.4f}",
                fontsize="medium",
            )

    save_figure(paint, path, height=3.2 * len(found))
