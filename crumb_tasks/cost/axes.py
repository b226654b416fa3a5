"""The five axes and what is on each: every quantity has a value, or null and the reason."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

READING: Final = (
    "The five axes are crumb_tasks' reading of the lecture, which names none; it tells costs that recur with every "
    "query from costs of an index and its infrastructure, which do not. Axes are never added up."
)


@dataclass(frozen=True)
class Axis:
    """One of the five.

    Attributes:
        key: Its name in files.
        title: In words.
        recurs: When the cost is paid: ``every query``, ``once for each corpus``, ``as long as it stands`` or ``once``.
        headline: The quantity that stands for it in a table and a Pareto front.
    """

    key: str
    title: str
    recurs: str
    headline: str


@dataclass(frozen=True)
class Kind:
    """What a quantity is.

    Attributes:
        axis: The axis that it is on.
        unit: Of its value.
        title: In words.
        higher_is_better: Whether more of it is cheaper.
    """

    axis: str
    unit: str
    title: str
    higher_is_better: bool = False


AXES: Final = (
    Axis("latency", "query latency and throughput", "every query", "total_ms_p50"),
    Axis("compute", "compute of a query", "every query", "tokens_per_query"),
    Axis("indexing", "encoding and index time", "once for each corpus", "documents_per_second"),
    Axis("storage", "storage and memory", "as long as it stands", "index_bytes"),
    Axis("infrastructure", "infrastructure", "once", "parameters"),
)
_PARTS: Final = {
    "total": "latency of a query alone",
    "encode": "its encoding",
    "search": "its search",
    "rerank": "its re-ranking",
}
QUANTITIES: Final[Mapping[str, Kind]] = {
    **{
        f"{part}_ms_p{percent}": Kind("latency", "ms", title if percent == 50 else f"{title}, {percent} % are faster")
        for part, title in _PARTS.items()
        for percent in (50, 95, 99)
    },
    "batch_queries_per_second": Kind("latency", "queries/s", "queries in batches", higher_is_better=True),
    "batch_encode_queries_per_second": Kind("latency", "queries/s", "their encoding alone", higher_is_better=True),
    "batch_search_queries_per_second": Kind("latency", "queries/s", "their search alone", higher_is_better=True),
    "tokens_per_query": Kind("compute", "tokens", "tokens that models read for a query"),
    "encoder_calls_per_query": Kind("compute", "calls", "texts that are encoded for a query"),
    "reranker_calls_per_query": Kind("compute", "calls", "pairs that are scored for a query"),
    "energy_wh_per_1000_queries": Kind("compute", "Wh", "energy of 1,000 queries"),
    "money_per_1000_queries": Kind("compute", "money", "money for 1,000 queries"),
    "encoding_seconds": Kind("indexing", "s", "encoding of the corpus"),
    "documents_per_second": Kind("indexing", "documents/s", "documents encoded", higher_is_better=True),
    "tokens_per_second": Kind("indexing", "tokens/s", "tokens of documents encoded", higher_is_better=True),
    "index_seconds": Kind("indexing", "s", "building of the index from embeddings or texts"),
    "energy_wh_evaluation": Kind("indexing", "Wh", "energy of the evaluation, corpus included"),
    "money_encoding": Kind("indexing", "money", "money for the encoding of the corpus"),
    "bytes_per_vector": Kind("storage", "bytes", "one document's vector"),
    "index_bytes": Kind("storage", "bytes", "the index"),
    "peak_process_bytes": Kind("storage", "bytes", "peak memory of the process"),
    "peak_device_bytes": Kind("storage", "bytes", "peak memory on the device"),
    "parameters": Kind("infrastructure", "parameters", "parameters of the model"),
    "model_bytes": Kind("infrastructure", "bytes", "weights in memory"),
    "processors": Kind("infrastructure", "processors", "processors that could be used"),
    "machine_bytes": Kind("infrastructure", "bytes", "memory of the machine"),
    "devices": Kind("infrastructure", "devices", "accelerators that could be used"),
}
"""Every quantity that a `Cost` has."""


@dataclass(frozen=True)
class Quantity:
    """A number, or none and why.

    Attributes:
        value: In the unit of its `Kind`; ``None`` where it is not known, never zero instead.
        reason: Why it is not known; empty where it is.
        spread: Lowest and highest of the measurements of which the value is the median.

    Raises:
        ValueError: It has neither a finite value nor a reason, or both.
    """

    value: float | None
    reason: str = ""
    spread: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Check."""
        if (self.value is None) is not bool(self.reason):
            raise ValueError(f"a quantity has either a value or a reason: {self.value}, '{self.reason}'")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"{self.value} is no finite number; give the reason instead")


