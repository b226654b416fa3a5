"""A run: for each query a ranking of documents, in columns, under one total order.

The order is trec_eval's: score descending in float64, then document id descending (by code point, which for UTF-8 is
the byte order that trec_eval compares). Measures, truncation, MaxP and export all read a run in this order and never
sort again, so that no two of them can break a tie differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.errors import RunError


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Distinct ids, ascending, so that comparing two codes compares their ids.

    Attributes:
        ids: Distinct ids in ascending order.
    """

    ids: pa.StringArray

    @classmethod
    def encode(cls, ids: pa.Array | pa.ChunkedArray | Sequence[str]) -> tuple[Self, NDArray[np.int32]]:
        """Return the vocabulary of ``ids`` and for each id its code, an int32 index into the vocabulary."""
        column = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids, type=pa.string())
        encoded = column.dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        found = encoded.dictionary.cast(pa.string())
        order = pc.sort_indices(found).to_numpy()
        code_by_found = np.empty(len(order), dtype=np.int32)
        code_by_found[order] = np.arange(len(order), dtype=np.int32)
        codes = code_by_found[encoded.indices.to_numpy(zero_copy_only=False)]
        return cls(found.take(pa.array(order))), codes

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
    ) -> Self:
        """Build a run from one row per retrieved document, in any row order.

        Args:
            query_ids: Distinct query ids; a query without rows keeps an empty ranking.
            query_index: For each row the position of its query in ``query_ids``.
            doc_ids: For each row the document id.
            scores: For each row a number; NumPy and torch scalars are welcome.
            passage_ids: For each row the passage that won the document's place, if any.

        Raises:
            RunError: A score is NaN, or a query holds a document twice.
        """
        documents, codes = Vocabulary.encode(doc_ids)
        values = np.asarray(scores, dtype=np.float64)
        rows_query = np.asarray(query_index, dtype=np.int64)
        if np.isnan(values).any():
            row = int(np.flatnonzero(np.isnan(values))[0])
            raise RunError(
                f"query '{query_ids[rows_query[row]]}': the score of document '{documents.ids[codes[row]]}' is NaN; "
                "a ranking needs a number for every document"
            )
        order = np.lexsort((-codes, -values, rows_query))
        rows_query, codes, values = rows_query[order], codes[order], values[order]
        _refuse_repeats(query_ids, rows_query, documents, codes)
        counts = np.bincount(rows_query, minlength=len(query_ids)).astype(np.int64)
        passages, passage_codes = (None, None) if passage_ids is None else Vocabulary.encode(passage_ids)
        return cls(
            query_ids=tuple(query_ids),
            offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)]),
            documents=documents,
            codes=codes,
            scores=values,
            passages=passages,
            passage_codes=None if passage_codes is None else passage_codes[order],
        )

    @classmethod
    def from_dict(cls, score_by_doc_by_query: Mapping[str, Mapping[str, Any]]) -> Self:
        """Build a run from ``{query id: {document id: score}}``; ids may be any type whose ``str`` is the id.

        Raises:
            RunError: As `from_columns`; also when a score is not a number.
        """
        query_ids = [str(query_id) for query_id in score_by_doc_by_query]
        doc_ids: list[str] = []
        scores: list[float] = []
        counts: list[int] = []
        for query_id, score_by_doc in score_by_doc_by_query.items():
            counts.append(len(score_by_doc))
            doc_ids.extend(map(str, score_by_doc))
            try:
                scores.extend(map(float, score_by_doc.values()))
            except (TypeError, ValueError) as error:
                raise RunError(f"query '{query_id}': a score is not a number ({error})") from error
        query_index = np.repeat(np.arange(len(query_ids), dtype=np.int64), counts)
        return cls.from_columns(query_ids, query_index, doc_ids, np.asarray(scores, dtype=np.float64))

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
        return type(self)(
            query_ids=self.query_ids,
            offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)]),
            documents=self.documents,
            codes=self.codes[keep],
            scores=self.scores[keep],
            passages=self.passages,
            passage_codes=None if self.passage_codes is None else self.passage_codes[keep],
        )

    def truncate(self, depth: int) -> Self:
        """Return the first ``depth`` documents of each query."""
        return self if self.depth <= depth else self.rows(self.row_ranks <= depth)

    def select(self, query_ids: Iterable[str]) -> Self:
        """Return the rankings of ``query_ids``, in that order; a query without a ranking gets an empty one."""
        position = {query_id: index for index, query_id in enumerate(self.query_ids)}
        wanted = list(query_ids)
        slices = [
            np.arange(self.offsets[at], self.offsets[at + 1], dtype=np.int64) if (at := position.get(query_id)) is not None
            else np.empty(0, dtype=np.int64)
            for query_id in wanted
        ]
        take = np.concatenate([np.empty(0, dtype=np.int64), *slices])
        return type(self)(
            query_ids=tuple(wanted),
            offsets=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum([len(part) for part in slices], dtype=np.int64)]),
            documents=self.documents,
            codes=self.codes[take],
            scores=self.scores[take],
            passages=self.passages,
            passage_codes=None if self.passage_codes is None else self.passage_codes[take],
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


def _refuse_repeats(
    query_ids: Sequence[str], rows_query: NDArray[np.int64], documents: Vocabulary, codes: NDArray[np.int32]
) -> None:
    pairs = rows_query * max(len(documents), 1) + codes
    pairs.sort()
    repeated = np.flatnonzero(pairs[1:] == pairs[:-1])
    if repeated.size:
        query, code = divmod(int(pairs[repeated[0]]), max(len(documents), 1))
        raise RunError(
            f"query '{query_ids[query]}': document '{documents.ids[code]}' appears twice; keep one, or score with "
            "--max-passage on when passages share an id"
        )
