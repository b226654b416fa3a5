"""``crumb-tasks sweep``: what approximate search and smaller embeddings save, and what they lose.

After Big-ANN: exact search and approximations of it, on the same vectors, each with its agreement with exact
neighbours, its quality by the task's own judgements, and its speed. The corpus is encoded once, or read from disk. Each
round times exact search and then the point beside it, so that other work on the machine meets both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.aggregated_task import AbsTaskAggregate
from numpy.typing import NDArray

from crumb_tasks.cost import Quantity, known, median_and_spread, unknown
from crumb_tasks.cost.machine import Memory, status_bytes
from crumb_tasks.errors import CrumbTasksError, UsageError
from crumb_tasks.request import Request, reduced
from crumb_tasks.running.asking import spread_rows
from crumb_tasks.running.costs import request_of
from crumb_tasks.running.outcomes import mteb_collection
from crumb_tasks.running.plan import find_tasks
from crumb_tasks.running.points import Point, points_for
from crumb_tasks.running.preparing import parts_of
from crumb_tasks.runs import Run, Vocabulary
from crumb_tasks.scoring import score
from crumb_tasks.search.agreement import ann_recall
from crumb_tasks.search.resident import ExactIndex, Floats, Found, Index, Resident
from crumb_tasks.tasks import CardTask

NEIGHBOURS = 10
MEASURE = f"nDCG@{NEIGHBOURS}"
ENCODED = 32
"""Texts that are encoded at once."""

_MOST_BATCHED = 1024
_LEAST_SECONDS = 0.05
_DEEPEST = 1000


@dataclass(frozen=True)
class SweepSettings:
    """How a sweep measures.

    Attributes:
        n_queries: Queries that are searched one by one.
        batch_size: Queries of a batch.
        repeats: Rounds, whose median counts.
    """

    n_queries: int = 100
    batch_size: int = 32
    repeats: int = 3


@dataclass(frozen=True)
class Measured:
    """One point of a sweep.

    Attributes:
        name: Way and settings.
        family: Way.
        values: ``ann_recall@10``, ``nDCG@10``, ``single_queries_per_second``, ``batch_queries_per_second``,
            ``batch_speed_over_exact``, ``build_seconds``, ``index_bytes``, ``memory_bytes``.
    """

    name: str
    family: str
    values: dict[str, Quantity] = field(default_factory=dict)


KEYS = (
    "ann_recall@10",
    MEASURE,
    "single_queries_per_second",
    "batch_queries_per_second",
    "batch_speed_over_exact",
    "build_seconds",
    "index_bytes",
    "memory_bytes",
)


class Sweep:
    """One task's vectors, searched in every way.

    Args:
        task: A loaded retrieval task.
        request: What an evaluation would ask on one of its splits.
        resident: Its vectors.
        settings: How to measure.
    """

    def __init__(self, task: Any, request: Request, resident: Resident, settings: SweepSettings) -> None:
        self._task, self._request, self._resident, self.settings = task, request, resident, settings
        groups = [(group.rows, group.task_metadata) for group in request.groups]
        self._queries = resident.encode(request.queries, groups)
        self._exact = ExactIndex(resident.documents)
        self.depth, self.n_short = self._needed_depth()
        self._neighbours = self._exact.search(self._queries, min(NEIGHBOURS, self.n_documents))[1]
        if isinstance(task, CardTask):
            self._collection: Any = task.collection(request.hf_split)
        else:
            self._collection = mteb_collection(task, request.hf_subset, request.hf_split)

    @property
    def n_documents(self) -> int:
        """Rows of the corpus."""
        return len(self._resident.documents)

    @property
    def n_queries(self) -> int:
        """Queries of the split."""
        return len(self._queries)

    @property
    def split(self) -> str:
        """MTEB's name of the split."""
        return self._request.hf_split

    @property
    def is_cosine(self) -> bool:
        """Whether the similarity is the cosine, else the dot product."""
        return self._resident.is_cosine

    @property
    def dimension(self) -> int:
        """Numbers of a vector."""
        return int(self._resident.documents.shape[1])

    def _needed_depth(self) -> tuple[int, int]:
        """Return how deep exact search goes until each query has enough documents, and how many never have.

        Every way is then searched that deep: under MaxP ten documents take more than ten passages.
        """
        card = getattr(self._task, "card", None)
        exclusions = self._task.collection(self._request.hf_split).exclusions if card is not None else {}
        extra = int(card is not None and card.exclude_self) + max(map(len, exclusions.values()), default=0)
        needed = NEIGHBOURS + extra
        if self._request.parents is None:
            return min(needed, self.n_documents), 0
        _, parents = Vocabulary.encode(self._request.parents)
        depth = min(_DEEPEST, self.n_documents)
        rows = self._exact.search(self._queries, depth)[1]
        ranks = [_rank_of_distinct(parents[found], needed) for found in rows]
        return max((rank for rank in ranks if rank), default=depth), sum(rank == 0 for rank in ranks)

    def measure(self, dimensions: Sequence[int]) -> Iterator[Measured]:
        """Yield the points, exact search first.

        Args:
            dimensions: To which the model may be truncated; empty where it declares none.
        """
        for point in points_for(self._resident, dimensions):
            yield from self._measure_way(point)

    def _measure_way(self, point: Point) -> Iterator[Measured]:
        if point.refusal:
            yield Measured(point.name, point.family, dict.fromkeys(KEYS, unknown(point.refusal)))
            return
        memory, before = Memory(), status_bytes("VmRSS")
        began = time.perf_counter()
        try:
            index = point.build()
        except CrumbTasksError as error:
            yield Measured(point.name, point.family, dict.fromkeys(KEYS, unknown(str(error))))
            return
        built = {"build_seconds": known(time.perf_counter() - began), "index_bytes": known(index.n_bytes)}
        if point.is_exact:
            built["build_seconds"] = unknown("exact search builds nothing beside the vectors")
        built["memory_bytes"] = _growth(memory, before)
        for name, settings in point.searches:
            if settings:
                index.set(settings)
            yield Measured(name, point.family, {**self._agreement(index), **self._speed(index), **built})

    def _agreement(self, index: Index) -> dict[str, Quantity]:
        found = index.search(self._queries, self.depth)
        recall = ann_recall(found[1], self._neighbours, self._resident.documents, self._queries)
        return {"ann_recall@10": known(recall), MEASURE: self._quality(found)}

    def _quality(self, found: Found) -> Quantity:
        """Return the quality of what was found, scored as an evaluation is."""
        request = self._request
        values, rows = found
        kept = rows >= 0
        owners = np.repeat(np.arange(len(rows)), kept.sum(axis=1))
        documents = request.corpus_ids.take(pa.array(rows[kept]))
        run = reduced(Run.from_columns(request.query_ids, owners, documents, values[kept]), request)
        card = self._task.card if isinstance(self._task, CardTask) else None
        try:
            scores = score(run, self._collection, card, [MEASURE], max_passage="off", depth=request.depth)
        except CrumbTasksError as error:
            return unknown(str(error))
        value = scores.summary.get(MEASURE)
        return unknown(f"the task's judgements give no {MEASURE}") if value is None else known(value)

    def _speed(self, index: Index) -> dict[str, Quantity]:
        """Return the speed of ``index`` in rounds, each beside one of exact search."""
        singles = self._queries[spread_rows(self.n_queries, self.settings.n_queries)]
        batched = self._queries[spread_rows(self.n_queries, _MOST_BATCHED)]
        size = min(self.settings.batch_size, len(batched))
        for warm in (index, self._exact):
            _seconds(warm, singles[:3], 1, self.depth)
        single, batch, over = [], [], []
        for _ in range(self.settings.repeats):
            exact = _seconds(self._exact, batched, size, self.depth)
            own = _seconds(index, batched, size, self.depth)
            single.append(len(singles) / _seconds(index, singles, 1, self.depth))
            batch.append(len(batched) / own)
            over.append(exact / own)
        return {
            "single_queries_per_second": known(*median_and_spread(single)),
            "batch_queries_per_second": known(*median_and_spread(batch)),
            "batch_speed_over_exact": known(*median_and_spread(over)),
        }


