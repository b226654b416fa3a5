"""(b) Exact MaxP against plain search: passages ranked by themselves, and documents by their best passage.

    python benchmarks/max_passage.py [--sizes 200000 1000000] [--repeat 5] [--threads 2]

Passages per document are skewed. Documents whose passages stand together are the usual case; a shuffled corpus, whose
documents straddle all blocks, is measured too. No loading; each round runs every way once, and medians are printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from generated import DEPTH, TOLD, Generated, ReadyBlocks, ReadyEncoder, queries
from search import product, report, timed

from crumb_tasks.aggregators import max_passage
from crumb_tasks.runs import Run
from crumb_tasks.search import search_encoder


def search(vectors: Any, corpus: Dataset, parents: pa.ChunkedArray | None, depth: int = DEPTH) -> Run:
    """Search with ready vectors."""
    return search_encoder(
        ReadyEncoder(vectors),
        corpus=corpus,
        queries=queries(),
        depth=depth,
        parents=parents,
        store=ReadyBlocks(vectors),
        **TOLD,
    )


def n_lost(exact: Run, vectors: Any, corpus: Dataset, parents: pa.ChunkedArray) -> float:
    """Return how many documents a query loses on average when MaxP is taken of its first 2,000 passages."""
    passages = search(vectors, corpus, None, 2 * DEPTH)
    truncated = max_passage(passages, pa.array(corpus["id"][:]), parents).truncate(DEPTH)
    return float(np.mean(exact.depths - truncated.depths))


def measure(generated: Generated, repeat: int) -> None:
    """Print the medians for one size."""
    vectors, corpus, parents = generated.vectors(), generated.corpus(), generated.parents()
    shuffled = parents.take(pa.array(np.random.default_rng(0).permutation(len(parents))))
    tensor = torch.from_numpy(vectors)
    ways: dict[str, Callable[[], Any]] = {
        "bare product": lambda: product(tensor),
        "plain": lambda: search(vectors, corpus, None),
        "MaxP": lambda: search(vectors, corpus, parents),
        "MaxP, shuffled": lambda: search(vectors, corpus, shuffled),
    }
    counts = parents.value_counts().field("counts").to_numpy()
    exact = search(vectors, corpus, parents)
    spread = f"mean {counts.mean():.1f}, 99 % {np.quantile(counts, 0.99):.0f}, max {counts.max()}"
    print(f"{len(counts):,} documents; passages of each: {spread}")
    print(f"MaxP of 2,000 passages loses {n_lost(exact, vectors, corpus, parents):.2f} of {DEPTH} documents a query")
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(repeat):
        for name, way in ways.items():
            seconds[name].append(timed(way)[0])
    report(seconds, generated.size)
    plain, best, apart = (np.median(seconds[name], axis=0) for name in ("plain", "MaxP", "MaxP, shuffled"))
    print(f"  MaxP / plain {best[0] / plain[0]:.2f} (processor {best[1] / plain[1]:.2f})", end="; ")
    print(f"shuffled {apart[0] / plain[0]:.2f} (processor {apart[1] / plain[1]:.2f})")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for size in arguments.sizes:
        measure(Generated(size).make(), arguments.repeat)


if __name__ == "__main__":
    main()
