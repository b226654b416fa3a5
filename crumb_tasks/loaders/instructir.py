"""InstructIR (Oh et al. 2024, arXiv 2402.14334) in the layout of its repository, or of the Hub's copy of it.

A query is the text ``instruction [SEP] query``; several instructions share one base query, and each has a document of
its own. Which variants belong together stands in the data: in a query's ``metadata.origin_query``, in the file that has
it (the order-sensitivity set names only ids), or behind the separator (the paraphrases). Ids are never taken apart.

The Hub's copy has the configurations ``corpus``, ``queries``, ``instruction`` and ``default`` (judgements) as Parquet,
with query and instruction apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow.parquet as pq

from crumb_tasks.cards import Source, TaskCard
from crumb_tasks.collection import Collection
from crumb_tasks.errors import DataError, MissingDataError, SchemaError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import Field, read_jsonl, read_rows
from crumb_tasks.loaders._tables import Layout, TextTable, read_corpus, text_table
from crumb_tasks.loaders.beir import Judgements, make_qrels, of_split, read_qrels
from crumb_tasks.sources import OpenedSource, open_source

SEPARATOR = "[SEP]"
_QRELS_COLUMNS = ("qid", "pid", "score")
_HUB_FILES = {
    "corpus": "corpus/corpus-00000-of-00001.parquet",
    "queries": "queries/queries-00000-of-00001.parquet",
    "instruction": "instruction/instruction-00000-of-00001.parquet",
    "qrels": "data/test-00000-of-00001.parquet",
}
"""Where `datasets` puts the one file of a configuration; ``data`` is the folder of ``default``."""


class Options(LoaderOptions):
    """Which of the benchmark's query sets.

    Attributes:
        queries: The queries.
        qrels: Their judgements.
        base_query: Where a query's base query stands: in its ``metadata``, under the same id in the file ``main``, or
            behind the separator (``text``); with ``none`` queries are no variants.
        main: The benchmark's own queries.
        hub_copy: A copy on the Hub that is read where the repository itself is not on this machine.
    """

    queries: str = "queries.jsonl"
    qrels: str = "qrels/test.tsv"
    base_query: Literal["metadata", "main", "text", "none"] = "metadata"
    main: str = "queries.jsonl"
    hub_copy: Source | None = None


class _Metadata(msgspec.Struct):
    origin_query: str = ""


class _Query(msgspec.Struct, rename={"id": "_id"}):
    id: str
    text: str
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)

    @property
    def base(self) -> str:
        """The base query, empty where there is none."""
        return self.metadata.origin_query.strip()


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the files of the repository that the task needs."""
    del split
    options = read_options(task, Options)
    names = ["corpus.jsonl", options.queries, options.qrels]
    return tuple(dict.fromkeys(names + ([options.main] if options.base_query == "main" else [])))


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load the one split that the benchmark has."""
    options = read_options(task, Options)
    if options.hub_copy is not None and source.missing(files(task, split)):
        copy = open_source(task.model_copy(update={"source": options.hub_copy}), root=source.searched)
        if not copy.missing(_HUB_FILES.values()):
            return _load_hub_copy(task, split, copy)
        try:
            source.paths(files(task, split))
        except MissingDataError as missing:
            try:
                return _load_hub_copy(task, split, copy)
            except MissingDataError:
                raise missing from None
    return _load_repository(task, split, source, options)


def _load_repository(task: TaskCard, split: str, source: OpenedSource, options: Options) -> Collection:
    paths = source.paths(files(task, split))
    corpus = read_corpus(paths["corpus.jsonl"], Layout("_id", "text", title="title"), empty_text=task.empty_text)
    rows = _with_base_queries([row for _, row in read_jsonl(paths[options.queries], _Query)], paths, options)
    return _collection(task, split, corpus, rows, read_qrels(paths[options.qrels], _QRELS_COLUMNS))


def _with_base_queries(rows: list[_Query], paths: dict[str, Path], options: Options) -> list[_Query]:
    """Return the queries with their base queries, wherever these stand."""
    path = paths[options.queries]
    if options.base_query == "none":
        return [_Query(row.id, row.text) for row in rows]
    if options.base_query == "text":
        return [_variant(row.id, row.text, _behind_separator(row, path)) for row in rows]
    named_in = paths[options.main] if options.base_query == "main" else path
    base_by_id = {row.id: row.base for row in rows}
    if named_in != path:
        base_by_id = {row.id: row.base for _, row in read_jsonl(named_in, _Query)}
        if unknown := next((row.id for row in rows if row.id not in base_by_id), None):
            raise DataError(f"{path}: the query '{unknown}' is not in {options.main}, which has the base queries")
    if without := next((row.id for row in rows if not base_by_id[row.id]), None):
        raise SchemaError(f"{named_in}: the query '{without}' has no metadata.origin_query")
    return [_variant(row.id, row.text, base_by_id[row.id]) for row in rows]


def _variant(query_id: str, text: str, base: str) -> _Query:
    return _Query(query_id, text, _Metadata(base))


def _behind_separator(row: _Query, path: Path) -> str:
    _, separator, query = row.text.rpartition(SEPARATOR)
    if not separator or not query.strip():
        raise DataError(f"{path}: the query '{row.id}' has no {SEPARATOR} with a query behind it")
    return query.strip()


def _load_hub_copy(task: TaskCard, split: str, copy: OpenedSource) -> Collection:
    path_by_file = copy.paths(_HUB_FILES.values())
    paths = {name: path_by_file[file] for name, file in _HUB_FILES.items()}
    layout = Layout(_id_column(paths["corpus"]), "text", title="title")
    corpus = read_corpus(paths["corpus"], layout, empty_text=task.empty_text)
    instruction_by_id = dict(_two_columns(paths["instruction"], "query-id", "instruction"))
    rows: list[_Query] = []
    for query_id, query in _two_columns(paths["queries"], _id_column(paths["queries"]), "text"):
        if query_id not in instruction_by_id:
            raise DataError(f"{paths['instruction']}: no instruction for the query '{query_id}'")
        rows.append(_variant(query_id, f"{instruction_by_id[query_id]} {SEPARATOR} {query}", query))
    table = pq.read_table(paths["qrels"], columns=["query-id", "corpus-id", "score"])
    query_ids, doc_ids, grades = (table.column(name).to_pylist() for name in ("query-id", "corpus-id", "score"))
    judgements: Judgements = (query_ids, doc_ids, grades)
    note = f"read from the copy {copy.origin}; the text is put together as in the official files"
    return _collection(task, split, corpus, rows, judgements, notes=(note,))


def _id_column(path: Path) -> str:
    return "_id" if "_id" in pq.read_schema(path).names else "id"


def _two_columns(path: Path, key: str, value: str) -> Iterator[tuple[str, str]]:
    for _, (left, right) in read_rows(path, (Field(key, is_id=True), Field(value))):
        yield left, right


def _collection(
    task: TaskCard,
    split: str,
    corpus: TextTable,
    rows: list[_Query],
    judgements: Judgements,
    *,
    notes: tuple[str, ...] = (),
) -> Collection:
    columns = {"id": [row.id for row in rows], "text": [row.text for row in rows]}
    if all(row.base for row in rows):
        parts = [_parts(row.text, row.base) for row in rows]
        if all(parts):
            columns["instruction_part"] = [part[0] for part in parts if part]
            columns["query_part"] = [part[1] for part in parts if part]
    queries = of_split(text_table(columns, empty_text=task.empty_text, where=task.name).table, {"graded": judgements})
    kept = queries.column("id").to_pylist()
    base_by_id = {row.id: row.base for row in rows if row.base}
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=queries,
        qrels={"graded": make_qrels(task, kept, judgements)},
        groups={query_id: base_by_id[query_id] for query_id in kept if query_id in base_by_id},
        n_empty_texts=corpus.n_empty,
        notes=notes,
    )


def _parts(text: str, base: str) -> tuple[str, str] | None:
    """Return instruction and query of a text that ends with the separator and its base query, else ``None``.

    The instruction may hold the separator itself; spaces around either part do not count.
    """
    head = text.rstrip().removesuffix(base).rstrip()
    if not text.rstrip().endswith(base) or not head.endswith(SEPARATOR):
        return None
    return head.removesuffix(SEPARATOR).strip(), base