def _rank_of_distinct(parents: NDArray[np.int32], needed: int) -> int:
    """Return the rank at which the ``needed``-th distinct parent stands, 0 where there are fewer."""
    firsts = np.sort(np.unique(parents, return_index=True)[1])
    return int(firsts[needed - 1]) + 1 if len(firsts) >= needed else 0


def _seconds(index: Index, queries: Floats, size: int, depth: int) -> float:
    """Return the seconds that one pass over the queries takes, the mean of several where one is over at once."""
    began, n_passes = time.perf_counter(), 0
    while True:
        for start in range(0, len(queries), size):
            index.search(queries[start : start + size], depth)
        n_passes += 1
        if (passed := time.perf_counter() - began) >= _LEAST_SECONDS:
            return passed / n_passes


def _growth(memory: Memory, before: int | None) -> Quantity:
    """Return by how much memory has grown at most since ``before``."""
    peak = memory.quantities()["peak_process_bytes"]
    if peak.value is None or before is None:
        return unknown(peak.reason or "the system does not tell resident memory")
    if peak.value <= before:
        return unknown("less than what the process had free")
    return known(peak.value - before)


def tasks_of(names: Sequence[str], split: str | None) -> list[Any]:
    """Return the retrieval tasks that ``names`` are or hold, each once, with the one split that is looked at.

    Raises:
        UsageError: There is no such task or split, or it is no retrieval task.
    """
    found: dict[str, Any] = {}
    pending = find_tasks(names, [], [split] if split else None)
    while pending:
        task = pending.pop(0)
        if isinstance(task, AbsTaskAggregate):
            pending = [*task.tasks, *pending]
        elif not isinstance(task, AbsTaskRetrieval):
            raise UsageError(f"{task.metadata.name} is no retrieval task; a sweep searches")
        else:
            if not split:
                task.filter_eval_splits(task.eval_splits[:1])
            found.setdefault(task.metadata.name, task)
    return list(found.values())


