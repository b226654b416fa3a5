"""Getting a task's data ready for a condition: its queries' texts, the candidates that may be ranked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mteb.abstasks import AbsTaskRetrieval

from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.models import Instructions
from crumb_tasks.models.conditioned import instruction_of
from crumb_tasks.mteb_compat import rank_only
from crumb_tasks.running.candidates import candidates_of
from crumb_tasks.running.condition import Condition
from crumb_tasks.running.plan import Plan, Unit
from crumb_tasks.running.records import Record
from crumb_tasks.running.rewriting import TELL_APART
from crumb_tasks.tasks import CardTask


class Preparation:
    """Loads tasks for one condition.

    Args:
        condition: What they are run under.
        num_proc: Passed to MTEB.
    """

    def __init__(self, condition: Condition, num_proc: int | None = None) -> None:
        self._condition = condition
        self._num_proc = num_proc
        self._task_by_shared_id: dict[str, str] = {}

    def prepare(self, unit: Unit) -> dict[str, Any]:
        """Load the task's data, put in rewritten queries and candidates, and return where the candidates are from."""
        task, condition = unit.task, self._condition
        if not isinstance(task, AbsTaskRetrieval) and not (condition.instructions.is_native and _is_plain(condition)):
            raise UsageError(f"{unit.name}: no retrieval task; conditions are for retrieval, run it natively")
        task.load_data(num_proc=self._num_proc)
        if not isinstance(task, AbsTaskRetrieval):
            return {}
        task.convert_v1_dataset_format_to_v2(num_proc=self._num_proc)
        if not condition.instructions.is_native:
            _take_apart(task, condition.instructions)
        if condition.instructions.needs_instruction and not _has_instruction(task):
            raise UsageError(
                f"{unit.name}: it has no instruction; under --instructions {condition.instructions.token} it would be "
                "run as under 'none'"
            )
        self._rewrite(unit)
        return self._restrict(unit)

    def _rewrite(self, unit: Unit) -> None:
        rewritten = self._condition.rewritten
        if rewritten is None:
            return
        for _, _, part in parts_of(unit.task):
            queries = part["queries"]
            text_by_id = dict(zip(map(str, queries["id"]), queries["text"], strict=True))
            texts, unproven = rewritten.texts(unit.name, _aliases(unit.task), text_by_id)
            self._claim_ids(unit.name, unproven)
            part["queries"] = _with_texts(queries, texts)

    def _claim_ids(self, task: str, query_ids: list[str]) -> None:
        for query_id in query_ids:
            other = self._task_by_shared_id.setdefault(query_id, task)
            if other != task:
                raise DataError(
                    f"{task}: the query id '{query_id}' is also one of {other}'s, and nothing says whose the rewritten "
                    f"query is; {TELL_APART}"
                )

    def note_shared_ids(self, plan: Plan, folder: Path) -> None:
        """Take note of the query ids of tasks that were run before, so that none of them is taken for another's."""
        if self._condition.rewritten is None:
            return
        for unit in plan.units:
            record = Record.read(folder, unit.name)
            if unit.state == "cached" and record is not None:
                for part in record.per_query.values():
                    self._task_by_shared_id |= dict.fromkeys(part["values"], unit.name)

    def _restrict(self, unit: Unit) -> dict[str, Any]:
        stage = self._condition.first_stage
        if stage is None:
            return {}
        origins: dict[str, Any] = {}
        candidates: dict[tuple[str, str], dict[str, list[str]]] = {}
        for subset, split, part in parts_of(unit.task):
            run, origin = stage.run(unit.name, split, subset)
            found = candidates_of(
                run,
                [str(query_id) for query_id in part["queries"]["id"]],
                self._condition.depth,
                task=unit.name,
                corpus_ids=set(part["corpus"]["id"]),
                documents=_documents(unit.task, split),
                among=part.get("top_ranked"),
            )
            candidates[subset, split] = found.ids_by_query
            unit.notes += [note for note in found.notes if note not in unit.notes]
            origins[f"{subset}/{split}"] = origin
        meta = {"name": stage.name, "hash": stage.hash, "depth": self._condition.depth}
        rank_only(unit.task, candidates, self._condition.depth, meta)
        return origins


def _take_apart(task: Any, instructions: Instructions) -> None:
    """Where texts hold their own instructions, make the condition's text of instruction and query."""
    if not isinstance(task, CardTask):
        return
    text_of = None if instructions.mode == "separate" else instructions.text
    for _, split, part in parts_of(task):
        if (texts := task.texts_apart(split, text_of)) is not None:
            part["queries"] = _with_texts(part["queries"], texts)


def _is_plain(condition: Condition) -> bool:
    return condition.rewritten is None and condition.first_stage is None


def _aliases(task: Any) -> list[str]:
    """Return what upstream calls the task, such as the name of its folder."""
    folder = task.card.options.get("folder") if isinstance(task, CardTask) else None
    return [str(folder)] if folder else []


def parts_of(task: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the subsets and splits that are evaluated, with MTEB's data of each."""
    for subset in task.hf_subsets:
        for split in task.eval_splits:
            if split in task.dataset.get(subset, {}):
                yield subset, split, task.dataset[subset][split]


def _has_instruction(task: Any) -> bool:
    if isinstance(task, CardTask):
        tables = [task.collection(split).queries for split in task.eval_splits]
        columns = [
            table.column(name)
            for table in tables
            for name in ("prompt", "instruction_part")
            if name in table.column_names
        ]
        if any(any(column.to_pylist()) for column in columns):
            return True
    return bool(instruction_of(task.metadata, "query"))


def _with_texts(queries: Any, texts: list[str]) -> Any:
    from datasets import Dataset

    columns = {name: list(queries[name]) for name in queries.column_names} | {"text": texts}
    return Dataset.from_dict(columns)


def _documents(task: Any, split: str) -> set[str] | None:
    """Return under MaxP the documents for which passages stand, else ``None``."""
    parents = task.collection(split).parent_ids if isinstance(task, CardTask) else None
    return None if parents is None else set(parents.unique().to_pylist())


def sizes_of(unit: Unit, *, is_pairwise: bool) -> tuple[int, int]:
    """Return the number of documents (pairs, where those are scored) and queries of a loaded task."""
    if not isinstance(unit.task, AbsTaskRetrieval):
        return 0, 0
    documents = queries = 0
    for _, _, part in parts_of(unit.task):
        queries += len(part["queries"])
        if part.get("top_ranked") is None:
            documents += len(part["corpus"])
        elif is_pairwise:
            documents += sum(map(len, part["top_ranked"].values()))
        else:
            documents += len({doc_id for ids in part["top_ranked"].values() for doc_id in ids})
    return documents, queries
