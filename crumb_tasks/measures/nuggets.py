"""Measures of a set of documents: how much of what an answer is made of do the first k support?

A query has nuggets, the facts or steps of its answer, and each nugget the documents that support it. A second document
for the same nugget is worth nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.measures.kernels import ratio
from crumb_tasks.runs import Run

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Nuggets: TypeAlias = Sequence[Mapping[str, Iterable[str]]]


def coverage(run: Run, nuggets: Nuggets, cutoff: int) -> Floats:
    """Return the share of each query's nuggets that its first ``cutoff`` documents support (FreshStack, Coverage@k).

    Args:
        run: Rankings.
        nuggets: For each query of ``run`` its nuggets and the documents that support them.
        cutoff: Ranks that are looked at.
    """
    owners, ranks = _nugget_ranks(run, nuggets, cutoff)
    n_covered = np.bincount(owners[np.isfinite(ranks)], minlength=len(run)).astype(np.float64)
    return ratio(n_covered, np.bincount(owners, minlength=len(run)).astype(np.float64))


def nugget_reciprocal_rank(run: Run, nuggets: Nuggets, cutoff: int) -> Floats:
    """Return for each query the sum of 1 / (rank of the first document that supports a nugget) over its nuggets.

    Divided by the number of nuggets, or by the cutoff where there are more: what MultiHop-RAG's evaluation calls MAP@10
    (https://github.com/yixuantt/MultiHop-RAG/blob/main/retrieval_evaluate.py). Arguments as `coverage`.
    """
    owners, ranks = _nugget_ranks(run, nuggets, cutoff)
    found = np.bincount(owners, weights=1.0 / ranks, minlength=len(run))
    n_nuggets = np.bincount(owners, minlength=len(run)).astype(np.float64)
    return ratio(np.asarray(found, dtype=np.float64), np.minimum(n_nuggets, cutoff))


def _nugget_ranks(run: Run, nuggets: Nuggets, cutoff: int) -> tuple[Ints, Floats]:
    """Return the query of each nugget and the rank of the first document that supports it, infinite where none does."""
    owners = np.repeat(np.arange(len(run), dtype=np.int64), [len(of_query) for of_query in nuggets])
    supports = [tuple(documents) for of_query in nuggets for documents in of_query.values()]
    nugget = np.repeat(np.arange(len(supports), dtype=np.int64), [len(documents) for documents in supports])
    codes = run.documents.find([document for documents in supports for document in documents])
    width = max(len(run.documents), 1)
    top = run.truncate(cutoff)
    retrieved = top.row_queries * width + top.codes
    order = np.argsort(retrieved)
    wanted = owners[nugget] * width + codes
    at = np.minimum(np.searchsorted(retrieved, wanted, sorter=order), max(len(retrieved) - 1, 0))
    best = np.full(len(supports), np.inf)
    if len(retrieved):
        found = (codes >= 0) & (retrieved[order[at]] == wanted)
        np.minimum.at(best, nugget[found], top.row_ranks[order[at[found]]].astype(np.float64))
    return owners, best
