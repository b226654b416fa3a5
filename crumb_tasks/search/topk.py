"""The running threshold: the best ``depth`` of each query while blocks of scores pass by, on the CPU.

A score and an ordinal (`crumb_tasks.search.order`) are packed into one int64, whose order is the total order. Each
query keeps a buffer of keys and its ``depth``-th best score so far. One comparison per score rejects nearly all of a
tile; what passes is appended, and only when a buffer is full is it cut to the best ``depth``, which raises the
threshold.

With MaxP the buffer holds passages and the cut first keeps the best passage of each parent. That is exact: a document
of the final top ``depth`` has its best passage above every threshold that there ever was, so the passage passes and
stays. Documents may straddle blocks and the corpus needs no order.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.runs import offsets_of

EMPTY = np.iinfo(np.int64).min
"""The key of an unused place: below every score, minus infinity included."""

_ORDINAL = 0xFFFFFFFF
_LANES = 8  # booleans in one 64-bit word, a power of two
_FLOOD = 16  # a tile of which one in so many scores passes is searched for mere ties first,
_DELUGE = 4  # and for neighbours of one document where it is one in so many
_ALL_BELOW = np.uint64(0x0101010101010101)
_CUT_ENTRIES = 1 << 17  # entries that a cut handles at once, a megabyte: they stay in the CPU's cache


class NaNScoreError(ArithmeticError):
    """A score is NaN; the search turns it into a `RunError` that names query and document."""

    def __init__(self, query: int, ordinal: int) -> None:
        super().__init__(f"NaN for query {query} and ordinal {ordinal}")
        self.query = query
        self.ordinal = ordinal


def pack(scores: NDArray[np.float32], ordinals: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return keys that compare like ``(score, ordinal)``.

    The bits of a float compare like an integer once those of negative numbers are flipped. Adding zero makes one zero
    of the two that IEEE 754 has.
    """
    bits = (scores + np.float32(0.0)).view(np.int32)
    ordered = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    return (ordered.astype(np.int64) << 32) | ordinals


