"""Time and memory of scoring runs of 1,000 documents a query: 42 values of MTEB's dictionary.

    python benchmarks/scoring.py [QUERIES …]

Prints for each number of queries the seconds to build the run from string columns, to score it, and what of that is the
look-up of ids in the corpus; and the peak memory of the process at last.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import pyarrow as pa

from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.measures import parse_measure
from crumb_tasks.measures.kernels import JudgedRanks, evaluate
from crumb_tasks.runs import Run
from crumb_tasks.scoring import MTEB_MEASURES, score

DEPTH = 1000
N_DOCUMENTS = 1_000_000
N_JUDGED = 20


def build(n_queries: int) -> tuple[float, Run, Collection]:
    """Return the seconds that building the run took, the run, and a collection of a million documents."""
    random = np.random.default_rng(0)
    ids = pa.array([f"doc{number:07d}" for number in range(N_DOCUMENTS)])
    query_ids = [f"q{number}" for number in range(n_queries)]
    codes = np.concatenate([random.choice(N_DOCUMENTS, DEPTH, replace=False, shuffle=False) for _ in query_ids])
    scores = -np.sort(-random.random((n_queries, DEPTH)), axis=1).ravel()
    column = ids.take(pa.array(codes))
    began = time.perf_counter()
    run = Run.from_columns(query_ids, np.repeat(np.arange(n_queries), DEPTH), column, scores)
    took = time.perf_counter() - began
    judged = codes.reshape(n_queries, DEPTH)[:, :: DEPTH // N_JUDGED]
    qrels = Qrels.from_columns(
        query_ids,
        np.repeat(np.arange(n_queries), judged.shape[1]),
        ids.take(pa.array(judged.ravel())),
        random.integers(0, 3, judged.size),
    )
    collection = Collection(
        name="benchmark",
        split="test",
        corpus=pa.table({"id": ids}),
        queries=pa.table({"id": query_ids}),
        qrels={"graded": qrels},
    )
    return took, run, collection


def main() -> None:
    """Print one line for each number of queries."""
    for n_queries in map(int, sys.argv[1:] or ["500", "5000"]):
        built, run, collection = build(n_queries)
        measures = [parse_measure(name) for name in MTEB_MEASURES]
        whole, kernels = [], []
        for _ in range(5):
            began = time.perf_counter()
            score(run, collection, measures=MTEB_MEASURES)
            whole.append(time.perf_counter() - began)
            began = time.perf_counter()
            evaluate(measures, JudgedRanks.find(run, collection.graded))
            kernels.append(time.perf_counter() - began)
        print(
            f"{n_queries:6,} x {DEPTH:,}: build {built:.2f} s, score {np.median(whole):.3f} s, "
            f"of it measures {np.median(kernels):.3f} s"
        )
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
