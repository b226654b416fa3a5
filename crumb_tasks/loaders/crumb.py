"""CRUMB (Killingback and Zamani 2025, arXiv 2509.07253): eight tasks in the layout of the Hub dataset jfkback/crumb.

A task's folder holds ``eval/query_labels.jsonl`` and ``val/query_labels.jsonl`` (queries with their judgements),
``passage_corpus.jsonl`` and, where documents were cut into passages, ``full_document_corpus.jsonl``. A passage names
its document in ``parent_id``; nothing is ever read out of an id's spelling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import CardError, SchemaError, did_you_mean
from crumb_tasks.loaders._finding import Finding, finding, note
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import read_jsonl
from crumb_tasks.loaders._tables import Layout, TextTable, read_corpus, text_table
from crumb_tasks.sources import OpenedSource

LabelColumn = Literal["passage_qrels", "passage_binary_qrels", "full_document_qrels"]
LABEL_COLUMNS: tuple[LabelColumn, ...] = ("passage_qrels", "passage_binary_qrels", "full_document_qrels")
_CORPUS = {"passage": "passage_corpus.jsonl", "full_document": "full_document_corpus.jsonl"}
_FOLDER = {"evaluation_queries": "eval", "validation_queries": "val"}


class Options(LoaderOptions):
    """Where a task's files stand.

    Attributes:
        folder: The task's folder in the dataset; it differs from the upstream split name for papers only.
        level: ``passage`` or ``full_document``: which of the corpora is searched.
        chunked: Documents were cut into passages, so that both corpora exist.
    """

    folder: str
    level: Literal["passage", "full_document"] = "passage"
    chunked: bool = False


class _Label(msgspec.Struct, gc=False):
    id: str | int
    label: float


class _Query(msgspec.Struct, gc=False):
    query_id: str | int
    query_content: str
    passage_qrels: list[_Label] | None
    passage_binary_qrels: list[_Label] | None
    full_document_qrels: list[_Label] | None
    use_max_p: bool | None
    instruction: str | None = None

    def labels(self, column: LabelColumn) -> list[_Label]:
        """Return the judgements of one column; null counts as none."""
        return getattr(self, column) or []


class _Passage(msgspec.Struct, gc=False):
    document_id: str | int
    parent_id: str | int | None


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the queries of ``split`` and the one corpus that the task searches."""
    options = read_options(task, Options)
    return (_queries_file(task, options, split), f"{options.folder}/{_CORPUS[options.level]}")


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load ``split`` of ``task``."""
    options = read_options(task, Options)
    queries_path, corpus_path = source.paths(files(task, split)).values()
    corpus = _read_corpus(corpus_path, options, task)
    rows = [row for _, row in read_jsonl(queries_path, _Query)]
    if not rows:
        raise SchemaError(f"{queries_path}: no queries")
    queries = _query_table(task, queries_path, rows)
    query_ids: tuple[str, ...] = tuple(queries.table.column("id").to_pylist())
    qrels = {
        str(family): _qrels(task, query_ids, rows, _label_column(task, column), str(family))
        for family, column in ({"graded": "passage_qrels"} | dict(task.qrels)).items()
    }
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table.select(["id", "title", "text"]),
        queries=queries.table,
        qrels=qrels,
        parents=corpus.table.column("parent") if task.max_passage else None,
        n_empty_texts=corpus.n_empty,
        notes=tuple(_notes(task, options, rows, qrels, queries.n_empty)),
    )


def inspect(task: TaskCard, split: str, source: OpenedSource) -> Iterator[Finding]:
    """Yield what upstream's documentation leaves open about ``split``: labels, instructions, MaxP, parents."""
    options = read_options(task, Options)
    queries_path, corpus_path = source.paths(files(task, split)).values()
    labels: dict[str, Counter[float]] = {column: Counter() for column in LABEL_COLUMNS}
    judging: Counter[str] = Counter()
    instructions: Counter[str] = Counter()
    use_max_p: Counter[bool | None] = Counter()
    n_queries = 0
    for _, row in read_jsonl(queries_path, _Query):
        n_queries += 1
        instructions[row.instruction or ""] += 1
        use_max_p[row.use_max_p] += 1
        for column in LABEL_COLUMNS:
            values = row.labels(column)
            judging[column] += bool(values)
            labels[column].update([label.label for label in values])
    yield from _inspect_instructions(instructions)
    yield from _inspect_use_max_p(task, options, use_max_p)
    for column in LABEL_COLUMNS:
        yield from _inspect_labels(column, labels[column])
        unjudged = n_queries - judging[column]
        if column in task.qrels.values() and unjudged:
            yield finding("labels", f"{column}: {unjudged} of {n_queries} queries have no judgement", unjudged)
    if not options.chunked and (total := labels["full_document_qrels"].total()):
        yield finding("labels", f"full_document_qrels: {total} judgements, though the task has one corpus only", total)
    yield from _inspect_parents(task, options, corpus_path, source)


def _queries_file(task: TaskCard, options: Options, split: str) -> str:
    upstream = task.upstream_split(split)
    if upstream not in _FOLDER:
        raise CardError(f"{task.name}: splits: upstream has {' and '.join(_FOLDER)}, not '{upstream}'")
    return f"{options.folder}/{_FOLDER[upstream]}/query_labels.jsonl"


def _label_column(task: TaskCard, column: str) -> LabelColumn:
    for known in LABEL_COLUMNS:
        if column == known:
            return known
    raise CardError(f"{task.name}: qrels: no column '{column}'{did_you_mean(column, LABEL_COLUMNS)}")


