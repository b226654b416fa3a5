"""MTEB's own tasks as collections, for scoring runs on them."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from crumb_tasks.cli._pandas import let_pandas_back
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import MissingDataError, UsageError


def refuse_unknown(name: str, hint: str) -> None:
    """Refuse a task that MTEB does not have.

    Args:
        name: Task name.
        hint: Near names among this package's own, which stand in for MTEB's where it knows none.

    Raises:
        UsageError: MTEB has no such task; the message names a near one.
    """
    import mteb

    let_pandas_back()
    try:
        mteb.get_task(name)
    except KeyError as error:
        near = re.search(r"Did you mean: '([^']+)'", f"{error}")
        suggestion = f"; did you mean '{near[1]}'?" if near else hint
        raise UsageError(f"neither crumb_tasks nor MTEB has a task '{name}'{suggestion} (crumb-tasks list)") from error


def load_mteb_collection(name: str, split: str | None, subset: str | None) -> Collection:
    """Load one split of a retrieval task of MTEB through MTEB.

    Raises:
        UsageError: The task is no retrieval task, or lacks the split or subset.
        MissingDataError: MTEB cannot get its data.
    """
    import mteb
    from mteb.abstasks import AbsTaskRetrieval

    let_pandas_back()
    task = mteb.get_task(name)
    if not isinstance(task, AbsTaskRetrieval):
        raise UsageError(f"{name} is no retrieval task of MTEB, but {task.metadata.type}; a run has no score there")
    try:
        task.load_data()
    except OSError as error:  # what hosts and caches raise, connection errors included
        reason = " ".join(f"{error}".split())[:160]
        raise MissingDataError(
            f"{name}: MTEB cannot load its data ({reason}); load them once where the Hub is reachable"
        ) from error
    parts = _choose(name, "subset", task.dataset, subset)
    chosen = _choose(name, "split", parts, split, first=list(task.metadata.eval_splits))
    collection = _collection(name, split or _chosen_split(parts, list(task.metadata.eval_splits)), chosen)
    if getattr(task, "ignore_identical_ids", False):
        exclusions = {query_id: frozenset({query_id}) for query_id in collection.graded.query_ids}
        return Collection(**{**vars(collection), "exclusions": exclusions})
    return collection


def _chosen_split(parts: Any, first: list[str]) -> str:
    names: list[str] = [*first, *parts]
    return next(name for name in names if name in parts)


def _choose(name: str, what: str, parts: Any, wanted: str | None, first: list[str] | None = None) -> Any:
    known = ", ".join(f"'{part}'" for part in parts)
    if wanted is None:
        if what == "split":
            return parts[_chosen_split(parts, first or [])]
        if len(parts) > 1:
            raise UsageError(f"{name} has several subsets ({known}); choose one with --subset")
        return next(iter(parts.values()))
    if wanted not in parts:
        raise UsageError(f"{name} has no {what} '{wanted}'; it has {known}")
    return parts[wanted]


def _collection(name: str, split: str, part: Any) -> Collection:
    qrels = part["relevant_docs"]
    ids = [str(query_id) for query_id in part["queries"]["id"][:]]
    texts = part["queries"]["text"][:] if "text" in part["queries"].column_names else [""] * len(ids)
    corpus_ids = pa.array([str(doc_id) for doc_id in part["corpus"]["id"][:]], type=pa.string())
    blank = pa.array([""] * len(corpus_ids), type=pa.string())
    candidates = part.get("top_ranked")
    return Collection(
        name=name,
        split=split,
        corpus=pa.table({"id": corpus_ids, "title": blank, "text": blank}),
        queries=pa.table({"id": pa.array(ids, type=pa.string()), "text": pa.array(texts, type=pa.string())}),
        qrels={"graded": Qrels.from_dict(qrels, name=f"{name}'s judgements")},
        candidates=None
        if not candidates
        else {str(query_id): list(map(str, docs)) for query_id, docs in candidates.items()},
        notes=(f"{name} is a task of MTEB: its own judgements, scored by crumb_tasks",),
    )
