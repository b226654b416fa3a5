"""ConTEB (Conti et al. 2025, arXiv 2505.24782): chunks that can only be told apart by the document they are from.

A set has a configuration ``documents``, whose rows are chunks, and one of ``queries``, each naming the chunk or chunks
that answer it. A chunk's id is the document's id, an underscore and the chunk's position: upstream's own definition,
which has no other column for them. The corpus carries both as columns of their own, ``document`` and ``position``, so
that a contextual encoder need not know how ids are spelled.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import pyarrow.parquet as pq

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import read_structs
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.sources import OpenedSource


class Options(LoaderOptions):
    """Where the two configurations stand; ``{split}`` is the upstream name of the split.

    Attributes:
        documents: The chunks.
        queries: The queries.
    """

    documents: str = "documents/{split}-00000-of-00001.parquet"
    queries: str = "queries/{split}-00000-of-00001.parquet"


class _Chunk(msgspec.Struct, gc=False):
    chunk_id: str
    chunk: str | None


class _Query(msgspec.Struct, gc=False):
    query: str
    chunk_id: str | list[str] | None = None
    chunk_ids: list[str] | None = None

    @property
    def relevant(self) -> list[str]:
        """The chunks that answer it."""
        single = [self.chunk_id] if isinstance(self.chunk_id, str) else self.chunk_id or []
        return self.chunk_ids if self.chunk_ids is not None else single


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the chunks and the queries of ``split``."""
    options = read_options(task, Options)
    return tuple(name.format(split=task.upstream_split(split)) for name in (options.documents, options.queries))


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load ``split``.

    Raises:
        DataError: A chunk's id is not made of a document and a position, or two chunks have one.
        SchemaError: Queries name no chunks, or as `read_structs`.
    """
    documents_path, queries_path = source.paths(files(task, split)).values()
    chunks = [chunk for _, chunk in read_structs(documents_path, _Chunk)]
    places = [_place(f"{documents_path}: row {row}", chunk.chunk_id) for row, chunk in enumerate(chunks, start=1)]
    corpus = text_table(
        {
            "id": [chunk.chunk_id for chunk in chunks],
            "title": [""] * len(chunks),
            "text": [chunk.chunk or "" for chunk in chunks],
            "document": [document for document, _ in places],
            "position": [position for _, position in places],
        },
        empty_text=task.empty_text,
        where=str(documents_path),
    )
    queries = {f"q{row - 1}": query for row, query in read_structs(queries_path, _Query)}
    texts = [query.query for query in queries.values()]
    grades = {query_id: dict.fromkeys(query.relevant, 1) for query_id, query in queries.items()}
    n_documents = len(Counter(document for document, _ in places))
    without = [query_id for query_id, grade_by_chunk in grades.items() if not grade_by_chunk]
    notes = [f"{len(chunks)} chunks of {n_documents} documents"]
    if without and len(without) == len(queries):
        found = ", ".join(pq.read_schema(queries_path).names)
        raise SchemaError(f"{queries_path}: no query names a chunk in chunk_id or chunk_ids; found the columns {found}")
    if without:
        notes.append(f"{len(without)} queries name no chunk and are not judged (such as {without[0]})")
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=text_table(
            {"id": list(queries), "text": texts}, empty_text=task.empty_text, where=str(queries_path)
        ).table,
        qrels={"graded": Qrels.from_dict(grades, name=task.name)},
        n_empty_texts=corpus.n_empty,
        notes=tuple(notes),
    )


def _place(where: str, chunk_id: str) -> tuple[str, str]:
    """Return the document and the position that a chunk's id is made of."""
    document, underscore, position = chunk_id.rpartition("_")
    if not (underscore and document and position.isascii() and position.isdigit()):
        raise DataError(f"{where}: the chunk id '{chunk_id}' is not a document's id, an underscore and a position")
    return document, str(int(position))
