"""``crumb-tasks score RUN…``: the values that ``mteb run`` would have given, for rankings made elsewhere."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crumb_tasks import __version__
from crumb_tasks.cards import TaskCard
from crumb_tasks.cli._pandas import leave_pandas_out
from crumb_tasks.cli._runs import (
    Collections,
    Scored,
    add_run_options,
    print_notes,
    published_values,
    refuse_shared_input,
    score_file,
    write_output,
)
from crumb_tasks.cli._text import add_command, paragraph, table, visible
from crumb_tasks.errors import RunError
from crumb_tasks.files import refuse_folder

_DESCRIPTION = (
    "Score run files: TREC, JSON lines of CRUMB's evaluator, MTEB's predictions, nested JSON (ranx, BEIR) or Parquet, "
    "plain or compressed with gzip or zstd. Scores decide, ranks in a file are ignored; ties go to the higher document "
    "id, as in trec_eval. The mean is over the task's judged queries: one that a run lacks counts 0. Values stand on "
    "standard output, everything else on standard error."
)


_MOST_PUBLISHED = 5


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``score``."""
    parser = add_command(subparsers, "score", "score run files on a task or on judgements", _DESCRIPTION)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run file; - reads standard input")
    parser.add_argument(
        "--measures",
        metavar="M",
        nargs="+",
        help="measures in ir_measures' notation, such as nDCG@10 R@100 'P(rel=2)@5' (default: the task's)",
    )
    parser.add_argument("--per-query", action="store_true", help="give each query's values as well")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="one JSON object a line: a run, with --per-query also a query"
    )
    form.add_argument("--csv", action="store_true", help="rows of run, task, split, query, measure, value")
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write there instead of standard output")
    add_run_options(parser)


def run(args: argparse.Namespace) -> int:
    """Score all runs; one that cannot be read does not stop the others."""
    leave_pandas_out()
    refuse_folder(args.output)
    refuse_shared_input(args.runs, args.qrels)
    collections = Collections(args.subset)
    measures = None if args.measures is None else [name for part in args.measures for name in _names(part)]
    scored: list[Scored] = []
    code = 0
    for path in args.runs:
        try:
            result = score_file(path, args, collections, measures)
        except RunError as error:
            if len(args.runs) == 1:
                raise
            print(visible(f"crumb-tasks: {error}"), file=sys.stderr)
            code = RunError.exit_code
            continue
        print_notes(path, result.notes)
        if args.per_query and not set(result.scores.per_query) - set(result.scores.flagged):
            print_notes(path, ["--per-query: no measure that was asked for has values of single queries"])
        scored.append(result)
    text = as_json(scored, per_query=args.per_query) if args.json else None
    if text is None:
        text = as_csv(scored, per_query=args.per_query) if args.csv else as_text(scored, per_query=args.per_query)
    write_output(text, args.output)
    return code


def _names(part: str) -> list[str]:
    """Split ``nDCG@10,R@100`` but not ``nDCG(dcg='log2',judged_only=True)@10``."""
    names, depth, start = [], 0, 0
    for at, character in enumerate(part):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            names.append(part[start:at])
            start = at + 1
    return [name for name in (*names, part[start:]) if name.strip()]


def as_json(scored: Sequence[Scored], *, per_query: bool) -> str:
    """Return one object a line: per query first, then the run with ``query_id`` null."""
    lines = []
    for result in scored:
        lines += [_dump(row) for row in _query_objects(result)] if per_query else []
        lines.append(_dump(_run_object(result)))
    return "".join(f"{line}\n" for line in lines)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _query_objects(result: Scored) -> Iterator[dict[str, Any]]:
    scores = result.scores
    shown = [name for name in scores.per_query if name not in scores.flagged]
    if not shown:
        return
    columns = [scores.per_query[name].tolist() for name in shown]
    for query_id, *values in zip(scores.query_ids, *columns, strict=True):
        yield {
            "run": result.name,
            "task": scores.task,
            "split": scores.split,
            "query_id": query_id,
            "measures": dict(zip(shown, values, strict=True)),
        }


def _run_object(result: Scored) -> dict[str, Any]:
    scores = result.scores
    return {
        "run": result.name,
        "task": scores.task,
        "split": scores.split,
        "query_id": None,
        "measures": dict(scores.summary),
        "extras": dict(scores.extras),
        "no_value": dict(scores.flagged),
        "coverage": {**asdict(scores.coverage), "n_omitted": scores.coverage.n_omitted},
        "rules": rules(result),
        "published": published_values(result.target, [*scores.summary, *scores.extras]),
        "file": {"format": result.file.format, "sha256": result.file.sha256, "system": result.file.system},
        "notes": list(result.notes),
        "crumb_tasks": __version__,
    }