def open_sweep(model: Any, task: Any, settings: SweepSettings) -> Sweep:
    """Load a task, encode its corpus, or read its embeddings from the model's store.

    Args:
        model: An encoder.
        task: A retrieval task.
        settings: How to measure.

    Raises:
        UsageError: It ranks candidates or has several subsets, or the model is no encoder whose similarity is a
            product of single vectors.
        DataError: Its data are missing.
    """
    from mteb.models import EncoderProtocol, SearchProtocol

    name = task.metadata.name
    if not isinstance(model, EncoderProtocol) or isinstance(model, SearchProtocol):
        raise UsageError("a sweep searches vectors; name a model that encodes queries and documents apart")
    task.load_data()
    task.convert_v1_dataset_format_to_v2(num_proc=None)
    parts = list(parts_of(task))
    if len(parts) != 1:
        raise UsageError(f"{name} has {len(parts)} subsets or splits; a sweep looks at one")
    ((subset, split, data),) = parts
    request = request_of(task, subset, split, data, {"batch_size": ENCODED, "show_progress_bar": False})
    if request.candidates is not None:
        raise UsageError(f"{name} ranks the candidates of each query; a sweep needs a task that searches its corpus")
    resident = Resident.load(
        model,
        corpus=request.corpus,
        queries=request.queries.select(range(min(8, len(request.queries)))),
        task_metadata=request.groups[0].task_metadata,
        hf_split=split,
        hf_subset=subset,
        encode_kwargs=request.encode_kwargs,
        store=getattr(model, "embedding_store", None),
    )
    return Sweep(task, request, resident, settings)
