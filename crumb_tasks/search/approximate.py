"""FAISS indexes, which the extra ``sweep`` brings: graphs, cells, product and scalar quantisation."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from crumb_tasks.errors import MissingExtraError
from crumb_tasks.search.resident import Floats, Found

HNSW_LINKS = 32
HNSW_CONSTRUCTION = 100
_TRAINING_PER_CENTROID = 64
_ITERATIONS = 10
_LEAST_PER_CELL = 39
"""Below that FAISS warns that a cell has too few vectors to train."""
PQ_CENTROIDS = 256


def import_faiss() -> Any:
    """Return FAISS, which uses as many threads as torch does.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("an approximate index", "sweep") from error
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss


class FaissIndex:
    """One FAISS index by inner product.

    Args:
        index: Of FAISS, trained and filled.
    """

    def __init__(self, index: Any) -> None:
        self._index = index
        with tempfile.TemporaryDirectory(prefix="crumb_tasks-") as folder:
            path = Path(folder) / "index"
            import_faiss().write_index(index, str(path))
            self.n_bytes = path.stat().st_size

    def set(self, settings: Mapping[str, int]) -> None:
        """Set ``efSearch`` or ``nprobe``."""
        for name, value in settings.items():
            setattr(self._index.hnsw if name == "efSearch" else self._index, name, value)

    def search(self, queries: Floats, depth: int) -> Found:
        """Return the best ``depth`` documents of each query that the index finds."""
        found: Found = self._index.search(queries, depth)
        return found


def n_cells(n_documents: int) -> int:
    """Return how many cells an inverted file gets: four times the root of the documents, as FAISS advises."""
    return max(1, min(round(4 * math.sqrt(n_documents)), n_documents // _LEAST_PER_CELL))


def n_subvectors(dimension: int, numbers_each: int) -> int:
    """Return into how many parts a vector is cut, of about ``numbers_each``; they divide the dimension."""
    wanted = max(1, dimension // numbers_each)
    return max(parts for parts in range(1, wanted + 1) if dimension % parts == 0)


def build(kind: str, documents: Floats) -> FaissIndex:
    """Train and fill an index.

    Args:
        kind: ``flat``, ``hnsw``, ``ivf``, ``ivfpq``, ``pq8``, ``pq16``, ``sq8`` or ``sq4``.
        documents: Documents x dimensions.
    """
    faiss = import_faiss()
    dimension, metric = documents.shape[1], faiss.METRIC_INNER_PRODUCT
    index: Any
    if kind == "flat":
        index = faiss.IndexFlatIP(dimension)
    elif kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimension, HNSW_LINKS, metric)
        index.hnsw.efConstruction = HNSW_CONSTRUCTION
    elif kind.startswith("ivf"):
        index = _inverted(faiss, kind, documents)
    elif kind.startswith("pq"):
        index = faiss.IndexPQ(dimension, n_subvectors(dimension, int(kind[2:])), 8, metric)
        _shorten(index.pq.cp)
    else:
        bits = faiss.ScalarQuantizer.QT_8bit if kind == "sq8" else faiss.ScalarQuantizer.QT_4bit
        index = faiss.IndexScalarQuantizer(dimension, bits, metric)
    if not index.is_trained:
        index.train(documents)
    index.add(documents)
    return FaissIndex(index)


def _inverted(faiss: Any, kind: str, documents: Floats) -> Any:
    n_documents, dimension = documents.shape
    metric = faiss.METRIC_INNER_PRODUCT
    coarse = faiss.IndexFlatIP(dimension)
    if kind == "ivf":
        index = faiss.IndexIVFFlat(coarse, dimension, n_cells(n_documents), metric)
    else:
        index = faiss.IndexIVFPQ(coarse, dimension, n_cells(n_documents), n_subvectors(dimension, 8), 8, metric)
        _shorten(index.pq.cp)
    _shorten(index.cp)
    return index


def _shorten(clustering: Any) -> None:
    """Have k-means take ten rounds over 64 vectors a centroid: 25 over 256 take ten times as long for little."""
    clustering.niter, clustering.max_points_per_centroid = _ITERATIONS, _TRAINING_PER_CENTROID
