"""Models with their own search: how deep to ask, so that the first N documents are the exact ones.

With MaxP a passage stands for its parent document. The first N documents are certain once a list holds N distinct
parents and the N-th of them scores above the end of the list. The passages of the N-1 largest parents plus one always
hold N parents; that depth is asked at once of a model that encodes the corpus inside its search. Of others a shorter
list is asked, and a deeper one only for the queries whose list held too few parents.

With candidates a model is asked for the whole corpus: MTEB's BM25 filters after its top k, and a candidate that ranks
below would be lost without a word.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crumb_tasks.mteb_compat import encodes_while_searching, reads_no_prompt
from crumb_tasks.request import (
    QueryGroup,
    Ranking,
    Request,
    call_arguments,
    n_unreturned,
    reduced,
    restricted_to_candidates,
    run_of,
)
from crumb_tasks.runs import Run, Vocabulary

_logger = logging.getLogger("crumb_tasks")

BATCH_ROWS = 2_000_000
"""Retrieved documents that one call of ``search`` may return; Python keeps about 150 bytes for each."""

DEEPEN = 4
"""Factor between the depths asked for a query whose list held too few distinct parents."""


def rank_by_own_search(model: Any, request: Request) -> Ranking:
    """Rank with a model that has ``index`` and ``search``.

    Args:
        model: Implements MTEB's ``SearchProtocol``.
        request: What to rank.
    """
    if len(request.groups) > 1 and reads_no_prompt(model):  # thousands of instructions would be thousands of calls
        metadata = request.groups[0].task_metadata.model_copy(update={"prompt": None})
        request = replace(request, groups=[QueryGroup(metadata, np.arange(len(request.queries), dtype=np.int64))])
    if request.candidates is not None:
        return _rank_candidates(model, request)
    searcher = _Searcher(model, request)
    if request.parents is None:
        depth = min(request.depth, len(request.corpus))
        run = _joined([run for _, run in searcher.search(request.groups, depth)], request.query_ids)
        return Ranking(run, searched=depth)
    return _rank_passages(searcher, request)


def safe_depth(parents: pa.Array | pa.ChunkedArray, n_documents: int) -> int:
    """Return the number of passages that always hold ``n_documents`` distinct parents: the N-1 largest ones' plus one.

    Args:
        parents: The parent of each passage.
        n_documents: N; where there are fewer parents, all passages are needed.
    """
    _, codes = Vocabulary.encode(parents)
    sizes = np.sort(np.bincount(codes))[::-1] if len(codes) else np.empty(0, dtype=np.int64)
    return int(min(sizes[: n_documents - 1].sum() + 1, len(codes)))


class _Searcher:
    """Indexes once, then searches as often as asked; a model that encodes inside its search is indexed each time."""

    def __init__(self, model: Any, request: Request) -> None:
        self.request = request
        self.is_asked_once = encodes_while_searching(model)
        self._model = model
        self._takes_timer = "timer" in inspect.signature(model.search).parameters
        self._is_indexed = False

    def search(self, groups: Sequence[QueryGroup], depth: int) -> Iterator[tuple[NDArray[np.int64], Run]]:
        """Yield the rows of some queries and their run over corpus ids, in calls that return at most `BATCH_ROWS`."""
        per_call = max(1, BATCH_ROWS // max(depth, 1))
        for group in groups:
            n_calls = 1 if self.is_asked_once else -(-len(group.rows) // per_call)
            for rows in np.array_split(group.rows, max(n_calls, 1)):
                if len(rows):
                    yield rows, self._call(QueryGroup(group.task_metadata, rows), depth)

    def _call(self, group: QueryGroup, depth: int) -> Run:
        request = self.request
        queries = request.queries.select(group.rows)
        asked = {"task_metadata": group.task_metadata, **call_arguments(request)}
        if not self._is_ready(asked):
            return run_of({}, queries["id"])
        timed: AbstractContextManager[Any] = nullcontext()
        if self._takes_timer:
            asked["timer"] = request.timer
        else:
            name = "Encoding queries and documents" if self.is_asked_once else "Encoding queries"
            timed = request.timer(name, split=request.hf_split, subset=request.hf_subset)
        with timed:
            found = self._model.search(queries, top_k=depth, top_ranked=request.candidates, **asked)
        return run_of(found, queries["id"])

    def _is_ready(self, asked: Mapping[str, Any]) -> bool:
        if self._is_indexed and not self.is_asked_once:
            return True
        request = self.request
        start = time.monotonic()
        self._is_indexed = _index(self._model, request.corpus, asked)
        if not self.is_asked_once:
            end = time.monotonic()
            request.timer.add_phase("Encoding corpus", start, end, split=request.hf_split, subset=request.hf_subset)
        return self._is_indexed


def _index(model: Any, corpus: Any, asked: Mapping[str, Any]) -> bool:
    """Index a corpus; return False for one in which a lexical model finds no token at all.

    bm25s raises there: https://github.com/xhluca/bm25s/issues/60
    """
    try:
        model.index(corpus, **asked)
    except ValueError as error:
        if str(error) != "max() arg is an empty sequence":
            raise
        _logger.warning("%s finds no token in the corpus; every ranking is empty", type(model).__name__)
        return False
    return True


def _rank_candidates(model: Any, request: Request) -> Ranking:
    query_ids = request.query_ids
    if hasattr(model, "task_corpus"):  # it encodes what it may return and nothing else
        request = restricted_to_candidates(request)
    searcher = _Searcher(model, request)
    depth = len(request.corpus)
    candidates = request.candidates or {}
    may_rank = [
        QueryGroup(group.task_metadata, kept)
        for group in request.groups
        if len(kept := np.array([row for row in group.rows.tolist() if query_ids[row] in candidates], dtype=np.int64))
    ]
    parts = [_only_candidates(run, request) for _, run in searcher.search(may_rank, depth)]
    run = _joined(parts, query_ids)
    return Ranking(reduced(run, request), n_unreturned_candidates=n_unreturned(run, request), searched=depth)


def _only_candidates(run: Run, request: Request) -> Run:
    candidates = request.candidates or {}
    ids = run.documents.decode(run.codes).to_pylist()
    kept = [
        doc_id in candidates[query_id]
        for query_id, start, end in zip(run.query_ids, run.offsets.tolist(), run.offsets.tolist()[1:], strict=False)
        for doc_id in ids[start:end]
    ]
    return run.rows(np.array(kept, dtype=bool))


def _rank_passages(searcher: _Searcher, request: Request) -> Ranking:
    n_documents = request.depth
    safe = min(safe_depth(request.parents, n_documents) + 1, len(request.corpus))  # one more shows a tie at the end
    depth = safe if searcher.is_asked_once else min(safe, n_documents * DEEPEN)
    n_unproven = 0
    parts: list[Run] = []
    pending = list(request.groups)
    while pending:
        short: list[NDArray[np.int64]] = []
        for rows, passages in searcher.search(pending, depth):
            documents = reduced(passages, request)
            is_exact, has_enough = _is_proven(passages, documents, n_documents, depth, len(request.corpus))
            is_settled = is_exact | has_enough | (depth >= safe)
            n_unproven += int((is_settled & ~is_exact).sum())
            settled = [query_id for query_id, done in zip(passages.query_ids, is_settled, strict=True) if done]
            parts.append(documents.truncate(n_documents).select(settled))
            short.append(rows[~is_settled])
        asked = np.concatenate([np.empty(0, dtype=np.int64), *short])
        pending = [
            QueryGroup(group.task_metadata, kept) for group in pending if len(kept := np.intersect1d(group.rows, asked))
        ]
        searched, depth = depth, min(safe, depth * DEEPEN)
    return Ranking(_joined(parts, request.query_ids), n_unproven=n_unproven, searched=searched)


def _is_proven(
    passages: Run, documents: Run, n_documents: int, depth: int, n_corpus: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each query whether its first documents are proven and whether its list held enough parents.

    A list shorter than asked, or of the whole corpus, is all that the model ranks. Otherwise an unseen passage scores
    at most what the last one does: only a tie with it could still displace the N-th document.
    """
    is_whole = (passages.depths < depth) | (depth >= n_corpus)
    has_enough = documents.depths >= n_documents
    last = np.full(len(passages), np.inf)
    filled = passages.depths > 0
    last[filled] = passages.scores[passages.offsets[1:][filled] - 1]
    nth = np.full(len(passages), -np.inf)
    nth[has_enough] = documents.scores[documents.offsets[:-1][has_enough] + n_documents - 1]
    return is_whole | (has_enough & (nth > last)), has_enough


def _joined(parts: Sequence[Run], query_ids: Sequence[str]) -> Run:
    """Return runs over different queries as one over ``query_ids``."""
    if len(parts) == 1 and parts[0].query_ids == tuple(query_ids):
        return parts[0]
    position = {query_id: index for index, query_id in enumerate(query_ids)}
    empty_ids, empty = [pa.array([], type=pa.string())], [np.empty(0)]
    query_index = [
        np.array([position[query_id] for query_id in part.query_ids], dtype=np.int64)[part.row_queries]
        for part in parts
    ]
    have_passages = bool(parts) and all(part.passages is not None for part in parts)
    return Run.from_columns(
        query_ids,
        np.concatenate([np.empty(0, dtype=np.int64), *query_index]),
        pa.concat_arrays(empty_ids + [part.documents.decode(part.codes) for part in parts]),
        np.concatenate(empty + [part.scores for part in parts]),
        passage_ids=pa.concat_arrays(
            empty_ids
            + [
                part.passages.decode(part.passage_codes)
                for part in parts
                if part.passages and part.passage_codes is not None
            ]
        )
        if have_passages
        else None,
    )
