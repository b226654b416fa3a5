"""Runs over the embedded sample: the relevant documents mostly on top, the rest in a fixed disorder."""

from __future__ import annotations

import random
from functools import cache

from crumb_tasks import load_collection
from crumb_tasks.collection import Collection

MAXP = "CRUMBSampleClinicalTrial"
PLAIN = "CRUMBSamplePaperRetrieval"


@cache
def sample(task: str, split: str = "test") -> Collection:
    """Return a collection of the sample."""
    return load_collection(task, split)


def passage_run(
    task: str, *, seed: int = 0, lift: float = 0.3125, depth: int = 100, split: str = "test"
) -> dict[str, dict[str, float]]:
    """Return a run over the corpus rows, the higher ``lift`` the better; no two scores tie, in float32 neither."""
    collection = sample(task, split)
    ids = collection.corpus_ids.to_pylist()
    documents = ids if collection.parent_ids is None else collection.parent_ids.to_pylist()
    rng = random.Random(seed)
    run = {}
    for query_id, grade_by_doc in collection.graded.to_dict().items():
        disorder = rng.sample(range(4096), len(ids))
        scores = {
            i: place / 4096 + (lift + 2**-16) * grade_by_doc.get(d, 0)
            for i, d, place in zip(ids, documents, disorder, strict=True)
        }
        run[query_id] = dict(sorted(scores.items(), key=lambda item: -item[1])[:depth])
    return run


def document_run(task: str, **options: float) -> dict[str, dict[str, float]]:
    """Return the same with each document once, at the place of its best passage."""
    collection = sample(task)
    parents = collection.corpus_ids if collection.parent_ids is None else collection.parent_ids
    document = dict(zip(collection.corpus_ids.to_pylist(), parents.to_pylist(), strict=True))
    run: dict[str, dict[str, float]] = {}
    for query_id, score_by_passage in passage_run(task, **options).items():  # type: ignore[arg-type]
        best = run.setdefault(query_id, {})
        for passage, score in score_by_passage.items():
            best[document[passage]] = max(score, best.get(document[passage], score))
    return run
