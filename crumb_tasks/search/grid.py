"""Scores on a fixed grid of tiles, for any similarity that a model declares.

A matrix product changes in the last bit with the shape of its operands. So queries and documents are cut at the same
places whatever the number of either, tails are padded with zeros to the full tile, and tiles lie in the same aligned
memory, each computed by one thread: a query alone gets the scores that it gets among others, and equal documents get
equal scores wherever they stand.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

BLOCK = 16_384
"""Documents that are encoded at once; a multiple of every tile's width, so that tiles never straddle blocks."""

TILE_BY_DEVICE = {"cpu": (512, 1024)}
"""Queries and documents of one tile: what keeps the product fast and its result in the CPU's cache."""

ACCELERATOR_TILE = (512, BLOCK)
"""On an accelerator a tile is a whole block."""

_PROBE = 32
_LEAST_FREE = 2 << 30  # bytes that a GPU must have free besides the model, else the CPU scores

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Tile:
    """Scores of ``queries`` for ``documents`` (positions in the block); rows and columns beyond them are padding."""

    queries: slice
    documents: slice
    scores: torch.Tensor


Taker = Callable[[Tile], None]
Chooser = Callable[[int, int], bool]


class Scorer(Protocol):
    """Computes tiles of scores for blocks of document embeddings."""

    device: torch.device
    tile: tuple[int, int]

    def score(self, block: Any, take: Taker, wanted: Chooser | None = None) -> None:
        """Compute the tiles of one block.

        Args:
            block: Document embeddings as the model returned them.
            take: Called with each tile, perhaps by several threads at once; the tile's scores are then overwritten.
            wanted: Tells by (query tile, document tile in the block) which tiles are needed; all when ``None``.
        """


def n_rows(embeddings: Any) -> int:
    """Return the number of vectors in what a model returned: an array, a tensor, or a list of token matrices."""
    return int(embeddings.shape[0]) if hasattr(embeddings, "shape") else len(embeddings)


def is_dense(embeddings: Any) -> bool:
    """Return whether ``embeddings`` is an ordinary matrix: no sparse tensor, no list, one vector a row."""
    if isinstance(embeddings, torch.Tensor):
        return embeddings.layout is torch.strided and embeddings.ndim == 2
    return isinstance(embeddings, np.ndarray) and embeddings.ndim == 2


def rows_of(embeddings: Any, start: int, stop: int) -> Any:
    """Return the vectors ``start`` to ``stop``."""
    if isinstance(embeddings, torch.Tensor) and embeddings.layout is not torch.strided:
        wanted = torch.arange(start, min(stop, n_rows(embeddings)), device=embeddings.device)
        return embeddings.index_select(0, wanted)
    return embeddings[start:stop]


