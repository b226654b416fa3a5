"""``crumb-tasks run --cost``: what an evaluation took, then queries one by one and in batches.

While a task is evaluated, the model's calls, the tokens that it reads and the peak of memory are noted. Afterwards,
with the corpus' embeddings still there, queries spread over the task are asked: some to warm up, then each alone, then
in batches. A model that encodes is timed in its two parts; one that re-ranks, or searches by itself, as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mteb.abstasks import AbsTaskRetrieval
from mteb.timing import TimingStack

from crumb_tasks.cost import Cost, Price, Quantity, known, read_cost, unknown, write_cost
from crumb_tasks.cost.energy import Energy
from crumb_tasks.cost.machine import MachineRecord, Memory
from crumb_tasks.cost.meter import Meter
from crumb_tasks.mteb_compat import encodes_while_searching
from crumb_tasks.request import QueryGroup, Request
from crumb_tasks.running.asking import SEARCH_DEPTH, Asked, ask
from crumb_tasks.running.plan import Plan, Unit
from crumb_tasks.running.preparing import parts_of
from crumb_tasks.running.records import now
from crumb_tasks.search.identity import layers, weights_dtype
from crumb_tasks.tasks import CardTask

_NOTHING_ENCODED = "no document was encoded: embeddings were read from --embeddings, or the model has none"
_TOGETHER = "several splits or subsets were evaluated together"
_FLOAT32 = 4


@dataclass(frozen=True)
class CostSettings:
    """How costs are measured.

    Attributes:
        n_queries: Queries that are asked one by one.
        n_warm_up: Queries that are asked before, and not counted.
        batch_size: Queries of a batch.
        price: What the user pays.
    """

    n_queries: int = 100
    n_warm_up: int = 5
    batch_size: int = 32
    price: Price = field(default_factory=Price)


@dataclass
class CostMeter:
    """Measures what the results of a run cost.

    Attributes:
        settings: How.
        energy_wh: What the last evaluation used, ``None`` where that is not known.
    """

    settings: CostSettings
    energy_wh: float | None = None
    _energy: Energy = field(default_factory=Energy)
    _meter: Meter = field(default_factory=Meter)
    _memory: Memory | None = None

    @contextlib.contextmanager
    def evaluating(self, model: Any) -> Iterator[None]:
        """Stand around the evaluation of a task."""
        self._meter, self._memory, self._energy = Meter(), Memory(), Energy()
        self._energy.start()
        try:
            with self._meter.attached(model):
                yield
        finally:
            self.energy_wh = self._energy.stop()

    def keep(self, unit: Unit, model: Any, folder: Path, encode_kwargs: Mapping[str, Any]) -> None:
        """Ask queries of each part of an evaluated task, and write its costs beside its result."""
        peaks = {} if self._memory is None else self._memory.quantities()
        found: dict[str, Cost] = {}
        if isinstance(unit.task, AbsTaskRetrieval):
            parts = [part for part in parts_of(unit.task) if part[1] in unit.computed]
            for subset, split, data in parts:
                request = request_of(unit.task, subset, split, data, encode_kwargs)
                found[f"{subset}/{split}"] = self._cost(model, request, peaks, is_only_part=len(parts) == 1)
        if found:
            write_cost(folder, unit.name, found)
        else:
            unit.notes.append("its cost was not measured: it is no retrieval task")

    def _cost(self, model: Any, request: Request, peaks: Mapping[str, Quantity], *, is_only_part: bool) -> Cost:
        settings = self.settings
        machine = MachineRecord.of_this()
        energy = Energy()
        asked = ask(
            model,
            request,
            energy,
            n_queries=settings.n_queries,
            n_warm_up=settings.n_warm_up,
            batch_size=settings.batch_size,
        )
        values = {**asked.quantities(), **_compute(asked), **_storage(asked, request), **_model(model), **peaks}
        values["energy_wh_per_1000_queries"] = (
            energy.quantity(asked.energy_wh, share=1000 / asked.n_answers)
            if asked.n_answers
            else unknown(asked.missing.get("total", "no query was asked"))
        )
        values |= machine.quantities() | self._indexing(model, asked, is_only_part=is_only_part)
        values |= settings.price.money(values)
        how = {
            "single_queries": asked.n_queries,
            "warm_up_queries": settings.n_warm_up,
            "batch_size": min(settings.batch_size, asked.n_queries),
            "encode_batch_size": request.encode_kwargs.get("batch_size"),
            "search": _how_searched(asked, request),
            "dtype": weights_dtype(model),
            "documents": len(request.corpus),
            "queries": len(request.queries),
            **settings.price.to_dict(),
        }
        return Cost.of(values, "not measured", how=how, machine=machine.to_dict(), measured_at=now())

    def _indexing(self, model: Any, asked: Asked, *, is_only_part: bool) -> dict[str, Quantity]:
        """Return the axis of encoding and index time, from what the evaluation did."""
        keys = ("encoding_seconds", "documents_per_second", "tokens_per_second")
        documents, index = self._meter.of("document"), self._meter.of("index")
        found: dict[str, Quantity]
        if not is_only_part:
            found = dict.fromkeys(keys, unknown(_TOGETHER))
        elif not documents.texts or documents.seconds <= 0:
            found = dict.fromkeys(keys, unknown(_NOTHING_ENCODED))
        elif asked.vectors and documents.texts < asked.vectors[0]:
            rest = f"{documents.texts:,} of {asked.vectors[0]:,} documents were encoded; --embeddings had the others"
            found = dict.fromkeys(keys, unknown(rest))
        else:
            tokens = known(documents.tokens / documents.seconds) if self._meter.counts_tokens else unknown(_NO_TOKENS)
            found = {
                "encoding_seconds": known(documents.seconds),
                "documents_per_second": known(documents.texts / documents.seconds),
                "tokens_per_second": tokens,
            }
        if encodes_while_searching(model):
            found["index_seconds"] = unknown("the model builds no index before it searches")
        elif index.texts and is_only_part:
            found["index_seconds"] = known(index.seconds)
        elif asked.vectors:
            found["index_seconds"] = unknown("exact search needs no index beside the vectors")
        else:
            found["index_seconds"] = unknown("the model did not tell how long it indexed")
        found["energy_wh_evaluation"] = self._energy.quantity(self.energy_wh) if is_only_part else unknown(_TOGETHER)
        return found


_NO_TOKENS = "the model is no torch module that is given tokens"


def _compute(asked: Asked) -> dict[str, Quantity]:
    n_asked = max(map(len, asked.singles.values()), default=0)
    keys = ("tokens_per_query", "encoder_calls_per_query", "reranker_calls_per_query")
    if not n_asked:
        return dict.fromkeys(keys, unknown(asked.missing.get("total", "no query was asked")))
    tallies = [asked.meter.of(kind) for kind in ("query", "document", "pair")]
    tokens = sum(tally.tokens for tally in tallies)
    return {
        "tokens_per_query": known(tokens / n_asked) if asked.meter.counts_tokens else unknown(_NO_TOKENS),
        "encoder_calls_per_query": known((tallies[0].texts + tallies[1].texts) / n_asked),
        "reranker_calls_per_query": known(tallies[2].texts / n_asked),
    }


def _how_searched(asked: Asked, request: Request) -> str | None:
    if asked.vectors is None:
        return None
    what = "of all vectors" if request.candidates is None else "of each query's candidates"
    return f"exact search {what}, float32, in memory, {SEARCH_DEPTH} documents"


def _storage(asked: Asked, request: Request) -> dict[str, Quantity]:
    if asked.vectors is None:
        why = "candidates are re-ranked; there is no index" if request.candidates is not None else "no vectors are kept"
        return dict.fromkeys(("bytes_per_vector", "index_bytes"), unknown(why))
    n_documents, n_dimensions = asked.vectors
    per_vector = n_dimensions * _FLOAT32
    return {"bytes_per_vector": known(per_vector), "index_bytes": known(n_documents * per_vector)}


def _model(model: Any) -> dict[str, Quantity]:
    module = next((layer for layer in layers(model) if isinstance(layer, torch.nn.Module)), None)
    if module is not None:
        weights = list(module.parameters())
        return {
            "parameters": known(sum(weight.numel() for weight in weights)),
            "model_bytes": known(sum(weight.numel() * weight.element_size() for weight in weights)),
        }
    told = getattr(getattr(model, "mteb_model_meta", None), "n_parameters", None)
    parameters = unknown("the model does not tell its parameters") if told is None else known(told)
    return {"parameters": parameters, "model_bytes": unknown("the model is no torch module")}


def request_of(task: Any, subset: str, split: str, data: Any, encode_kwargs: Mapping[str, Any]) -> Request:
    """Return what a model is asked on one part of a loaded retrieval task, ours or MTEB's."""
    if isinstance(task, CardTask):
        return task.request(data, split, encode_kwargs)
    return Request(
        corpus=data["corpus"],
        queries=data["queries"],
        groups=[QueryGroup(task.metadata, np.arange(len(data["queries"]), dtype=np.int64))],
        depth=max(task.k_values),
        candidates=data.get("top_ranked"),
        hf_split=split,
        hf_subset=subset,
        encode_kwargs=encode_kwargs,
        timer=TimingStack(),
    )


