"""Values that are no mean over all queries: worst of a group, right choices, parts of the queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.aggregators import group_deviation, group_mean, group_minimum
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError
from crumb_tasks.measures import Measure, mteb_key, parse_measure
from crumb_tasks.measures.kernels import JudgedRanks, ndcg
from crumb_tasks.runs import Run

Floats = NDArray[np.float64]
_DEFAULT_CUTOFF = 10


def group_index(query_ids: Sequence[str], groups: Mapping[str, str]) -> NDArray[np.int64]:
    """Return for each query the number of its group, from 0 without gaps; a query without one is alone in its group."""
    number_by_group: dict[tuple[str, bool], int] = {}
    keys = ((groups[query_id], True) if query_id in groups else (query_id, False) for query_id in query_ids)
    return np.array([number_by_group.setdefault(key, len(number_by_group)) for key in keys], dtype=np.int64)


def group_values(
    measures: Iterable[Measure], ranks: JudgedRanks, query_ids: Sequence[str], groups: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return Robustness@k for each such measure, and the extras at 10.

    Robustness@k (InstructIR, Oh et al. 2024, section 3) is the mean over groups of the lowest nDCG@k in the group.
    """
    index = group_index(query_ids, groups)
    cutoffs = {measure.name: measure.cutoff for measure in measures if measure.kernel == "Robustness"}
    robustness = {name: float(group_minimum(ndcg(ranks, cutoff), index).mean()) for name, cutoff in cutoffs.items()}
    values = ndcg(ranks, _DEFAULT_CUTOFF)
    return robustness, {
        "robustness_at_10": float(group_minimum(values, index).mean()),
        "group_mean_ndcg_at_10": float(group_mean(values, index).mean()),
        "group_std_ndcg_at_10": float(group_deviation(values, index).mean()),
        "n_groups": float(index.max(initial=-1) + 1),
    }


def choice_values(run: Run, collection: Collection, graded: Qrels, relevant_from: int) -> dict[str, Floats]:
    """Return for each query whether the right option has the best score.

    ``accuracy`` shares the credit among the t options that tie for the best score: 1/t if the right one is among
    them. ``accuracy_argmax`` takes the first of them, as RAR-b's code does (np.argmax), which favours right options
    that stand first. Options with the same text are one document, so they tie. An option that the run does not rank
    is worse than all that it ranks; a query without any ranked option has no credit.
    """
    options = [list((collection.candidates or {}).get(query_id, ())) for query_id in run.query_ids]
    counts = np.array([len(of_query) for of_query in options], dtype=np.int64)
    queries = np.repeat(np.arange(len(run), dtype=np.int64), counts)
    documents = [document for of_query in options for document in of_query]
    scores = _scores_of(run, queries, documents)
    best = np.full(len(run), -np.inf)
    is_ranked = ~np.isnan(scores)
    np.maximum.at(best, queries[is_ranked], scores[is_ranked])
    tied = is_ranked & (scores == best[queries])
    right = _right_options(run.query_ids, options, collection.answers, graded, relevant_from)
    n_tied = np.bincount(queries, weights=tied, minlength=len(run))
    n_right = np.bincount(queries, weights=tied & right, minlength=len(run))
    first = np.flatnonzero(tied)[np.unique(queries[tied], return_index=True)[1]]
    argmax = np.zeros(len(run))
    argmax[queries[first]] = right[first]
    return {
        "accuracy": np.divide(n_right, n_tied, out=np.zeros(len(run)), where=n_tied > 0),
        "accuracy_argmax": argmax,
    }


def _scores_of(run: Run, queries: NDArray[np.int64], documents: Sequence[str]) -> Floats:
    """Return the score of each (query, document), NaN where the run lacks it."""
    width = max(len(run.documents), 1)
    rows = run.row_queries * width + run.codes
    order = np.argsort(rows)
    codes = run.documents.find(documents)
    wanted = queries * width + codes
    at = np.minimum(np.searchsorted(rows, wanted, sorter=order), max(len(rows) - 1, 0))
    scores = np.full(len(documents), np.nan)
    if len(rows):
        found = (codes >= 0) & (rows[order[at]] == wanted)
        scores[found] = run.scores[order[at[found]]]
    return scores


