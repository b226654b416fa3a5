"""FreshStack (Thakur et al. 2025, arXiv 2504.13128): recent technical questions, and what their answers consist of.

A question has nuggets, the facts that its answer is made of, and each nugget names the chunks of the corpus that
support it and those that were judged not to. The judgement of a query and a chunk is the number of its nuggets that
the chunk supports. Queries and corpora stand in two repositories, in one folder for each topic; the other snapshot of
"Still Fresh?" is the user's, in the same layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import read_structs
from crumb_tasks.loaders._tables import Layout, read_corpus, text_table
from crumb_tasks.sources import OpenedSource


class Options(LoaderOptions):
    """Which topic, and where its files stand.

    Attributes:
        topic: The folder in both repositories.
        queries: The queries in the task's source; ``{topic}`` and ``{split}`` are filled in.
        corpus: The corpus, likewise; ``part:file`` is a file of another repository.
    """

    topic: Literal["langchain", "yolo", "laravel", "angular", "godot"]
    queries: str = "{topic}/{split}-00000-of-00001.parquet"
    corpus: str = "corpus:{topic}/train-00000-of-00001.parquet"


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the queries and the corpus of the topic."""
    options = read_options(task, Options)
    names = (options.queries, options.corpus)
    return tuple(name.format(topic=options.topic, split=task.upstream_split(split)) for name in names)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load one topic."""
    queries_path, corpus_path = source.paths(files(task, split)).values()
    corpus = read_corpus(corpus_path, Layout("_id", "text", title="title"), empty_text=task.empty_text)
    rows = list(_read_queries(queries_path))
    ids = [query_id for query_id, _, _ in rows]
    texts = [text for _, text, _ in rows]
    grades = {query_id: _grades(nuggets) for query_id, _, nuggets in rows}
    queries = text_table({"id": ids, "text": texts}, empty_text=task.empty_text, where=str(queries_path))
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=queries.table,
        qrels={"graded": Qrels.from_dict(grades, name=task.name)},
        nuggets={
            query_id: {name: frozenset(supporting).difference(others) for name, (supporting, others) in nuggets.items()}
            for query_id, _, nuggets in rows
        },
        n_empty_texts=corpus.n_empty,
        notes=tuple(_notes(rows)),
    )


Nuggets = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""Nugget → the chunks that support it, and those judged not to."""


class _Nugget(msgspec.Struct, rename={"id": "_id"}):
    id: str | int
    relevant_corpus_ids: list[str] | None
    non_relevant_corpus_ids: list[str] | None


class _Question(msgspec.Struct):
    query_id: str | int
    query_title: str | None
    query_text: str | None
    nuggets: list[_Nugget] | None


def _read_queries(path: Path) -> Iterator[tuple[str, str, Nuggets]]:
    """Yield id, text (title, a space, the question) and nuggets, as FreshStack's own loader makes them."""
    for number, row in read_structs(path, _Question):
        nuggets = {
            str(nugget.id): (nugget.relevant_corpus_ids or [], nugget.non_relevant_corpus_ids or [])
            for nugget in row.nuggets or []
        }
        if len(nuggets) < len(row.nuggets or []):
            raise DataError(f"{path}: row {number}: two nuggets of question '{row.query_id}' have one id")
        yield str(row.query_id), f"{row.query_title or ''} {row.query_text or ''}", nuggets


def _grades(nuggets: Nuggets) -> dict[str, int]:
    """Return for each judged chunk how many nuggets it supports."""
    grades: dict[str, int] = {}
    for supporting, others in nuggets.values():
        # a chunk in both lists does not count: FreshStack's loader writes the others over the supporting ones
        grade_by_chunk = dict.fromkeys(supporting, 1) | dict.fromkeys(others, 0)
        for chunk, grade in grade_by_chunk.items():
            grades[chunk] = grades.get(chunk, 0) + grade
    return grades


def _notes(rows: Sequence[tuple[str, str, Nuggets]]) -> Iterator[str]:
    both = sum(len(set(supporting) & set(others)) for _, _, nuggets in rows for supporting, others in nuggets.values())
    if both:
        yield f"{both} times a chunk is named as supporting a nugget and as not supporting it; it counts as not"
    unsupported = sum(not supporting for _, _, nuggets in rows for supporting, _ in nuggets.values())
    if unsupported:
        yield f"{unsupported} of {sum(len(nuggets) for _, _, nuggets in rows)} nuggets have no supporting chunk"
