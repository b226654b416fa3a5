"""Two or more runs on the same queries: is the difference more than luck, and where does it come from?

The tests are paired, on per-query values. Randomisation and bootstrap make no assumption on how values are distributed
(Smucker, Allan and Carterette, CIKM 2007); several comparisons are corrected after Holm (1979).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.errors import UsageError
from crumb_tasks.measures import parse_measure
from crumb_tasks.scoring import Scores

Floats = NDArray[np.float64]

_RESAMPLES: Final = 10_000
_SEED: Final = 20250907
_SAME: Final = 1e-9
"""Values that differ by less are the same: measures are sums in float64."""
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class Moved:
    """One query and its two values."""

    query_id: str
    first: float
    second: float

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


@dataclass(frozen=True)
class Comparison:
    """One run against another by one measure.

    Attributes:
        first: Name of the one run.
        second: Name of the other.
        measure: Canonical name.
        n_queries: Queries that were compared.
        mean_first: Mean of the one, as scoring takes it: where a task's mean is one over parts, so is this, and the
            interval and the test weigh each query as this mean does.
        mean_second: Mean of the other.
        difference: Second minus first.
        low: Lower end of the 95 % bootstrap interval of the difference.
        high: Its upper end.
        p_value: Of a paired, two-sided randomisation test.
        p_holm: The same after Holm's correction over all comparisons made together.
        n_wins: Queries where the second is better.
        n_losses: Queries where the first is better.
        n_ties: Queries where they are equal.
        moved: The queries that moved most, by absolute difference and then by id, those that moved only.
    """

    first: str
    second: str
    measure: str
    n_queries: int
    mean_first: float
    mean_second: float
    difference: float
    low: float
    high: float
    p_value: float
    p_holm: float
    n_wins: int
    n_losses: int
    n_ties: int
    moved: tuple[Moved, ...]


def compare(scores_by_run: Mapping[str, Scores], measure: str, *, most_moved: int = 10) -> tuple[Comparison, ...]:
    """Compare each pair of runs, in the order of ``scores_by_run``.

    Args:
        scores_by_run: Name of a run → its scores, all on one split of one task.
        measure: What is compared; each run must have a value of it.
        most_moved: How many queries are named.

    Raises:
        UsageError: Less than two runs, runs on different queries, or a run without values of the measure.
    """
    if len(scores_by_run) < 2:
        raise UsageError("a comparison needs at least two runs")
    name = parse_measure(measure).name
    _refuse_other_queries(scores_by_run, name)
    found = [_compare(pair, scores_by_run, name, most_moved) for pair in combinations(scores_by_run, 2)]
    corrected = holm([comparison.p_value for comparison in found])
    return tuple(replace(comparison, p_holm=p_holm) for comparison, p_holm in zip(found, corrected, strict=True))


def _refuse_other_queries(scores_by_run: Mapping[str, Scores], name: str) -> None:
    first_run, first = next(iter(scores_by_run.items()))
    for run, scores in scores_by_run.items():
        scores.value(name)  # says why when there is none
        if name not in scores.per_query:
            raise UsageError(f"{name} has no values per query, so runs cannot be compared by it; try nDCG@10")
        if (scores.task, scores.split, scores.query_ids) != (first.task, first.split, first.query_ids):
            raise UsageError(
                f"'{first_run}' was scored on {first.task} ({first.split}) and '{run}' on {scores.task} "
                f"({scores.split}); runs are compared on the same queries"
            )


def _compare(pair: tuple[str, str], scores_by_run: Mapping[str, Scores], measure: str, most_moved: int) -> Comparison:
    first, second = pair
    (one, mean_first), (other, mean_second) = (
        (scores.per_query[measure], scores.value(measure)) for scores in (scores_by_run[first], scores_by_run[second])
    )
    query_ids, weights = scores_by_run[first].query_ids, scores_by_run[first].weights
    difference = other - one
    moves = np.abs(difference) > _SAME
    share: Floats | float = 1.0 if weights is None else weights * len(query_ids)
    p_value = randomisation_test(one * share, other * share)
    low, high = bootstrap_interval(difference * share)
    by_size = sorted(np.flatnonzero(moves).tolist(), key=lambda at: (-abs(difference[at]), query_ids[at]))
    return Comparison(
        first=first,
        second=second,
        measure=measure,
        n_queries=len(query_ids),
        mean_first=mean_first,
        mean_second=mean_second,
        difference=mean_second - mean_first,
        low=low,
        high=high,
        p_value=p_value,
        p_holm=p_value,
        n_wins=int((moves & (difference > 0)).sum()),
        n_losses=int((moves & (difference < 0)).sum()),
        n_ties=int((~moves).sum()),
        moved=tuple(Moved(query_ids[at], float(one[at]), float(other[at])) for at in by_size[:most_moved]),
    )


def randomisation_test(first: Floats, second: Floats) -> float:
    """Return how likely a mean difference at least this large is if the two runs were interchangeable on each query.

    Two-sided. All 2^n exchanges are tried where that is no more than 10,000, else 10,000 random ones; the same input
    always gives the same value. 1 where no query differs, or one: its exchange has the same difference.
    """
    difference = second - first
    difference = difference[np.abs(difference) > _SAME]  # exchanging equal values changes nothing
    if len(difference) < 2:
        return 1.0
    from scipy import stats

    result = stats.permutation_test(
        (difference,),
        lambda values, axis: values.sum(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=max(1, 4_000_000 // len(difference)),
        rng=np.random.default_rng(_SEED),
    )
    return float(result.pvalue)


def bootstrap_interval(difference: Floats) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean of ``difference``, from 10,000 resamples of queries."""
    if not (np.abs(difference) > _SAME).any() or len(difference) < 2:
        return float(difference.mean()), float(difference.mean())
    from scipy import stats

    result = stats.bootstrap(
        (difference,),
        np.mean,
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=max(1, 4_000_000 // len(difference)),
        confidence_level=_CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected after Holm: the smallest times n, the next times n - 1 …, never falling, at most 1."""
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for place, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[at]))
        corrected[at] = highest
    return corrected
