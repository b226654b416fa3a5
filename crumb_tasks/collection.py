"""A collection: corpus, queries, qrels and what goes with them, loaded and normalised.

A loader makes it, everything behind reads it. Ids are strings, texts are never null, a judgement is an integer grade.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.errors import DataError
from crumb_tasks.runs import Vocabulary, offsets_of

_LARGEST_GRADE = 2**53
"""Beyond it float64 skips integers."""


@dataclass(frozen=True, eq=False)
class Qrels:
    """Judgements in columns; those of query ``i`` are the slice ``offsets[i]:offsets[i + 1]``.

    A query with an empty slice is known but unjudged. Build it with `from_dict` or `from_columns`.

    Attributes:
        query_ids: Distinct query ids.
        offsets: int64, length ``len(query_ids) + 1``.
        documents: Vocabulary of the judged document ids.
        codes: int32: the judged document of each row.
        grades: int64: its grade.
        n_repeated: Equal judgements that stood there more than once and were dropped.
        n_truncated: Fractional grades that were cut to integers (only where the card says ``labels = "truncate"``).
    """

    query_ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    documents: Vocabulary
    codes: NDArray[np.int32]
    grades: NDArray[np.int64]
    n_repeated: int = 0
    n_truncated: int = 0

    @classmethod
    def from_columns(
        cls,
        query_ids: Sequence[str],
        query_index: NDArray[np.integer[Any]],
        doc_ids: pa.Array | pa.ChunkedArray | Sequence[str],
        grades: NDArray[Any] | Sequence[Any],
        *,
        labels: Literal["integral", "truncate"] = "integral",
        name: str = "qrels",
    ) -> Self:
        """Build qrels from one row per judgement.

        Args:
            query_ids: Distinct query ids; a query without rows is unjudged.
            query_index: For each row the position of its query in ``query_ids``.
            doc_ids: For each row the judged document.
            grades: For each row a number.
            labels: ``integral`` refuses a fractional grade, ``truncate`` cuts it towards zero and counts it.
            name: What a message calls these judgements.

        Raises:
            DataError: A grade is NaN or fractional, two judgements of one document differ, or a query id stands there
                twice.
        """
        _refuse_repeated_queries(query_ids, name)
        documents, codes = Vocabulary.encode(doc_ids)
        rows_query = np.asarray(query_index, dtype=np.int64)
        values = np.asarray(grades, dtype=np.float64)
        whole = np.trunc(values)
        fractional = whole != values  # true for NaN as well
        refused = ~(np.abs(values) <= _LARGEST_GRADE) | (fractional & (labels == "integral"))
        if refused.any():
            row = int(np.flatnonzero(refused)[0])
            remedy = ', or declare labels = "truncate" in the card' if np.isfinite(values[row]) else ""
            raise DataError(
                f"{name}: query '{query_ids[rows_query[row]]}', document '{documents.ids[codes[row]]}': grade "
                f"{values[row]:g} is no integer; correct it{remedy}"
            )
        order = np.lexsort((codes, rows_query))
        rows_query, codes, kept = rows_query[order], codes[order], whole[order].astype(np.int64)
        repeated = np.zeros(len(codes), dtype=bool)
        repeated[1:] = (rows_query[1:] == rows_query[:-1]) & (codes[1:] == codes[:-1])
        conflict = repeated.copy()
        conflict[1:] &= kept[1:] != kept[:-1]
        if conflict.any():
            row = int(np.flatnonzero(conflict)[0])
            raise DataError(
                f"{name}: query '{query_ids[rows_query[row]]}' judges document '{documents.ids[codes[row]]}' twice, "
                f"as {kept[row - 1]} and as {kept[row]}; keep one judgement"
            )
        rows_query, codes, kept = rows_query[~repeated], codes[~repeated], kept[~repeated]
        counts = np.bincount(rows_query, minlength=len(query_ids)).astype(np.int64)
        return cls(
            query_ids=tuple(query_ids),
            offsets=offsets_of(counts),
            documents=documents,
            codes=codes,
            grades=kept,
            n_repeated=int(repeated.sum()),
            n_truncated=int(fractional.sum()),
        )

    @classmethod
    def from_dict(
        cls,
        grade_by_doc_by_query: Mapping[Any, Mapping[Any, Any]],
        *,
        labels: Literal["integral", "truncate"] = "integral",
        name: str = "qrels",
    ) -> Self:
        """Build qrels from ``{query id: {document id: grade}}``; errors as `from_columns`."""
        query_ids = [str(query_id) for query_id in grade_by_doc_by_query]
        counts = [len(grade_by_doc) for grade_by_doc in grade_by_doc_by_query.values()]
        doc_ids = [str(doc_id) for grade_by_doc in grade_by_doc_by_query.values() for doc_id in grade_by_doc]
        grades = [
            _as_float(grade, name, query_id, doc_id)
            for query_id, grade_by_doc in grade_by_doc_by_query.items()
            for doc_id, grade in grade_by_doc.items()
        ]
        query_index = np.repeat(np.arange(len(query_ids), dtype=np.int64), counts)
        return cls.from_columns(query_ids, query_index, doc_ids, grades, labels=labels, name=name)

    def __len__(self) -> int:
        """Return the number of queries, unjudged ones included."""
        return len(self.query_ids)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of judgements of each query."""
        return np.diff(self.offsets)

    @property
    def row_queries(self) -> NDArray[np.int64]:
        """For each row the position of its query in ``query_ids``."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.counts)

    def select(self, query_ids: Iterable[str]) -> Self:
        """Return the judgements of ``query_ids``, in that order; a query that these qrels lack is unjudged."""
        wanted = tuple(query_ids)
        if wanted == self.query_ids:
            return self
        position = {query_id: index for index, query_id in enumerate(self.query_ids)}
        at = np.array([position.get(query_id, -1) for query_id in wanted], dtype=np.int64)
        counts = np.where(at >= 0, np.append(self.counts, 0)[at], 0)
        offsets = offsets_of(counts)
        rows = np.arange(offsets[-1], dtype=np.int64) + np.repeat(self.offsets[at] - offsets[:-1], counts)
        return replace(self, query_ids=wanted, offsets=offsets, codes=self.codes[rows], grades=self.grades[rows])

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Return ``{query id: {document id: grade}}``; unjudged queries have an empty mapping."""
        ids = self.documents.decode(self.codes).to_pylist()
        grades = self.grades.tolist()
        bounds = self.offsets.tolist()
        return {
            query_id: dict(zip(ids[start:end], grades[start:end], strict=True))
            for query_id, start, end in zip(self.query_ids, bounds, bounds[1:], strict=False)
        }


