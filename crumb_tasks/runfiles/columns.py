"""Rows of a run file gathered into columns while the file is read, then one `Run`.

Ids are replaced by codes as soon as enough have come together, so that memory follows the columns kept and not the text. Each row's
line is remembered in runs of rows, for the message about a document that a query holds twice.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.runfiles.compression import RunBytes
from crumb_tasks.runs import Run, Vocabulary

Repeats = Literal["refuse", "best"]
_GROUP_ROWS = 2**18
_BATCH_ROWS = 2**13
_MOST_ROWS = 2**31 - 1


class _Interner:
    """Codes for ids in order of first sight; ids wait until hashing them again costs no more than hashing them once."""

    def __init__(self) -> None:
        self._found = pa.array([], type=pa.string())
        self._waiting: list[pa.Array] = []
        self._n_waiting = 0
        self._codes: list[NDArray[np.int32]] = []

    def add(self, ids: pa.Array) -> None:
        self._waiting.append(ids)
        self._n_waiting += len(ids)
        if self._n_waiting >= max(_GROUP_ROWS, len(self._found)):
            self._encode()

    def finish(self) -> tuple[Vocabulary, NDArray[np.int32]]:
        self._encode()
        order = pc.sort_indices(self._found).to_numpy()
        code_by_found = np.empty(len(order), dtype=np.int32)
        code_by_found[order] = np.arange(len(order), dtype=np.int32)
        vocabulary = Vocabulary(self._found.take(pa.array(order)))
        codes = np.concatenate([np.empty(0, dtype=np.int32), *self._codes])
        self._codes = []
        return vocabulary, code_by_found[codes]

    def _encode(self) -> None:
        if not self._waiting:
            return
        encoded = pa.chunked_array([self._found, *self._waiting]).dictionary_encode().combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().chunk(0)
        codes = encoded.indices.to_numpy(zero_copy_only=False)[len(self._found) :]
        self._codes.append(codes.astype(np.int32))
        self._found, self._waiting, self._n_waiting = encoded.dictionary, [], 0


class RunColumns:
    """Collects rows in file order; `finish` checks and ranks them.

    Args:
        source: The file, for messages.
        repeats: What to do with a document that a query holds twice: ``refuse`` names both lines, ``best`` keeps the higher score.

    Attributes:
        n_repeated: Rows that ``best`` dropped.
        n_contradicting: Queries whose ranks, where the file has some, order two documents against their scores.
        rejoined: Queries whose rows stand in more than one place, at most three.
    """

    def __init__(self, source: RunBytes, repeats: Repeats = "refuse") -> None:
        self._source = source
        self._repeats = repeats
        self._position: dict[str, int] = {}
        self._block_query = array("q")
        self._block_rows = array("q")
        self._documents = _Interner()
        self._passages: _Interner | None = None
        self._scores: list[NDArray[np.float64]] = []
        self._ranks: list[NDArray[np.int32]] | None = []
        self._line_starts = array("q")
        self._lines = array("q")
        self._line_step = 0
        self._n_rows = 0
        self._ready: list[tuple[str, int]] = []
        self._ready_ids: list[str] = []
        self._ready_scores: list[float] = []
        self._ready_lines: list[int | None] = []
        self._ready_passages: list[str] | None = None
        self.n_repeated = 0
        self.n_contradicting = 0
        self.rejoined: list[str] = []

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self._n_rows

    def add_ranking(
        self,
        query_id: str,
        doc_ids: list[str],
        scores: list[float],
        line: int | None,
        passage_ids: list[str] | None = None,
    ) -> None:
        """Add one query's documents, all of which stand on ``line``; arguments and errors as `add`."""
        if self._ready and (passage_ids is None) != (self._ready_passages is None):
            self._flush()
        self._ready.append((query_id, len(doc_ids)))
        self._ready_lines.append(line)
        self._ready_ids += doc_ids
        self._ready_scores += scores
        if passage_ids is not None:
            self._ready_passages = [*(self._ready_passages or ()), *passage_ids]
        if len(self._ready_ids) >= _BATCH_ROWS or len(self._ready) >= _BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        ready, ids, scores = self._ready, self._ready_ids, self._ready_scores
        lines, passages = self._ready_lines, self._ready_passages
        self._ready, self._ready_ids, self._ready_scores, self._ready_lines, self._ready_passages = [], [], [], [], None
        self.add(
            ready,
            pa.array(ids, type=pa.string()),
            np.array(scores, dtype=np.float64),
            lines=[line for line in lines if line is not None],
            passage_ids=None if passages is None else pa.array(passages, type=pa.string()),
        )

    def add(
        self,
        queries: Sequence[tuple[str, int]],
        doc_ids: pa.Array,
        scores: NDArray[np.float64],
        *,
        lines: Sequence[int] = (),
        row_lines: bool = False,
        passage_ids: pa.Array | None = None,
        ranks: NDArray[np.int32] | None = None,
    ) -> None:
        """Add rows that stand together in the file.

        Args:
            queries: Query ids with their number of rows, in order; a query with none keeps an empty ranking.
            doc_ids: One id a row, no nulls.
            scores: One number a row.
            lines: For each of ``queries`` the line of its first row; empty where the format has no lines.
            row_lines: Each row has a line of its own, else all rows of a query stand on one.
            passage_ids: The passage that won each document's place, where the file says it: for all rows or for none.
            ranks: The file's own ranks, only to compare them with the scores; once ``None``, they are no longer kept.

        Raises:
            RunFileError: A score is NaN, or only some rows have a passage.
        """
        self._refuse_nan(queries, doc_ids, scores, lines, int(row_lines))
        if len(doc_ids) and (passage_ids is None) != (self._passages is None):
            if self._n_rows or passage_ids is None:
                raise self._source.error(
                    "only some documents have a passage_id; give it to all or to none", lines[0] if len(lines) else None
                )
            self._passages = _Interner()
        if self._passages is not None and passage_ids is not None:
            self._passages.add(passage_ids)
        for at, (query_id, n_rows) in enumerate(queries):
            self._place(query_id, n_rows)
            if len(lines):
                self._line_starts.append(self._n_rows)
                self._lines.append(lines[at])
            self._n_rows += n_rows
        self._line_step = int(row_lines)
        self._documents.add(doc_ids)
        self._scores.append(scores)
        if ranks is None:
            self._ranks = None
        elif self._ranks is not None:
            self._ranks.append(ranks)
        if self._n_rows > _MOST_ROWS:
            raise self._source.error(f"more than {_MOST_ROWS} rows; split the file by queries")

    def finish(self) -> Run:
        """Return the run in its total order.

        Raises:
            RunFileError: A query holds a document twice and ``repeats`` is ``refuse``.
        """
        self._flush()
        documents, codes = self._documents.finish()
        passages, passage_codes = (None, None) if self._passages is None else self._passages.finish()
        scores = np.concatenate([np.empty(0), *self._scores])
        self._scores = []
        ranks = None if not self._ranks else np.concatenate(self._ranks)
        self._ranks = None
        counts = np.zeros(len(self._position), dtype=np.int64)
        np.add.at(counts, np.asarray(self._block_query, dtype=np.int64), np.asarray(self._block_rows, dtype=np.int64))
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        by_query = self._by_query()
        if by_query is not None:
            codes, scores = codes[by_query], scores[by_query]
            passage_codes = None if passage_codes is None else passage_codes[by_query]
            ranks = None if ranks is None else ranks[by_query]
        dropped = self._order(documents, offsets, by_query, codes, scores, passage_codes, ranks)
        run = Run(tuple(self._position), offsets, documents, codes, scores, passages, passage_codes)
        return run if dropped is None else run.rows(~dropped)

    def _place(self, query_id: str, n_rows: int) -> None:
        known = len(self._position)
        at = self._position.setdefault(query_id, known)
        if at < known and n_rows and at != self._block_query[-1] and len(self.rejoined) < 3:
            self.rejoined.append(query_id)
        self._block_query.append(at)
        self._block_rows.append(n_rows)

    def _by_query(self) -> NDArray[np.int64] | None:
        """Return the order that puts each query's rows together, ``None`` when the file has it."""
        blocks = np.asarray(self._block_query, dtype=np.int64)
        if (blocks[1:] >= blocks[:-1]).all():
            return None
        return np.argsort(np.repeat(blocks, np.asarray(self._block_rows, dtype=np.int64)), kind="stable")

    def _order(
        self,
        documents: Vocabulary,
        offsets: NDArray[np.int64],
        by_query: NDArray[np.int64] | None,
        codes: NDArray[np.int32],
        scores: NDArray[np.float64],
        passage_codes: NDArray[np.int32] | None,
        ranks: NDArray[np.int32] | None,
    ) -> NDArray[np.bool_] | None:
        dropped = np.zeros(len(codes), dtype=bool) if self._repeats == "best" else None
        for queries, rows in _groups(offsets):
            query = np.repeat(queries, np.diff(offsets)[queries])
            code, score = codes[rows], scores[rows]
            pairs = query * max(len(documents), 1) + code
            if dropped is None:
                self._refuse_repeats(documents, pairs, rows.start, by_query)
            if ranks is not None:
                self.n_contradicting += _count_contradicting(query, ranks[rows], score)
            if not _is_ordered(query, code, score):
                order = np.lexsort((-code, -score, query))
                codes[rows], scores[rows], pairs = code[order], score[order], pairs[order]
                if passage_codes is not None:
                    passage_codes[rows] = passage_codes[rows][order]
            if dropped is not None:
                first = np.unique(pairs, return_index=True)[1]
                dropped[rows] = True
                dropped[rows.start + first] = False
        if dropped is None or not dropped.any():
            return None
        self.n_repeated = int(dropped.sum())
        return dropped

    def _refuse_nan(
        self,
        queries: Sequence[tuple[str, int]],
        doc_ids: pa.Array,
        scores: NDArray[np.float64],
        lines: Sequence[int],
        step: int,
    ) -> None:
        bad = np.isnan(scores)
        if not bad.any():
            return
        row = int(np.flatnonzero(bad)[0])
        ends = np.cumsum([n_rows for _, n_rows in queries])
        at = int(np.searchsorted(ends, row, side="right"))
        first = int(ends[at]) - queries[at][1]
        raise self._source.error(
            f"query '{queries[at][0]}': the score of document '{doc_ids[row]}' is NaN; a ranking needs a number for every document",
            lines[at] + step * (row - first) if len(lines) else None,
        )

    def _refuse_repeats(
        self, documents: Vocabulary, pairs: NDArray[np.int64], start: int, by_query: NDArray[np.int64] | None
    ) -> None:
        arranged = np.sort(pairs)
        if not (arranged[1:] == arranged[:-1]).any():
            return
        order = np.argsort(pairs, kind="stable")
        again = order[1:][pairs[order[1:]] == pairs[order[:-1]]]
        second = int(again.min())
        first = int(np.flatnonzero(pairs == pairs[second])[0])
        query, code = divmod(int(pairs[second]), max(len(documents), 1))
        lines = [
            self._line_of(start + row if by_query is None else int(by_query[start + row])) for row in (first, second)
        ]
        where = f" (first on line {lines[0]})" if lines[0] != lines[1] else ""
        raise self._source.error(
            f"document '{documents.ids[code]}' appears twice for query '{list(self._position)[query]}'{where}; keep one, or "
            "score with --max-passage on where passages carry their document's id",
            lines[1],
        )

    def _line_of(self, row: int) -> int | None:
        if not self._lines:
            return None
        block = bisect_right(self._line_starts, row) - 1
        return self._lines[block] + self._line_step * (row - self._line_starts[block])


def _groups(offsets: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], slice]]:
    """Yield queries with their rows in groups of at most `_GROUP_ROWS` rows, or of one query."""
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + _GROUP_ROWS, side="right")) - 1
        last = max(last, first + 1)
        yield np.arange(first, last, dtype=np.int64), slice(int(offsets[first]), int(offsets[last]))
        first = last


def _is_ordered(query: NDArray[Any], code: NDArray[Any], score: NDArray[Any]) -> bool:
    falls = score[:-1] > score[1:]
    tie = (score[:-1] == score[1:]) & (code[:-1] >= code[1:])
    return bool((falls | tie | (query[1:] != query[:-1])).all())


def _count_contradicting(query: NDArray[np.int64], rank: NDArray[np.int32], score: NDArray[np.float64]) -> int:
    if not ((rank[1:] >= rank[:-1]) | (query[1:] != query[:-1])).all():
        order = np.lexsort((rank, query))
        query, rank, score = query[order], rank[order], score[order]
    rises = (query[1:] == query[:-1]) & (rank[1:] > rank[:-1]) & (score[1:] > score[:-1])
    return len(np.unique(query[1:][rises]))
