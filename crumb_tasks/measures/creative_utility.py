"""CREATE's creative utility (Wadhwa et al. 2026, arXiv 2603.09970): strong paths between two things that also differ.

CREATE is no retrieval benchmark: a model writes paths, others judge them, and no corpus or qrels exist. What is here
takes paths that are already scored: their creative utility, and a ranking of them that is strong and diverse.

The definition: paths in greedy order, s = sum over i of patience^(i-1) * f(path i) * d(path i), where f is the
strength and d the smallest distance to an earlier path, 1 for the first. The official code differs in two places,
which ``as_code`` follows so that published numbers can be compared: the second path has the weight patience^0, not
patience^1, and so on; and a query without valid paths has the utility 1, not 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.errors import DataError, SchemaError

Floats = NDArray[np.float64]
Triples = Sequence[Sequence[str]]
Encode = Callable[[Sequence[str]], Any]
"""Texts → one vector each; the paper's is all-MiniLM-L6-v2."""

PATIENCE: Final = 0.9
_SATURATED_FROM: Final = 0.7
_FIELDS: Final = ("query", "parsed_paths", "strength_scores", "validity_scores", "factuality_scores")


@dataclass(frozen=True)
class ScoredPaths:
    """The valid and factual paths of one query.

    Attributes:
        query: The question.
        paths: Each a sequence of triples (head, relation, tail).
        strengths: How strong each is.
        n_left_out: Paths that were not valid or not factual.
    """

    query: str
    paths: tuple[Triples, ...]
    strengths: tuple[float, ...]
    n_left_out: int = 0


def read_scored_paths(path: Path | str, *, factual_from: float = 1.0) -> list[ScoredPaths]:
    """Read what ``evaluate_creative_utility.py --output`` of the official code writes, one JSON object a line.

    Lists may stand there as JSON texts, as that code writes them. A path counts when its validity is 1 and the mean
    of its triples' factuality is at least ``factual_from``.

    Raises:
        SchemaError: A field is missing; the message names those that were found.
        DataError: A line is no JSON, or its lists differ in length.
    """
    found = []
    with Path(path).open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                found.append(_scored_paths(f"{path}:{number}", line, factual_from))
    return found


def _scored_paths(where: str, line: str, factual_from: float) -> ScoredPaths:
    try:
        row = json.loads(line)
        missing = [name for name in _FIELDS if name not in row]
        if missing:
            raise SchemaError(f"{where}: no field '{missing[0]}'; found {', '.join(row)}")
        values = [json.loads(row[name]) if isinstance(row[name], str) else row[name] for name in _FIELDS[1:]]
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error})") from error
    paths, strengths, valid, factual = ([] if value is None else value for value in values)
    if len({len(paths), len(strengths), len(valid), len(factual)}) > 1:
        raise DataError(f"{where}: paths, strengths, validity and factuality differ in number")
    kept = [at for at in range(len(paths)) if valid[at] == 1 and float(np.mean(factual[at])) >= factual_from]
    return ScoredPaths(
        query=str(row["query"]),
        paths=tuple(paths[at] for at in kept),
        strengths=tuple(float(strengths[at]) for at in kept),
        n_left_out=len(paths) - len(kept),
    )


def path_text(path: Triples) -> str:
    """Return the text of a path that distances are computed from: lower case, without its last triple, which all share.

    A path of a single triple keeps it. The first triple is without its head.
    """
    shown = list(path[:-1]) if len(path) > 1 else list(path)
    texts = []
    for at, (head, relation, tail) in enumerate(shown):
        start = " " if at == 0 else f"{str(head).lower()} "
        texts.append(f"{start}[{str(relation).lower()}] {str(tail).lower()}")
    return " | ".join(texts)


def saturated(distances: Floats) -> Floats:
    """Return cosine distances as the paper weighs them: (1 - cos(pi (x / .7)^2)) / 2 up to .7, and 1 beyond."""
    values = np.asarray(distances, dtype=np.float64)
    rising = (1.0 - np.cos(np.pi * (np.clip(values, 0.0, _SATURATED_FROM) / _SATURATED_FROM) ** 2)) / 2.0
    return np.asarray(rising, dtype=np.float64)


def path_distances(paths: Sequence[Triples], encode: Encode) -> Floats:
    """Return the saturated distance of each pair of paths, 1 on the diagonal; shape (paths, paths)."""
    if not paths:
        return np.zeros((0, 0))
    vectors = np.asarray(encode([path_text(path) for path in paths]), dtype=np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    distances = saturated(1.0 - vectors @ vectors.T)
    np.fill_diagonal(distances, 1.0)
    return distances


def greedy_order(scores: Sequence[float], distances: Floats) -> list[int]:
    """Return all positions, best first: the highest score, then whatever has the highest score times novelty.

    Novelty is the smallest distance to what was taken. With strengths it is the ideal order of the definition, with a
    re-ranker's scores a diversified re-ranking. Of equal ones the first is taken; scores are 0 or more.
    """
    values = np.asarray(scores, dtype=np.float64)
    nearest = np.ones(len(values))
    left = np.ones(len(values), dtype=bool)
    order: list[int] = []
    for _ in range(len(values)):
        best = int(np.argmax(np.where(left, values * nearest, -np.inf)))
        order.append(best)
        left[best] = False
        nearest = np.minimum(nearest, distances[best]) if len(order) > 1 else distances[best].copy()
    return order


def utility_of(
    order: Sequence[int],
    strengths: Sequence[float],
    distances: Floats,
    *,
    patience: float = PATIENCE,
    as_code: bool = False,
) -> float:
    """Return the utility of paths in a given order, of which there may be fewer than there are paths."""
    if not order:
        return 1.0 if as_code else 0.0
    rows = np.asarray(order)
    novelty = [1.0, *(float(distances[rows[at], rows[:at]].min()) for at in range(1, len(rows)))]
    ranks = np.arange(len(rows), dtype=np.float64)
    weights = patience ** (np.maximum(ranks - 1.0, 0.0) if as_code else ranks)
    return float(np.sum(weights * np.asarray(strengths, dtype=np.float64)[rows] * np.asarray(novelty)))


def creative_utility(
    strengths: Sequence[float], distances: Floats, *, patience: float = PATIENCE, as_code: bool = False
) -> float:
    """Return the utility of a query's paths in greedy order; patience is .9 or .7 in the paper."""
    order = greedy_order(strengths, distances)
    return utility_of(order, strengths, distances, patience=patience, as_code=as_code)


def relative_utility(
    order: Sequence[int],
    strengths: Sequence[float],
    distances: Floats,
    cutoff: int,
    *,
    patience: float = PATIENCE,
) -> float:
    """Return the utility of a ranking's first ``cutoff`` paths over that of the greedy order's, 0 where that is 0.

    Greedy is not optimal, so that a ranking can exceed 1.
    """
    ideal = utility_of(greedy_order(strengths, distances)[:cutoff], strengths, distances, patience=patience)
    reached = utility_of(list(order)[:cutoff], strengths, distances, patience=patience)
    return reached / ideal if ideal else 0.0
