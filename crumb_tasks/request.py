"""What is to be ranked, and what came of it: what all kinds of models are asked alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crumb_tasks.aggregators import max_passage
from crumb_tasks.cards import TaskCard
from crumb_tasks.runs import Run

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.timing import TimingStack


@dataclass(frozen=True)
class QueryGroup:
    """Queries that share an instruction, which reaches a model as the prompt of MTEB's task metadata.

    Attributes:
        task_metadata: MTEB's metadata of the task, with this group's prompt.
        rows: Positions of the queries.
    """

    task_metadata: TaskMetadata
    rows: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be ranked.

    Attributes:
        corpus: Columns ``id``, ``text``, optionally ``title``.
        queries: Columns ``id``, ``text``.
        groups: The queries by instruction; together they cover the rows of ``queries`` once.
        depth: How many documents to keep of each ranking (documents, not passages, under MaxP).
        parents: Under MaxP the document of each corpus row, else ``None``.
        candidates: The corpus ids that each query may rank, else ``None``.
        hf_split: MTEB's name of the split.
        hf_subset: MTEB's name of the subset.
        encode_kwargs: Passed to the model.
        num_proc: Passed to the model.
        timer: Records MTEB's phases.
        card: The task's card, for whoever has to find the corpus elsewhere.
        in_memory_only: The queries may not leave this process; see `crumb_tasks.collection.Collection`.
    """

    corpus: Dataset
    queries: Dataset
    groups: Sequence[QueryGroup]
    depth: int
    parents: pa.Array | pa.ChunkedArray | None = None
    candidates: Mapping[str, Sequence[str]] | None = None
    hf_split: str
    hf_subset: str
    encode_kwargs: Mapping[str, Any]
    num_proc: int | None = None
    timer: TimingStack
    card: TaskCard | None = None
    in_memory_only: bool = False

    @property
    def query_ids(self) -> list[str]:
        """Ids of all queries, in order."""
        return list(self.queries["id"])

    @property
    def corpus_ids(self) -> pa.Array | pa.ChunkedArray:
        """Ids of the corpus rows, in order."""
        return column(self.corpus, "id")


@dataclass(frozen=True)
class Ranking:
    """A run and what is known about how it came about.

    Attributes:
        run: The rankings; under MaxP of documents, with their winning passages.
        n_unproven: Queries whose first ``depth`` documents are not proven to be the exact ones (MaxP only).
        n_unknown_candidates: Candidates that the corpus lacks.
        n_unreturned_candidates: Candidates that the model did not return.
        searched: The deepest list that a model with its own search was asked for, else 0.
    """

    run: Run
    n_unproven: int = 0
    n_unknown_candidates: int = 0
    n_unreturned_candidates: int = 0
    searched: int = 0


def column(dataset: Dataset, name: str) -> pa.ChunkedArray:
    """Return a column of a dataset as Arrow."""
    if not len(dataset):
        return pa.chunked_array([], type=pa.string())
    return dataset.with_format("arrow").select_columns([name])[:].column(name)


def call_arguments(request: Request) -> dict[str, Any]:
    """Return the arguments that MTEB's ``index`` and ``search`` share."""
    return {
        "hf_split": request.hf_split,
        "hf_subset": request.hf_subset,
        "encode_kwargs": dict(request.encode_kwargs),
        "num_proc": request.num_proc,
    }


def run_of(found: Mapping[str, Mapping[str, Any]], query_ids: Iterable[str]) -> Run:
    """Return what a model's search found as a run over ``query_ids``; a query that it left out has an empty ranking."""
    return Run.from_dict({query_id: found.get(query_id, {}) for query_id in query_ids})


def reduced(run: Run, request: Request) -> Run:
    """Return the run with each passage standing for its parent, where the request asks for MaxP."""
    if request.parents is None:
        return run
    return max_passage(run, request.corpus_ids, request.parents)


def n_unreturned(run: Run, request: Request) -> int:
    """Return how many candidates are missing from a run over corpus ids."""
    return sum(len(ids) for ids in (request.candidates or {}).values()) - int(run.depths.sum())


class CandidateList(list[str]):
    """A query's candidates, with a set beside them: MTEB's BM25 asks ``in`` once for every document of the corpus."""

    def __init__(self, ids: Iterable[str]) -> None:
        super().__init__(dict.fromkeys(ids))
        self._as_set = frozenset(self)

    def __contains__(self, doc_id: object) -> bool:
        return doc_id in self._as_set


def restricted_to_candidates(request: Request) -> Request:
    """Leave only documents that some query may rank, and queries that may rank some, for models that need no others.

    Not for BM25, whose scores depend on the whole corpus.
    """
    candidates = request.candidates or {}
    wanted = frozenset(doc_id for ids in candidates.values() for doc_id in ids)
    rows = [row for row, doc_id in enumerate(request.corpus_ids.to_pylist()) if doc_id in wanted]
    query_ids = request.query_ids
    groups = [
        QueryGroup(group.task_metadata, kept)
        for group in request.groups
        if len(kept := np.array([row for row in group.rows.tolist() if query_ids[row] in candidates], dtype=np.int64))
    ]
    parents = None if request.parents is None else request.parents.take(pa.array(rows, type=pa.int64()))
    return replace(request, corpus=request.corpus.select(rows), groups=groups, parents=parents)
