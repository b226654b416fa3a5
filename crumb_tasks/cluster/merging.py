"""The answers of all shards as one ranking, whatever the order in which they come.

Each shard has sent the best ``depth`` documents of each query by maximum. A document of the final ranking has its best
passage in some shard, where it was among the best ``depth``: the maximum of the maxima is exact. Keys are those of
`crumb_tasks.search.topk`, so that ties are broken as in one process.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.cluster.jobs import Found
from crumb_tasks.runs import offsets_of
from crumb_tasks.search.topk import EMPTY, Ranked, best_of_parents, pack

_ENTRIES = 1 << 20  # keys that are merged at once, 8 MB


class Merge:
    """The best ``depth`` documents of each query so far.

    Memory: 8 bytes x queries x depth, and 16 bytes for each key of the answer that is being added.

    Args:
        n_queries: Number of queries.
        depth: How many documents each keeps.
        ordinals: int32: the ordinal of each row that is searched.
        parent_by_ordinal: For MaxP the parent of each ordinal, else ``None``.
    """

    def __init__(
        self,
        n_queries: int,
        depth: int,
        *,
        ordinals: NDArray[np.int32],
        parent_by_ordinal: NDArray[np.int32] | None = None,
    ) -> None:
        self.depth = depth
        self._ordinals = ordinals
        self._parent_by_ordinal = parent_by_ordinal
        self._keys = np.full((n_queries, depth), EMPTY, dtype=np.int64)
        self._least = np.full(n_queries, EMPTY, dtype=np.int64)

    def add(self, found: Found) -> None:
        """Take the answer of one shard; each may come once only."""
        keys = pack(found.scores.astype(np.float32, copy=False), self._ordinals[found.rows])
        owners = found.owners
        enters = keys > self._least[owners]
        if not enters.all():
            keys, owners = keys[enters], owners[enters]
        counts = np.bincount(owners, minlength=len(self._keys)).astype(np.int64)
        starts = np.cumsum(counts) - counts
        changed = np.flatnonzero(counts)
        step = max(1, _ENTRIES // (self.depth + int(counts.max(initial=0))))
        for first in range(0, len(changed), step):
            queries = changed[first : first + step]
            self._merge(queries, counts[queries], starts[queries], keys)

    def _merge(
        self, queries: NDArray[np.int64], counts: NDArray[np.int64], starts: NDArray[np.int64], keys: NDArray[np.int64]
    ) -> None:
        wide = np.full((len(queries), self.depth + int(counts.max())), EMPTY, dtype=np.int64)
        wide[:, : self.depth] = self._keys[queries]
        inside = np.arange(int(counts.max())) < counts[:, np.newaxis]
        wide[:, self.depth :][inside] = keys[int(starts[0]) : int(starts[-1] + counts[-1])]
        if self._parent_by_ordinal is not None:
            wide = best_of_parents(wide, self._parent_by_ordinal)
        wide.partition(wide.shape[1] - self.depth, axis=1)
        best = wide[:, wide.shape[1] - self.depth :]
        self._keys[queries] = best
        self._least[queries] = best.min(axis=1)

    def ranked(self) -> Ranked:
        """Return the rankings, best first."""
        keys = np.sort(self._keys, axis=1)[:, ::-1]
        inside = keys != EMPTY
        offsets = offsets_of(inside.sum(axis=1))
        return Ranked(offsets, keys[inside])