def known(value: float, spread: tuple[float, float] | None = None) -> Quantity:
    """Return a quantity that is known."""
    return Quantity(float(value), spread=spread)


def unknown(reason: str) -> Quantity:
    """Return a quantity that is not known."""
    return Quantity(None, reason)


@dataclass(frozen=True)
class Cost:
    """What one result costs.

    Attributes:
        values: A quantity for each of `QUANTITIES`.
        source: ``measured``, or where the values are from.
        how: What was done to measure: numbers of queries, batch size, depth, dtype.
        machine: The hardware and software that it was measured on; empty where unknown.
        measured_at: UTC, empty where unknown.

    Raises:
        ValueError: A quantity is missing or there is no such one.
    """

    values: Mapping[str, Quantity]
    source: str = "measured"
    how: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    measured_at: str = ""

    def __post_init__(self) -> None:
        """Check."""
        if odd := set(self.values) ^ set(QUANTITIES):
            raise ValueError(f"a cost has every quantity once; look at {', '.join(sorted(odd))}")

    @classmethod
    def of(cls, values: Mapping[str, Quantity], otherwise: str, **fields: Any) -> Cost:
        """Return a cost in which what ``values`` lack is unknown for the reason ``otherwise``."""
        return cls({key: values.get(key) or unknown(otherwise) for key in QUANTITIES}, **fields)

    def __getitem__(self, key: str) -> Quantity:
        """Return one quantity."""
        return self.values[key]

    def of_axis(self, axis: str) -> Iterator[tuple[str, Kind, Quantity]]:
        """Yield the quantities of one axis."""
        for key, kind in QUANTITIES.items():
            if kind.axis == axis:
                yield key, kind, self.values[key]

    def to_dict(self) -> dict[str, Any]:
        """Return it as strict JSON has it, by axis."""
        axes = {
            axis.key: {
                "title": axis.title,
                "paid": axis.recurs,
                "values": {key: _entry(kind, quantity) for key, kind, quantity in self.of_axis(axis.key)},
            }
            for axis in AXES
        }
        return {
            "reading": READING,
            "source": self.source,
            "measured_at": self.measured_at or None,
            "how": dict(self.how),
            "machine": dict(self.machine),
            "axes": axes,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Cost:
        """Read what `to_dict` wrote; a quantity that it does not know is unknown.

        Raises:
            KeyError, TypeError, ValueError: It is none.
        """
        found: dict[str, Quantity] = {}
        for axis in content["axes"].values():
            for key, entry in axis["values"].items():
                if key in QUANTITIES:
                    spread = entry.get("spread")
                    value, reason = entry["value"], entry.get("reason", "")
                    found[key] = Quantity(value, reason, tuple(spread) if spread else None)
        return cls.of(
            found,
            "the version of crumb-tasks that measured did not know it",
            source=str(content["source"]),
            how=dict(content.get("how") or {}),
            machine=dict(content.get("machine") or {}),
            measured_at=content.get("measured_at") or "",
        )


def _entry(kind: Kind, quantity: Quantity) -> dict[str, Any]:
    entry: dict[str, Any] = {"value": quantity.value, "unit": kind.unit}
    if quantity.reason:
        entry["reason"] = quantity.reason
    if quantity.spread is not None:
        entry["spread"] = list(quantity.spread)
    return entry


def machine_label(record: Mapping[str, Any]) -> str:
    """Return what tells machines apart in a table; empty for a record that says nothing."""
    if not record:
        return ""
    devices = ", ".join(record.get("devices") or ())
    processors = f"{record.get('processors')} x {record.get('processor')}"
    threads = f"{record.get('threads')} threads"
    return "; ".join(part for part in (processors, devices, threads) if part)


def median_and_spread(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Return the median of ``values``, and the lowest and highest."""
    return statistics.median(values), (min(values), max(values))
