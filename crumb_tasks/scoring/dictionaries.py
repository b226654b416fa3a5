"""Rankings in dictionaries where judgements are all that is known.

Without a corpus, passages, candidates or exclusions nothing of a ranking matters but its length and the places of its
judged documents. These are looked up and counted; making a `Run` would sort all ids, which takes ten times longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.measures import Measure
from crumb_tasks.measures.kernels import JudgedRanks
from crumb_tasks.runs import Run, Vocabulary, offsets_of
from crumb_tasks.scoring.matching import Rules

Ranking = Mapping[str, Any]
_NOTHING: Ranking = {}


def suffice(collection: Collection, rules: Rules, measures: Sequence[Measure]) -> bool:
    """Return whether lengths and judged places are all that scoring looks at."""
    knows_more = (
        collection.n_documents
        or collection.parents is not None
        or collection.candidates is not None
        or collection.exclusions
        or collection.groups
        or collection.nuggets
    )
    asks_more = rules.exclude_self or rules.is_choice or any(one.is_delegated or one.needs for one in measures)
    return not knows_more and not asks_more


def lengths(run: Mapping[Any, Any]) -> Run | None:
    """Return a run of ``run``'s lengths whose documents are all one, ``None`` where ids or scores are not plain.

    Plain are ids that are strings and scores that are numbers, neither boolean nor NaN. What is not plain, or wrong, is
    for `Run.from_dict` to read or refuse.
    """
    if not isinstance(run, Mapping):
        return None
    rankings = list(run.values())
    if not all(type(ranking) is dict for ranking in rankings):
        return None
    try:
        for ids in (run, *rankings):
            "".join(ids)  # the quickest way to see that all are strings
    except TypeError:
        return None
    scores = _scores(list(chain.from_iterable(ranking.values() for ranking in rankings)))
    if scores is None:
        return None
    depths = np.fromiter(map(len, rankings), dtype=np.int64, count=len(rankings))
    offsets = offsets_of(depths)
    documents = Vocabulary(pa.array([""], type=pa.string()))
    return Run(tuple(run), offsets, documents, np.zeros(len(scores), dtype=np.int32), scores)


def _scores(values: Sequence[Any]) -> NDArray[np.float64] | None:
    try:
        column = pa.array(values, type=pa.float64(), from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    scores = np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    like_booleans = np.flatnonzero((scores == 0) | (scores == 1))
    if np.isnan(scores).any() or any(isinstance(values[at], bool | np.bool_) for at in like_booleans.tolist()):
        return None
    return scores


def judged_ranks(run: Mapping[str, Ranking], matched: Run, qrels: Qrels) -> JudgedRanks:
    """Find the places of the judged documents.

    Args:
        run: Rankings by query, plain as `lengths` says.
        matched: What `lengths` made of it, with the queries of ``qrels``.
        qrels: Judgements of the queries in the mean.
    """
    judged = qrels.documents.decode(qrels.codes).to_pylist()
    bounds = qrels.offsets.tolist()
    rankings = [run.get(query_id, _NOTHING) for query_id in qrels.query_ids]
    found = [
        ranking.get(doc_id, np.nan)
        for ranking, start, end in zip(rankings, bounds, bounds[1:], strict=False)
        for doc_id in judged[start:end]
    ]
    wanted = -np.array(found, dtype=np.float64)
    rows = np.flatnonzero(~np.isnan(wanted))
    ranks = np.zeros(len(wanted), dtype=np.int64)
    starts = np.searchsorted(rows, qrels.offsets).tolist()
    ascending, offsets, is_strict = -matched.scores, matched.offsets.tolist(), _are_strict(matched).tolist()
    for at, ranking in enumerate(rankings):
        own = rows[starts[at] : starts[at + 1]]
        if len(own):
            one = ascending[offsets[at] : offsets[at + 1]]
            if is_strict[at]:
                ranks[own] = one.searchsorted(wanted[own]) + 1
            else:
                ranks[own] = _places(ranking, np.sort(one), [judged[row] for row in own.tolist()], wanted[own])
    queries = qrels.row_queries
    order = rows[np.lexsort((ranks[rows], queries[rows]))]
    best_first = np.lexsort((-qrels.grades, queries))
    return JudgedRanks(
        n_retrieved=matched.depths,
        query=queries[order],
        rank=ranks[order],
        grade=qrels.grades[order],
        judged_query=queries,
        judged_grade=qrels.grades[best_first],
    )


def _are_strict(run: Run) -> NDArray[np.bool_]:
    """Return for each query whether every score is less than the one before it."""
    rows = np.flatnonzero(run.scores[1:] >= run.scores[:-1]) + 1
    queries = np.searchsorted(run.offsets, rows, side="right") - 1
    strict = np.ones(len(run), dtype=bool)
    strict[queries[rows != run.offsets[queries]]] = False
    return strict


def _places(
    ranking: Ranking, ascending: NDArray[np.float64], doc_ids: Sequence[str], scores: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the ranks of documents by how many have better scores, and of equal ones a greater id.

    Scores are negated: the best are the lowest.
    """
    better = ascending.searchsorted(scores, side="left")
    ties = ascending.searchsorted(scores, side="right") - better
    for at in np.flatnonzero(ties > 1).tolist():
        equal, doc_id = -scores[at], doc_ids[at]
        better[at] += sum(score == equal and other > doc_id for other, score in ranking.items())
    return np.asarray(better + 1, dtype=np.int64)
