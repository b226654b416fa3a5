"""What a result costs, on five axes that are never added up.

- `axes`: the axes, their quantities, and `Cost`, which has a value or a reason for each
- `files`: a cost beside its result, and what MTEB's own timing phases tell where none was measured
- `price`: money, from a price that the user names
- `machine`: what it was measured on, and its memory
- `meter`: what a model is given while it works: calls, texts, tokens, seconds
- `energy`: watt-hours, where codecarbon is installed

A report reads costs without torch, so what measures is imported from its own module.

The lecture on retrieval benchmarks asks for costs beside quality without naming axes; it says that costs of a query
recur while those of an index and its infrastructure do not, and that they are reported apart. The five axes are this
package's reading of that.
"""

from __future__ import annotations

from crumb_tasks.cost.axes import (
    AXES,
    QUANTITIES,
    READING,
    Axis,
    Cost,
    Kind,
    Quantity,
    known,
    machine_label,
    median_and_spread,
    unknown,
)
from crumb_tasks.cost.files import cost_path, from_phases, read_cost, write_cost
from crumb_tasks.cost.price import Price

__all__ = [
    "AXES",
    "QUANTITIES",
    "READING",
    "Axis",
    "Cost",
    "Kind",
    "Price",
    "Quantity",
    "cost_path",
    "from_phases",
    "known",
    "machine_label",
    "median_and_spread",
    "read_cost",
    "unknown",
    "write_cost",
]
