"""What an evaluation leaves behind beside MTEB's result: the run, and the main measure's value of each query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mteb.abstasks import AbsTaskRetrieval

from crumb_tasks.measures import mteb_key, parse_measure
from crumb_tasks.runfiles import read_run_file
from crumb_tasks.running.plan import Unit
from crumb_tasks.running.preparing import parts_of
from crumb_tasks.runs import Run
from crumb_tasks.scoring import MTEB_MEASURES, score
from crumb_tasks.tasks import CardTask

if TYPE_CHECKING:
    from mteb.results import TaskResult


def runs_of(unit: Unit, predictions: Path) -> Iterator[tuple[tuple[str, str], Run]]:
    """Yield what was ranked by subset and split."""
    if isinstance(unit.task, CardTask):
        for split, (run, _) in unit.task.outcomes.items():
            yield ("default", split), run
        return
    file = predictions / f"{unit.name}_predictions.json"
    if file.is_file():
        for subset, split, _ in parts_of(unit.task):
            yield (subset, split), read_run_file(file, "mteb", split=split, subset=subset).run


def values_per_query(unit: Unit, runs: Mapping[tuple[str, str], Run]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the main measure's value of each query, by subset and split."""
    measure = main_measure(unit.task)
    if measure is None:
        return
    for (subset, split), run in runs.items():
        if isinstance(unit.task, CardTask):
            scores = unit.task.outcomes[split][1]
        else:
            scores = score(run, mteb_collection(unit.task, subset, split), measures=[measure])
        values = scores.per_query.get(measure)
        if values is not None:
            by_query = dict(zip(scores.query_ids, values.round(6).tolist(), strict=True))
            yield f"{subset}/{split}", {"measure": measure, "values": by_query}


def mteb_collection(task: Any, subset: str, split: str) -> Any:
    """Return MTEB's own data of a split as a collection, for its values per query."""
    import pyarrow as pa

    from crumb_tasks.collection import Collection, Qrels

    part = task.dataset[subset][split]
    corpus = pa.array([str(doc_id) for doc_id in part["corpus"]["id"]], pa.string())
    queries = pa.array([str(query_id) for query_id in part["queries"]["id"]], pa.string())
    return Collection(
        name=task.metadata.name,
        split=split,
        corpus=pa.table({"id": corpus}),
        queries=pa.table({"id": queries}),
        qrels={"graded": Qrels.from_dict(part["relevant_docs"])},
    )


def main_measure(task: Any) -> str | None:
    """Return the main measure in this package's notation, ``None`` where it is none of a retrieval task."""
    if isinstance(task, CardTask):
        return parse_measure(task.card.main_measure).name
    by_key = {mteb_key(parse_measure(name)): parse_measure(name).name for name in MTEB_MEASURES}
    return by_key.get(task.metadata.main_score) if isinstance(task, AbsTaskRetrieval) else None


def main_value(result: TaskResult, task: Any) -> str:
    """Return the main score of the splits that were asked for, in words."""
    values = [
        f"{entry['main_score']:.4f}"
        for split in task.eval_splits
        for entry in result.scores.get(split, [])
        if entry.get("main_score") is not None
    ]
    return f"{task.metadata.main_score} {', '.join(values)}" if values else "no score"
