"""Ids as integers whose order is the total order of a run, so that ties need no string comparison.

A document's *ordinal* is its id's rank among all ids, ascending. With MaxP a passage's ordinal is its rank by (parent
id, passage id): comparing ``(score, ordinal)`` then orders by score, by document id, and among the equal passages of
one document by passage id, which is the total order of `crumb_tasks.runs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.errors import RunError
from crumb_tasks.runs import Vocabulary

_WORD = 8  # bytes that one integer comparison covers
_PIECE = 1 << 16  # ids that are turned into integers at once


@dataclass(frozen=True, eq=False)
class CorpusOrder:
    """The order of a corpus' ids, 8 bytes a document beside the ids, 16 with MaxP.

    Attributes:
        ids: Ids in corpus order.
        ordinals: int32: the ordinal of each corpus row.
        row_by_ordinal: int32, its inverse.
        row_by_rank: int32: the rows in the order of their ids; without MaxP that is `row_by_ordinal`.
        parents: With MaxP the documents that the passages stand for, else ``None``.
        parent_by_ordinal: int32: with MaxP the code in ``parents`` of each ordinal (never descending), else ``None``.
    """

    ids: pa.Array
    ordinals: NDArray[np.int32]
    row_by_ordinal: NDArray[np.int32]
    row_by_rank: NDArray[np.int32]
    parents: Vocabulary | None = None
    parent_by_ordinal: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, ids: pa.Array | pa.ChunkedArray, parents: pa.Array | pa.ChunkedArray | None) -> CorpusOrder:
        """Rank ``ids``, and the ids of ``parents`` aligned with them where there are any.

        Raises:
            RunError: An id stands there twice, or the two columns differ in length.
        """
        flat = _one_array(ids)
        row_by_rank = _sorted_rows(flat)
        if parents is None:
            return cls(flat, inverse(row_by_rank), row_by_rank, row_by_rank)
        if len(parents) != len(flat):
            raise RunError(f"corpus: {len(flat)} ids but {len(parents)} parents; they must be aligned row by row")
        vocabulary, parent_by_row = _encoded_parents(parents)
        # A stable order by parent of what is in order by id is the order by (parent, id).
        row_by_ordinal = row_by_rank[_stable_order(parent_by_row[row_by_rank])]
        parent_by_ordinal = parent_by_row[row_by_ordinal]
        return cls(flat, inverse(row_by_ordinal), row_by_ordinal, row_by_rank, vocabulary, parent_by_ordinal)

    @property
    def n_documents(self) -> int:
        """Number of documents that a ranking can hold."""
        return len(self.ids) if self.parents is None else len(self.parents)

    def id_of(self, ordinal: int) -> str:
        """Return the id of a corpus row by its ordinal."""
        return str(self.ids[int(self.row_by_ordinal[ordinal])])

    def rows_of_parents(self, codes: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all rows of each parent in ``codes``, with the position in ``codes`` that each belongs to."""
        if self.parent_by_ordinal is None:
            raise ValueError("a corpus without parents")
        start = np.searchsorted(self.parent_by_ordinal, codes, side="left")
        counts = np.searchsorted(self.parent_by_ordinal, codes, side="right") - start
        owner = np.repeat(np.arange(len(codes), dtype=np.int64), counts)
        ordinals = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(start, counts)
        return self.row_by_ordinal[ordinals].astype(np.int64), owner


def _encoded_parents(parents: pa.Array | pa.ChunkedArray) -> tuple[Vocabulary, NDArray[np.int32]]:
    """Encode ``parents`` once per run of equal ones: the passages of a document usually stand together."""
    flat = _one_array(parents)
    if len(flat) < 2:
        return Vocabulary.encode(flat)
    is_new = np.concatenate([[True], pc.not_equal(flat[1:], flat[:-1]).to_numpy(zero_copy_only=False)])
    heads = np.flatnonzero(is_new)
    vocabulary, code_by_head = Vocabulary.encode(flat.take(pa.array(heads)))
    return vocabulary, np.repeat(code_by_head, np.diff(np.append(heads, len(flat))))


def _one_array(ids: pa.Array | pa.ChunkedArray) -> pa.Array:
    flat = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    return flat if pa.types.is_string(flat.type) else flat.cast(pa.string())


def inverse(order: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the inverse of a permutation."""
    found = np.empty_like(order)
    found[order] = np.arange(len(order), dtype=np.int32)
    return found


def _stable_order(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the stable ascending order of ``codes`` by one sort of (code, position) pairs."""
    pairs = (codes.astype(np.int64) << 32) | np.arange(len(codes), dtype=np.int64)
    pairs.sort()
    return (pairs & 0x7FFFFFFF).astype(np.int32)


def _sorted_rows(ids: pa.Array) -> NDArray[np.int32]:
    """Return the rows of ``ids`` in ascending order of their UTF-8 bytes, refusing an id that stands there twice."""
    if len(ids) < 2:
        return np.arange(len(ids), dtype=np.int32)
    if pc.all(pc.less(ids[:-1], ids[1:])).as_py():
        return np.arange(len(ids), dtype=np.int32)
    words = _words(ids)
    if words is not None:
        order = np.argsort(words)
        words.sort()
        if (words[1:] != words[:-1]).all():
            return order.astype(np.int32)
    order = pc.sort_indices(ids).to_numpy()
    in_order = ids.take(pa.array(order))
    repeated = pc.index(pc.equal(in_order[:-1], in_order[1:]), value=True).as_py()
    if repeated >= 0:
        raise RunError(f"corpus: id '{in_order[repeated]}' stands there twice; ids must be distinct")
    return np.asarray(order, dtype=np.int32)


def _words(ids: pa.Array) -> NDArray[np.uint64] | None:
    """Return each id as one integer of the same order, or ``None`` when what differs in them is longer than 8 bytes.

    An integer sort is ten times faster than one of strings, and most corpora number their documents behind a prefix.
    """
    ends = pc.min_max(ids)
    low, high = (ends[side].as_py().encode() for side in ("min", "max"))
    prefix = next((at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low))
    offsets = np.frombuffer(ids.buffers()[1], dtype=np.int32)[ids.offset : ids.offset + len(ids) + 1]
    if int(np.diff(offsets).max()) - prefix > _WORD:
        return None
    data = np.frombuffer(ids.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]
    padded = np.concatenate([data, np.zeros(_WORD, dtype=np.uint8)])
    at_every_byte = np.ndarray(shape=(len(data) + 1,), dtype=">u8", buffer=padded, strides=(1,))
    words = np.empty(len(ids), dtype=np.uint64)
    for first in range(0, len(ids), _PIECE):
        piece = offsets[first : first + _PIECE + 1].astype(np.int64) - offsets[0]
        lengths = np.diff(piece) - prefix
        unused = np.minimum(8 * (_WORD - lengths), 63).astype(np.uint64)
        found = at_every_byte[piece[:-1] + prefix].astype(np.uint64)
        words[first : first + _PIECE] = np.where(lengths > 0, (found >> unused) << unused, 0)
    return words
