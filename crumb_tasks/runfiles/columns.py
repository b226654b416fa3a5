"""Rows of a run file gathered into columns while the file is read, then one `Run`.

The line of each query's rows is remembered, for the message about a document that a query holds twice.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.errors import RunFileError
from crumb_tasks.runfiles.compression import RunBytes
from crumb_tasks.runfiles.interning import Interner
from crumb_tasks.runfiles.ordering import RepeatedDocumentError, Rows
from crumb_tasks.runs import Run, offsets_of

Repeats = Literal["refuse", "best"]
_BATCH_ROWS = 2**13
_MOST_ROWS = 2**31 - 1
_SHOWN = 120
_MOST_NAMED = 3
_EMPTY_ID = "an id is empty; every query and document needs one"


class RunColumns:
    """Collects rows in file order; `finish` checks and ranks them.

    Args:
        source: The file, for messages.
        repeats: What becomes of a document that a query holds twice: ``refuse`` names both lines, ``best`` keeps the
            higher score.
        remedy: What to do about such a document, for the message.

    Attributes:
        n_repeated: Rows that ``best`` dropped.
        n_contradicting: Queries whose ranks, where the file has some, order two documents against their scores.
        counts_up: Whether the scores of each query are 1, 2, 3 … in the order of the rows, as ranks would be.
        n_rejoined: Places where a query that stood before stands again.
        rejoined: The first of them, at most three: the query and, where the format has lines, its line.
    """

    def __init__(self, source: RunBytes, repeats: Repeats = "refuse", remedy: str = "keep one") -> None:
        self._source = source
        self._remedy = remedy
        self._repeats = repeats
        self._position: dict[str, int] = {}
        self._block_query = array("q")
        self._block_rows = array("q")
        self._documents = Interner()
        self._passages: Interner | None = None
        self._scores = array("d")
        self._ranks: array[int] | None = array("i")
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
        self.counts_up = False
        self.n_rejoined = 0
        self.rejoined: list[tuple[str, int | None]] = []

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
        if not self._ready:
            return
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
            RunFileError: An id is empty, a score is NaN, or only some rows have a passage.
        """
        self._refuse_rows(queries, doc_ids, scores, lines, int(row_lines))
        if len(doc_ids) and (passage_ids is None) != (self._passages is None):
            if self._n_rows or passage_ids is None:
                raise self._source.error(
                    "only some documents have a passage_id; give it to all or to none", lines[0] if len(lines) else None
                )
            self._passages = Interner()
        if self._passages is not None and passage_ids is not None:
            self._passages.add(passage_ids)
        for at, (query_id, n_rows) in enumerate(queries):
            # rows of one query may go on in the next piece; a record that names it anew does not
            self._place(
                query_id, n_rows, lines[at] if len(lines) else None, is_record=bool(len(lines)) and not row_lines
            )
            if len(lines):
                self._line_starts.append(self._n_rows)
                self._lines.append(lines[at])
            self._n_rows += n_rows
        self._line_step = int(row_lines)
        self._documents.add(doc_ids)
        self._scores.frombytes(scores.tobytes())
        if ranks is None:
            self._ranks = None
        elif self._ranks is not None:
            self._ranks.frombytes(ranks.tobytes())
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
        scores = np.frombuffer(self._scores, dtype=np.float64)
        ranks = np.frombuffer(self._ranks, dtype=np.int32) if self._ranks else None
        counts = np.zeros(len(self._position), dtype=np.int64)
        np.add.at(counts, np.asarray(self._block_query, dtype=np.int64), np.asarray(self._block_rows, dtype=np.int64))
        offsets = offsets_of(counts)
        rows = Rows(offsets, codes, scores, passage_codes, ranks)
        by_query = self._by_query()
        if by_query is not None:
            rows.gather(by_query)
        n_documents = max(len(documents), 1)
        if self._repeats == "refuse":
            try:
                rows.refuse_repeats(n_documents)
            except RepeatedDocumentError as error:
                raise self._repeated(
                    error, documents.ids[rows.codes[error.second]].as_py(), offsets, by_query
                ) from None
        self.n_contradicting = rows.count_contradicting()
        self.counts_up = rows.count_up()
        rows.sort()
        run = Run(tuple(self._position), offsets, documents, rows.codes, rows.scores, passages, rows.passage_codes)
        if self._repeats == "refuse" or (kept := rows.first_places(n_documents)).all():
            return run
        self.n_repeated = int(len(kept) - kept.sum())
        return run.rows(kept)

    def _place(self, query_id: str, n_rows: int, line: int | None, *, is_record: bool) -> None:
        known = len(self._position)
        at = self._position.setdefault(query_id, known)
        if at < known and (is_record or (n_rows and at != self._block_query[-1])):
            self.n_rejoined += 1
            if len(self.rejoined) < _MOST_NAMED:
                self.rejoined.append((_short(query_id), line))
        self._block_query.append(at)
        self._block_rows.append(n_rows)

    def _by_query(self) -> NDArray[np.int64] | None:
        """Return the order that puts each query's rows together, ``None`` when the file has it."""
        blocks = np.asarray(self._block_query, dtype=np.int64)
        if (blocks[1:] >= blocks[:-1]).all():
            return None
        return np.argsort(np.repeat(blocks, np.asarray(self._block_rows, dtype=np.int64)), kind="stable")

    def _refuse_rows(
        self,
        queries: Sequence[tuple[str, int]],
        doc_ids: pa.Array,
        scores: NDArray[np.float64],
        lines: Sequence[int],
        step: int,
    ) -> None:
        """Refuse a row without an id or a number, naming its line."""
        for at, (query_id, _) in enumerate(queries):
            if not query_id:
                raise self._source.error(_EMPTY_ID, lines[at] if len(lines) else None)
        empty = pc.equal(pc.binary_length(doc_ids), 0).to_numpy(zero_copy_only=False)
        bad = np.flatnonzero(np.isnan(scores) | empty.astype(bool))
        if not bad.size:
            return
        row = int(bad[0])
        ends = np.cumsum([n_rows for _, n_rows in queries])
        at = int(np.searchsorted(ends, row, side="right"))
        first = int(ends[at]) - queries[at][1]
        line = lines[at] + step * (row - first) if len(lines) else None
        if empty[row]:
            raise self._source.error(_EMPTY_ID, line)
        raise self._source.error(
            f"query '{_short(queries[at][0])}': the score of document '{_short(str(doc_ids[row]))}' is NaN; every "
            "document needs a number",
            line,
        )

    def _repeated(
        self, error: RepeatedDocumentError, doc_id: str, offsets: NDArray[np.int64], by_query: NDArray[np.int64] | None
    ) -> RunFileError:
        query_id = list(self._position)[int(np.searchsorted(offsets, error.second, side="right")) - 1]
        rows = (error.first, error.second)
        first, second = (self._line_of(row if by_query is None else int(by_query[row])) for row in rows)
        where = f" (first on line {first})" if first != second else ""
        return self._source.error(
            f"document '{_short(doc_id)}' appears twice for query '{_short(query_id)}'{where}; {self._remedy}",
            second,
        )

    def _line_of(self, row: int) -> int | None:
        if not self._lines:
            return None
        block = bisect_right(self._line_starts, row) - 1
        return self._lines[block] + self._line_step * (row - self._line_starts[block])


def _short(name: str) -> str:
    """Return an id as messages show it."""
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
