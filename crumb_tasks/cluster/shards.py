"""Where work is cut: a corpus at the boundaries of the search grid's blocks, a list of queries anywhere.

The model reads a corpus block by block (`crumb_tasks.search.grid.BLOCK`), so that shards of whole blocks hold the very
batches that one process would have encoded. Shards are about equal in text, not in documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.search import grid
from crumb_tasks.search.identity import content_hash

SMALL = 8 << 20
"""Bytes of text up to which a task is one shard, and which a shard of a larger task is not cut below."""

LARGE = 64 << 20
"""Bytes of text above which a shard is cut, however few the workers: so much is lost with a worker."""

PER_WORKER = 4
"""Shards that each worker gets of a large task: the last of them end at about the same time."""

_COLUMNS = ("id", "parent", "text", "title")


@dataclass(frozen=True)
class Shard:
    """A range of what is to be searched: rows of the corpus, or queries.

    Attributes:
        first: The first of them.
        stop: The one behind the last.
        size: Their text in bytes.
        count: Documents (or pairs) that go through the model.
        content: A digest of their texts and ids, empty where the job as a whole has one.
    """

    first: int
    stop: int
    size: int
    count: int
    content: str = ""

    def __len__(self) -> int:
        """Return how many rows or queries it holds."""
        return self.stop - self.first


class ReadableRows(Protocol):
    """Rows of a corpus that can be read in blocks, such as `crumb_tasks.search.encoding.Rows`."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def table(self, start: int, stop: int) -> pa.Table:
        """Return the columns of rows ``start`` to ``stop``."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """What is known of the blocks of some rows before any is encoded.

    Attributes:
        n_rows: Rows in all.
        sizes: int64: bytes of text of each block.
        digests: A digest of each block's ids, parents and texts.
    """

    n_rows: int
    sizes: NDArray[np.int64]
    digests: tuple[str, ...]

    @classmethod
    def of(cls, tables: Iterable[pa.Table]) -> Blocks:
        """Read the blocks once, at about a gigabyte a second.

        Args:
            tables: Each of `grid.BLOCK` rows but the last; columns ``id``, ``text`` and perhaps ``title``, ``parent``.
        """
        sizes, digests, n_rows = [], [], 0
        for table in tables:
            n_rows += len(table)
            read = [name for name in ("text", "title") if name in table.column_names]
            sizes.append(sum(pc.sum(pc.binary_length(table.column(name))).as_py() or 0 for name in read))
            digests.append(content_hash([table], _COLUMNS))
        return cls(n_rows, np.array(sizes, dtype=np.int64), tuple(digests))

    def shard(self, first: int, stop: int) -> Shard:
        """Return the shard of rows ``first`` to ``stop``, which must be boundaries of blocks."""
        blocks = slice(first // grid.BLOCK, -(-stop // grid.BLOCK))
        return Shard(first, stop, int(self.sizes[blocks].sum()), stop - first, joined(self.digests[blocks]))

    def is_boundary(self, row: int) -> bool:
        """Return whether a shard may begin or end before ``row``."""
        return row == self.n_rows or (row % grid.BLOCK == 0 and 0 <= row < self.n_rows)


def blocks_of(rows: ReadableRows, parents: pa.ChunkedArray | None) -> Blocks:
    """Return the blocks of ``rows``; ``parents`` are those of the same rows, for MaxP."""
    return Blocks.of(
        with_parents(rows.table(start, stop), parents, start, stop)
        for start, stop in ((start, min(start + grid.BLOCK, len(rows))) for start in range(0, len(rows), grid.BLOCK))
    )


def with_parents(table: pa.Table, parents: pa.ChunkedArray | None, start: int, stop: int) -> pa.Table:
    """Return a block with the part of ``parents`` that belongs to it."""
    return table if parents is None else table.append_column("parent", parents.slice(start, stop - start))


def joined(digests: Sequence[str]) -> str:
    """Return one digest for several."""
    return hashlib.blake2b(" ".join(digests).encode(), digest_size=16).hexdigest()


def n_pieces(size: int, n_workers: int) -> int:
    """Return into how many shards ``size`` bytes of text are cut for ``n_workers``."""
    wanted = max(-(-size // LARGE), PER_WORKER * n_workers)
    return max(1, min(wanted, size // SMALL))


def cut(sizes: NDArray[np.int64], pieces: int) -> list[tuple[int, int]]:
    """Cut a sequence of blocks (or queries) of these ``sizes`` into at most ``pieces`` ranges of about equal sums."""
    if not len(sizes):
        return []
    ends = np.cumsum(sizes)
    wanted = ends[-1] * np.arange(1, pieces) / pieces
    after = np.searchsorted(ends, wanted)  # the block in which a shard would end: whichever of its ends is nearer
    before = np.where(after > 0, ends[after - 1], 0)
    bounds = np.where(wanted - before <= ends[after] - wanted, after, after + 1)
    bounds = np.unique(np.concatenate([[0], bounds, [len(sizes)]]))
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def shards_of(blocks: Blocks, n_workers: int, finished: Sequence[tuple[int, int]] = ()) -> list[Shard]:
    """Return the shards of a corpus that are still to be searched.

    Args:
        blocks: The corpus.
        n_workers: Workers that share them.
        finished: Ranges of rows that are done; those that overlap or end inside a block must not be among them.
    """
    share = max(1, int(blocks.sizes.sum()) // n_pieces(int(blocks.sizes.sum()), n_workers))
    found = []
    for first, stop in gaps(blocks.n_rows, finished):
        begin = first // grid.BLOCK
        sizes = blocks.sizes[begin : -(-stop // grid.BLOCK)]
        for start, end in cut(sizes, max(1, round(int(sizes.sum()) / share))):
            rows = (begin + start) * grid.BLOCK, min((begin + end) * grid.BLOCK, blocks.n_rows)
            found.append(blocks.shard(*rows))
    return found


def gaps(n_rows: int, finished: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of ``n_rows`` rows between those that are ``finished``, which do not overlap."""
    found, at = [], 0
    for first, stop in [*sorted(finished), (n_rows, n_rows)]:
        if first > at:
            found.append((at, first))
        at = max(at, stop)
    return found


def without_overlap(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return those of ``ranges`` that can be used beside each other, the longest first."""
    chosen: list[tuple[int, int]] = []
    for first, stop in sorted(ranges, key=lambda one: (one[0] - one[1], one)):
        if all(stop <= other or first >= end for other, end in chosen):
            chosen.append((first, stop))
    return sorted(chosen)
