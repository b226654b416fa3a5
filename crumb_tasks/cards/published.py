"""Published numbers, cell by cell or as whole tables: always a reference and never an input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from crumb_tasks.cards.fields import Frozen
from crumb_tasks.errors import did_you_mean

_DECIMALS = 10
"""A percentage divided by 100 is the number that is meant, 0.4961 and not 0.49609999999999999."""


class Published(Frozen):
    """A published number, always a reference and never an input.

    Attributes:
        task: Task or aggregate name.
        system: Model or system as published.
        measure: Measure or ``accuracy``; the value is on the scale 0 to 1.
        value: The number.
        setting: What else has to be equal for it to be comparable.
        source: Paper, table, page.
        model: MTEB's name of the system, where MTEB runs it in this very setting; reports put the two side by side.
        verified: False for a secondary source.
    """

    task: str
    system: str
    measure: str
    value: float
    setting: str = ""
    source: str
    model: str = ""
    verified: bool = True


class PublishedTable(Frozen):
    """A published table; the reader makes each of its cells a `Published`.

    Attributes:
        source: Paper and table.
        measure: As in `Published`.
        setting: As in `Published`.
        scale: What 1 is in the table: 1, or 100 for percentages.
        tasks: What the columns are of: tasks, aggregates, named groups of an aggregate.
        rows: System → its values; ``nan`` is an empty cell.
        models: System → MTEB's name of it, as in `Published`.
        verified: As in `Published`.
    """

    source: str
    measure: str
    setting: str = ""
    scale: float = Field(default=1.0, gt=0)
    tasks: tuple[str, ...] = Field(min_length=1)
    rows: Mapping[str, tuple[float, ...]]
    models: Mapping[str, str] = Field(default_factory=dict)
    verified: bool = True

    @model_validator(mode="after")
    def _rows_fit_the_columns(self) -> Self:
        for system, values in self.rows.items():
            if len(values) != len(self.tasks):
                raise ValueError(f"the row of '{system}' has {len(values)} values for {len(self.tasks)} columns")
        for system in self.models:
            if system not in self.rows:
                raise ValueError(f"models names '{system}', which has no row{did_you_mean(system, self.rows)}")
        return self

    def cells(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of a `Published` for each cell that is not empty."""
        shared = {"measure": self.measure, "setting": self.setting, "source": self.source, "verified": self.verified}
        for system, values in self.rows.items():
            own = shared | {"system": system, "model": self.models.get(system, "")}
            for task, value in zip(self.tasks, values, strict=True):
                if not math.isnan(value):
                    yield own | {"task": task, "value": round(value / self.scale, _DECIMALS)}


class PublishedTables(Frozen):
    """The tables of one card."""

    published_tables: tuple[PublishedTable, ...] = ()
