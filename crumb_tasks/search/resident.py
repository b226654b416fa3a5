"""A corpus' vectors in memory, searched for one query or for a batch: what a server does, and what its cost is.

An evaluation streams the corpus past all queries at once and keeps no vector. Here all vectors stay, so that the search
of a single query can be timed, and so that approximate indexes have something to be built from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray

from crumb_tasks.errors import UsageError
from crumb_tasks.search import grid
from crumb_tasks.search.embeddings import EmbeddingStore
from crumb_tasks.search.encoding import Encoding, Rows, embedded_blocks

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

Floats = NDArray[np.float32]
Found = tuple[Floats, NDArray[np.int64]]
"""Scores, best first, and the corpus rows that have them; row -1 where an index found fewer."""

_BLOCK = 1 << 16  # documents scored at once
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Resident:
    """All vectors of a corpus, and the model that encodes queries for them.

    Attributes:
        documents: float32, documents x dimensions, in the corpus' order; of unit length where cosine is the similarity.
        is_cosine: Whether queries are brought to unit length, too.
    """

    documents: Floats
    is_cosine: bool
    _call: Encoding

    @classmethod
    def load(
        cls,
        model: Any,
        *,
        corpus: Dataset,
        queries: Dataset,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        encode_kwargs: Mapping[str, Any],
        num_proc: int | None = None,
        store: EmbeddingStore | None = None,
    ) -> Resident:
        """Encode the corpus, or read its embeddings from ``store``.

        Args:
            model: An encoder with MTEB's protocol.
            corpus: Columns ``id``, ``text`` and perhaps ``title``.
            queries: Some queries, by which the similarity is found out.
            task_metadata: Passed to ``encode``, as the following are.
            hf_split: Of the task.
            hf_subset: Of the task.
            encode_kwargs: For ``encode``.
            num_proc: Worker processes of the loaders.
            store: Embeddings on disk.

        Raises:
            UsageError: The model's similarity is no product of single vectors, so that no index is made for it.
        """
        call = Encoding(model, task_metadata, hf_split, hf_subset, dict(encode_kwargs), num_proc)
        rows = Rows(corpus.with_format("arrow"), None)
        stored = None if store is None else store.open(model, task_metadata, rows, encode_kwargs)
        some = call.queries(queries, None)
        documents: Floats | None = None
        is_cosine = False
        for start, vectors in embedded_blocks(call, rows, stored):
            if documents is None:
                is_cosine = _is_cosine(model, some, vectors)
                documents = np.empty((len(corpus), vectors.shape[1]), dtype=np.float32)
            documents[start : start + grid.n_rows(vectors)] = _rows(vectors, is_cosine=is_cosine)
        if documents is None:
            raise UsageError("the corpus is empty; there is nothing to search")
        return cls(documents, is_cosine, call)

    def encode(self, queries: Dataset, groups: Sequence[tuple[NDArray[np.integer[Any]], TaskMetadata]]) -> Floats:
        """Return the vectors of queries, encoded as in an evaluation; groups as in `search_encoder`."""
        return _rows(self._call.queries(queries, groups), is_cosine=self.is_cosine)


def _is_cosine(model: Any, queries: Any, block: Any) -> bool:
    scorer = grid.choose_scorer(model, queries, block)
    if not isinstance(scorer, grid.Product):
        raise UsageError("the model's similarity is no product of single vectors; its search cannot be taken apart")
    return scorer.is_cosine


def _rows(vectors: Any, *, is_cosine: bool) -> Floats:
    rows = np.array(torch.as_tensor(vectors).detach().float().cpu().numpy(), dtype=np.float32)
    return unit_rows(rows) if is_cosine else rows


def unit_rows(rows: Floats) -> Floats:
    """Bring ``rows`` to unit length, in place, and return them."""
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _LEAST)
    return rows


class Index(Protocol):
    """Finds the best documents of queries.

    Attributes:
        n_bytes: What is kept of the documents.
    """

    n_bytes: int

    def search(self, queries: Floats, depth: int) -> Found:
        """Return the best ``depth`` documents of each query."""


class ExactIndex:
    """Exact search in float32: the product of queries and all documents, and its largest elements.

    Args:
        documents: Documents x dimensions; not copied.
    """

    def __init__(self, documents: Floats) -> None:
        self._documents = torch.from_numpy(documents)
        self.n_bytes = documents.nbytes

    def search(self, queries: Floats, depth: int) -> Found:
        """Return the best ``depth`` documents of each query."""
        wanted = torch.from_numpy(queries)
        return best_of_blocks(
            lambda start, stop: wanted @ self._documents[start:stop].T, len(self._documents), len(queries), depth
        )


def best_of_blocks(score: Any, n_documents: int, n_queries: int, depth: int) -> Found:
    """Return the best ``depth`` documents of each query, from scores block by block.

    Args:
        score: Gives for a first and an end row the scores (queries x documents, float32 tensor).
        n_documents: How many there are.
        n_queries: Rows of the scores.
        depth: How many to keep.
    """
    values = torch.empty((n_queries, 0), dtype=torch.float32)
    places = torch.empty((n_queries, 0), dtype=torch.int64)
    for start in range(0, n_documents, _BLOCK):
        scores = score(start, min(start + _BLOCK, n_documents))
        best, at = torch.topk(scores, min(depth, scores.shape[1]), dim=1)
        values, places = torch.cat([values, best], dim=1), torch.cat([places, at + start], dim=1)
        if values.shape[1] > depth:
            values, at = torch.topk(values, depth, dim=1)
            places = places.gather(1, at)
    return values.numpy(), places.numpy()
