"""How far approximate search agrees with exact search. That is no recall: whether anything is relevant is not asked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.search.resident import Floats

_ROUNDING = 1e-6
_EMPTY = -1


def ann_recall(found: NDArray[np.int64], exact: NDArray[np.int64], documents: Floats, queries: Floats) -> float:
    """Return the mean share of the exact nearest neighbours that a search found, with ties counted as found.

    A document counts where its true score is at least that of the last exact neighbour, as in Big-ANN
    (https://github.com/harsha-simhadri/big-ann-benchmarks); scores are float64 of the full vectors. What float32 may
    round is forgiven: a millionth of the lengths of the query and of the longest exact neighbour, multiplied.

    Args:
        found: Queries x at least k: rows of documents, best first; -1 where fewer were found.
        exact: Queries x k: the rows of the exact neighbours.
        documents: Documents x dimensions.
        queries: Queries x dimensions.
    """
    n_neighbours = exact.shape[1]
    shares = np.empty(len(queries))
    for row, query in enumerate(queries.astype(np.float64)):
        neighbours = documents[exact[row]].astype(np.float64)
        least = (neighbours @ query).min()
        rounding = _ROUNDING * np.linalg.norm(query) * np.linalg.norm(neighbours, axis=1).max()
        candidates = np.unique(found[row, :n_neighbours])
        scores = documents[candidates[candidates != _EMPTY]].astype(np.float64) @ query
        shares[row] = (scores >= least - rounding).sum() / n_neighbours
    return float(shares.mean())
