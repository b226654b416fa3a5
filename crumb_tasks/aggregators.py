"""Pure reductions: passages to their document, variants to their group, tasks to one value. They know no benchmark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.errors import AggregateError
from crumb_tasks.runs import Run, Vocabulary

Floats = NDArray[np.float64]

MEMBER_DECIMALS: Final = 6
"""Members are rounded first, so that fresh results and those that MTEB stored rounded give the same number."""
_TABLE_ENTRIES: Final = 1 << 23


def max_passage(
    run: Run,
    passages: pa.Array | pa.ChunkedArray | Sequence[str],
    parents: pa.Array | pa.ChunkedArray | Sequence[str],
) -> Run:
    """Let each document stand where its best passage stands (MaxP).

    Args:
        run: Ranks passages, documents, or both.
        passages: Passage ids.
        parents: For each of them its document.

    Returns:
        A run over documents under the total order; an id that is no passage passes through as a document. The winning
        passage is the one with the highest score and, among equals, the highest id.
    """
    documents, parent_codes = _parent_codes(run.documents, passages, parents)
    row_parents = parent_codes[run.codes]
    kept = np.flatnonzero(_first_of_document(run, row_parents, len(documents)))
    return Run.from_codes(
        run.query_ids,
        run.row_queries[kept],
        documents,
        row_parents[kept],
        run.scores[kept],
        passages=run.documents,
        passage_codes=run.codes[kept],
    )


def _parent_codes(
    retrieved: Vocabulary, passages: pa.Array | pa.ChunkedArray | Sequence[str], parents: Any
) -> tuple[Vocabulary, NDArray[np.int32]]:
    """Return the documents and for each id of the run's vocabulary the code of its document."""
    passage_column = _strings(passages)
    at = pc.index_in(passage_column, value_set=retrieved.ids)  # probes the long side, hashes the short one
    is_retrieved = at.is_valid()
    positions = pc.drop_null(at).to_numpy()
    found = _strings(parents).filter(is_retrieved)
    parent_rows = np.full(len(retrieved), -1, dtype=np.int64)
    parent_rows[positions] = np.arange(len(positions), dtype=np.int64)
    own = pa.array(parent_rows, mask=parent_rows < 0)
    return Vocabulary.encode(pc.coalesce(found.take(own), retrieved.ids))


def _strings(ids: Any) -> pa.ChunkedArray:
    if isinstance(ids, pa.ChunkedArray):
        return ids.cast(pa.string())
    column = ids if isinstance(ids, pa.Array) else pa.array(ids, type=pa.string())
    return pa.chunked_array([column.cast(pa.string())])


