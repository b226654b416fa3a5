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
from crumb_tasks.id_order import ascending_rows
from crumb_tasks.runs import Vocabulary


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
    rows, are_distinct = ascending_rows(ids)
    if not are_distinct:
        in_order = ids.take(pa.array(rows))
        repeated = pc.index(pc.equal(in_order[:-1], in_order[1:]), value=True).as_py()
        if repeated >= 0:
            raise RunError(f"corpus: id '{in_order[repeated]}' stands there twice; ids must be distinct")
    return rows
