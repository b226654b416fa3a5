"""Asking a model single queries and batches of them, with a clock for each part of the way."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.cost import Quantity, known, median_and_spread, unknown
from crumb_tasks.cost.energy import Energy
from crumb_tasks.cost.meter import Meter
from crumb_tasks.errors import CrumbTasksError
from crumb_tasks.mteb_compat import encodes_while_searching
from crumb_tasks.ranking import rank, with_known_candidates
from crumb_tasks.request import QueryGroup, Request, call_arguments, restricted_to_candidates
from crumb_tasks.search.resident import ExactIndex, Resident

SEARCH_DEPTH = 100
"""Documents that the timed search of vectors returns."""

_PARTS = ("total", "encode", "search", "rerank")
_NEEDED = {50: 1, 95: 20, 99: 100}
"""Queries from which on a percentile is one."""

Way = Callable[[Request], dict[str, float]]
"""Answers the queries of a request; returns the seconds of each part."""


@dataclass
class Asked:
    """What asking gave.

    Attributes:
        n_queries: Queries that were asked one by one.
        singles: Seconds of each of them, by part.
        batches: Queries and seconds of each batch, by part.
        missing: Why a part was not timed.
        meter: What the model did while they were asked one by one.
        energy_wh: What asking them, one by one and in batches, used; ``None`` where that is not known.
        vectors: Documents and dimensions of the vectors searched, ``None`` where none were.
    """

    n_queries: int
    singles: dict[str, list[float]] = field(default_factory=dict)
    batches: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    energy_wh: float | None = None
    vectors: tuple[int, int] | None = None

    @property
    def n_answers(self) -> int:
        """How many answers were timed, those in batches included."""
        return len(self.singles.get("total", ())) + sum(count for count, _ in self.batches.get("total", ()))

    def quantities(self) -> dict[str, Quantity]:
        """Return the quantities of the axis of latency."""
        found: dict[str, Quantity] = {}
        for part in _PARTS:
            for percent, needed in _NEEDED.items():
                found[f"{part}_ms_p{percent}"] = self._percentile(part, percent, needed)
        for part, key in (("total", ""), ("encode", "encode_"), ("search", "search_")):
            found[f"batch_{key}queries_per_second"] = self._rate(part)
        return found

    def _percentile(self, part: str, percent: int, needed: int) -> Quantity:
        seconds = self.singles.get(part)
        if not seconds:
            return unknown(self.missing.get(part, "it was not timed"))
        if len(seconds) < needed:
            return unknown(f"{len(seconds)} single queries tell no {percent}th percentile; it takes {needed}")
        return known(float(np.percentile(seconds, percent)) * 1000)

    def _rate(self, part: str) -> Quantity:
        rates = [count / seconds for count, seconds in self.batches.get(part, ()) if seconds > 0]
        if not rates:
            return unknown(self.missing.get(part, "it was not timed"))
        return known(*median_and_spread(rates))


def spread_rows(n_rows: int, n_wanted: int) -> NDArray[np.int64]:
    """Return ``n_wanted`` distinct rows, or all, spread evenly."""
    return np.unique(np.linspace(0, n_rows - 1, min(n_wanted, n_rows)).round().astype(np.int64))


def only(request: Request, rows: NDArray[np.int64]) -> Request:
    """Return the request with only the queries at ``rows`` (ascending), each with its own instruction."""
    groups = []
    for group in request.groups:
        kept = np.flatnonzero(np.isin(rows, group.rows))
        if len(kept):
            groups.append(QueryGroup(group.task_metadata, kept.astype(np.int64)))
    ids = {request.query_ids[row] for row in rows.tolist()}
    candidates = request.candidates
    if candidates is not None:
        candidates = {query_id: found for query_id, found in candidates.items() if query_id in ids}
    return replace(request, queries=request.queries.select(rows), groups=groups, candidates=candidates)


def ask(model: Any, request: Request, energy: Energy, *, n_queries: int, n_warm_up: int, batch_size: int) -> Asked:
    """Ask ``n_queries`` queries one by one, then the same in batches.

    Args:
        model: As an evaluation has it.
        request: What an evaluation asks; its queries are drawn from.
        energy: Measures while queries are asked: neither while vectors are read nor while queries warm up.
        n_queries: How many; fewer where there are fewer.
        n_warm_up: Asked before, and not counted.
        batch_size: Queries of a batch.
    """
    if request.candidates is not None:
        request, _ = with_known_candidates(request)
        request = restricted_to_candidates(request)
    rows = spread_rows(len(request.queries), n_queries)
    asked = Asked(len(rows))
    way = _way(model, request, rows, asked)
    if way is None:
        return asked
    for row in rows[:n_warm_up]:
        way(only(request, np.array([row])))
    energy.start()
    with asked.meter.attached(model):
        for row in rows:
            for part, seconds in way(only(request, np.array([row]))).items():
                asked.singles.setdefault(part, []).append(seconds)
    for chosen in _batches(rows, batch_size):
        for part, seconds in way(only(request, chosen)).items():
            asked.batches.setdefault(part, []).append((len(chosen), seconds))
    asked.energy_wh = energy.stop()
    return asked


def _batches(rows: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    """Yield full batches, or one of all rows where there are fewer; a batch is there to be of the stated size."""
    for start in range(0, max(len(rows) - size, 0) + 1, size):
        yield rows[start : start + size]


def _way(model: Any, request: Request, rows: NDArray[np.int64], asked: Asked) -> Way | None:
    from mteb.models import CrossEncoderProtocol, EncoderProtocol, SearchProtocol

    if isinstance(model, SearchProtocol):
        asked.missing["rerank"] = "nothing is re-ranked (--rerank does)"
        return _own_search(model, request, asked)
    if isinstance(model, CrossEncoderProtocol):
        asked.missing |= dict.fromkeys(("encode", "search"), "pairs are scored; nothing is encoded apart or searched")
        return _reranking(model)
    asked.missing["rerank"] = "no pairs are scored"
    if isinstance(model, EncoderProtocol):
        try:
            return _vectors(model, request, rows, asked)
        except CrumbTasksError as error:
            asked.missing |= dict.fromkeys(("total", "encode", "search"), str(error))
            return None
    asked.missing |= dict.fromkeys(("total", "encode", "search"), "the model is of no kind that can be asked")
    return None


def _vectors(model: Any, request: Request, rows: NDArray[np.int64], asked: Asked) -> Way:
    resident = Resident.load(
        model,
        corpus=request.corpus,
        queries=request.queries.select(rows[:8]),
        task_metadata=request.groups[0].task_metadata,
        hf_split=request.hf_split,
        hf_subset=request.hf_subset,
        encode_kwargs=request.encode_kwargs,
        num_proc=request.num_proc,
        store=getattr(model, "embedding_store", None),
    )
    search = _search(resident, request)
    asked.vectors = resident.documents.shape

    def answer(wanted: Request) -> dict[str, float]:
        began = time.perf_counter()
        vectors = resident.encode(wanted.queries, [(group.rows, group.task_metadata) for group in wanted.groups])
        encoded = time.perf_counter()
        search(vectors, wanted)
        ended = time.perf_counter()
        return {"encode": encoded - began, "search": ended - encoded, "total": ended - began}

    return answer


def _search(resident: Resident, request: Request) -> Callable[[NDArray[np.float32], Request], None]:
    """Return what searches all vectors, or those of a query's candidates, whose vectors are there as well."""
    index = ExactIndex(resident.documents)
    if request.candidates is None:
        return lambda vectors, _wanted: _done(index.search(vectors, SEARCH_DEPTH))
    row_by_id = {doc_id: row for row, doc_id in enumerate(request.corpus_ids.to_pylist())}
    rows_by_query = {
        query_id: np.array([row_by_id[doc_id] for doc_id in ids], dtype=np.int64)
        for query_id, ids in request.candidates.items()
    }

    def search(vectors: NDArray[np.float32], wanted: Request) -> None:
        for vector, query_id in zip(vectors, wanted.query_ids, strict=True):
            if query_id in rows_by_query:
                ExactIndex(resident.documents[rows_by_query[query_id]]).search(vector[np.newaxis], SEARCH_DEPTH)

    return search