def without_cost(plan: Plan, folder: Path, n_queries: int | None) -> None:
    """Have those tasks of ``plan`` evaluated whose result holds but has no cost, or one of fewer queries, beside it.

    Args:
        plan: What is asked for.
        folder: Where its results are.
        n_queries: Queries that are to be asked one by one; ``None`` takes whatever was asked.
    """
    for unit in plan.units:
        if unit.state != "cached" or not isinstance(unit.task, AbsTaskRetrieval):
            continue
        costs = {part.partition("/")[2]: cost for part, cost in read_cost(folder, unit.name).items()}
        splits = unit.task.eval_splits
        if lacking := [split for split in splits if split not in costs]:
            unit.state, unit.reason = "changed", f"its cost was not measured ({', '.join(lacking)})"
        elif n_queries and any(_asked_fewer(costs[split], n_queries) for split in splits):
            unit.state, unit.reason = "changed", f"its cost was measured with fewer than {n_queries} single queries"


def _asked_fewer(cost: Cost, n_queries: int) -> bool:
    asked, there = (int(cost.how.get(key) or 0) for key in ("single_queries", "queries"))
    return asked < min(n_queries, there)


def at_price(plan: Plan, folder: Path, price: Price) -> None:
    """Give the costs that are there already the price that is named now; nothing is measured again."""
    if not price.to_dict():
        return
    for unit in plan.units:
        costs = read_cost(folder, unit.name) if unit.state == "cached" else {}
        if paid := {part: price.applied(cost) for part, cost in costs.items() if cost.source == "measured"}:
            write_cost(folder, unit.name, paid)
