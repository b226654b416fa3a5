"""What scoring returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.errors import UsageError, did_you_mean
from crumb_tasks.measures import Measure, mteb_key, parse_measure


@dataclass(frozen=True)
class Coverage:
    """How much of the collection a run answers, and of the run the collection knows.

    Attributes:
        n_queries: Queries in the mean.
        n_missing: Of these, how many have no document in the run; they count 0.
        n_empty: Of these, how many the run names with an empty ranking.
        n_omitted: Queries of the collection left out of the mean: ``n_without_judgements`` and ``n_all_zero``.
        n_without_judgements: Queries that nobody judged.
        n_all_zero: Queries whose judgements are all zero, where the card leaves such out.
        n_unjudged: Queries of the run that are not judged and were ignored.
        n_retrievable: Documents that a ranking could hold: the corpus or the query's candidates, without exclusions;
            ``None`` where only judgements are known.
        n_unknown_documents: Distinct ids of the run that the corpus lacks.
        n_excluded: Rows taken out by the task's exclusions.
        n_not_candidates: Rows taken out because they are none of their query's candidates.
        n_unranked_candidates: Candidates of the queries that the run does not rank.
        depth: Documents of the longest ranking, or the depth that the caller searched to.
        is_complete: The run goes as deep as any query that it answers could.
        keyed_by: With MaxP whether the run held ``passages``, ``documents`` or a ``mixture``; else empty.
    """

    n_queries: int
    n_missing: int = 0
    n_empty: int = 0
    n_without_judgements: int = 0
    n_all_zero: int = 0
    n_unjudged: int = 0
    n_retrievable: int | None = None
    n_unknown_documents: int = 0
    n_excluded: int = 0
    n_not_candidates: int = 0
    n_unranked_candidates: int = 0
    depth: int = 0
    is_complete: bool = False
    keyed_by: str = ""

    @property
    def n_omitted(self) -> int:
        """Queries of the collection left out of the mean."""
        return self.n_without_judgements + self.n_all_zero


@dataclass(frozen=True, eq=False)
class Scores:
    """A run's values on one split of one task.

    Attributes:
        task: The collection's name.
        split: The collection's split.
        measures: What was asked for, in order.
        query_ids: The queries in the mean, in the collection's order.
        per_query: Canonical name → float64, one value for each of ``query_ids``. It holds flagged measures as well,
            and none whose unit is no query (Robustness).
        summary: Canonical name → value over all queries, without the flagged ones.
        extras: Values that are no measure of the notation, under MTEB-like keys: ``robustness_at_10``,
            ``group_mean_ndcg_at_10``, ``group_std_ndcg_at_10``, ``accuracy``, ``accuracy_argmax``, and for each part of
            the queries ``<key>_<part>`` and ``n_queries_<part>``.
        flagged: Canonical name → why there is no value: the run is not as deep as the measure looks.
        coverage: What was answered, missing, left out.
        notes: The same in sentences, for a person.
        weights: How much each of ``query_ids`` counts in a mean, float64 with sum 1; ``None`` where all count alike.
    """

    task: str
    split: str
    measures: tuple[Measure, ...]
    query_ids: tuple[str, ...]
    per_query: Mapping[str, NDArray[np.float64]]
    summary: Mapping[str, float]
    extras: Mapping[str, float]
    flagged: Mapping[str, str]
    coverage: Coverage
    notes: tuple[str, ...]
    weights: NDArray[np.float64] | None = None

    def value(self, name: str) -> float:
        """Return the value of a measure (in any spelling of the notation) or of an extra key.

        Raises:
            UsageError: It was not computed, or the run is not deep enough for it.
        """
        if name in self.extras:
            return self.extras[name]
        canonical = name if name in self.summary else parse_measure(name).name
        if canonical in self.flagged:
            raise UsageError(f"{canonical} has no value: {self.flagged[canonical]}")
        if canonical not in self.summary:
            known = [*self.summary, *self.extras]
            raise UsageError(
                f"{canonical} was not computed{did_you_mean(canonical, known)} (there are: {', '.join(known)})"
            )
        return self.summary[canonical]

    def mteb_scores(self) -> dict[str, float]:
        """Return all values under MTEB's keys, with ``n_queries``, ``n_missing`` and ``n_omitted``."""
        return {
            **{
                mteb_key(measure): self.summary[measure.name]
                for measure in self.measures
                if measure.name in self.summary
            },
            **self.extras,
            "n_queries": self.coverage.n_queries,
            "n_missing": self.coverage.n_missing,
            "n_omitted": self.coverage.n_omitted,
        }