def as_csv(scored: Sequence[Scored], *, per_query: bool) -> str:
    """Return rows of run, task, split, query (empty: all of them), measure, value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("run", "task", "split", "query_id", "measure", "value"))
    for result in scored:
        scores = result.scores
        head = (result.name, scores.task, scores.split)
        if per_query:
            for row in _query_objects(result):
                writer.writerows((*head, row["query_id"], name, repr(value)) for name, value in row["measures"].items())
        writer.writerows((*head, "", name, repr(value)) for name, value in {**scores.summary, **scores.extras}.items())
    return text.getvalue()


def as_text(scored: Sequence[Scored], *, per_query: bool) -> str:
    """Return tables for a person, one a task and split."""
    groups: dict[tuple[str, str], list[Scored]] = {}
    for result in scored:
        groups.setdefault((result.scores.task, result.scores.split), []).append(result)
    return "\n".join(
        "".join(f"{line}\n" for line in _group_text(group, per_query=per_query)) for group in groups.values()
    )


def _group_text(group: Sequence[Scored], *, per_query: bool) -> Iterator[str]:
    first = group[0]
    yield f"{first.scores.task} ({first.scores.split})"
    if per_query:
        for result in group:
            yield ""
            yield from _per_query_text(result)
        yield ""
    names = list(dict.fromkeys(name for result in group for name in _shown(result)))
    rows = [(result.name, *(_cell(result, name) for name in names)) for result in group]
    if len(group) == 1:
        yield table(("measure", "value"), [(name, _cell(first, name)) for name in names])
    else:
        yield table(("run", *names), rows)
    yield ""
    for result in group:
        label = "queries" if len(group) == 1 else result.name
        yield paragraph(label, coverage_line(result), indent=max(12, len(label) + 2))
    yield paragraph("scored by", "; ".join(rules(first).values()), indent=12)
    yield from published_lines(published_values(first.target, names), first.scores.measures[0].name)


def published_lines(values: Sequence[Mapping[str, Any]], main: str) -> Iterator[str]:
    """Yield published values as references; of many those of the measure ``main``, and of these the first."""
    if len(values) > _MOST_PUBLISHED:
        values = [value for value in values if value["measure"] == main] or values
    for value in values[:_MOST_PUBLISHED]:
        setting = f", {value['setting']}" if value["setting"] else ""
        doubt = "" if value["verified"] else "; secondary source"
        yield paragraph(
            "published",
            f"{value['system']}: {value['measure']} {value['value']:g}{setting} ({value['source']}{doubt})",
            indent=12,
        )
    if len(values) > _MOST_PUBLISHED:
        yield f"{'':12}and {len(values) - _MOST_PUBLISHED} more; --json has them all"


def _shown(result: Scored) -> list[str]:
    scores = result.scores
    return [
        *(measure.name for measure in scores.measures),
        *(name for name in scores.extras if name not in scores.summary),
    ]


def _cell(result: Scored, name: str) -> str:
    scores = result.scores
    if name in scores.flagged:
        return f"none (depth {scores.coverage.depth})"
    value = scores.summary.get(name, scores.extras.get(name))
    if value is None:
        return ""
    return f"{int(value)}" if name.startswith("n_") else f"{value:.4f}"


def _per_query_text(result: Scored) -> Iterator[str]:
    scores = result.scores
    shown = [name for name in scores.per_query if name not in scores.flagged]
    columns = [scores.per_query[name].tolist() for name in shown]
    rows = [
        (visible(query_id), *(f"{value:.4f}" for value in values))
        for query_id, *values in zip(scores.query_ids, *columns, strict=True)
    ]
    yield result.name
    yield table(("query", *shown), rows) if shown else "no values of single queries"


def coverage_line(result: Scored) -> str:
    """Return how much of the collection the run answers."""
    found = result.scores.coverage
    parts = [f"{found.n_queries - found.n_missing} of {found.n_queries} judged queries answered"]
    parts += [f"{found.n_missing} missing (count 0)"] if found.n_missing else []
    parts += [f"{found.n_omitted} left out of the mean"] if found.n_omitted else []
    parts += [f"{found.n_unjudged} of the run not judged (ignored)"] if found.n_unjudged else []
    parts.append(f"depth {found.depth}")
    parts += [f"{found.n_unknown_documents} unknown documents"] if found.n_unknown_documents else []
    parts += [f"keyed by {found.keyed_by}"] if found.keyed_by else []
    return ", ".join(parts)


def rules(result: Scored) -> dict[str, str]:
    """Return how the values were made: gain, threshold, aggregation, zero rules."""
    card = result.target.card
    found = {
        "gain": "exponential gain where a measure says exp, else linear",
        "relevant": _relevant(card, result),
        "aggregation": _aggregation(result),
        "zero": "queries with only zero judgements are left out"
        if card is not None and card.all_zero == "exclude"
        else "queries with only zero judgements count 0",
        "mean": "mean over judged queries",
    }
    if not any("exp" in name for name in result.scores.summary):
        found["gain"] = "linear gain"
    return found


def _relevant(card: TaskCard | None, result: Scored) -> str:
    if "binary" in result.collection.qrels:
        return "P, R, RR and their like from the task's own binary judgements"
    return f"relevant from grade {1 if card is None else card.relevant_from}"


def _aggregation(result: Scored) -> str:
    if not result.scores.coverage.keyed_by:
        return "documents as ranked"
    return "documents stand where their best passage stands (MaxP)"
