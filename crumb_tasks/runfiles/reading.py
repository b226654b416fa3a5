"""A run file in any format → `Run`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crumb_tasks.runfiles.columns import Repeats, RunColumns
from crumb_tasks.runfiles.compression import RunBytes
from crumb_tasks.runfiles.detection import Format, check_format, detect
from crumb_tasks.runfiles.jsonl import JsonlReader
from crumb_tasks.runfiles.nested import NestedReader
from crumb_tasks.runfiles.parquet import ParquetReader
from crumb_tasks.runfiles.trec import TrecReader, note_short_last_query
from crumb_tasks.runs import Run

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class RunFile:
    """A run and what its file said about it.

    Attributes:
        run: The rankings.
        path: The file; ``-`` for standard input.
        format: ``trec``, ``jsonl``, ``mteb``, ``json`` or ``parquet``.
        sha256: Of the file's bytes as they lie on disk.
        system: The name of the system: a TREC tag, or the model that MTEB's file names.
        split: The split that was read from MTEB's predictions.
        depth: How deep the search went, where the file says it, as predictions of this package's tasks do.
        notes: What a user should know, one line each.
    """

    run: Run
    path: str
    format: Format
    sha256: str
    system: str | None = None
    split: str | None = None
    depth: int | None = None
    notes: tuple[str, ...] = ()


def read_run(path: Path | str, format: str = "auto", *, repeats: Repeats = "refuse") -> Run:  # noqa: A002
    """Read a run; what a user should know about the file is logged as warnings.

    Args:
        path: The file, plain or compressed with gzip or zstd; ``-`` for standard input.
        format: ``auto`` tells by content; ``trec``, ``jsonl``, ``mteb``, ``json``, ``parquet``.
        repeats: ``best`` keeps the higher score of a document that a query holds twice, as passages do that carry
            their document's id.

    Raises:
        RunFileError: The file cannot be read; carries path and line.
        UsageError: There is no such format.
    """
    found = read_run_file(path, format, repeats=repeats)
    for note in found.notes:
        _log.warning("%s: %s", path, note)
    return found.run


def read_run_file(
    path: Path | str,
    format: str = "auto",  # noqa: A002
    *,
    repeats: Repeats = "refuse",
    remedy: str = "keep one",
    split: str | None = None,
    subset: str | None = None,
    tag: str | None = None,
) -> RunFile:
    """Read a run with what its file says about it; arguments and errors as `read_run`.

    Args:
        path: The file.
        format: Its format.
        repeats: What to do with a document that a query holds twice.
        remedy: What a user can do about one that is refused, for the message.
        split: Of MTEB's predictions the split to read; by default the only one.
        subset: The same for subsets.
        tag: Of a TREC file with several systems the one to read.
    """
    wanted = check_format(format)
    with RunBytes(path) as source:
        kind = wanted or detect(source)
        if not source.peek().strip():
            raise source.error("the file is empty; a run needs at least one row", 1)
        columns = RunColumns(source, repeats, remedy)
        reader: TrecReader | JsonlReader | NestedReader | ParquetReader
        system = found_split = depth = None
        if kind == "trec":
            reader = TrecReader(source, columns, tag)
            reader.read()
            system = reader.tag
        elif kind == "jsonl":
            reader = JsonlReader(source, columns)
            reader.read()
        elif kind == "parquet":
            reader = ParquetReader(source, columns)
            reader.read()
            depth = reader.search_depth
        else:
            form = None if wanted is None else kind
            reader = NestedReader(source, columns, form=form, split=split, subset=subset)
            reader.read()
            kind, system, found_split, depth = reader.form, reader.model, reader.split, reader.search_depth
        run = columns.finish()
        if not len(run):
            raise source.error("the file holds no query; a run needs at least one")
        notes = [*reader.notes, *_notes(columns, run, is_trec=kind == "trec")]
        if tag is not None and kind != "trec":
            notes.append(f"--tag chooses a system of a TREC file; this one is {kind}, and all of it was read")
        return RunFile(run, source.path, kind, source.sha256, system, found_split, depth, tuple(notes))


def _notes(columns: RunColumns, run: Run, *, is_trec: bool) -> Sequence[str]:
    notes = []
    if columns.n_contradicting:
        queries = "1 query" if columns.n_contradicting == 1 else f"{columns.n_contradicting} queries"
        notes.append(f"ranks contradict scores in {queries}; ranks are ignored, scores decide, as in trec_eval")
    if columns.counts_up:
        notes.append(
            "the scores of each query count up, 1, 2, 3 …, as ranks do; are they ranks? The highest score is the first "
            "place, which is now each query's last row; negate them if the first row is the best"
        )
    if infinite := int(np.isinf(run.scores).sum()):
        row = int(np.flatnonzero(np.isinf(run.scores))[0])
        query_id = run.query_ids[int(np.searchsorted(run.offsets, row, side="right")) - 1]
        scores = "1 score is" if infinite == 1 else f"{infinite} scores are"
        notes.append(f"{scores} infinite (first in query '{query_id}'): they order documents, and tie with each other")
    if columns.n_repeated:
        notes.append(f"{columns.n_repeated} repeated documents dropped; each kept its best score")
    if columns.n_rejoined:
        named = ", ".join(f"'{query}'" + (f" (line {line})" if line else "") for query, line in columns.rejoined)
        more = " …" if columns.n_rejoined > len(columns.rejoined) else ""
        notes.append(f"queries stand in more than one place and were joined; again there: {named}{more}")
    if is_trec and (note := note_short_last_query(run.depths, run.query_ids)):
        notes.append(note)
    return notes