def _done(_found: object) -> None:
    """Throw away what was found: only the time counts."""


def _own_search(model: Any, request: Request, asked: Asked) -> Way | None:
    whole = "the model searches by itself, as a whole"
    if request.candidates is not None:
        whole = "the model searches the whole corpus and leaves out what is no candidate"
        asked.missing |= dict.fromkeys(("total", "encode", "search", "rerank"), whole)
        return None
    asked.missing |= {"encode": whole, "search": whole}
    if encodes_while_searching(model):
        asked.missing["total"] = "the model encodes the corpus inside each search"
        return None
    depth = min(SEARCH_DEPTH, len(request.corpus))
    timed = {"timer": request.timer} if "timer" in inspect.signature(model.search).parameters else {}

    def answer(wanted: Request) -> dict[str, float]:
        began = time.perf_counter()
        for group in wanted.groups:  # the evaluation has left the index
            queries = wanted.queries.select(group.rows)
            told = {"task_metadata": group.task_metadata, **call_arguments(wanted), **timed}
            model.search(queries, top_k=depth, top_ranked=None, **told)
        return {"total": time.perf_counter() - began}

    return answer


def _reranking(model: Any) -> Way:
    def answer(wanted: Request) -> dict[str, float]:
        began = time.perf_counter()
        rank(model, wanted)
        seconds = time.perf_counter() - began
        return {"rerank": seconds, "total": seconds}

    return answer
