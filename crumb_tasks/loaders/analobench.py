"""AnaloBench (Ye et al. 2024, arXiv 2402.12370): given a story, find those that share its relation.

``AnaloBench-*-Base.csv`` holds the sentence of each query and the ids of its options; an id is a story's row in the
``stories-*.csv`` files, where rows of one ``cluster`` share a relation. An upstream trap: the column ``Indices`` of T2
holds places in ``Options``, counted from 1, not story ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import Field, read_rows
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.sources import OpenedSource

_BASE = {
    "T1-Full": "AnaloBench-T1-Full-Base.csv",
    "T1-Subset": "AnaloBench-T1-Subset-Base.csv",
    "T2": "AnaloBench-T2-Base.csv",
}
_STORIES = "stories-{sentences}.csv"


class Options(LoaderOptions):
    """Which of the benchmark's settings.

    Attributes:
        setting: ``T2`` (several right stories), ``T1-Subset`` or ``T1-Full`` (one right story of four).
        sentences: Length of the stories: 1, 10 or 30 sentences.
        bank: ``options``: a query ranks its own options; ``full``: all 340 stories but itself (T2 only); then a query
            has the id of its own story, so that the card's ``exclude_self`` takes it out.
    """

    setting: Literal["T1-Full", "T1-Subset", "T2"] = "T2"
    sentences: Literal[1, 10, 30] = 1
    bank: Literal["options", "full"] = "options"


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the files that the task needs; one-sentence stories stand in the base files."""
    del split
    options = read_options(task, Options)
    base = _BASE[options.setting]
    # every stories file has the sentences and clusters; the shorter is the smaller
    return (base, _STORIES.format(sentences=10 if options.sentences == 1 else options.sentences))


class _Item(NamedTuple):
    line: int
    sentence: str
    shown: list[int]
    right: list[int]


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load the one split that the benchmark has."""
    options = read_options(task, Options)
    base, stories = source.paths(files(task, split)).values()
    clusters, sentences, texts = _read_stories(stories)
    if options.sentences == 1:
        texts = sentences
    story_by_sentence = {sentence: story for story, sentence in enumerate(sentences)}
    items = _read_t2(base, clusters) if options.setting == "T2" else _read_t1(base, clusters)
    asked = [_story_of(base, item, story_by_sentence) for item in items]
    query_ids = [f"{'s' if options.bank == 'full' else 'q'}{index}" for index in range(len(items))]
    item_by_query = dict(zip(query_ids, items, strict=True))
    corpus = text_table(
        {"id": [_doc_id(story) for story in range(len(texts))], "title": [""] * len(texts), "text": texts},
        empty_text=task.empty_text,
        where=str(stories),
    )
    queries = text_table(
        {"id": query_ids, "text": [texts[story] for story in asked]}, empty_text=task.empty_text, where=str(base)
    )
    grades = {query_id: dict.fromkeys(map(_doc_id, item.right), 1) for query_id, item in item_by_query.items()}
    candidates = {query_id: [_doc_id(story) for story in item.shown] for query_id, item in item_by_query.items()}
    itself = [one for one, item, story in zip(query_ids, items, asked, strict=True) if story in item.shown]
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=queries.table,
        qrels={"graded": Qrels.from_dict(grades, name=task.name)},
        candidates=None if options.bank == "full" else candidates,
        n_empty_texts=corpus.n_empty,
        notes=(f"{len(itself)} queries stand among their own options: {', '.join(itself)}",) if itself else (),
    )


def _doc_id(story: int) -> str:
    return f"s{story}"


def _read_stories(path: Path) -> tuple[list[str], list[str], list[str]]:
    rows = [row for _, row in read_rows(path, (Field("cluster"), Field("sentence"), Field("story")))]
    clusters, sentences, stories = (list(column) for column in zip(*rows, strict=True))
    return clusters, sentences, stories


def _read_t2(path: Path, clusters: Sequence[str]) -> list[_Item]:
    items: list[_Item] = []
    fields = (Field("Index"), Field("Sentence"), Field("Options"), Field("Indices"))
    for number, (index, sentence, shown_text, places) in read_rows(path, fields):
        shown = _integers(path, number, shown_text, range(len(clusters)))
        # places in Options, counted from 1: read as ids they are right for none of the 340 queries
        right = [shown[place - 1] for place in _integers(path, number, places, range(1, len(shown) + 1))]
        _check_item(path, number, index, len(items))
        same = {story for story in shown if clusters[story] == clusters[len(items)]}
        if set(right) != same:
            raise DataError(f"{path}:{number}: the stories named as right are not those of the query's cluster")
        items.append(_Item(number, sentence, shown, right))
    return items


def _read_t1(path: Path, clusters: Sequence[str]) -> list[_Item]:
    items: list[_Item] = []
    fields = (Field("Index"), Field("Sentence"), Field("Options"), Field("CorrectIndex"), Field("Label"))
    for number, (index, sentence, shown_text, right, label) in read_rows(path, fields):
        shown = _integers(path, number, shown_text, range(len(clusters)))
        _check_item(path, number, index, len(items))
        if right != str(shown["ABCD".index(label)] if label in tuple("ABCD") else None):
            raise DataError(f"{path}:{number}: Label '{label}' and CorrectIndex '{right}' name different options")
        items.append(_Item(number, sentence, shown, [int(right)]))
    return items


def _integers(path: Path, number: int, text: str, allowed: range) -> list[int]:
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise DataError(f"{path}:{number}: '{text[:40]}' is no list of integers") from error
    if outside := [value for value in values if value not in allowed]:
        raise DataError(f"{path}:{number}: {outside[0]} is not between {allowed[0]} and {allowed[-1]}")
    return values


def _check_item(path: Path, number: int, index: str, expected: int) -> None:
    if index != str(expected):
        raise DataError(f"{path}:{number}: Index is '{index}', expected '{expected}'; rows are missing or out of order")


def _story_of(path: Path, item: _Item, story_by_sentence: dict[str, int]) -> int:
    if item.sentence not in story_by_sentence:
        raise DataError(f"{path}:{item.line}: no story has the sentence '{item.sentence[:60]}'")
    return story_by_sentence[item.sentence]