def _refuse_repeated_queries(query_ids: Sequence[str], name: str) -> None:
    if len(set(query_ids)) != len(query_ids):
        twice = next(query_id for query_id, count in Counter(query_ids).items() if count > 1)
        raise DataError(f"{name}: query '{twice}' stands there twice; ids of queries are distinct")


def _as_float(grade: Any, name: str, query_id: object, doc_id: object) -> float:
    try:
        return float(grade)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name}: query '{query_id}', document '{doc_id}': grade {grade!r} is no number") from error


@dataclass(frozen=True, eq=False)
class Collection:
    """One split of one task, ready to be searched and scored.

    Attributes:
        name: The task's name.
        split: The split's name in this package (``test``, ``validation``).
        corpus: Columns ``id``, ``title``, ``text`` (string, never null); a loader may add more, none called
            ``instruction`` and none nullable, since MTEB batches them. Memory-mapped where the loader can.
        queries: Columns ``id``, ``text`` (string, never null), optionally ``prompt`` (the query's instruction as data;
            it reaches a model as MTEB's query prompt). Where the text itself is made of both, ``instruction_part`` and
            ``query_part`` have them apart.
        qrels: Judgements per family: ``graded`` always, ``binary`` where the card names such labels.
        candidates: For re-ranking and multiple choice: the document ids that a query may rank, else ``None``. In
            multiple choice their order is that of the options, and options with equal texts share one document, which
            then stands there more than once.
        answers: For multiple choice: the position of the right option among a query's candidates, else empty.
        parents: For MaxP: the document that each corpus row stands for, aligned with ``corpus``, else ``None``.
        groups: Base query of each query variant (Robustness@k), else empty.
        exclusions: Documents that are taken out of a query's ranking before it is scored.
        nuggets: For diversity measures: per query the sub-topics and their relevant documents, else empty.
        query_labels: Named partitions of the queries, such as ``{"hops": {"q1": "2hop"}}``; results carry the main
            measures of each part as well.
        in_memory_only: The queries were decoded from an obfuscated release: nothing writes or shows their texts.
        n_empty_texts: Corpus rows whose text was empty and carries the card's placeholder.
        notes: What the loader found and did, one line each, stored with results.
    """

    name: str
    split: str
    corpus: pa.Table
    queries: pa.Table
    qrels: Mapping[str, Qrels]
    candidates: Mapping[str, Sequence[str]] | None = None
    parents: pa.StringArray | pa.ChunkedArray | None = None
    answers: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    exclusions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    nuggets: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    query_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    in_memory_only: bool = False
    n_empty_texts: int = 0
    notes: tuple[str, ...] = ()

    @property
    def graded(self) -> Qrels:
        """The graded judgements, which every collection has."""
        return self.qrels["graded"]

    def qrels_for(self, family: str) -> Qrels:
        """Return the judgements of ``family`` (``graded``, ``binary``); graded ones stand in for a missing family."""
        return self.qrels.get(family, self.qrels["graded"])

    @cached_property
    def n_documents(self) -> int:
        """Number of documents that a ranking can hold: parents where there are any, else corpus rows."""
        parents = self.parent_ids
        return int(self.corpus.num_rows if parents is None else pc.count_distinct(parents).as_py())

    @cached_property
    def corpus_ids(self) -> pa.ChunkedArray:
        """Ids of the corpus rows, as strings."""
        return self.corpus.column("id").cast(pa.string())

    @cached_property
    def parent_ids(self) -> pa.ChunkedArray | None:
        """Document of each corpus row, as strings; a row without one stands for itself."""
        if self.parents is None:
            return None
        chunks = self.parents.chunks if isinstance(self.parents, pa.ChunkedArray) else [self.parents]
        parents = pa.chunked_array(chunks, type=pa.string())
        return pc.coalesce(parents, self.corpus_ids) if parents.null_count else parents
