"""BrowseComp-Plus projected onto ClimbMix (Sharifymoghaddam et al. 2026, arXiv 2608.20317): the judged pool, re-ranked.

Questions and judgements are published obfuscated, base64 of the text XOR the SHA-256 of the row's canary, so that no
crawl and no training set takes them up. They are decoded here, in memory only: ids are replaced by digests, so that
neither rankings nor messages hold a decoded one, and nothing of a question is written or logged. The documents are the
user's: shards of ClimbMix (``shard_00071.parquet``, a document's id is its shard and row) or JSONL of ``id`` and
``text``. A query ranks its judged documents and, the same for all queries, rows drawn from the shards that are there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import Field, read_jsonl, read_rows
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.sources import OpenedSource

_SEED = 20260820
_DOCUMENT = (Field("id"), Field("text"))


class Options(LoaderOptions):
    """Where the parts stand and how large the pool is.

    Attributes:
        queries: The obfuscated questions.
        qrels: The obfuscated judgements.
        documents: The user's documents, in the source's part ``corpus``: a folder of shards or JSONL files.
        distractors: Rows drawn from the shards, which every query ranks beside its judged documents.
        text: Column of a shard's text.
    """

    queries: str = "bcp/queries.jsonl"
    qrels: str = "bcp/qrels.jsonl"
    documents: str = "documents"
    distractors: int = 1000
    text: str = "text"


class _Query(msgspec.Struct, gc=False):
    id: str
    question: str
    canary: str


class _Judgement(msgspec.Struct, gc=False):
    query_id: str
    doc_id: str
    relevance: int
    canary: str


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return questions, judgements and the user's documents."""
    del split
    options = read_options(task, Options)
    return (f"corpus:{options.documents}", options.queries, options.qrels)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load the one split.

    Raises:
        DataError: A value cannot be decoded, or judged documents are missing; no message holds a decoded value.
    """
    options = read_options(task, Options)
    place = source.path(f"corpus:{options.documents}")
    paths = source.paths((options.queries, options.qrels))
    question_by_query, grades = _read_decoded(paths[options.queries], paths[options.qrels])
    judged = {document for of_query in grades.values() for document in of_query}
    texts, others = _read_documents(place, judged, options)
    if missing := len(judged - texts.keys()):
        raise DataError(
            f"{task.name}: {missing} of {len(judged)} judged documents are not in {place}; "
            "put there the shards that hold them (an id is its shard and row)"
        )
    names = {document: _digest("d", document) for document in texts}
    query_names = {query: _digest("q", query) for query in question_by_query}
    distractors = [names[document] for document in others]
    corpus = text_table(
        {"id": list(names.values()), "title": [""] * len(texts), "text": list(texts.values())},
        empty_text=task.empty_text,
        where=str(place),
    )
    queries = text_table(
        {"id": list(query_names.values()), "text": list(question_by_query.values())},
        empty_text=task.empty_text,
        where=str(paths[options.queries]),
    )
    renamed = {
        query_names[query]: {names[document]: grade for document, grade in of_query.items()}
        for query, of_query in grades.items()
    }
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=queries.table,
        qrels={"graded": Qrels.from_dict(renamed, name=task.name)},
        candidates={query: tuple(dict.fromkeys((*of_query, *distractors))) for query, of_query in renamed.items()},
        n_empty_texts=corpus.n_empty,
        in_memory_only=True,
        notes=(f"each query ranks its judged documents and {len(distractors)} others",),
    )


def _read_decoded(queries: Path, qrels: Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    question_by_query: dict[str, str] = {}
    for number, row in read_jsonl(queries, _Query):
        query, question = (_decode(value, row.canary, f"{queries}:{number}") for value in (row.id, row.question))
        if query in question_by_query:
            raise DataError(f"{queries}:{number}: a question stands there twice")
        question_by_query[query] = question
    grades: dict[str, dict[str, int]] = {query: {} for query in question_by_query}
    for number, judgement in read_jsonl(qrels, _Judgement):
        where = f"{qrels}:{number}"
        query, document = (_decode(value, judgement.canary, where) for value in (judgement.query_id, judgement.doc_id))
        if query not in grades:
            raise DataError(f"{where}: a judgement of a question that is not in {queries.name}")
        grades[query][document] = judgement.relevance
    return question_by_query, grades


def _decode(value: str, canary: str, where: str) -> str:
    """Return the text of an obfuscated value (castorini/cmass, scripts/deobfuscate.py)."""
    key = hashlib.sha256(canary.encode()).digest()
    try:
        raw = base64.b64decode(value, validate=True)
        return bytes(byte ^ key[at % len(key)] for at, byte in enumerate(raw)).decode()
    except (binascii.Error, UnicodeDecodeError):
        # without the cause: a traceback would show what was decoded
        problem = "a value cannot be decoded with the row's canary; is this the published file?"
        raise DataError(f"{where}: {problem}") from None


def _digest(kind: str, text: str) -> str:
    return kind + hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_documents(place: Path, judged: set[str], options: Options) -> tuple[dict[str, str], list[str]]:
    """Return the texts of judged documents and distractors by id, and the distractors.

    Distractors are whatever else the JSONL files hold, and rows drawn evenly from the shards, the same for the same
    shards.
    """
    texts: dict[str, str] = {}
    for path in sorted(place.glob("*.jsonl*")):
        texts |= {document: text for _, (document, text) in read_rows(path, _DOCUMENT, form="jsonl")}
    shards = {path.stem: path for path in sorted(place.glob("*.parquet"))}
    drawn = [document for document in _draw(shards, options.distractors) if document not in judged]
    texts |= _read_rows((judged | set(drawn)) - texts.keys(), shards, options.text)
    return texts, sorted(texts.keys() - judged)


def _draw(shards: Mapping[str, Path], count: int) -> list[str]:
    ends = dict(zip(shards, accumulate(pq.read_metadata(path).num_rows for path in shards.values()), strict=True))
    total = max(ends.values(), default=0)
    places = sorted(random.Random(_SEED).sample(range(total), min(count, total)))  # noqa: S311 -- a fixed draw
    stems, bounds = list(ends), list(ends.values())
    found = []
    for place in places:
        at = bisect_right(bounds, place)
        found.append(f"{stems[at]}_{place - (bounds[at - 1] if at else 0)}")
    return found


def _read_rows(documents: Iterable[str], shards: Mapping[str, Path], column: str) -> dict[str, str]:
    """Return the texts of those of ``documents``, ids of the form ``shard_00071_31411``, whose shard is there."""
    rows_by_shard: dict[str, list[int]] = {}
    for document in documents:
        stem, _, row = document.rpartition("_")
        if stem in shards and row.isdecimal():
            rows_by_shard.setdefault(stem, []).append(int(row))
    texts: dict[str, str] = {}
    for stem, rows in rows_by_shard.items():
        texts |= {f"{stem}_{row}": text for row, text in _rows_of(shards[stem], rows, column).items()}
    return texts


def _rows_of(path: Path, rows: Sequence[int], column: str) -> dict[int, str]:
    """Return some rows of a shard, reading only the row groups that hold them; rows beyond its end are left out."""
    texts: dict[int, str] = {}
    with pq.ParquetFile(path) as file:
        if column not in (names := file.schema_arrow.names):
            raise SchemaError(f"{path}: no column '{column}'; found {', '.join(names)}")
        start = 0
        for group in range(file.num_row_groups):
            inside = [row for row in rows if start <= row < start + file.metadata.row_group(group).num_rows]
            if inside:
                values = file.read_row_group(group, columns=[column]).column(column)
                texts |= {row: values[row - start].as_py() or "" for row in inside}
            start += file.metadata.row_group(group).num_rows
    return texts
