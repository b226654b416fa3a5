"""(c) Scoring: the 42 values of MTEB's dictionary, by this package, by MTEB and by ir_measures.

    python benchmarks/scoring.py [--queries 500 5000] [--repeat 5] [--others 2]

Runs of 1,000 documents a query out of a million, 20 judged documents a query. From dictionaries means what MTEB passes
around, ``{query: {document: score}}``; from arrays means a Run. MTEB's time is told with and without its nAUC, which it
always computes. Ours is told with a corpus of a million documents, in which every id of the run is looked up, and
without
one: MTEB's function knows no corpus. Before anything is timed, every value of every query is compared with
pytrec_eval's.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ir_measures
import numpy as np
import pyarrow as pa
import pytrec_eval
from mteb._evaluators import retrieval_metrics
from mteb._evaluators.retrieval_metrics import calculate_retrieval_scores

from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.measures import parse_measure
from crumb_tasks.measures.kernels import JudgedRanks, evaluate
from crumb_tasks.runs import Run
from crumb_tasks.scoring import CRUMB_MEASURES, MTEB_MEASURES, score

DEPTH = 1000
N_DOCUMENTS = 1_000_000
N_JUDGED = 20
CUTOFFS = (1, 3, 5, 10, 20, 100, 1000)
_TREC_NAME_BY_KERNEL = {"nDCG": "ndcg_cut", "AP": "map_cut", "R": "recall", "P": "P", "Success": "success"}


def build(n_queries: int) -> tuple[Run, Collection]:
    """Return a run, and a collection of a million documents; half of what is judged was retrieved."""
    random = np.random.default_rng(0)
    ids = pa.array([f"doc{number:07d}" for number in range(N_DOCUMENTS)])
    query_ids = [f"q{number}" for number in range(n_queries)]
    codes = np.concatenate([random.choice(N_DOCUMENTS, DEPTH, replace=False, shuffle=False) for _ in query_ids])
    scores = np.concatenate([-np.sort(-random.permutation(1 << 20)[:DEPTH].astype(np.float64)) for _ in query_ids])
    run = Run.from_columns(query_ids, np.repeat(np.arange(n_queries), DEPTH), ids.take(pa.array(codes)), scores)
    found = codes.reshape(n_queries, DEPTH)[:, :: 2 * DEPTH // N_JUDGED]
    judged = np.concatenate([found, random.integers(0, N_DOCUMENTS, (n_queries, N_JUDGED // 2))], axis=1)
    pairs = np.unique(np.repeat(np.arange(n_queries), judged.shape[1]) * N_DOCUMENTS + judged.ravel())
    qrels = Qrels.from_columns(
        query_ids, pairs // N_DOCUMENTS, ids.take(pa.array(pairs % N_DOCUMENTS)), random.integers(0, 3, pairs.size)
    )
    corpus, queries = pa.table({"id": ids}), pa.table({"id": query_ids})
    return run, Collection(name="benchmark", split="test", corpus=corpus, queries=queries, qrels={"graded": qrels})


def mteb_without_nauc(run: Mapping[str, Any], qrels: Mapping[str, Any]) -> None:
    """Do what MTEB's scorer does, except nAUC."""
    names = {f"{name}.{','.join(map(str, CUTOFFS))}" for name in _TREC_NAME_BY_KERNEL.values()}
    scores = pytrec_eval.RelevanceEvaluator(qrels, names).evaluate(run)
    retrieval_metrics.parse_metrics_from_scores(scores, CUTOFFS)
    retrieval_metrics.mrr(qrels, run, CUTOFFS)


def check_equal(run: Run, collection: Collection, run_dict: Mapping[str, Any], qrels: Mapping[str, Any]) -> float:
    """Return the largest difference of any value of any query to pytrec_eval's and MTEB's."""
    ours = score(run, collection, measures=MTEB_MEASURES)
    theirs = calculate_retrieval_scores(run_dict, qrels, CUTOFFS)
    reciprocal = retrieval_metrics.mrr(qrels, run_dict, CUTOFFS)
    largest = 0.0
    for name in MTEB_MEASURES:
        kernel, _, cutoff = name.partition("@")
        if kernel == "RR":
            expected = dict(zip(run_dict, reciprocal[f"MRR@{cutoff}"], strict=True))
        else:
            trec = f"{_TREC_NAME_BY_KERNEL[kernel]}_{cutoff}"
            expected = {query_id: values[trec] for query_id, values in theirs.all_scores.items()}
        difference = ours.per_query[name] - np.array([expected[query_id] for query_id in ours.query_ids])
        largest = max(largest, float(np.abs(difference).max()))
    return largest


def measure(n_queries: int, repeat: int, others: int) -> None:
    """Print medians and ratios for one number of queries."""
    run, collection = build(n_queries)
    run_dict, qrels = run.to_dict(), collection.graded.to_dict()
    print(f"{n_queries:,} x {DEPTH:,}: largest difference {check_equal(run, collection, run_dict, qrels):.1e}")
    alone = replace(collection, corpus=collection.corpus.slice(0, 0))
    kernels = [parse_measure(name) for name in MTEB_MEASURES]
    nine, all_42 = ([ir_measures.parse_measure(name) for name in names] for names in (CRUMB_MEASURES, MTEB_MEASURES))
    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "MTEB": (others, lambda: calculate_retrieval_scores(run_dict, qrels, CUTOFFS)),
        "MTEB without nAUC": (others, lambda: mteb_without_nauc(run_dict, qrels)),
        "ir_measures, nine measures": (others, lambda: ir_measures.calc_aggregate(nine, qrels, run_dict)),
        "ir_measures, the 42": (others, lambda: ir_measures.calc_aggregate(all_42, qrels, run_dict)),
        "ours, dictionaries": (repeat, lambda: score(run_dict, alone, measures=MTEB_MEASURES)),
        "ours, arrays": (repeat, lambda: score(run, alone, measures=MTEB_MEASURES)),
        "ours, dictionaries and corpus": (repeat, lambda: score(run_dict, collection, measures=MTEB_MEASURES)),
        "ours, arrays and corpus": (repeat, lambda: score(run, collection, measures=MTEB_MEASURES)),
        "  of it measures": (repeat, lambda: evaluate(kernels, JudgedRanks.find(run, collection.graded))),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for at in range(max(repeat, others)):
        for name, (times, way) in ways.items():
            if at < times:
                began = time.perf_counter()
                way()
                seconds[name].append(time.perf_counter() - began)
    base = float(np.median(seconds["MTEB"]))
    for name, taken in seconds.items():
        median = float(np.median(taken))
        print(
            f"  {name:28} {median:7.3f} s, MTEB takes {base / median:6.1f} x (n {len(taken)}, least {min(taken):.3f} s)"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, nargs="+", default=[500, 5000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--others", type=int, default=2, help="rounds in which MTEB and ir_measures run too")
    arguments = parser.parse_args()
    for n_queries in arguments.queries:
        measure(n_queries, arguments.repeat, arguments.others)
    print(f"peak of the process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
