"""(a) Search: this package, MTEB's wrapper, and the bare matrix product, side by side.

    python benchmarks/search.py [--sizes 200000 1000000] [--repeat 5] [--mteb 1] [--threads 2]

Each round runs every way once, so that what else the machine does meets all of them; medians are printed, and their
ratios. The two ways without loading start from ready vectors; the others from a memory-mapped corpus whose every text
is read.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset, disable_progress_bars
from generated import DEPTH, DIMENSION, N_QUERIES, TOLD, Generated, ReadyBlocks, ReadyEncoder, queries, query_vectors
from mteb.models import SearchEncoderWrapper

from crumb_tasks.runs import Run
from crumb_tasks.search import search_encoder

_CHUNK = 50_000  # MTEB's


def product(vectors: torch.Tensor) -> None:
    """Multiply, keep nothing."""
    wanted = torch.from_numpy(query_vectors())
    for start in range(0, len(vectors), _CHUNK):
        torch.mm(wanted, vectors[start : start + _CHUNK].T)


def product_and_topk(vectors: torch.Tensor) -> None:
    """Multiply and keep the best by torch.topk, block by block."""
    wanted = torch.from_numpy(query_vectors())
    best, where = torch.empty(N_QUERIES, 0), torch.empty(N_QUERIES, 0, dtype=torch.long)
    for start in range(0, len(vectors), _CHUNK):
        scores = wanted @ vectors[start : start + _CHUNK].T
        values, at = torch.topk(scores, min(DEPTH, scores.shape[1]), dim=1)
        best, where = torch.cat([best, values], dim=1), torch.cat([where, at + start], dim=1)
        best, at = torch.topk(best, min(DEPTH, best.shape[1]), dim=1)
        where = where.gather(1, at)


def ours(
    vectors: Any, corpus: Dataset, *, loading: bool, sorts: bool = True, parents: pa.ChunkedArray | None = None
) -> Run:
    """Search with this package."""
    return search_encoder(
        ReadyEncoder(vectors, sorts=sorts),
        corpus=corpus,
        queries=queries(),
        depth=DEPTH,
        parents=parents,
        store=None if loading else ReadyBlocks(vectors),
        **TOLD,
    )


def theirs(vectors: Any, corpus: Dataset) -> dict[str, dict[str, float]]:
    """Search with MTEB's wrapper."""
    wrapper = SearchEncoderWrapper(ReadyEncoder(vectors), corpus_chunk_size=_CHUNK)
    wrapper.index(corpus, **TOLD)
    found: dict[str, dict[str, float]] = wrapper.search(queries(), top_k=DEPTH, **TOLD)
    corpus.cleanup_cache_files()
    return found


def timed(function: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Return the seconds that ``function`` took by the wall's clock and by the processor's, and its result."""
    began, worked = time.perf_counter(), time.process_time()
    result = function()
    return (time.perf_counter() - began, time.process_time() - worked), result


def product_rate(seconds: float, size: int) -> str:
    """Return the speed of a product of all queries and ``size`` vectors."""
    return f"{2 * N_QUERIES * size * DIMENSION / seconds / 1e9:.0f} GFLOP/s"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--mteb", type=int, default=1, help="rounds in which MTEB's wrapper runs too")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    disable_progress_bars()
    for size in arguments.sizes:
        measure(Generated(size).make(), arguments.repeat, arguments.mteb)


def measure(generated: Generated, repeat: int, with_mteb: int) -> None:
    """Print the medians for one size."""
    vectors, corpus = generated.vectors(), generated.corpus()
    tensor = torch.from_numpy(vectors)
    ways: dict[str, Callable[[], Any]] = {
        "bare product": lambda: product(tensor),
        "product + torch.topk": lambda: product_and_topk(tensor),
        "search, no loading": lambda: ours(vectors, corpus, loading=False),
        "search": lambda: ours(vectors, corpus, loading=True),
        "search, model does not sort": lambda: ours(vectors, corpus, loading=True, sorts=False),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in [*ways, "MTEB's wrapper"]}
    product(tensor)  # vectors and texts into the page cache
    ours(vectors, corpus, loading=True)
    for at in range(repeat):
        for name, way in ways.items():
            took, result = timed(way)
            seconds[name].append(took)
        if at < with_mteb:
            took, expected = timed(lambda: theirs(vectors, corpus))
            seconds["MTEB's wrapper"].append(took)
            check_equal(result, expected)
    report(seconds, generated.size)


def check_equal(run: Run, expected: dict[str, dict[str, float]]) -> None:
    """Check that both found the same documents with the same scores."""
    for query_id, score_by_doc in run.to_dict().items():
        np.testing.assert_allclose(
            sorted(score_by_doc.values()), sorted(expected[query_id].values()), rtol=1e-5, atol=1e-4
        )
        shared = score_by_doc.keys() & expected[query_id].keys()
        if len(shared) < len(score_by_doc) - 1:  # the last may tie within rounding
            raise AssertionError(f"{query_id}: only {len(shared)} documents in common")


def report(seconds: dict[str, list[tuple[float, float]]], size: int) -> None:
    """Print medians and ratios."""
    bare, bare_worked = np.median(seconds["bare product"], axis=0)
    with contextlib.suppress(OSError):
        print("load", Path("/proc/loadavg").read_text(encoding="ascii").split()[0], end="; ")
    print(f"{size:,} x {DIMENSION}, {N_QUERIES} queries, k {DEPTH}, product {product_rate(float(bare), size)}")
    for name, taken in seconds.items():
        if taken:
            median, worked = np.median(taken, axis=0)
            print(
                f"  {name:28} {median:7.2f} s  {median / bare:6.2f} x product (processor {worked:7.2f} s, "
                f"{worked / bare_worked:6.2f} x; {len(taken)} rounds, least {min(taken)[0]:.2f} s)"
            )


if __name__ == "__main__":
    main()
