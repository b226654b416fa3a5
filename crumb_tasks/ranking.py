"""A model of any of MTEB's kinds and a corpus → a run.

Three kinds of models rank. An *encoder* gives vectors and is searched by `crumb_tasks.search`. A *cross-encoder* scores
pairs and needs candidates. A model with *its own search* (BM25, late interaction) gets the corpus and is asked for a
depth; what it leaves out for lack of depth is lost, so `crumb_tasks.own_search` decides how deep to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from crumb_tasks.errors import UsageError
from crumb_tasks.own_search import rank_by_own_search
from crumb_tasks.request import (
    CandidateList,
    Ranking,
    Request,
    call_arguments,
    n_unreturned,
    reduced,
    restricted_to_candidates,
    run_of,
)


@runtime_checkable
class RanksElsewhere(Protocol):
    """A model that is not in this process and takes a request as a whole, such as `crumb_tasks.cluster.remote`'s."""

    def rank_elsewhere(self, request: Request) -> Ranking:
        """Rank as `rank` does, without its truncation."""


def rank(model: Any, request: Request) -> Ranking:
    """Rank the corpus, or the candidates, for every query.

    Args:
        model: An encoder, a cross-encoder or a model with its own search, by MTEB's protocols.
        request: What to rank.

    Raises:
        UsageError: A cross-encoder without candidates, or something that is no model of MTEB's.
        RunError: A score is NaN.
    """
    from mteb.models import CrossEncoderProtocol, EncoderProtocol, SearchProtocol

    request, n_unknown = with_known_candidates(request)
    if isinstance(model, RanksElsewhere):
        ranking = model.rank_elsewhere(request)
    elif isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
        ranking = _rank_by_vectors(model, request)
    elif isinstance(model, CrossEncoderProtocol):
        ranking = _rank_by_pairs(model, request)
    elif isinstance(model, SearchProtocol):
        ranking = rank_by_own_search(model, request)
    else:
        raise UsageError(
            f"{type(model).__name__} is no model that MTEB can run: it has no encode, no predict, no index and search"
        )
    return replace(ranking, run=ranking.run.truncate(request.depth), n_unknown_candidates=n_unknown)


def _rank_by_vectors(model: Any, request: Request) -> Ranking:
    from crumb_tasks.search import search_encoder

    run = search_encoder(
        model,
        corpus=request.corpus,
        queries=request.queries,
        query_groups=[(group.rows, group.task_metadata) for group in request.groups],
        task_metadata=request.groups[0].task_metadata,
        hf_split=request.hf_split,
        hf_subset=request.hf_subset,
        depth=request.depth,
        encode_kwargs=dict(request.encode_kwargs),
        parents=request.parents,
        candidates=request.candidates,
        num_proc=request.num_proc,
        timer=request.timer,
        store=getattr(model, "embedding_store", None),
    )
    return Ranking(run)


def _rank_by_pairs(model: Any, request: Request) -> Ranking:
    from mteb.models import SearchCrossEncoderWrapper

    if request.candidates is None:
        name = request.groups[0].task_metadata.name
        raise UsageError(
            f"{name}: a cross-encoder scores pairs and needs candidates; give it a first stage's run, as in "
            f"`crumb-tasks run MODEL -t {name} --rerank RUN`, or in Python task.convert_to_reranking(PREDICTIONS)"
        )
    request = restricted_to_candidates(request)
    found: dict[str, Mapping[str, float]] = {}
    for group in request.groups:
        wrapper = SearchCrossEncoderWrapper(model)
        asked = {"task_metadata": group.task_metadata, **call_arguments(request)}
        wrapper.index(request.corpus, **asked)
        queries = request.queries.select(group.rows)
        with request.timer("Encoding queries and documents", split=request.hf_split, subset=request.hf_subset):
            top_ranked = {query_id: list(ids) for query_id, ids in (request.candidates or {}).items()}
            found.update(wrapper.search(queries, top_k=request.depth, top_ranked=top_ranked, **asked))
    run = run_of(found, request.query_ids)
    unreturned = n_unreturned(run, request)
    return Ranking(reduced(run, request), n_unreturned_candidates=unreturned)


def with_known_candidates(request: Request) -> tuple[Request, int]:
    """Return the request with candidates as corpus ids, and how many of them the corpus lacks.

    Under MaxP a candidate may be a document, which then stands for all of its passages.
    """
    if request.candidates is None:
        return request, 0
    ids = request.corpus_ids.to_pylist()
    rows_by_id: dict[str, list[str]] = {doc_id: [doc_id] for doc_id in ids}
    if request.parents is not None:
        for doc_id, parent in zip(ids, request.parents.to_pylist(), strict=True):
            if parent != doc_id:
                rows_by_id.setdefault(parent, []).append(doc_id)
    n_unknown = 0
    candidates: dict[str, CandidateList] = {}
    for query_id in request.query_ids:
        wanted = dict.fromkeys(request.candidates.get(query_id, ()))
        n_unknown += sum(doc_id not in rows_by_id for doc_id in wanted)
        usable = CandidateList(row_id for doc_id in wanted for row_id in rows_by_id.get(doc_id, ()))
        if usable:
            candidates[query_id] = usable
    return replace(request, candidates=candidates), n_unknown