def gather(embeddings: Any, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Any:
    """Return the vectors at ``rows``."""
    if isinstance(embeddings, torch.Tensor):
        return embeddings.index_select(0, torch.as_tensor(rows, device=embeddings.device))
    if isinstance(embeddings, np.ndarray):
        return embeddings[np.asarray(rows)]
    return [embeddings[row] for row in rows]


def padded(embeddings: Any, height: int) -> Any:
    """Return dense ``embeddings`` with zero vectors appended up to ``height``; anything else as it is."""
    missing = height - n_rows(embeddings)
    if missing <= 0 or not is_dense(embeddings):
        return embeddings
    if isinstance(embeddings, torch.Tensor):
        return torch.nn.functional.pad(embeddings, (0, 0, 0, missing))
    return np.pad(embeddings, ((0, missing), (0, 0)))


def scoring_device(*embeddings: Any) -> torch.device:
    """Return where to multiply: on the CUDA device where embeddings are or that has room, else on the CPU.

    Other accelerators lack the integer sorts that keep ties exact; their embeddings are copied tile by tile.
    """
    for found in embeddings:
        if isinstance(found, torch.Tensor) and found.device.type == "cuda":
            return found.device
    if torch.cuda.is_available() and torch.cuda.mem_get_info()[0] > _LEAST_FREE:
        return torch.device("cuda")
    return torch.device("cpu")


class Product:
    """Cosine and dot product: one matrix product, of normalised vectors for the cosine.

    On a CPU every thread computes tiles of its own: threads that share a tile would wait for each other at its end, a
    thousand times a second, and much longer where the machine has other work.
    """

    def __init__(self, queries: Any, *, cosine: bool, device: torch.device) -> None:
        self.device = device
        self.tile = TILE_BY_DEVICE.get(device.type, ACCELERATOR_TILE)
        self.is_cosine = cosine
        self._n_queries, dimension = queries.shape
        height = -(-self._n_queries // self.tile[0]) * self.tile[0]
        self._queries = torch.zeros((height, dimension), dtype=torch.float32, device=device)
        self._load(queries, self._queries)
        self._own = threading.local()
        self._pool: ThreadPoolExecutor | None = None

    def _load(self, vectors: Any, into: torch.Tensor) -> None:
        target = into[: n_rows(vectors)]
        target.copy_(torch.as_tensor(vectors))
        if self.is_cosine:
            target.div_(torch.linalg.vector_norm(target, dim=1, keepdim=True).clamp_min_(1e-12))

    def score(self, block: Any, take: Taker, wanted: Chooser | None = None) -> None:
        """Compute the tiles of one block; see `Scorer`."""
        todo = list(_needed(n_rows(block), len(self._queries) // self.tile[0], self.tile[1], wanted))
        if self.device.type != "cpu":
            for start, chosen in todo:
                self._score_column(block, take, start, chosen)
            return
        with _one_thread_each() as n_threads:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(min(n_threads, BLOCK // self.tile[1]), "scores")
            starts, chosen_by_start = [start for start, _ in todo], [chosen for _, chosen in todo]
            for _ in self._pool.map(partial(self._score_column, block, take), starts, chosen_by_start):
                pass  # raises what a thread raised

    def _score_column(self, block: Any, take: Taker, start: int, chosen: Sequence[int]) -> None:
        """Compute the tiles of a column: some documents, for the queries of the ``chosen`` tiles."""
        documents, scores = self._buffers()
        height, width = self.tile
        vectors = block[start : start + width]
        documents[len(vectors) :] = 0
        self._load(vectors, documents)
        for query_tile in chosen:
            first = query_tile * height
            torch.mm(self._queries[first : first + height], documents.T, out=scores)
            last = min(first + height, self._n_queries)
            take(Tile(slice(first, last), slice(start, start + len(vectors)), scores))

    def _buffers(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this thread's documents and scores."""
        found: tuple[torch.Tensor, torch.Tensor] | None = getattr(self._own, "buffers", None)
        if found is None:
            shape = (self.tile[1], self._queries.shape[1])
            found = self._own.buffers = (
                torch.zeros(shape, device=self.device),
                torch.empty(self.tile, device=self.device),
            )
        return found


def _needed(
    n_documents: int, n_query_tiles: int, width: int, wanted: Chooser | None
) -> Iterator[tuple[int, list[int]]]:
    """Yield each column of tiles with the query tiles that are wanted of it, if any."""
    for at, start in enumerate(range(0, n_documents, width)):
        chosen = [tile for tile in range(n_query_tiles) if wanted is None or wanted(tile, at)]
        if chosen:
            yield start, chosen


@contextlib.contextmanager
def _one_thread_each() -> Iterator[int]:
    """Have torch use one thread for each product; the value is how many threads the user allows."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield n_threads
    finally:
        torch.set_num_threads(n_threads)


class Declared:
    """Any other similarity: the model's own ``similarity`` on every tile, in the dtype that the model chose."""

    def __init__(self, queries: Any, similarity: Callable[[Any, Any], Any], *, device: torch.device) -> None:
        self.device = device
        self.tile = TILE_BY_DEVICE.get(device.type, ACCELERATOR_TILE)
        self._n_queries = n_rows(queries)
        self._similarity = similarity
        self._queries = [
            padded(rows_of(queries, first, first + self.tile[0]), self.tile[0])
            for first in range(0, self._n_queries, self.tile[0])
        ]
        self._scores = torch.zeros(self.tile, dtype=torch.float32, device=device)

    def score(self, block: Any, take: Taker, wanted: Chooser | None = None) -> None:
        """Compute the tiles of one block, one after the other; see `Scorer`."""
        height, width = self.tile
        for start, chosen in _needed(n_rows(block), len(self._queries), width, wanted):
            documents = padded(rows_of(block, start, start + width), width)
            stop = min(start + width, n_rows(block))
            for query_tile in chosen:
                first = query_tile * height
                scores = torch.as_tensor(self._similarity(self._queries[query_tile], documents))
                self._scores[: scores.shape[0], : scores.shape[1]] = scores
                last = min(first + height, self._n_queries)
                take(Tile(slice(first, last), slice(start, stop), self._scores))


def choose_scorer(model: Any, queries: Any, block: Any) -> Scorer:
    """Return the scorer for ``model``: a product where it is one, else the model's own similarity.

    What a model declares (``similarity_fn_name``) need not be what its ``similarity`` does, so both formulas are tried
    on a sample of the embeddings, and one is used only when it agrees. Where both do, the declaration decides. The
    product is one of single precision, that of half-precision embeddings too.

    Args:
        model: An MTEB encoder.
        queries: The embeddings of all queries.
        block: The embeddings of the first block.
    """
    device = scoring_device(queries, block)
    if is_dense(queries) and is_dense(block):
        name = _matching_product(model, queries, block)
        if name is not None:
            return Product(queries, cosine=name == "cosine", device=device)
    logger.info("the model's similarity is neither cosine nor dot product; it is called for every tile")
    return Declared(queries, model.similarity, device=device)


def _matching_product(model: Any, queries: Any, block: Any) -> str | None:
    some_queries, some_documents = _sample(queries), _sample(block)
    expected = torch.as_tensor(model.similarity(some_queries, some_documents)).double().cpu()
    left, right = (torch.as_tensor(part).double().cpu() for part in (some_queries, some_documents))
    cosine = torch.nn.functional.normalize(left, dim=1) @ torch.nn.functional.normalize(right, dim=1).T
    found = [
        name
        for name, product in (("cosine", cosine), ("dot", left @ right.T))
        if product.shape == expected.shape and _agree(expected, product)
    ]
    if len(found) == 2:  # the sample is of unit length, or orthogonal; other vectors of the corpus might not be
        declared = _declared_similarity(model)
        return declared if declared in found else None
    return found[0] if found else None


def _sample(vectors: Any) -> Any:
    """Return some vectors, those of half precision in single: else the rounding of a sample would choose the scorer."""
    some = gather(vectors, range(0, n_rows(vectors), max(1, n_rows(vectors) // _PROBE)))
    if isinstance(some, torch.Tensor):
        return some.float() if some.dtype in {torch.float16, torch.bfloat16} else some
    return some.astype(np.float32) if some.dtype == np.float16 else some


def _agree(expected: torch.Tensor, product: torch.Tensor) -> bool:
    scale = max(float(expected.nan_to_num().abs().max()), 1e-30)
    return torch.allclose(expected / scale, product / scale, rtol=0, atol=1e-4, equal_nan=True)


def _declared_similarity(model: Any) -> str | None:
    for owner in (getattr(model, "model", None), getattr(model, "mteb_model_meta", None)):
        name = getattr(owner, "similarity_fn_name", None)
        if name is not None:
            return str(getattr(name, "value", name))
    return None
