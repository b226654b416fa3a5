"""Rows of a file put into a run's total order, a part at a time, so that no temporary is as long as the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GROUP_ROWS = 2**18
_FEWEST_RANKS = 3


class RepeatedDocumentError(Exception):
    """A query holds a document twice.

    Attributes:
        first: Row of its first place.
        second: Row of its second.
    """

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"rows {first} and {second} hold the same document for the same query")
        self.first = first
        self.second = second


@dataclass
class Rows:
    """Columns of rows that stand together by query; those of query ``i`` are ``offsets[i]:offsets[i + 1]``.

    Attributes:
        offsets: Where each query's rows begin, and the end.
        codes: Documents.
        scores: Scores.
        passage_codes: Winning passages, where the file has them.
        ranks: The file's own ranks, where it has them.
    """

    offsets: NDArray[np.int64]
    codes: NDArray[np.int32]
    scores: NDArray[np.float64]
    passage_codes: NDArray[np.int32] | None
    ranks: NDArray[np.int32] | None

    def gather(self, order: NDArray[np.int64]) -> None:
        """Put the rows into ``order``."""
        self.codes, self.scores = self.codes[order], self.scores[order]
        self.passage_codes = None if self.passage_codes is None else self.passage_codes[order]
        self.ranks = None if self.ranks is None else self.ranks[order]

    def refuse_repeats(self, n_documents: int) -> None:
        """Look for a document that a query holds twice.

        Raises:
            RepeatedDocumentError: There is one; it is the first in the file.
        """
        for part, query in self._groups():
            pairs = query * n_documents + self.codes[part]
            ascending = np.sort(pairs)
            if (ascending[1:] == ascending[:-1]).any():
                order = np.argsort(pairs, kind="stable")
                second = int(order[1:][pairs[order[1:]] == pairs[order[:-1]]].min())
                first = int(np.flatnonzero(pairs == pairs[second])[0])
                raise RepeatedDocumentError(part.start + first, part.start + second)

    def count_contradicting(self) -> int:
        """Return the number of queries in which a worse rank has a better score."""
        return (
            0
            if self.ranks is None
            else sum(_count_contradicting(query, self.ranks[part], self.scores[part]) for part, query in self._groups())
        )

    def count_up(self) -> bool:
        """Return whether each query's scores are 1, 2, 3 … (or 0, 1, 2 …) in the order of the rows, as ranks would be.

        One ranking at least has three documents; before `sort`.
        """
        if not len(self.codes) or int(np.diff(self.offsets).max()) < _FEWEST_RANKS:
            return False
        for part, query in self._groups():
            place = np.arange(part.start, part.stop) - self.offsets[query]
            first = self.scores[self.offsets[query]]
            if not (((first == 0) | (first == 1)) & (self.scores[part] == first + place)).all():
                return False
        return True

    def sort(self) -> None:
        """Put each query's rows into the order (score descending, document descending, passage descending)."""
        for part, query in self._groups():
            code, score = self.codes[part], self.scores[part]
            if _is_ordered(query, code, score):
                continue
            last = np.zeros_like(code) if self.passage_codes is None else self.passage_codes[part]
            order = np.lexsort((-last, -code, -score, query))
            self.codes[part], self.scores[part] = code[order], score[order]
            if self.passage_codes is not None:
                self.passage_codes[part] = last[order]
        self.ranks = None

    def first_places(self, n_documents: int) -> NDArray[np.bool_]:
        """Return for each sorted row whether it is its document's best in the query."""
        is_first = np.zeros(len(self.codes), dtype=bool)
        for part, query in self._groups():
            pairs = query * n_documents + self.codes[part]
            is_first[part.start + np.unique(pairs, return_index=True)[1]] = True
        return is_first

    def _groups(self) -> Iterator[tuple[slice, NDArray[np.int64]]]:
        """Yield at most `_GROUP_ROWS` rows of whole queries, or one query, with the query of each row."""
        counts = np.diff(self.offsets)
        first = 0
        while first < len(counts):
            end = int(np.searchsorted(self.offsets, self.offsets[first] + _GROUP_ROWS, side="right")) - 1
            end = max(end, first + 1)
            query = np.repeat(np.arange(first, end, dtype=np.int64), counts[first:end])
            yield slice(int(self.offsets[first]), int(self.offsets[end])), query
            first = end


def _is_ordered(query: NDArray[Any], code: NDArray[Any], score: NDArray[Any]) -> bool:
    falls = score[:-1] > score[1:]
    tie = (score[:-1] == score[1:]) & (code[:-1] > code[1:])
    return bool((falls | tie | (query[1:] != query[:-1])).all())


def _count_contradicting(query: NDArray[np.int64], rank: NDArray[np.int32], score: NDArray[np.float64]) -> int:
    if not ((rank[1:] >= rank[:-1]) | (query[1:] != query[:-1])).all():
        order = np.lexsort((rank, query))
        query, rank, score = query[order], rank[order], score[order]
    rises = (query[1:] == query[:-1]) & (rank[1:] > rank[:-1]) & (score[1:] > score[:-1])
    return len(np.unique(query[1:][rises]))