def _first_of_document(run: Run, row_parents: NDArray[np.int32], n_documents: int) -> NDArray[np.bool_]:
    """Return for each row whether no better row of its query has the same document.

    Rows are written into a table (query, document) from the worst to the best; where the last one written is the row
    itself, it was the best. The table holds a block of queries at a time.
    """
    width = max(n_documents, 1)
    block = max(1, _TABLE_ENTRIES // width)
    last_written = np.empty(min(block, max(len(run), 1)) * width, dtype=np.int64)
    is_first = np.empty(len(row_parents), dtype=bool)
    for start in range(0, len(run), block):
        end = min(start + block, len(run))
        part = slice(int(run.offsets[start]), int(run.offsets[end]))
        rows = np.arange(part.start, part.stop, dtype=np.int64)
        keys = np.repeat(np.arange(end - start, dtype=np.int64), run.depths[start:end]) * width + row_parents[part]
        last_written[keys[::-1]] = rows[::-1]
        is_first[part] = last_written[keys] == rows
    return is_first


def group_minimum(values: Floats, group_index: NDArray[np.integer[Any]]) -> Floats:
    """Return the lowest value of each group, in the order of group numbers, which must run from 0 without gaps."""
    lowest = np.full(_n_groups(group_index), np.inf)
    np.minimum.at(lowest, group_index, values)
    return lowest


def group_mean(values: Floats, group_index: NDArray[np.integer[Any]]) -> Floats:
    """Return the arithmetic mean of each group; numbering as in `group_minimum`."""
    n_groups = _n_groups(group_index)
    return np.bincount(group_index, weights=values, minlength=n_groups) / np.bincount(group_index, minlength=n_groups)


def group_deviation(values: Floats, group_index: NDArray[np.integer[Any]]) -> Floats:
    """Return the population standard deviation of each group, 0 for a group of one; numbering as in `group_minimum`."""
    distance = values - group_mean(values, group_index)[group_index]
    return np.sqrt(group_mean(distance**2, group_index))


def _n_groups(group_index: NDArray[np.integer[Any]]) -> int:
    n_groups = int(group_index.max(initial=-1)) + 1
    if len(np.unique(group_index)) != n_groups:
        raise ValueError("group numbers must run from 0 without gaps")
    return n_groups


def arithmetic_mean(values: Sequence[float]) -> float:
    """Return the sum divided by the number of values, which must not be empty."""
    return math.fsum(values) / len(values)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the n-th root of the product (RAR-b, "Main results"): 0 when a value is 0; none may be negative."""
    if any(value < 0 for value in values):
        raise ValueError("a geometric mean takes no negative value")
    if any(value == 0 for value in values):
        return 0.0
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


class Reduction(Protocol):
    """A mean over members, which are names or means themselves; `cards.Reduction` is one."""

    @property
    def name(self) -> str:
        """How tables call it; may be empty at the top."""

    @property
    def mean(self) -> Literal["arithmetic", "geometric"]:
        """Which mean."""

    @property
    def members(self) -> Sequence[Any]:
        """Names (``str``) or reductions."""


@dataclass(frozen=True)
class Reduced:
    """One value and what it is made of.

    Attributes:
        value: The aggregate.
        value_by_group: Value of each reduction below the top, by its name or else ``group 1``, ``group 2`` …
        value_by_member: The members, rounded as they entered.
        zeros: Members that are 0; under a geometric mean they make it 0.
    """

    value: float
    value_by_group: Mapping[str, float]
    value_by_member: Mapping[str, float]
    zeros: tuple[str, ...]


def reduce_nested(value_by_member: Mapping[str, float | None], reduction: Reduction) -> Reduced:
    """Reduce the members' values to one.

    Args:
        value_by_member: Exactly one value for each member, all on one scale.
        reduction: Nested means.

    Raises:
        AggregateError: A member is missing, foreign, no finite number, or on another scale than the others.
    """
    names = list(_names(reduction))
    if foreign := [name for name in value_by_member if name not in names]:
        raise AggregateError(f"{_quoted(foreign)} is no member of the aggregate, whose members are {_quoted(names)}")
    if missing := [name for name in names if value_by_member.get(name) is None]:
        raise AggregateError(
            f"{len(names) - len(missing)}/{len(names)} members have a value; missing: {_quoted(missing)}"
        )
    values = {name: round(float(value_by_member[name] or 0.0), MEMBER_DECIMALS) for name in names}
    _refuse_odd_values(values)
    value_by_group: dict[str, float] = {}
    value = _reduce(values, reduction, value_by_group)
    return Reduced(value, value_by_group, values, tuple(name for name in names if values[name] == 0))


def _refuse_odd_values(values: Mapping[str, float]) -> None:
    if broken := [name for name, value in values.items() if not math.isfinite(value)]:
        raise AggregateError(f"the value of {_quoted(broken)} is {values[broken[0]]}, not a number")
    percent = [name for name, value in values.items() if value > 1]
    fractions = [name for name, value in values.items() if 0 < value <= 1]
    if percent and fractions:
        raise AggregateError(
            f"mixed scales: {_quoted(percent)} is {values[percent[0]]:g}, a percentage, while {_quoted(fractions)} is "
            f"{values[fractions[0]]:g}; give all members as fractions of 1"
        )


def _reduce(values: Mapping[str, float], reduction: Reduction, value_by_group: dict[str, float]) -> float:
    parts: dict[str, float] = {}
    for index, member in enumerate(reduction.members):
        if isinstance(member, str):
            parts[member] = values[member]
        else:
            label = member.name or f"group {index + 1}"
            parts[label] = _reduce(values, member, value_by_group)
            value_by_group[label] = parts[label]
    if reduction.mean == "arithmetic":
        return arithmetic_mean(list(parts.values()))
    if negative := [name for name, value in parts.items() if value < 0]:
        raise AggregateError(
            f"the value of {_quoted(negative)} is {parts[negative[0]]:g}; a geometric mean takes no negative value"
        )
    return geometric_mean(list(parts.values()))


def _names(reduction: Reduction) -> Iterator[str]:
    for member in reduction.members:
        if isinstance(member, str):
            yield member
        else:
            yield from _names(member)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
