"""Collections in BEIR's layout: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/<split>.tsv``; any benchmark can use it.

Rows are ``{"_id", "title", "text"}`` and ``{"_id", "text"}``, judgements ``query-id<TAB>corpus-id<TAB>score`` under a
header. Candidates for re-ranking stand in ``top_ranked.jsonl`` as ``{"query-id", "corpus-ids"}``. Queries that are
variants of one base query name it in a field of their own (``group_field``): what belongs together is data, whatever
the ids look like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import CardError, DataError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import Field, read_jsonl, read_rows
from crumb_tasks.loaders._tables import Layout, read_corpus, read_queries
from crumb_tasks.sources import OpenedSource

Judgements = tuple[list[str], list[str], list[float]]
"""Columns query id, document id, grade."""


class Options(LoaderOptions):
    """Where the parts stand; ``{split}`` is the upstream name of the split.

    Attributes:
        corpus: The corpus: JSONL, CSV, TSV or Parquet.
        queries: The queries of all splits, in the same formats.
        qrels: The judgements, TSV with a header; the card's ``qrels`` may name one file per family instead.
        candidates: Candidates per query, if the task re-ranks.
        id_field: Field of the id.
        prompt_field: Field of a query's own instruction, if the data have one.
        parent_field: Field of a passage's document (MaxP tasks).
        query_fields: Further query fields that the card's ``query_text`` uses.
        group_field: Field of a query's base query, where queries are variants (the card's ``groups``).
        qrels_columns: The header's names for query, document and grade.
    """

    corpus: str = "corpus.jsonl"
    queries: str = "queries.jsonl"
    qrels: str = "qrels/{split}.tsv"
    candidates: str | None = None
    id_field: str = "_id"
    prompt_field: str | None = None
    parent_field: str | None = None
    query_fields: tuple[str, ...] = ()
    group_field: str | None = None
    qrels_columns: tuple[str, str, str] = ("query-id", "corpus-id", "score")


class _Candidates(msgspec.Struct, rename={"query_id": "query-id", "corpus_ids": "corpus-ids"}):
    query_id: str | int
    corpus_ids: list[str | int]


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the files that ``split`` needs."""
    options = read_options(task, Options)
    names = [options.corpus, options.queries, *_qrels_files(task, options).values(), options.candidates]
    upstream = task.upstream_split(split)
    return tuple(name.format(split=upstream) for name in names if name is not None)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load ``split``; only queries that the split judges or gives candidates belong to it."""
    options = read_options(task, Options)
    if task.max_passage and options.parent_field is None:
        raise CardError(f"{task.name}: max_passage needs options.parent_field, which names a passage's document")
    if task.groups and options.group_field is None:
        raise CardError(f"{task.name}: groups needs options.group_field, which names a query's base query")
    upstream = task.upstream_split(split)
    path_by_name = source.paths(files(task, split))

    def path(name: str) -> Path:
        return path_by_name[name.format(split=upstream)]

    corpus = read_corpus(
        path(options.corpus),
        Layout(options.id_field, "text", title="title", parent=options.parent_field),
        empty_text=task.empty_text,
    )
    named = (options.prompt_field, options.group_field, *options.query_fields)
    more = tuple(dict.fromkeys(name for name in named if name is not None))
    queries = read_queries(
        path(options.queries), Layout(options.id_field, "text", more=more), empty_text=task.empty_text
    )
    judgements = {
        family: read_qrels(path(name), options.qrels_columns) for family, name in _qrels_files(task, options).items()
    }
    candidates = None if options.candidates is None else read_candidates(path(options.candidates))
    table = of_split(queries.table, judgements, candidates)
    groups = {} if options.group_field is None else _groups(table, options.group_field)
    if options.prompt_field is not None:
        table = table.rename_columns(
            ["prompt" if name == options.prompt_field else name for name in table.column_names]
        )
    query_ids = table.column("id").to_pylist()
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table.drop_columns("parent") if options.parent_field else corpus.table,
        queries=table,
        qrels={family: make_qrels(task, query_ids, rows, family) for family, rows in judgements.items()},
        candidates=candidates,
        parents=corpus.table.column("parent") if task.max_passage else None,
        groups=groups,
        n_empty_texts=corpus.n_empty,
        notes=(f"{queries.n_empty} queries have an empty text",) if queries.n_empty else (),
    )


def read_qrels(path: Path, columns: tuple[str, str, str]) -> Judgements:
    """Return the columns query id, document id, grade of a TSV file (or Parquet) with these three columns.

    Raises:
        DataError: A grade is no number.
    """
    judgements: Judgements = ([], [], [])
    fields = tuple(Field(name, is_id=True) for name in columns)
    for number, (query_id, doc_id, grade) in read_rows(path, fields):
        judgements[0].append(query_id)
        judgements[1].append(doc_id)
        try:
            judgements[2].append(float(grade))
        except ValueError as error:
            raise DataError(f"{path}:{number}: the score '{grade}' is no number") from error
    return judgements


def read_candidates(path: Path) -> dict[str, list[str]]:
    """Return the candidates per query of a JSONL file of ``{"query-id", "corpus-ids"}``.

    Raises:
        DataError: A query stands there twice.
    """
    candidates: dict[str, list[str]] = {}
    for number, row in read_jsonl(path, _Candidates):
        if (query_id := str(row.query_id)) in candidates:
            raise DataError(f"{path}:{number}: candidates of query '{query_id}' stand there twice; keep one line")
        candidates[query_id] = [str(doc_id) for doc_id in row.corpus_ids]
    return candidates


def _qrels_files(task: TaskCard, options: Options) -> dict[str, str]:
    named = {str(family): name for family, name in task.qrels.items()}
    return {"graded": options.qrels} | named


def _groups(queries: pa.Table, field: str) -> dict[str, str]:
    """Return the base query of each query that names one; another is alone in its group."""
    named = zip(queries.column("id").to_pylist(), queries.column(field).to_pylist(), strict=True)
    return {query_id: base for query_id, base in named if base.strip()}


def of_split(
    queries: pa.Table, judgements: Mapping[str, Judgements], candidates: Mapping[str, Sequence[str]] | None = None
) -> pa.Table:
    """Return the queries that are judged or have candidates."""
    wanted = {query_id for rows in judgements.values() for query_id in rows[0]} | set(candidates or ())
    keep = [query_id in wanted for query_id in queries.column("id").to_pylist()]
    return queries.filter(pa.array(keep, pa.bool_()))


def make_qrels(task: TaskCard, query_ids: Sequence[str], rows: Judgements, family: str = "graded") -> Qrels:
    """Return the judgements of one family over ``query_ids`` and whatever else is judged."""
    known = dict.fromkeys(query_ids) | dict.fromkeys(rows[0])  # a judged query without text is found as dangling
    position = {query_id: index for index, query_id in enumerate(known)}
    return Qrels.from_columns(
        tuple(known),
        np.array([position[query_id] for query_id in rows[0]], dtype=np.int64),
        rows[1],
        rows[2],
        labels=task.labels,
        name=f"{task.name} {family} qrels",
    )
