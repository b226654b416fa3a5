"""Layouts of NCI's collections: our own build, and the hosted copies whose schema is known.

- ``built``: Parquet with a manifest, by `crumb_tasks.builders`
- ``tsv``: the authors' ``nq_dev_doc_newid.tsv`` and ``NQ_doc_content.tsv``, neither with a header
- ``ddro``: documents as JSON lines in ``nq_merged.json`` (kiyam/ddro-nq-dataset), queries as in ``tsv``
- ``genret``: ``corpus_lite.json``, ``dev.json`` and two index files (sunnweiwei/GenRet); shortened texts
- ``triviaqa_tsv``: the authors' ``dev.tsv`` and ``Trivia_doc_content.tsv``
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.loaders._rows import Field, read_jsonl, read_rows
from crumb_tasks.loaders._tables import Layout, TextTable, read_corpus, read_queries, text_table
from crumb_tasks.loaders.beir import Judgements, read_qrels

Decoded = TypeVar("Decoded")
_QUERY_FILE = "nq_dev_doc_newid.tsv"
FILES: Mapping[str, tuple[str, ...]] = {
    "tsv": (_QUERY_FILE, "NQ_doc_content.tsv"),
    "ddro": (_QUERY_FILE, "nq_merged.json"),
    "genret": ("corpus_lite.json", "dev.json", "dev.json.seen", "dev.json.unseen"),
    "triviaqa_tsv": ("dev.tsv", "Trivia_doc_content.tsv"),
}
SIGNS: Mapping[str, str] = {
    "built": "manifest.json",
    "tsv": "NQ_doc_content.tsv",
    "ddro": "nq_merged.json",
    "genret": "corpus_lite.json",
    "triviaqa_tsv": "Trivia_doc_content.tsv",
    "pefa": "X.trn.abs.txt",
    "glen": "DOC_NQ_title+content.tsv",
    "incdsi": "GTQ_NQ_dev.tsv",
}
"""The file by which a layout is recognised; the last ones are only named, never read."""
RECIPES: Mapping[str, str] = {
    "built": "a build of this package",
    "tsv": "the authors' NQ320k",
    "ddro": "ddro-nq-dataset",
    "genret": "GenRet (shortened texts)",
    "triviaqa_tsv": "the authors' TriviaQA",
    "pefa": "PEFA (title and abstract only, documents numbered anew)",
    "glen": "GLEN",
    "incdsi": "GLEN or IncDSI",
}
_DOC_COLUMNS = ("id", "1", "2", "text", "4", "5", "language")
_TRIVIA_COLUMNS = ("old_id", "id", "title", "content", "text")


@dataclass(frozen=True)
class Parts:
    """What a layout holds.

    Attributes:
        what: The layout in words.
        corpus: Documents; the text is all that a model gets, the title stands in it.
        query_ids: Queries.
        query_texts: Their texts.
        judgements: Which documents are relevant.
        subset_by_query: ``seen`` or ``unseen``, where the layout says so.
    """

    what: str
    corpus: TextTable
    query_ids: list[str]
    query_texts: list[str]
    judgements: Judgements
    subset_by_query: Mapping[str, str] = field(default_factory=dict)


class Reader(Protocol):
    """Reads one layout."""

    def __call__(self, paths: Mapping[str, Path], *, empty_text: str) -> Parts:
        """Return what the files at ``paths`` hold."""


def read_built(paths: Mapping[str, Path], *, empty_text: str) -> Parts:
    """Read a build of this package."""
    corpus = read_corpus(paths["corpus.parquet"], Layout("id", "text"), empty_text=empty_text)
    queries = read_queries(paths["queries.parquet"], Layout("id", "text"), empty_text=empty_text).table
    judgements = read_qrels(paths["qrels.parquet"], ("query-id", "corpus-id", "score"))
    rows = read_rows(paths["qrels.parquet"], (Field("query-id"), Field("subset")))
    subsets = {query_id: subset for _, (query_id, subset) in rows if subset}
    texts = queries.column("text").to_pylist()
    return Parts("a build of this package", corpus, queries.column("id").to_pylist(), texts, judgements, subsets)


def _read_tsv(paths: Mapping[str, Path], *, empty_text: str) -> Parts:
    layout = Layout("id", "text", header=_DOC_COLUMNS)
    corpus = read_corpus(paths["NQ_doc_content.tsv"], layout, empty_text=empty_text)
    return Parts("the authors' files", corpus, *_nq_queries(paths[_QUERY_FILE]))


def _nq_queries(path: Path) -> tuple[list[str], list[str], Judgements]:
    """Read rows ``query, example id, document, semantic id``, written by pandas."""
    ids: list[str] = []
    texts: list[str] = []
    doc_ids: list[str] = []
    for text, query_id, doc_id, _ in _cells(path, 4):
        ids.append(query_id)
        texts.append(text)
        doc_ids.append(doc_id)
    return ids, texts, (ids, doc_ids, [1.0] * len(ids))


def _cells(path: Path, n_columns: int) -> Iterator[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file, delimiter="\t")
        for cells in reader:
            if len(cells) != n_columns:
                raise DataError(f"{path}:{reader.line_num}: expected {n_columns} fields, found {len(cells)}")
            yield cells


class _MergedPage(msgspec.Struct):
    query: str
    doc_tac: str


def _read_ddro(paths: Mapping[str, Path], *, empty_text: str) -> Parts:
    """Read ddro's pages; their order must be that of the documents' numbers, which unseen pages prove or disprove."""
    path = paths["nq_merged.json"]
    query_ids, texts, judgements = _nq_queries(paths[_QUERY_FILE])
    layout = Layout("", "doc_tac", form="jsonl")
    corpus = read_corpus(path, layout, empty_text=empty_text)
    queries_by_number: dict[int, set[str]] = {}
    for text, doc_id in zip(texts, judgements[1], strict=True):
        queries_by_number.setdefault(int(doc_id), set()).add(text)
    for number, (line, page) in enumerate(read_jsonl(path, _MergedPage)):
        if number >= _FIRST_UNSEEN and page.query not in queries_by_number.get(number, ()):
            raise DataError(
                f"{path}:{line}: the page stands for the query '{page.query[:60]}', whose document is another; the "
                "pages are not in the order of their numbers"
            )
    return Parts("ddro-nq-dataset", corpus, query_ids, texts, judgements)


_FIRST_UNSEEN = 108_026


def _read_genret(paths: Mapping[str, Path], *, empty_text: str) -> Parts:
    corpus_texts = _decoded(paths["corpus_lite.json"], list[str])
    pairs = _decoded(paths["dev.json"], list[tuple[str, int]])
    ids = [str(number) for number in range(len(pairs))]
    subsets: dict[str, str] = {}
    for part in ("seen", "unseen"):
        subsets |= {str(number): part for number in _decoded(paths[f"dev.json.{part}"], list[int])}
    columns = {"id": [str(number) for number in range(len(corpus_texts))], "text": corpus_texts}
    corpus = text_table({**columns, "title": [""] * len(corpus_texts)}, empty_text=empty_text, where="corpus_lite.json")
    doc_ids = [str(doc) for _, doc in pairs]
    return Parts("GenRet's files", corpus, ids, [text for text, _ in pairs], (ids, doc_ids, [1.0] * len(ids)), subsets)


def _decoded(path: Path, kind: type[Decoded]) -> Decoded:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.ValidationError as error:
        raise SchemaError(f"{path}: {error}") from error
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: not JSON ({error})") from error


def _read_triviaqa_tsv(paths: Mapping[str, Path], *, empty_text: str) -> Parts:
    layout = Layout("id", "text", header=_TRIVIA_COLUMNS)
    corpus = read_corpus(paths["Trivia_doc_content.tsv"], layout, empty_text=empty_text)
    ids: list[str] = []
    texts: list[str] = []
    judgements: Judgements = ([], [], [])
    header = ("query", "old_ids", "ids", "semantic_ids")
    fields = (Field("query"), Field("ids"))
    for number, (text, doc_ids) in read_rows(paths["dev.tsv"], fields, header=header):
        ids.append(str(number))
        texts.append(text)
        for doc_id in dict.fromkeys(doc_ids.split(",")):
            judgements[0].append(str(number))
            judgements[1].append(doc_id)
            judgements[2].append(1.0)
    return Parts("the authors' files", corpus, ids, texts, judgements)


READERS: Mapping[str, Reader] = {
    "tsv": _read_tsv,
    "ddro": _read_ddro,
    "genret": _read_genret,
    "triviaqa_tsv": _read_triviaqa_tsv,
}
