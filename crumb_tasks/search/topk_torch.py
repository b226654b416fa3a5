"""The running top k where scores are on an accelerator: the same keys, cut by the device's own sort after each tile."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from crumb_tasks.runs import offsets_of
from crumb_tasks.search.topk import EMPTY, NaNScoreError, Ranked


class RunningTopKTorch:
    """The best ``depth`` documents of each query so far, on ``device``; same promises as `RunningTopK`.

    Args:
        n_queries: Number of queries.
        depth: How many documents each keeps.
        device: Where the scores are.
        parent_by_ordinal: For MaxP the parent of each ordinal, else ``None``.
    """

    def __init__(
        self, n_queries: int, depth: int, *, device: torch.device, parent_by_ordinal: NDArray[np.int32] | None = None
    ) -> None:
        self.depth = depth
        self._keys = torch.full((n_queries, depth), int(EMPTY), dtype=torch.int64, device=device)
        self._parent_by_ordinal = (
            None if parent_by_ordinal is None else torch.as_tensor(parent_by_ordinal, device=device)
        )

    def add(self, first_query: int, scores: torch.Tensor, ordinals: NDArray[np.int32]) -> None:
        """Take the scores of queries from ``first_query`` on; columns beyond ``len(ordinals)`` are padding.

        Raises:
            NaNScoreError: A score is NaN.
        """
        scores = scores[:, : len(ordinals)]
        not_numbers = scores.isnan()
        if bool(not_numbers.any()):
            row, column = not_numbers.nonzero()[0].tolist()
            raise NaNScoreError(first_query + row, int(ordinals[column]))
        columns = torch.as_tensor(ordinals, device=scores.device, dtype=torch.int64)
        rows = slice(first_query, first_query + len(scores))
        self._keys[rows] = self._best(torch.cat([self._keys[rows], _packed(scores, columns)], dim=1))

    def _best(self, keys: torch.Tensor) -> torch.Tensor:
        if self._parent_by_ordinal is not None:
            keys = _best_of_parents(keys, self._parent_by_ordinal)
        return torch.topk(keys, self.depth, dim=1).values

    def ranked(self) -> Ranked:
        """Return the rankings, best first."""
        keys = self._keys.cpu().numpy()
        inside = keys != EMPTY
        offsets = offsets_of(inside.sum(axis=1))
        return Ranked(offsets, keys[inside])


def _packed(scores: torch.Tensor, ordinals: torch.Tensor) -> torch.Tensor:
    bits = (scores.float() + 0.0).contiguous().view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(torch.int64) << 32) | ordinals


def _best_of_parents(keys: torch.Tensor, parent_by_ordinal: torch.Tensor) -> torch.Tensor:
    """Return ``keys`` sorted, with all but the best of each parent in a row made `EMPTY`."""
    keys = keys.sort(dim=1, descending=True).values
    parents, at = parent_by_ordinal[keys & 0x7FFFFFFF].sort(dim=1, stable=True)
    repeated = torch.zeros_like(parents, dtype=torch.bool)
    repeated[:, 1:] = parents[:, 1:] == parents[:, :-1]
    return keys.masked_fill(torch.zeros_like(repeated).scatter(1, at, repeated), int(EMPTY))
