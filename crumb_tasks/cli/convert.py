"""``crumb-tasks convert IN OUT``: a run file in another format."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from crumb_tasks.cli._pandas import leave_pandas_out
from crumb_tasks.cli._runs import add_format_options, print_notes
from crumb_tasks.cli._text import add_command
from crumb_tasks.runfiles import (
    FORMATS,
    Format,
    RunFile,
    format_by_name,
    has_place_for_passages,
    read_run_file,
    write_run,
)


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``convert``."""
    parser = add_command(
        subparsers,
        "convert",
        "write a run file in another format",
        "Read a run in any format (told by content) and write it in another (told by the new name: .trec .run .txt "
        ".tsv, .jsonl, .json, _predictions.json, .parquet; with .gz or .zst compressed). Ties are written in the total "
        "order: score descending, then document id descending; ranks are counted anew.",
    )
    parser.add_argument("source", metavar="IN", help="run file, plain or compressed; - reads standard input")
    parser.add_argument(
        "target", metavar="OUT", help="file to write, replaced whole or not at all; - writes to standard output"
    )
    parser.add_argument("--to", choices=FORMATS, help="format to write (default: told by the name)")
    parser.add_argument("--split", metavar="NAME", help="split to read from, and to name in, MTEB's predictions")
    parser.add_argument("--system", metavar="NAME", help="name of the system in TREC and MTEB files (default: as read)")
    add_format_options(parser)


def run(args: argparse.Namespace) -> int:
    """Convert."""
    leave_pandas_out()
    to = args.to or format_by_name(args.target)
    file = read_run_file(args.source, args.format, split=args.split, subset=args.subset, tag=args.tag)
    print_notes(args.source, file.notes)
    system = args.system or "_".join((file.system or "").split()) or "crumb_tasks"
    write_run(
        file.run,
        args.target,
        to,
        tag=system,
        split=args.split or file.split or "test",
        subset=args.subset or "default",
        depth=file.depth,
    )
    n_rows = len(file.run.codes)
    summary = f"{len(file.run)} queries, {n_rows} documents, {file.format} to {to}"
    print_notes(args.target, [*_lost(file, to, args.system, system), summary])
    return 0


def _lost(file: RunFile, to: Format, asked: str | None, system: str) -> Iterator[str]:
    """Yield what the file said and the new format has no place for."""
    if to in {"trec", "parquet"} and (n_empty := int((file.run.depths == 0).sum())):
        yield f"{n_empty} empty rankings have no place in {to}; scoring counts them as before"
    if file.run.passages is not None and not has_place_for_passages(to):
        yield f"winning passages have no place in {to}; jsonl and parquet keep them"
    if to not in {"trec", "mteb"} and (name := asked or file.system) is not None:
        yield f"the system's name '{name}' has no place in {to}; trec and mteb keep it"
    elif asked is None and file.system is not None and file.system != system:
        yield f"the system's name '{file.system}' is written as '{system}'"
    if to not in {"mteb", "parquet"} and file.depth is not None:
        yield f"that the search went {file.depth} documents deep has no place in {to}; score with --depth {file.depth}"
