"""Smaller embeddings without an index: eight bits or one bit a number, or fewer numbers; every document is scored."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from crumb_tasks.search.resident import ExactIndex, Floats, Found, best_of_blocks, unit_rows

_LEVELS = 255
_RESCORED = 4  # times the depth: what sentence-transformers rescores of binary neighbours by default
_WORD = 8  # bytes that are counted at once


class Int8Index:
    """Documents with eight bits a number, queries as they are.

    Codes are linear between the least and the greatest number of each dimension, as in sentence-transformers'
    ``quantize_embeddings``; scores are those of the numbers that the codes stand for.

    Args:
        documents: Documents x dimensions.
    """

    def __init__(self, documents: Floats) -> None:
        least, greatest = documents.min(axis=0), documents.max(axis=0)
        step = np.maximum((greatest - least) / _LEVELS, np.float32(1e-12))
        self._codes = torch.from_numpy(np.round((documents - least) / step).astype(np.uint8))
        self._least, self._step = torch.from_numpy(least), torch.from_numpy(step)
        self.n_bytes = documents.size + 8 * documents.shape[1]

    def search(self, queries: Floats, depth: int) -> Found:
        """Return the best ``depth`` documents of each query."""
        wanted = torch.from_numpy(queries)
        base = (wanted @ self._least).unsqueeze(1)
        scaled = wanted * self._step

        def score(start: int, stop: int) -> torch.Tensor:
            return base + scaled @ self._codes[start:stop].float().T

        return best_of_blocks(score, len(self._codes), len(queries), depth)


class BinaryIndex:
    """Documents and queries with one bit a number: its sign.

    Args:
        documents: Documents x dimensions.
        is_rescored: Order the nearest four times ``depth`` by the query's own numbers and the documents' signs (Yamada
            et al. 2021, https://arxiv.org/abs/2106.00882).
    """

    def __init__(self, documents: Floats, *, is_rescored: bool) -> None:
        self._dimension = documents.shape[1]
        self._bits = _packed(documents)
        self._words = self._bits.view(np.uint64)
        self._is_rescored = is_rescored
        self.n_bytes = len(documents) * -(-self._dimension // 8)

    def search(self, queries: Floats, depth: int) -> Found:
        """Return the best ``depth`` documents of each query."""
        words = _packed(queries).view(np.uint64)

        def score(start: int, stop: int) -> torch.Tensor:
            found = np.empty((len(words), stop - start), dtype=np.float32)
            for row, word in enumerate(words):
                found[row] = self._dimension - 2.0 * _n_bits(self._words[start:stop] ^ word)
            return torch.from_numpy(found)

        n_kept = min(depth * _RESCORED if self._is_rescored else depth, len(self._words))
        values, rows = best_of_blocks(score, len(self._words), len(queries), n_kept)
        return self._rescored(queries, rows, depth) if self._is_rescored else (values, rows)

    def _rescored(self, queries: Floats, rows: NDArray[np.int64], depth: int) -> Found:
        bits = np.unpackbits(self._bits[rows], axis=2, count=self._dimension)
        values = np.einsum("qkd,qd->qk", bits.astype(np.float32) * 2 - 1, queries)
        order = np.argsort(-values, axis=1, kind="stable")[:, :depth]
        return np.take_along_axis(values, order, axis=1), np.take_along_axis(rows, order, axis=1)


class TruncatedIndex:
    """Only the first numbers of each vector, as models with Matryoshka embeddings allow; exact search of these.

    Args:
        documents: Documents x dimensions.
        dimension: How many numbers are kept.
        is_cosine: Bring what is kept to unit length.
    """

    def __init__(self, documents: Floats, dimension: int, *, is_cosine: bool) -> None:
        self._dimension, self._is_cosine = dimension, is_cosine
        self._index = ExactIndex(self._kept(documents))
        self.n_bytes = self._index.n_bytes

    def _kept(self, vectors: Floats) -> Floats:
        kept = np.ascontiguousarray(vectors[:, : self._dimension])
        return unit_rows(kept) if self._is_cosine else kept

    def search(self, queries: Floats, depth: int) -> Found:
        """Return the best ``depth`` documents of each query."""
        return self._index.search(self._kept(queries), depth)


def _packed(vectors: Floats) -> NDArray[np.uint8]:
    """Return the signs of ``vectors`` as bits, padded to whole words."""
    bits = np.packbits(vectors > 0, axis=1)
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, -bits.shape[1] % _WORD))))


_BITS_OF_BYTE = np.array([byte.bit_count() for byte in range(256)], dtype=np.uint8)


def _n_bits(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return how many bits are set in each row."""
    counted = getattr(np, "bitwise_count", None)  # NumPy 2
    counts = counted(words) if counted is not None else _BITS_OF_BYTE[np.ascontiguousarray(words).view(np.uint8)]
    return np.asarray(counts.sum(axis=1, dtype=np.int64))