def _read_corpus(path: Path, options: Options, task: TaskCard) -> TextTable:
    parent = "parent_id" if options.level == "passage" else None
    layout = Layout("document_id", "document_content", parent=parent)
    corpus = read_corpus(path, layout, empty_text=task.empty_text)
    if not len(corpus.table):
        raise SchemaError(f"{path}: the file holds no documents")
    return corpus


def _query_table(task: TaskCard, path: Path, rows: Sequence[_Query]) -> TextTable:
    columns = {"id": [str(row.query_id) for row in rows], "text": [row.query_content for row in rows]}
    if task.prompt.from_data:
        columns["prompt"] = [row.instruction or "" for row in rows]
    return text_table(columns, empty_text=task.empty_text, where=str(path))


def _qrels(
    task: TaskCard, query_ids: tuple[str, ...], rows: Sequence[_Query], column: LabelColumn, family: str
) -> Qrels:
    labels = [row.labels(column) for row in rows]
    return Qrels.from_columns(
        query_ids,
        np.repeat(np.arange(len(rows), dtype=np.int64), [len(part) for part in labels]),
        [str(label.id) for part in labels for label in part],
        np.array([label.label for part in labels for label in part], dtype=np.float64),
        labels=task.labels,
        name=f"{task.name} {column} ({family})",
    )


def _notes(
    task: TaskCard, options: Options, rows: Sequence[_Query], qrels: dict[str, Qrels], n_empty: int
) -> Iterator[str]:
    for family, judgements in qrels.items():
        if judgements.n_truncated:
            yield f"{judgements.n_truncated} fractional {family} labels cut to integers, as upstream's evaluator does"
        if judgements.n_repeated:
            yield f"{judgements.n_repeated} repeated {family} judgements were dropped"
    differing = sum(_contradicts(task, row.use_max_p) for row in rows)
    if differing and options.level == "passage":
        yield f"use_max_p of {differing} queries is {not task.max_passage}; the card's max_passage is followed"
    if n_empty:
        yield f"{n_empty} queries have an empty text"


def _contradicts(task: TaskCard, use_max_p: bool | None) -> bool:  # noqa: FBT001 -- a value of the data
    """Whether upstream's flag is another than the card's; null says nothing."""
    return use_max_p is not None and use_max_p is not task.max_passage


def _inspect_instructions(instructions: Counter[str]) -> Iterator[Finding]:
    shown = tuple(f"{count} x {text!r}" for text, count in instructions.most_common(8))
    yield note("instructions", f"{len(instructions)} instructions", len(instructions), shown)
    if missing := instructions[""]:
        yield finding("instructions", f"{missing} queries have no instruction", missing)


def _inspect_use_max_p(task: TaskCard, options: Options, use_max_p: Counter[bool | None]) -> Iterator[Finding]:
    shown = tuple(f"{value}: {count}" for value, count in use_max_p.items())
    yield note("use_max_p", f"use_max_p is {', '.join(shown)}", examples=shown)
    differing = sum(count for value, count in use_max_p.items() if _contradicts(task, value))
    if differing and options.level == "passage":
        message = f"use_max_p of {differing} queries differs from the card's max_passage = {task.max_passage}"
        yield finding("use_max_p", message, differing)


def _inspect_labels(column: str, labels: Counter[float]) -> Iterator[Finding]:
    shown = tuple(f"{value:g}: {count}" for value, count in sorted(labels.items())[:12])
    yield note("labels", f"{column}: {', '.join(shown) or 'no judgements'}", labels.total(), shown)
    fractional = sum(count for value, count in labels.items() if value != int(value))
    if fractional:
        message = f"{column}: {fractional} labels are fractional and are cut to integers"
        yield finding("labels", message, fractional, shown)


def _inspect_parents(task: TaskCard, options: Options, path: Path, source: OpenedSource) -> Iterator[Finding]:
    if options.level != "passage":
        return
    corpus = _read_corpus(path, options, task)
    _, first = next(read_jsonl(path, _Passage))
    parent = "null" if first.parent_id is None else repr(first.parent_id)
    yield note("parents", f"first passage: document_id {first.document_id!r}, parent_id {parent}")
    if not options.chunked:
        n_parents = len(corpus.table) - corpus.n_orphans
        if n_parents:
            yield finding("parents", f"{n_parents} passages have a parent_id, though documents were not cut", n_parents)
        return
    if corpus.n_orphans:
        yield finding(
            "parents", f"{corpus.n_orphans} passages have no parent_id and stand for themselves", corpus.n_orphans
        )
    documents_file = f"{options.folder}/{_CORPUS['full_document']}"
    if not source.has(documents_file):
        yield note("parents", f"not compared with the documents: {documents_file} is not on this machine")
        return
    layout = Layout("document_id", "document_content")
    documents = read_corpus(source.path(documents_file), layout, empty_text=task.empty_text).table.column("id")
    parents = corpus.table.column("parent").unique()
    lost = parents.filter(pc.invert(pc.is_in(parents, value_set=documents)))
    if len(lost):
        shown = tuple(lost[:3].to_pylist())
        yield finding("parents", f"{len(lost)} parents are not in the full-document corpus", len(lost), shown)
    without = documents.filter(pc.invert(pc.is_in(documents, value_set=pa.array(parents))))
    if len(without):
        shown = tuple(without.slice(0, 3).to_pylist())
        yield finding("parents", f"{len(without)} full documents have no passage", len(without), shown)