def _right_options(
    query_ids: Sequence[str],
    options: Sequence[Sequence[str]],
    answers: Mapping[str, int],
    graded: Qrels,
    relevant_from: int,
) -> NDArray[np.bool_]:
    """Return for each option whether it is right: the answer where the data has it, else its judgement.

    An option with the right text is right wherever it stands, so that a system which picks the text has full credit.
    RAR-b's code never counts an answer whose text stands at an earlier position as well, since np.argmax returns the
    earlier one: then only the answer's own position is right.
    """
    grade_by_doc_by_query = graded.to_dict()
    right: list[bool] = []
    for query_id, of_query in zip(query_ids, options, strict=True):
        if query_id in answers:
            if not 0 <= answers[query_id] < len(of_query):
                raise DataError(
                    f"query '{query_id}': the answer is option {answers[query_id]} of {len(of_query)}, counted from 0"
                )
            answer = answers[query_id]
            comes_first = of_query.index(of_query[answer]) == answer
            right.extend(
                document == of_query[answer] and (comes_first or position == answer)
                for position, document in enumerate(of_query)
            )
        else:
            grades = grade_by_doc_by_query[query_id]
            right.extend(grades.get(document, 0) >= relevant_from for document in of_query)
    return np.array(right, dtype=bool)


def part_index(
    query_ids: Sequence[str], query_labels: Mapping[str, Mapping[str, str]], partition: str
) -> NDArray[np.int64] | None:
    """Return for each query the number of its part, or ``None`` without a partition.

    Raises:
        DataError: The collection has no such partition.
    """
    if not partition:
        return None
    if partition not in query_labels:
        raise DataError(f"the mean is over '{partition}', a partition of the queries that the collection lacks")
    return group_index(query_ids, query_labels[partition])


def mean_of(values: Floats, parts: NDArray[np.int64] | None) -> float:
    """Return the mean of ``values``, or the unweighted mean of the means of those parts that occur."""
    if parts is None:
        return float(values.mean())
    return float(group_mean(values, np.unique(parts, return_inverse=True)[1]).mean())


def weights_of(parts: NDArray[np.int64] | None) -> Floats | None:
    """Return what each query counts in the mean of `mean_of`, with sum 1; ``None`` where all count alike."""
    if parts is None:
        return None
    _, index, sizes = np.unique(parts, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (len(sizes) * sizes[index]))


def part_values(
    per_query: Mapping[str, Floats],
    query_ids: Sequence[str],
    query_labels: Mapping[str, Mapping[str, str]],
    parts: NDArray[np.int64] | None = None,
) -> dict[str, float]:
    """Return ``<key>_<part>`` for each measure and ``n_queries_<part>``, for each part that has queries.

    Args:
        per_query: Values by measure.
        query_ids: Their queries.
        query_labels: The partitions.
        parts: As in `mean_of`: a part's value is the mean over those of these parts that it holds.

    Raises:
        DataError: Two partitions have a part of the same name.
    """
    values: dict[str, float] = {}
    for label_by_query in query_labels.values():
        labels = np.array([label_by_query.get(query_id, "") for query_id in query_ids], dtype=object)
        for label in dict.fromkeys(label for label in labels if label):
            part = re.sub(r"\W+", "_", str(label))
            if f"n_queries_{part}" in values:
                raise DataError(f"two partitions of the queries have a part '{part}'; part names must differ")
            chosen = labels == label
            values[f"n_queries_{part}"] = float(chosen.sum())
            for name, of_query in per_query.items():
                inside = None if parts is None else parts[chosen]
                values[f"{mteb_key(parse_measure(name))}_{part}"] = mean_of(of_query[chosen], inside)
    return values
