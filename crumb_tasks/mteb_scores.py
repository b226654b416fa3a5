"""Our scores under MTEB's keys, so that what reads MTEB's result files goes on reading.

The values are `crumb_tasks.scoring`'s. Keys that MTEB's own scorer does not have are added behind its standard ones. A
result is strict JSON: where MTEB would write NaN there is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crumb_tasks import __version__
from crumb_tasks.cards import TaskCard
from crumb_tasks.measures import mteb_key, parse_measure
from crumb_tasks.mteb_compat import abstention_auc

if TYPE_CHECKING:
    from crumb_tasks.collection import Collection
    from crumb_tasks.request import Ranking
    from crumb_tasks.runs import Run
    from crumb_tasks.scoring import Scores

STANDARD_CUTOFFS = (1, 3, 5, 10, 20, 100, 1000)
"""MTEB's cutoffs of retrieval tasks."""

_STANDARD = (
    *(f"{kernel}@{cutoff}" for kernel in ("nDCG", "AP", "R", "P", "RR", "Success") for cutoff in STANDARD_CUTOFFS),
    "Rprec",
)
_ABSTENTION_KERNELS = ("nDCG", "AP", "R", "P", "RR")


def measures_of(card: TaskCard) -> list[str]:
    """Return the measures that a result of ``card`` holds: MTEB's standard ones, R-precision, and the card's own."""
    return list(dict.fromkeys([*_STANDARD, parse_measure(card.main_measure).name, *card.measures]))


def emitted_keys(card: TaskCard) -> frozenset[str]:
    """Return the keys of the measures that a result of ``card`` holds."""
    return _standard_keys() | {mteb_key(parse_measure(measure)) for measure in (card.main_measure, *card.measures)}


@cache
def _standard_keys() -> frozenset[str]:
    return frozenset({"accuracy", *(mteb_key(parse_measure(measure)) for measure in _STANDARD)})


def score_dict(
    card: TaskCard, collection: Collection, scores: Scores, ranking: Ranking, *, depth: int, revision: str
) -> dict[str, Any]:
    """Return the scores of one split as MTEB stores them.

    Args:
        card: The task.
        collection: What was searched.
        scores: From `crumb_tasks.scoring`.
        ranking: What was scored.
        depth: How many documents of each ranking were kept.
        revision: Of the data.
    """
    from crumb_tasks.scoring import VERSION

    values = {mteb_key(measure): _finite(scores.summary.get(measure.name)) for measure in scores.measures}
    main = parse_measure(card.main_measure)
    if (
        main.name in scores.flagged and main.name in scores.per_query
    ):  # MTEB needs a main score; the note says what it is worth
        values[mteb_key(main)] = _finite(float(scores.per_query[main.name].mean()))
    values.setdefault("accuracy", values["recall_at_1"])  # MTEB's alias, which readers of multiple-choice tasks take
    values |= {key: _finite(value) for key, value in scores.extras.items()}
    coverage = scores.coverage
    return {
        **values,
        **_abstention(scores, ranking.run),
        "n_queries": coverage.n_queries,
        "n_missing": coverage.n_missing,
        "n_omitted": coverage.n_omitted,
        "n_unproven": ranking.n_unproven,
        "n_unknown_candidates": ranking.n_unknown_candidates,
        "n_unreturned_candidates": ranking.n_unreturned_candidates,
        "n_empty_texts": collection.n_empty_texts,
        "n_truncated_labels": sum(qrels.n_truncated for qrels in collection.qrels.values()),
        "depth": depth,
        "revision": revision,
        "scoring": VERSION,
        "qrels": dict(card.qrels) or {"graded": "graded"},
        "sample": card.sample,
        "crumb_tasks_version": __version__,
        "notes": list(dict.fromkeys([*collection.notes, *scores.notes])),
    }


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _abstention(scores: Scores, run: Run) -> dict[str, float | None]:
    """Return MTEB's nAUC values: does the system know which of its rankings are good? Null where all are alike."""
    if not scores.query_ids:
        return {}
    found: dict[str, float | None] = {}
    confidences = _confidences(run.select(scores.query_ids))
    with np.errstate(invalid="ignore"):
        for measure in map(parse_measure, scores.per_query):
            if (
                measure.kernel not in _ABSTENTION_KERNELS
                or measure.cutoff not in STANDARD_CUTOFFS
                or measure.rel is not None
            ):
                continue
            for name, confidence in confidences.items():
                value = abstention_auc(confidence, scores.per_query[measure.name])
                found[f"nauc_{mteb_key(measure)}_{name}"] = _finite(value)
    return found


def _confidences(run: Run) -> Mapping[str, NDArray[np.float64]]:
    """Return for each query its highest score, the scores' standard deviation, the lead of the first; 0 when empty."""
    first, second, filled = run.offsets[:-1], run.offsets[:-1] + 1, run.depths > 0
    highest, lead, spread = (np.zeros(len(run)) for _ in range(3))
    highest[filled] = run.scores[first[filled]]
    has_two = run.depths > 1
    lead[has_two] = run.scores[first[has_two]] - run.scores[second[has_two]]
    counts = np.maximum(run.depths, 1)
    mean = np.bincount(run.row_queries, weights=run.scores, minlength=len(run)) / counts
    squares = np.bincount(run.row_queries, weights=(run.scores - mean[run.row_queries]) ** 2, minlength=len(run))
    spread[:] = np.sqrt(squares / counts)
    return {"max": highest, "std": spread, "diff1": lead}
