"""A cost beside its result, and what MTEB's own timing phases tell where none was measured.

MTEB's file stays as MTEB wrote it. A cost lies in the folder ``crumb_tasks`` beside it, by subset and split, and counts
only for the very result that it was measured with.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crumb_tasks import __version__
from crumb_tasks.cost.axes import Cost, Quantity, known, unknown
from crumb_tasks.files import written_whole

_FORMAT = 1
_NOT_MEASURED = "not measured; `crumb-tasks run --cost` does"
_PHASES = "MTEB's phases"


def cost_path(folder: Path, task: str) -> Path:
    """Return where the cost of a task's result in ``folder`` is."""
    return folder / "crumb_tasks" / f"{task}.cost.json"


def write_cost(folder: Path, task: str, costs: Mapping[str, Cost]) -> None:
    """Write the costs of a result that is there, by ``subset/split``; whole or not at all.

    Args:
        folder: Where the result is.
        task: Task name.
        costs: What was measured; other splits that were measured with the same result stay.
    """
    result = folder / f"{task}.json"
    entries = {part: cost.to_dict() for part, cost in {**read_cost(folder, task), **costs}.items()}
    content = {
        "format": _FORMAT,
        "task": task,
        "crumb_tasks": __version__,
        "result_sha256": _sha256(result),
        "costs": entries,
    }
    with written_whole(cost_path(folder, task)) as file:
        file.write((json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode())


def read_cost(folder: Path, task: str) -> dict[str, Cost]:
    """Return by ``subset/split`` what was measured with the very result that is there; nothing where there is none."""
    try:
        content = json.loads(cost_path(folder, task).read_text(encoding="utf-8"))
        if content["format"] != _FORMAT or content["result_sha256"] != _sha256(folder / f"{task}.json"):
            return {}
        return {str(part): Cost.from_dict(entry) for part, entry in content["costs"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def from_phases(result: Mapping[str, Any], split: str, subset: str = "default") -> Cost | None:
    """Return what the phases of a stored result tell, ``None`` where it has none of that split.

    MTEB stores when phases of an evaluation began and ended, for all queries together: a mean is known, no percentile.

    Args:
        result: MTEB's result file.
        split: Of the task.
        subset: Of the task.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for phase in result.get("evaluation_phases") or ():
        if isinstance(phase, Mapping) and (phase.get("split"), phase.get("subset")) == (split, subset):
            seconds[str(phase.get("name"))] += max(0.0, float(phase["end"]) - float(phase["start"]))
    if not seconds:
        return None
    values: dict[str, Quantity] = {}
    encoding = seconds.get("Encoding corpus")
    if encoding:
        values["encoding_seconds"] = known(encoding)
    elif "Searching corpus" in seconds:
        merged = "MTEB's phase 'Searching corpus' holds encoding and search together"
        values |= dict.fromkeys(("encoding_seconds", "documents_per_second", "tokens_per_second"), unknown(merged))
    n_queries = _n_queries(result, split, subset)
    if n_queries and (of_queries := seconds.get("Encoding queries")):
        values["batch_encode_queries_per_second"] = known(n_queries / of_queries)
    single = {f"{part}_ms_p{percent}" for part in ("total", "encode", "search", "rerank") for percent in (50, 95, 99)}
    values |= dict.fromkeys(single, unknown("MTEB stores no times of single queries"))
    return Cost.of(values, _NOT_MEASURED, source=_PHASES)


def _n_queries(result: Mapping[str, Any], split: str, subset: str) -> float | None:
    for entry in (result.get("scores") or {}).get(split) or ():
        if isinstance(entry, Mapping) and entry.get("hf_subset", "default") == subset:
            found = entry.get("n_queries")
            return float(found) if isinstance(found, int) and found > 0 else None
    return None
