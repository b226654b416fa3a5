"""Loaders: one module per upstream format, each turning a task's files into a `Collection`.

A loader module has three names: ``Options`` (what it reads from the card's ``options``), ``files(task, split)`` (the
upstream files that a split needs) and ``load(task, split, source)``. It may have ``inspect(task, split, source)`` for
what `checks` should report beside the collection. Modules are imported when a task first needs them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crumb_tasks.cards import TaskCard, find_aggregate, find_task
from crumb_tasks.collection import Collection
from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.loaders._options import LoaderOptions
from crumb_tasks.sources import OpenedSource, open_source

__all__ = ["Loader", "dangling_ids", "load_collection", "loader_of"]

_SAME_SPLIT = {
    "dev": "validation",
    "development": "validation",
    "eval": "test",
    "evaluation": "test",
    "evaluation_queries": "test",
    "val": "validation",
    "valid": "validation",
    "validation_queries": "validation",
}


class Loader(Protocol):
    """What a module of this package offers."""

    Options: type[LoaderOptions]

    def files(self, task: TaskCard, split: str) -> tuple[str, ...]:
        """Return the upstream files that ``split`` needs, relative to the source's folder."""

    def load(self, task: TaskCard, split: str, source: OpenedSource) -> Collection:
        """Return the collection of ``split``, normalised."""


def loader_of(task: TaskCard) -> Loader:
    """Return the loader that ``task`` names."""
    return cast(Loader, importlib.import_module(f"{__name__}.{task.loader}"))


def load_collection(
    task: TaskCard | str, split: str | None = None, *, data_root: Path | str | None = None
) -> Collection:
    """Load one split of a task.

    Args:
        task: A task's card or name.
        split: ``test``, ``validation`` …; by default the card's first.
        data_root: A data root that takes the place of ``CRUMB_TASKS_DATA``.

    Raises:
        UsageError: No such task or split; the message says which there are.
        MissingDataError: Files are missing; the message holds the command that gets them.
        DataError: The data break a promise of the card: an id twice, judgements of documents that are not there …
    """
    card = task if isinstance(task, TaskCard) else _find_task(task)
    wanted = card.default_split if split is None else split
    check_split(card, wanted)
    collection = loader_of(card).load(card, wanted, open_source(card, root=data_root))
    if not len(collection.corpus):
        raise DataError(f"{card.name} ({wanted}): the corpus holds no documents; is its file cut short?")
    _check_expected(card, collection)
    return replace(collection, notes=(*collection.notes, *_check_dangling(card, collection)))


def _find_task(name: str) -> TaskCard:
    if (aggregate := find_aggregate(name)) is not None:
        members = ", ".join(aggregate.task_names)
        raise UsageError(f"{name} is an aggregate and has no data of its own; load one of its members: {members}")
    return find_task(name)


def check_split(card: TaskCard, split: str) -> None:
    """Refuse a split that the card lacks, saying which of its splits was probably meant.

    Raises:
        UsageError: The card has no such split.
    """
    if split in card.splits:
        return
    meant = _SAME_SPLIT.get(split.casefold())
    if meant is None:
        meant = next((own for own, upstream in card.splits.items() if split == upstream), None)
    if meant in card.splits:
        raise UsageError(f"{card.name} calls the split '{split}' '{meant}'")
    if split == "train":
        known = " or ".join(f"'{name}'" for name in card.splits)
        raise UsageError(f"{card.name} has no training data: load {known} (upstream has no split 'train' either)")
    card.upstream_split(split)


def dangling_ids(collection: Collection) -> dict[str, tuple[int, list[str]]]:
    """Return for ``queries``, ``documents``, ``candidates`` how many references name nothing, and up to three of them.

    Documents are counted as distinct ids in the judgements of any family that neither the corpus nor its parents hold.
    """
    known_queries = set(collection.queries.column("id").to_pylist())
    lost = sorted({query for qrels in collection.qrels.values() for query in qrels.query_ids} - known_queries)
    unknown = _absent(collection, _judged_ids(collection))
    found = {"queries": (len(lost), lost[:3]), "documents": (len(unknown), unknown[:3].to_pylist())}
    if collection.candidates is not None:
        named = pa.array({doc_id for ids in collection.candidates.values() for doc_id in ids}, pa.string())
        absent = _absent(collection, named)
        found["candidates"] = (len(absent), absent[:3].to_pylist())
    return found


def _absent(collection: Collection, wanted: pa.StringArray) -> pa.StringArray:
    """Return those of ``wanted``, distinct ids, that no document has."""
    ids = collection.corpus.column("id") if collection.parents is None else collection.parents
    # a set of the few wanted ids instead of one of a million: eight times faster
    present = ids.filter(pc.is_in(ids, value_set=wanted))
    return wanted.filter(pc.invert(pc.is_in(wanted, value_set=present)))


def _judged_ids(collection: Collection) -> pa.StringArray:
    judged = [qrels.documents.decode(np.unique(qrels.codes)) for qrels in collection.qrels.values()]
    return pa.chunked_array(judged, pa.string()).unique()


def _check_dangling(card: TaskCard, collection: Collection) -> Iterable[str]:
    where = f"{card.name} ({collection.split})"
    allowed: Mapping[str, int] = card.dangling.model_dump()
    for kind, (count, examples) in dangling_ids(collection).items():
        if not count:
            continue
        named = ", ".join(f"'{example}'" for example in examples)
        what = f"{count} {kind} that judgements or candidates name are not there ({named})"
        if count > allowed[kind]:
            raise DataError(f"{where}: {what}; the card allows {allowed[kind]}")
        if kind == "documents" and count == len(_judged_ids(collection)):
            raise DataError(
                f"{where}: {what}: not one judged document is in the corpus; do the ids follow the same scheme?"
            )
        yield what


def _check_expected(card: TaskCard, collection: Collection) -> None:
    expected = card.expected.get(collection.split)
    if expected is None or not expected.strict:
        return
    found = counts_of(collection)
    for name, count in expected.model_dump(include=set(found), exclude_none=True).items():
        if found[name] != count:
            raise DataError(
                f"{card.name} ({collection.split}): {found[name]} {name}, expected {count}; "
                "is a file cut short or of another revision?"
            )


def counts_of(collection: Collection) -> dict[str, int]:
    """Return what a card's ``expected`` may state: queries, documents, passages (MaxP only) and graded qrels."""
    counts = {"queries": len(collection.queries), "qrels": len(collection.graded.codes)}
    if collection.parents is None:
        return counts | {"documents": len(collection.corpus)}
    return counts | {"documents": pc.count_distinct(collection.parents).as_py(), "passages": len(collection.corpus)}
