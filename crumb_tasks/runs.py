"""A run: for each query a ranking of documents, in columns, under one total order.

The order is trec_eval's: score descending in float64, then document id descending (by code point, which for UTF-8 is
the byte order that trec_eval compares). Measures, truncation, MaxP and export all read a run in this order and never
sort again, so that no two of them can break a tie differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.errors import DataError, RunError
from crumb_tasks.id_order import ascending_rows

_NO_NUMBERS: Final = frozenset({bool, np.bool_, str, np.str_, bytes, np.bytes_, bytearray, type(None)})


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Distinct ids, ascending, so that comparing two codes compares their ids.

    Attributes:
        ids: Distinct ids in ascending order.
    """

    ids: pa.StringArray

    @classmethod
    def encode(cls, ids: pa.Array | pa.ChunkedArray | Sequence[str]) -> tuple[Self, NDArray[np.int32]]:
        """Return the vocabulary of ``ids`` and for each id its code, an int32 index into the vocabulary.

        Raises:
            DataError: An id is null.
        """
        column = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids, type=pa.string())
        if column.null_count:
            row = pc.index(column.is_null(), value=True).as_py()
            raise DataError(f"the id in row {row} is null; every row needs one")
        encoded = column.cast(pa.string()).dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        vocabulary, code_by_found = cls.of_distinct(encoded.dictionary)
        return vocabulary, code_by_found[encoded.indices.to_numpy(zero_copy_only=False)]

    @classmethod
    def of_distinct(cls, ids: pa.StringArray) -> tuple[Self, NDArray[np.int32]]:
        """Return the vocabulary of distinct ``ids`` in any order, and the code of each."""
        order, _ = ascending_rows(ids)
        codes = np.empty(len(order), dtype=np.int32)
        codes[order] = np.arange(len(order), dtype=np.int32)
        return cls(ids.take(pa.array(order))), codes

    def __len__(self) -> int:
        """Return the number of distinct ids."""
        return len(self.ids)

    def decode(self, codes: NDArray[np.integer[Any]]) -> pa.StringArray:
        """Return the ids that ``codes`` stand for, in the order of ``codes``."""
        return self.ids.take(pa.array(codes))

    def find(self, ids: pa.Array | Sequence[str]) -> NDArray[np.int64]:
        """Return the code of each id, -1 where the vocabulary lacks it."""
        wanted = ids if isinstance(ids, pa.Array) else pa.array(ids, type=pa.string())
        found = pc.index_in(wanted, value_set=self.ids)
        return np.asarray(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Run:
    """Rankings in columns; the ranking of query ``i`` is the slice ``offsets[i]:offsets[i + 1]``, best first.

    Build it with `from_dict` or `from_columns`; both validate and sort.

    Attributes:
        query_ids: One id per ranking, distinct.
        offsets: int64, length ``len(query_ids) + 1``.
        documents: Vocabulary of the document ids that occur.
        codes: int32, length ``offsets[-1]``: a document's code at each rank.
        scores: float64, same length: a system's number for a document; higher is better.
        passages: After MaxP the vocabulary of the winning passages, else ``None``.
        passage_codes: After MaxP the winning passage of each document, else ``None``.
    """

    query_ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    documents: Vocabulary
    codes: NDArray[np.int32]
    scores: NDArray[np.float64]
    passages: Vocabulary | None = None
    passage_codes: NDArray[np.int32] | None = None

    @classmethod
    def from_columns(
        cls,
        query_ids: Sequence[str],
        query_index: NDArray[np.integer[Any]],
        doc_ids: pa.Array | pa.ChunkedArray | Sequence[str],
        scores: NDArray[Any] | Sequence[Any],
        *,
        passage_ids: pa.Array | Sequence[str] | None = None,
        repeats: Literal["refuse", "best"] = "refuse",
    ) -> Self:
        """Build a run from one row per retrieved document, in any row order.

        Args:
            query_ids: Distinct query ids; a query without rows keeps an empty ranking.
            query_index: For each row the position of its query in ``query_ids``.
            doc_ids: For each row the document id.
            scores: For each row a number; NumPy and torch scalars are welcome.
            passage_ids: For each row the passage that won the document's place, if any.
            repeats: What becomes of a document that a query holds twice: ``best`` keeps its first place, which is
                what MaxP does to passages that carry their document's id.

        Raises:
            RunError: A score is NaN, a query id stands there twice, or a document does and ``repeats`` refuses it.
        """
        documents, codes = Vocabulary.encode(doc_ids)
        values = _as_floats(scores)
        if not values.shape == codes.shape == np.shape(query_index):
            raise RunError(
                f"each row has a query, a document and a number: there are {np.shape(query_index)}, {codes.shape} "
                f"and {values.shape}"
            )
        passages, passage_codes = (None, None) if passage_ids is None else Vocabulary.encode(passage_ids)
        return cls.from_codes(
            query_ids,
            query_index,
            documents,
            codes,
            values,
            passages=passages,
            passage_codes=passage_codes,
            repeats=repeats,
        )

    @classmethod
    def from_codes(
        cls,
        query_ids: Sequence[str],
        query_index: NDArray[np.integer[Any]],
        documents: Vocabulary,
        codes: NDArray[np.int32],
        scores: NDArray[Any],
        *,
        passages: Vocabulary | None = None,
        passage_codes: NDArray[np.int32] | None = None,
        repeats: Literal["refuse", "best"] = "refuse",
    ) -> Self:
        """Build a run from rows whose documents are codes of a vocabulary already; else as `from_columns`."""
        if len(set(query_ids)) != len(query_ids):
            twice = next(query_id for query_id, count in Counter(query_ids).items() if count > 1)
            raise RunError(f"query '{twice}' stands there twice; a run has one ranking for each query")
        queries = np.asarray(query_index, dtype=np.int64)
        values = np.asarray(scores, dtype=np.float64)
        if (nan := np.isnan(values)).any():
            row = int(np.flatnonzero(nan)[0])
            raise RunError(
                f"query '{query_ids[queries[row]]}': the score of document '{documents.ids[codes[row]]}' is NaN; "
                "a ranking needs a number for every document"
            )
        order = _total_order(queries, values, codes, passage_codes)
        if order is not None:
            queries, codes, values = queries[order], codes[order], values[order]
            passage_codes = None if passage_codes is None else passage_codes[order]
        first = _first_places(query_ids, queries, documents, codes, repeats)
        if first is not None:
            queries, codes, values = queries[first], codes[first], values[first]
            passage_codes = None if passage_codes is None else passage_codes[first]
        counts = np.bincount(queries, minlength=len(query_ids)).astype(np.int64)
        return cls(
            query_ids=tuple(query_ids),
            offsets=offsets_of(counts),
            documents=documents,
            codes=codes,
            scores=values,
            passages=passages,
            passage_codes=passage_codes,
        )

    @classmethod
    def from_dict(
        cls, score_by_doc_by_query: Mapping[Any, Mapping[Any, Any]], *, repeats: Literal["refuse", "best"] = "refuse"
    ) -> Self:
        """Build a run from ``{query id: {document id: score}}``; ids may be any type whose ``str`` is the id.

        Raises:
            RunError: As `from_columns`; also when a score is not a number, text and truth values included, or a ranking
                is no mapping.
        """
        _refuse_no_mapping(score_by_doc_by_query)
        query_ids = [str(query_id) for query_id in score_by_doc_by_query]
        doc_ids: list[str] = []
        scores: list[float] = []
        counts: list[int] = []
        for query_id, score_by_doc in score_by_doc_by_query.items():
            _refuse_no_mapping(score_by_doc, f"query '{query_id}': the ranking")
            _refuse_no_numbers(query_id, score_by_doc)
            counts.append(len(score_by_doc))
            doc_ids.extend(map(str, score_by_doc))
            try:
                scores.extend(map(float, score_by_doc.values()))
            except (TypeError, ValueError) as error:
                raise RunError(f"query '{query_id}': a score is not a number ({error})") from error
        query_index = np.repeat(np.arange(len(query_ids), dtype=np.int64), counts)
        return cls.from_columns(query_ids, query_index, doc_ids, np.asarray(scores, dtype=np.float64), repeats=repeats)

    def __len__(self) -> int:
        """Return the number of rankings."""
        return len(self.query_ids)

    @property
    def depths(self) -> NDArray[np.int64]:
        """Number of documents retrieved for each query."""
        return np.diff(self.offsets)

    @property
    def depth(self) -> int:
        """Number of documents of the longest ranking."""
        return int(self.depths.max(initial=0))

    @property
    def row_queries(self) -> NDArray[np.int64]:
        """For each row the position of its query in ``query_ids``."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.depths)

    @property
    def row_ranks(self) -> NDArray[np.int64]:
        """For each row its rank, counted from 1."""
        return np.arange(len(self.codes), dtype=np.int64) - np.repeat(self.offsets[:-1], self.depths) + 1

    def rows(self, keep: NDArray[np.bool_]) -> Self:
        """Return the run with only the rows where ``keep`` is true; rankings may become empty."""
        counts = np.bincount(self.row_queries[keep], minlength=len(self)).astype(np.int64)
        return self._take(self.query_ids, offsets_of(counts), keep)

    def truncate(self, depth: int) -> Self:
        """Return the first ``depth`` documents of each query."""
        return self if self.depth <= depth else self.rows(self.row_ranks <= depth)

    def select(self, query_ids: Iterable[str]) -> Self:
        """Return the rankings of ``query_ids``, in that order; a query without a ranking gets an empty one."""
        wanted = tuple(query_ids)
        if wanted == self.query_ids:
            return self
        position = {query_id: index for index, query_id in enumerate(self.query_ids)}
        at = np.array([position.get(query_id, -1) for query_id in wanted], dtype=np.int64)
        counts = np.where(at >= 0, np.append(self.depths, 0)[at], 0)
        offsets = offsets_of(counts)
        starts = np.where(at >= 0, self.offsets[at], 0)
        rows = np.arange(offsets[-1], dtype=np.int64) + np.repeat(starts - offsets[:-1], counts)
        return self._take(wanted, offsets, rows)

    def _take(self, query_ids: tuple[str, ...], offsets: NDArray[np.int64], rows: NDArray[Any]) -> Self:
        return replace(
            self,
            query_ids=query_ids,
            offsets=offsets,
            codes=self.codes[rows],
            scores=self.scores[rows],
            passage_codes=None if self.passage_codes is None else self.passage_codes[rows],
        )

    def ranking(self, query_id: str) -> list[tuple[str, float]]:
        """Return ``(document id, score)`` of one query, best first; empty when the run lacks it."""
        if query_id not in self.query_ids:
            return []
        at = self.query_ids.index(query_id)
        part = slice(int(self.offsets[at]), int(self.offsets[at + 1]))
        return list(zip(self.documents.decode(self.codes[part]).to_pylist(), self.scores[part].tolist(), strict=True))

    def to_dict(self, *, passages: bool = False) -> dict[str, dict[str, float]]:
        """Return ``{query id: {document id: score}}``, best first.

        Args:
            passages: Give the winning passage's id instead of the document's, where MaxP left one.
        """
        vocabulary, codes = self.documents, self.codes
        if passages and self.passages is not None and self.passage_codes is not None:
            vocabulary, codes = self.passages, self.passage_codes
        ids = vocabulary.decode(codes).to_pylist()
        scores = self.scores.tolist()
        bounds = self.offsets.tolist()
        return {
            query_id: dict(zip(ids[start:end], scores[start:end], strict=True))
            for query_id, start, end in zip(self.query_ids, bounds, bounds[1:], strict=False)
        }


def _refuse_no_mapping(value: object, what: str = "the run") -> None:
    if not isinstance(value, Mapping):
        raise RunError(f"{what} is of type {type(value).__name__}; expected {{query id: {{document id: score}}}}")


def _refuse_no_numbers(query_id: object, score_by_doc: Mapping[Any, Any]) -> None:
    """Refuse what ``float`` would take for a number: ``"1"`` and ``True``."""
    wrong = _NO_NUMBERS.intersection(map(type, score_by_doc.values()))
    if wrong:
        doc_id, score = next((doc_id, score) for doc_id, score in score_by_doc.items() if type(score) in wrong)
        raise RunError(
            f"query '{query_id}': the score of document '{doc_id}' is {score!r}, of type {type(score).__name__}, so "
            "it is not a number; give one"
        )


def _as_floats(scores: NDArray[Any] | Sequence[Any]) -> NDArray[np.float64]:
    try:
        given = np.asarray(scores)
        if given.dtype.kind in "bSU":  # NumPy would read text and truth values as numbers
            raise RunError(f"a score is not a number (they are {given.dtype.name}); give numbers")
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):  # such as torch's bfloat16, which NumPy cannot read as an array
        try:
            return np.array([float(score) for score in scores], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise RunError(f"a score is not a number ({error})") from error


def offsets_of(counts: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return where slices of these lengths begin and, last, where the last of them ends: one more than ``counts``."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def _total_order(
    queries: NDArray[np.int64],
    scores: NDArray[np.float64],
    codes: NDArray[np.int32],
    passage_codes: NDArray[np.int32] | None,
) -> NDArray[np.int64] | None:
    """Return the order (query, score descending, document descending, passage descending), ``None`` where it holds.

    Systems write rankings best first, so that most rows are in order already; only the rows that tie are sorted
    with all their keys.
    """
    same = queries[1:] == queries[:-1]
    tied = same & (scores[1:] == scores[:-1])
    falling = (queries[1:] > queries[:-1]) | (same & (scores[1:] < scores[:-1]))
    order: NDArray[np.int64] | None = None
    if not (falling | tied).all():
        order = np.lexsort((-scores, queries))
        queries, scores = queries[order], scores[order]
        tied = (queries[1:] == queries[:-1]) & (scores[1:] == scores[:-1])
    if not tied.any():
        return order
    if order is None:
        order = np.arange(len(queries), dtype=np.int64)
    in_tie = np.append(tied, False) | np.append(False, tied)
    rows = np.flatnonzero(in_tie)
    group = np.cumsum(~np.append(False, tied))[rows]
    last = np.zeros(len(rows), dtype=np.int32) if passage_codes is None else passage_codes[order[rows]]
    order[rows] = order[rows][np.lexsort((-last, -codes[order[rows]], group))]
    return order


def _first_places(
    query_ids: Sequence[str],
    queries: NDArray[np.int64],
    documents: Vocabulary,
    codes: NDArray[np.int32],
    repeats: Literal["refuse", "best"],
) -> NDArray[np.int64] | None:
    """Return the rows that are a document's first in its query, ``None`` when all are."""
    width = max(len(documents), 1)
    pairs = queries * width + codes
    ascending = np.sort(pairs)
    repeated = np.flatnonzero(ascending[1:] == ascending[:-1])
    if not repeated.size:
        return None
    if repeats == "refuse":
        query, code = divmod(int(ascending[repeated[0]]), width)
        raise RunError(
            f"query '{query_ids[query]}': document '{documents.ids[code]}' appears twice; keep one, or the best of "
            "passages that share an id (repeats='best')"
        )
    return np.sort(np.unique(pairs, return_index=True)[1])