def unpack(keys: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return the scores and ordinals of ``keys``."""
    ordered = (keys >> 32).astype(np.int32)
    bits = ordered ^ ((ordered >> 31) & np.int32(0x7FFFFFFF))
    return bits.view(np.float32), (keys & _ORDINAL).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Ranked:
    """Rankings as keys; those of query ``i`` are ``keys[offsets[i]:offsets[i + 1]]``, best first."""

    offsets: NDArray[np.int64]
    keys: NDArray[np.int64]


class RunningTopK:
    """The best ``depth`` documents of each query so far.

    Memory: 8 bytes x queries x (depth + max(depth, tile width)). With MaxP, whose cuts cost more and come less often:
    8 bytes x queries x (depth + 2 max(depth, tile width)).

    Args:
        n_queries: Number of queries.
        depth: How many documents each keeps.
        tile: Rows and columns of the score tiles that `add` will see; the columns a power of two of at least 8.
        parent_by_ordinal: For MaxP the parent of each ordinal, else ``None``.
    """

    def __init__(
        self,
        n_queries: int,
        depth: int,
        *,
        tile: tuple[int, int],
        parent_by_ordinal: NDArray[np.int32] | None = None,
    ) -> None:
        self.depth = depth
        self._width = tile[1]
        self._shift = self._width.bit_length() - 1
        self._capacity = depth + (1 if parent_by_ordinal is None else 2) * max(depth, self._width)
        self._parent_by_ordinal = parent_by_ordinal
        self._keys = np.full((n_queries, self._capacity), EMPTY, dtype=np.int64)
        self._fill = np.zeros(n_queries, dtype=np.int64)
        self._least = np.full(n_queries, EMPTY, dtype=np.int64)
        self._threshold = np.full(n_queries, -np.inf, dtype=np.float32)
        self._tile = tile
        self._own = threading.local()
        self._locks = [threading.Lock() for _ in range(0, n_queries, tile[0])]

    def add(self, first_query: int, scores: NDArray[np.float32], ordinals: NDArray[np.int32]) -> None:
        """Take the scores of some queries for some documents; several threads may do so at once.

        Args:
            first_query: Position of the first query of the tile; query ``first_query + i`` is row ``i``.
            scores: Contiguous, of the tile's full width; columns beyond ``len(ordinals)`` are padding.
            ordinals: The ordinal of each column.

        Raises:
            NaNScoreError: A score is NaN.
        """
        flat = self._passing(first_query, scores, len(ordinals))
        if not flat.size:
            return
        rows = flat >> self._shift
        values = scores.reshape(-1)[flat]
        keys = pack(values, ordinals[flat & (self._width - 1)])
        if np.isnan(values).any():
            at = int(np.flatnonzero(np.isnan(values))[0])
            raise NaNScoreError(first_query + int(rows[at]), int(keys[at] & _ORDINAL))
        if len(keys) * _FLOOD > scores.size:  # of the scores that equal the threshold, those with the lower id may go
            kept = keys > self._least[rows + first_query]
            rows, keys = rows[kept], keys[kept]
        if self._parent_by_ordinal is not None and len(keys) * _DELUGE > scores.size:
            rows, keys = best_of_neighbours(rows, keys, self._parent_by_ordinal)
        with self._locks[first_query // self._tile[0]]:
            self._append(slice(first_query, first_query + len(scores)), rows, keys)

    def _passing(self, first_query: int, scores: NDArray[np.float32], n_columns: int) -> NDArray[np.int64]:
        """Return the flat positions in the tile of the scores that are not below their query's threshold, NaN too.

        Another thread may raise the threshold meanwhile: then some pass that need not.
        """
        if not hasattr(self._own, "below"):
            self._own.below = np.empty(self._tile, dtype=np.bool_)
        below: NDArray[np.bool_] = self._own.below[: len(scores)]
        thresholds = self._threshold[first_query : first_query + len(scores), np.newaxis]
        np.less(scores, thresholds, out=below)
        below[:, n_columns:] = True
        words = below.reshape(-1).view(np.uint64)
        mixed = np.flatnonzero(words != _ALL_BELOW)
        lanes = np.flatnonzero(~words[mixed].view(np.bool_))
        return mixed[lanes // _LANES] * _LANES + lanes % _LANES

    def _append(self, queries: slice, rows: NDArray[np.int64], keys: NDArray[np.int64]) -> None:
        """Append ``keys`` to the buffers of ``rows`` (in the tile, ascending); after a cut a whole tile always fits."""
        counts = np.bincount(rows, minlength=queries.stop - queries.start)
        if (self._fill[queries] + counts > self._capacity).any():
            crowded = np.flatnonzero(self._fill[queries] > (self.depth + self._capacity) // 2)
            overfull = np.flatnonzero(self._fill[queries] + counts > self._capacity)
            self._cut(np.union1d(crowded, overfull) + queries.start)
        # The first free place of each row, less the number of keys that go to rows before it.
        place = (
            np.arange(queries.start, queries.stop) * self._capacity + self._fill[queries] - np.cumsum(counts) + counts
        )
        self._keys.reshape(-1)[place[rows] + np.arange(len(rows))] = keys
        self._fill[queries] += counts

    def _cut(self, rows: NDArray[np.int64]) -> None:
        """Cut the buffers of ``rows`` to their best ``depth`` and raise the thresholds."""
        step = max(1, _CUT_ENTRIES // self._capacity)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            best = self._best(self._keys[part])
            self._keys[part, : self.depth] = best
            self._keys[part, self.depth :] = EMPTY
            self._fill[part] = (best != EMPTY).sum(axis=1)
            least = best.min(axis=1)
            full = part[least != EMPTY]
            self._least[full] = least[least != EMPTY]
            self._threshold[full] = unpack(self._least[full])[0]

    def _best(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the best ``depth`` keys of each row, packed to the left wherever there are fewer."""
        if self._parent_by_ordinal is not None:
            keys = best_of_parents(keys, self._parent_by_ordinal)
        keys.partition(keys.shape[1] - self.depth, axis=1)
        best = keys[:, keys.shape[1] - self.depth :]
        short = np.flatnonzero((best == EMPTY).any(axis=1))
        best[short] = np.sort(best[short], axis=1)[:, ::-1]
        return best

    def ranked(self) -> Ranked:
        """Return the rankings, best first; the object is spent."""
        self._cut(np.arange(len(self._keys)))
        counts = self._fill.copy()
        step = max(1, _CUT_ENTRIES // self._capacity)
        parts = [np.empty(0, dtype=np.int64)]
        for start in range(0, len(counts), step):
            part = np.sort(self._keys[start : start + step, : self.depth], axis=1)[:, ::-1]
            parts.append(part[np.arange(self.depth) < counts[start : start + step, np.newaxis]])
        return Ranked(offsets_of(counts), np.concatenate(parts))


def best_of_neighbours(
    rows: NDArray[np.int64], keys: NDArray[np.int64], parent_by_ordinal: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return only the best of neighbours that share row and parent, as the passages of a document often do."""
    parents = parent_by_ordinal[keys & 0x7FFFFFFF]
    is_first = np.ones(len(keys), dtype=np.bool_)
    is_first[1:] = (rows[1:] != rows[:-1]) | (parents[1:] != parents[:-1])
    starts = np.flatnonzero(is_first)
    return rows[starts], np.maximum.reduceat(keys, starts)


def best_of_parents(keys: NDArray[np.int64], parent_by_ordinal: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return ``keys`` (rows x entries) in another order, with all but the best of each parent in a row made `EMPTY`.

    Sorted by ordinal the passages of a parent stand together. A sort of integers that carry all there is, is several
    times faster than one of indices, and only where neighbours share a parent is anything compared.
    """
    entries = keys.shape[1]
    turned = _turned(keys)
    turned.sort(axis=1)
    parents = parent_by_ordinal[turned >> 32]
    keys = _turned(turned)
    flat = keys.reshape(-1)
    left = np.flatnonzero(parents[:, 1:] == parents[:, :-1])
    if left.size:
        left += left // (entries - 1)  # from positions between neighbours to positions of entries
        breaks = np.flatnonzero(np.diff(left) != 1)
        starts = left[np.concatenate([[0], breaks + 1])]
        ends = left[np.concatenate([breaks, [len(left) - 1]])] + 2
        bounds = np.stack([starts, ends], axis=1).reshape(-1)
        best = np.maximum.reduceat(flat, bounds[:-1] if bounds[-1] == len(flat) else bounds)[::2]
        flat[left] = EMPTY
        flat[left + 1] = EMPTY
        flat[starts] = best
    return keys


def _turned(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``keys`` with their halves exchanged: ordinals above scores, or back."""
    turned = keys >> 32
    turned &= _ORDINAL
    turned |= keys << 32
    return turned


def best_of_pairs(
    owners: NDArray[np.integer[Any]],
    keys: NDArray[np.int64],
    *,
    n_queries: int,
    depth: int,
    parent_by_ordinal: NDArray[np.int32] | None,
) -> Ranked:
    """Return the best ``depth`` of each query from one key per given (query, document) pair, in any order."""
    order = np.lexsort((keys, owners))[::-1]
    rows, keys = np.asarray(owners, dtype=np.int64)[order], keys[order]
    if parent_by_ordinal is not None:
        parents = parent_by_ordinal[keys & 0x7FFFFFFF].astype(np.int64)
        _, first = np.unique(rows * (int(parents.max(initial=0)) + 1) + parents, return_index=True)
        first.sort()
        rows, keys = rows[first], keys[first]
    rows, keys = rows[::-1], keys[::-1]  # queries ascending, but each worst first
    counts = np.bincount(rows, minlength=n_queries).astype(np.int64)
    ends = np.cumsum(counts)
    rank = ends[rows] - 1 - np.arange(len(rows))
    kept = np.minimum(counts, depth)
    offsets = offsets_of(kept)
    ranked = np.empty(int(offsets[-1]), dtype=np.int64)
    inside = rank < depth
    ranked[offsets[rows[inside]] + rank[inside]] = keys[inside]
    return Ranked(offsets, ranked)
