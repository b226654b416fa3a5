"""The common measures, vectorised over all queries at once.

Every one of them needs only the ranks and grades of the judged documents that a run retrieved, and the grades that
could have been retrieved. `JudgedRanks` finds these with one look at each retrieved document; behind it nothing is
done for a document without a judgement.

Definitions are trec_eval's: a negative grade gains nothing, precision divides by the cutoff, nDCG discounts rank i by
log2(i + 1) with the grade as gain, recall and AP divide by all relevant documents. A query without relevant documents
has the value 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.collection import Qrels
from crumb_tasks.errors import UsageError
from crumb_tasks.measures.notation import Measure
from crumb_tasks.runs import Run

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_LARGEST_EXPONENT: Final = 1000


@dataclass(frozen=True, eq=False)
class JudgedRanks:
    """The judged documents that a run retrieved, and all that were judged.

    Attributes:
        n_retrieved: For each query the length of its ranking.
        query: For each judged document that was retrieved the position of its query, ascending.
        rank: Its rank, counted from 1, ascending within a query.
        grade: Its grade.
        judged_query: For each judgement the position of its query, ascending.
        judged_grade: Its grade, descending within a query.
    """

    n_retrieved: Ints
    query: Ints
    rank: Ints
    grade: Ints
    judged_query: Ints
    judged_grade: Ints

    @classmethod
    def find(cls, run: Run, qrels: Qrels) -> Self:
        """Look up the rows of ``run`` in ``qrels``; both must hold the same queries in the same order."""
        if run.query_ids != qrels.query_ids:
            raise ValueError("run and qrels must hold the same queries in the same order")
        width = max(len(qrels.documents), 1)
        judged = qrels.row_queries * width + qrels.codes
        code_by_document = qrels.documents.find(run.documents.ids)
        row_codes = code_by_document[run.codes]
        rows = np.flatnonzero(row_codes >= 0)
        row_queries = run.row_queries[rows]
        keys = row_queries * width + row_codes[rows]
        possible = _possible(keys, judged)
        rows, row_queries, keys = rows[possible], row_queries[possible], keys[possible]
        at = np.minimum(np.searchsorted(judged, keys), max(len(judged) - 1, 0))
        found = judged[at] == keys if len(judged) else np.zeros(len(keys), dtype=bool)
        rows, row_queries, at = rows[found], row_queries[found], at[found]
        best_first = np.lexsort((-qrels.grades, qrels.row_queries))
        return cls(
            n_retrieved=run.depths,
            query=row_queries,
            rank=rows - run.offsets[row_queries] + 1,
            grade=qrels.grades[at],
            judged_query=qrels.row_queries,
            judged_grade=qrels.grades[best_first],
        )

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.n_retrieved)

    @cached_property
    def judged_rank(self) -> Ints:
        """For each judgement its rank in the ideal ranking, counted from 1."""
        return _position_within(self.judged_query)

    def count(self, queries: Ints) -> Floats:
        """Return how often each query stands in ``queries``."""
        return np.bincount(queries, minlength=len(self)).astype(np.float64)

    def total(self, queries: Ints, values: Floats) -> Floats:
        """Return for each query the sum of its ``values``."""
        return np.asarray(np.bincount(queries, weights=values, minlength=len(self)), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Relevant:
    """The relevant documents under one threshold.

    Attributes:
        ranks: Where they come from.
        query: For each relevant document that was retrieved the position of its query, ascending.
        rank: Its rank, ascending within a query.
        n_relevant: For each query how many there are.
    """

    ranks: JudgedRanks
    query: Ints
    rank: Ints
    n_relevant: Floats

    @classmethod
    def at(cls, ranks: JudgedRanks, threshold: int) -> Self:
        relevant = ranks.grade >= threshold
        n_relevant = ranks.count(ranks.judged_query[ranks.judged_grade >= threshold])
        return cls(ranks, ranks.query[relevant], ranks.rank[relevant], n_relevant)

    @cached_property
    def position(self) -> Ints:
        """For each relevant document that was retrieved how many stand up to it."""
        return _position_within(self.query)

    def retrieved(self, cutoff: int | None) -> Floats:
        """Return how many relevant documents each query has up to ``cutoff``."""
        return self.ranks.count(self.query if cutoff is None else self.query[self.rank <= cutoff])


def evaluate(
    measures: Iterable[Measure], graded: JudgedRanks, binary: JudgedRanks | None = None, *, relevant_from: int = 1
) -> dict[str, Floats]:
    """Compute measures of this module for each query.

    Args:
        measures: None of them delegated and none that needs more than qrels.
        graded: Ranks under the graded labels.
        binary: Ranks under binary labels, where a task has them (relevant from 1); else the graded ones, relevant from
            ``relevant_from``. A measure with a threshold of its own, such as P(rel=2)@5, reads the graded labels.
        relevant_from: See ``binary``.

    Returns:
        Canonical name → values, one for each query.
    """
    relevant_by_rule: dict[int | None, _Relevant] = {}

    def relevant_under(threshold: int | None) -> _Relevant:
        if threshold not in relevant_by_rule:
            own = threshold is None and binary is not None
            level = 1 if own else threshold if threshold is not None else relevant_from
            relevant_by_rule[threshold] = _Relevant.at(binary if own and binary is not None else graded, level)
        return relevant_by_rule[threshold]

    values: dict[str, Floats] = {}
    for measure in measures:
        if measure.kernel == "nDCG":
            values[measure.name] = ndcg(graded, measure.cutoff, exponential=measure.is_exponential)
        elif measure.kernel == "Judged":
            values[measure.name] = _judged(graded, measure.cutoff)
        else:
            values[measure.name] = _BINARY_KERNELS[measure.kernel](relevant_under(measure.rel), measure.cutoff)
    return values


def ndcg(ranks: JudgedRanks, cutoff: int | None, *, exponential: bool = False) -> Floats:
    """Return nDCG of each query: gain over log2(rank + 1), divided by that of the ideal ranking.

    Järvelin and Kekäläinen 2002 with the grade as gain; Burges et al. 2005 with 2^grade - 1 where ``exponential``.
    """
    gained = _discounted(ranks, ranks.query, ranks.rank, ranks.grade, cutoff, exponential=exponential)
    ideal = _discounted(
        ranks, ranks.judged_query, ranks.judged_rank, ranks.judged_grade, cutoff, exponential=exponential
    )
    return ratio(gained, ideal)


def _precision(relevant: _Relevant, cutoff: int | None) -> Floats:
    return relevant.retrieved(cutoff) / float(cutoff or 1)


def _recall(relevant: _Relevant, cutoff: int | None) -> Floats:
    return ratio(relevant.retrieved(cutoff), relevant.n_relevant)


def _all_recall(relevant: _Relevant, cutoff: int | None) -> Floats:
    complete = (relevant.retrieved(cutoff) == relevant.n_relevant) & (relevant.n_relevant > 0)
    return np.asarray(complete, dtype=np.float64)


def _success(relevant: _Relevant, cutoff: int | None) -> Floats:
    return (relevant.retrieved(cutoff) > 0).astype(np.float64)


def _reciprocal_rank(relevant: _Relevant, cutoff: int | None) -> Floats:
    values = np.zeros(len(relevant.ranks))
    first = relevant.position == 1
    query, rank = relevant.query[first], relevant.rank[first]
    within = rank <= (cutoff or np.iinfo(np.int64).max)
    values[query[within]] = 1.0 / rank[within]
    return values


def _average_precision(relevant: _Relevant, cutoff: int | None) -> Floats:
    within = relevant.rank <= (cutoff or np.iinfo(np.int64).max)
    precision = relevant.position[within] / relevant.rank[within]
    return ratio(relevant.ranks.total(relevant.query[within], precision), relevant.n_relevant)


def _r_precision(relevant: _Relevant, cutoff: int | None) -> Floats:
    del cutoff
    within = relevant.rank <= relevant.n_relevant[relevant.query]
    return ratio(relevant.ranks.count(relevant.query[within]), relevant.n_relevant)


_BINARY_KERNELS: Final[Mapping[str, Callable[[_Relevant, int | None], Floats]]] = {
    "P": _precision,
    "R": _recall,
    "all_recall": _all_recall,
    "Success": _success,
    "RR": _reciprocal_rank,
    "AP": _average_precision,
    "Rprec": _r_precision,
}


def _judged(ranks: JudgedRanks, cutoff: int | None) -> Floats:
    """Share of the first k that have a judgement; a shorter ranking is divided by its length, as in ir_measures."""
    depth = ranks.n_retrieved if cutoff is None else np.minimum(ranks.n_retrieved, cutoff)
    return ratio(ranks.count(ranks.query if cutoff is None else ranks.query[ranks.rank <= cutoff]), depth.astype(float))


def _discounted(
    ranks: JudgedRanks, query: Ints, rank: Ints, grade: Ints, cutoff: int | None, *, exponential: bool
) -> Floats:
    counts = grade > 0
    if cutoff is not None:
        counts &= rank <= cutoff
    gain = grade[counts].astype(np.float64)
    if exponential:
        if gain.max(initial=0.0) > _LARGEST_EXPONENT:
            raise UsageError(
                f"a grade of {int(gain.max())} has no finite exponential gain 2^grade - 1; use nDCG without dcg"
            )
        gain = np.exp2(gain) - 1.0
    return ranks.total(query[counts], gain / np.log2(rank[counts] + 1.0))


def ratio(part: Floats, whole: Floats) -> Floats:
    """Return ``part / whole``, 0 where ``whole`` is."""
    return np.asarray(np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0), dtype=np.float64)


def _position_within(queries: Ints) -> Ints:
    """Return for ascending ``queries`` how many equal ones stand up to each, itself included."""
    index = np.arange(len(queries), dtype=np.int64)
    starts = np.zeros(len(queries), dtype=np.int64)
    changes = np.flatnonzero(queries[1:] != queries[:-1]) + 1
    starts[changes] = changes
    return index - np.maximum.accumulate(starts) + 1


def _possible(keys: Ints, wanted: Ints) -> NDArray[np.bool_]:
    """Return which keys may be among ``wanted``: a Bloom filter, ten times cheaper for most than a binary search."""
    bits = max(16, int(16 * max(len(wanted), 1) - 1).bit_length())
    shift = np.uint64(64 - min(bits, 24))
    scramble = np.uint64(0x9E3779B97F4A7C15)
    marked = np.zeros(1 << (64 - int(shift)), dtype=bool)
    marked[(wanted.astype(np.uint64) * scramble) >> shift] = True
    return np.asarray(marked[(keys.astype(np.uint64) * scramble) >> shift])
