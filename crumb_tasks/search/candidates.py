"""Scores of given (query, document) pairs only, computed on the same grid as a full search."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.errors import RunError
from crumb_tasks.search.grid import BLOCK, Scorer, Tile
from crumb_tasks.search.order import CorpusOrder
from crumb_tasks.search.topk import NaNScoreError, Ranked, best_of_pairs, pack


class CandidatePairs:
    """Which documents each query may rank, as (query, row) pairs, and their scores once they are computed.

    Memory: 20 bytes a pair.

    Attributes:
        rows: The corpus rows that any query may rank, ascending: all that must be encoded.
    """

    def __init__(self, queries: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        self.rows, position = np.unique(rows, return_inverse=True)
        order = np.argsort(position, kind="stable")
        self._position = position[order]
        self._query = queries[order].astype(np.int32)
        self._keys = np.zeros(len(order), dtype=np.int64)

    @classmethod
    def of(
        cls, candidates: Mapping[str, Sequence[str]], query_ids: Sequence[str], order: CorpusOrder
    ) -> CandidatePairs:
        """Look up ``candidates`` in the corpus; a repeated candidate counts once.

        Raises:
            RunError: A candidate is neither a corpus id nor, with MaxP, a parent.
        """
        lists = [list(candidates.get(query_id, ())) for query_id in query_ids]
        owners = np.repeat(np.arange(len(lists), dtype=np.int64), [len(one) for one in lists])
        wanted = pa.array([candidate for one in lists for candidate in one], type=pa.string())
        rows = _positions(wanted, order.ids)
        if order.parents is None:
            known = rows >= 0
            pair_owners, pair_rows = owners, rows
        else:
            codes = order.parents.find(wanted)
            known = (rows >= 0) | (codes >= 0)
            is_parent = codes >= 0
            parent_rows, of = order.rows_of_parents(codes[is_parent])
            alone = ~is_parent & known
            pair_owners = np.concatenate([owners[is_parent][of], owners[alone]])
            pair_rows = np.concatenate([parent_rows, rows[alone]])
        if not known.all():
            at = int(np.flatnonzero(~known)[0])
            raise RunError(f"query '{query_ids[owners[at]]}': candidate '{wanted[at]}' is not in the corpus")
        pairs = np.unique(pair_owners * max(len(order.ids), 1) + pair_rows)
        return cls(*np.divmod(pairs, max(len(order.ids), 1)))

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self._keys)

    def part(self, start: int, stop: int) -> CandidatePairs:
        """Return the pairs of positions ``start`` to ``stop`` among `rows`, which are its rows 0 and on."""
        first, last = np.searchsorted(self._position, [start, stop])
        return CandidatePairs(self._query[first:last].astype(np.int64), self._position[first:last] - start)

    def digest(self) -> str:
        """Return a hash of all pairs."""
        found = hashlib.blake2b(digest_size=16)
        for part in (self.rows, self._position, self._query):
            found.update(np.ascontiguousarray(part).tobytes())
        return found.hexdigest()

    def score(self, scorer: Scorer, start: int, vectors: Any, ordinals: NDArray[np.int32]) -> None:
        """Score the pairs of one block; tiles without a pair are not computed.

        Args:
            scorer: Where tiles come from.
            start: Position of the block's first document among `rows`.
            vectors: The block's embeddings.
            ordinals: Their ordinals.
        """
        height, width = scorer.tile
        n_query_tiles = int(self._query.max(initial=0)) // height + 1  # later queries have no candidates
        first, last = np.searchsorted(self._position, [start, start + BLOCK])
        query, at = self._query[first:last], self._position[first:last] - start
        tile_of_pair = (at // width) * n_query_tiles + query // height
        order = np.argsort(tile_of_pair, kind="stable")
        tiles, starts = np.unique(tile_of_pair[order], return_index=True)
        members = dict(zip(tiles.tolist(), np.split(order, starts[1:]), strict=True))

        def wanted(query_tile: int, document_tile: int) -> bool:
            return query_tile < n_query_tiles and document_tile * n_query_tiles + query_tile in members

        def take(tile: Tile) -> None:
            pairs = members[tile.documents.start // width * n_query_tiles + tile.queries.start // height]
            chosen = tile.scores[query[pairs] - tile.queries.start, at[pairs] - tile.documents.start].cpu().numpy()
            if np.isnan(chosen).any():
                bad = pairs[np.isnan(chosen)][0]
                raise NaNScoreError(int(query[bad]), int(ordinals[at[bad]]))
            self._keys[first + pairs] = pack(chosen, ordinals[at[pairs]])

        scorer.score(vectors, take, wanted)

    def ranked(self, n_queries: int, depth: int, parent_by_ordinal: NDArray[np.int32] | None) -> Ranked:
        """Return the rankings, once every block was scored."""
        return best_of_pairs(
            self._query, self._keys, n_queries=n_queries, depth=depth, parent_by_ordinal=parent_by_ordinal
        )


def _positions(wanted: pa.Array, ids: pa.Array) -> NDArray[np.int64]:
    found = pc.fill_null(pc.index_in(wanted, value_set=ids), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)
