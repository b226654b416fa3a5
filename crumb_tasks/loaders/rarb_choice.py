"""RAR-b's multiple-choice retrieval (Xiao et al. 2024, arXiv 2404.06347): one query against its own options.

An official file has a row for each query: ``instructions``, ``queries``, ``documents`` (a list of options, written as
Python does) and ``labels`` (the position of the right option). Each distinct option text becomes one document, numbered
by its first appearance, and row ``i`` becomes query ``i``: with a task's ``ids`` these are the ids of the benchmark's
own retrieval qrels wherever the file holds the same queries. The C-STS sets are made from the user's own copy of
``csts_validation.csv`` by the recipe of the benchmark's ``mcr/create_csts.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import Field, read_rows
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.sources import OpenedSource

_FIELDS = (Field("instructions"), Field("queries"), Field("documents"), Field("labels"))
_CSTS_FIELDS = (Field("sentence1"), Field("sentence2"), Field("condition"), Field("label"))


class Options(LoaderOptions):
    """Which file, and what its rows are called.

    Attributes:
        file: The file inside the source's folder.
        ids: What stands before ``-q-<row>`` and ``-d-<number>``.
        recipe: ``csv``: the file is an official one; ``csts-easy`` and ``csts-hard``: it is made from C-STS.
    """

    file: str
    ids: str
    recipe: Literal["csv", "csts-easy", "csts-hard"] = "csv"


@dataclass(frozen=True)
class Item:
    """A query with its options.

    Attributes:
        query: The text.
        options: The options' texts, in the data's order.
        answer: Position of the right option.
    """

    query: str
    options: Sequence[str]
    answer: int


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the one file of the task."""
    del split
    return (read_options(task, Options).file,)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load the one split that a task has.

    Raises:
        DataError: A row's options are no list of texts, or its label names none of them.
    """
    options = read_options(task, Options)
    path = source.path(options.file)
    if options.recipe == "csv":
        items, notes = _read_official(path, task.prompt.query)
    else:
        items, notes = _read_csts(path, options.recipe)
    number_by_text: dict[str, int] = {}
    for item in items:
        for text in item.options:
            number_by_text.setdefault(text, len(number_by_text))
    doc_by_text = {text: f"{options.ids}-d-{number}" for text, number in number_by_text.items()}
    query_ids = [f"{options.ids}-q-{row}" for row in range(len(items))]
    corpus = text_table(
        {"id": list(doc_by_text.values()), "title": [""] * len(doc_by_text), "text": list(doc_by_text)},
        empty_text=task.empty_text,
        where=str(path),
    )
    texts = [item.query for item in items]
    queries = text_table({"id": query_ids, "text": texts}, empty_text=task.empty_text, where=str(path))
    by_query = dict(zip(query_ids, items, strict=True))
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=queries.table,
        qrels={
            "graded": Qrels.from_dict(
                {query_id: {doc_by_text[item.options[item.answer]]: 1} for query_id, item in by_query.items()},
                name=task.name,
            )
        },
        candidates={query_id: [doc_by_text[text] for text in item.options] for query_id, item in by_query.items()},
        answers={query_id: item.answer for query_id, item in by_query.items()},
        n_empty_texts=corpus.n_empty,
        notes=(*notes, *_repetition_notes(items)),
    )


def _read_official(path: Path, prompt: str | None) -> tuple[list[Item], list[str]]:
    items: list[Item] = []
    instructions: dict[str, None] = {}
    for number, (instruction, query, written, label) in read_rows(path, _FIELDS):
        instructions.setdefault(instruction)
        options = _options(written, f"{path}:{number}")
        if not (label.isascii() and label.isdigit() and int(label) < len(options)):
            raise DataError(f"{path}:{number}: the label '{label[:20]}' names none of the {len(options)} options")
        items.append(Item(query, options, int(label)))
    others = [instruction for instruction in instructions if instruction != prompt]
    return items, [f"the file has an instruction that is not the card's: '{other[:200]}'" for other in others]


def _options(written: str, where: str) -> list[str]:
    """Return a list of texts written in Python's notation; nothing in it is executed."""
    try:
        options = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise DataError(f"{where}: documents is no list in Python's notation ({type(error).__name__})") from error
    if not isinstance(options, list) or not options or not all(isinstance(option, str) for option in options):
        raise DataError(f"{where}: documents is no list of texts: {written[:60]}")
    return options


def _read_csts(path: Path, recipe: Literal["csts-easy", "csts-hard"]) -> tuple[list[Item], list[str]]:
    """Return the items that ``mcr/create_csts.py`` makes: pairs of sentences, sorted, with their conditions as options.

    Rows that share sentences and label are left out. The recipe calls the first condition right without looking at the
    labels; where the labels say otherwise a note says so.
    """
    rows_by_label: dict[tuple[str, str, float], list[str]] = {}
    for number, (first, second, condition, label) in read_rows(path, _CSTS_FIELDS):
        try:
            rows_by_label.setdefault((first, second, float(label)), []).append(condition)
        except ValueError as error:
            raise DataError(f"{path}:{number}: the label '{label[:20]}' is no number") from error
    conditions_by_pair: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for (first, second, value), conditions in rows_by_label.items():
        if len(conditions) == 1:
            conditions_by_pair.setdefault((first, second), []).append((value, conditions[0]))
    pairs = {pair: labelled for pair, labelled in sorted(conditions_by_pair.items()) if len(labelled) > 1}
    items = [_csts_item(recipe, *pair, [condition for _, condition in labelled]) for pair, labelled in pairs.items()]
    n_lower = sum(labelled[0][0] < max(value for value, _ in labelled) for labelled in pairs.values())
    if not n_lower:
        return items, []
    return items, [
        f"in {n_lower} of {len(items)} pairs the first condition, which the recipe calls right, has the lower label"
    ]


def _csts_item(recipe: Literal["csts-easy", "csts-hard"], first: str, second: str, conditions: Iterable[str]) -> Item:
    if recipe == "csts-hard":
        return Item(f"Sentence1: {first}; Sentence2: {second}", list(conditions), 0)
    aspects = (condition[:-1] for condition in conditions)  # without the full stop
    asked = (f'In terms of "{aspect}", retrieve a sentence similar to the following. {second}' for aspect in aspects)
    return Item(first, list(asked), 0)


def _repetition_notes(items: Sequence[Item]) -> list[str]:
    """Say what rows repeat, since it bounds the accuracy that can be reached."""
    notes = []
    repeating = [item for item in items if len(set(item.options)) < len(item.options)]
    if repeating:
        right = sum(item.options.count(item.options[item.answer]) > 1 for item in repeating)
        notes.append(f"{len(repeating)} queries have an option twice, {right} of them the right one")
    answers_by_row: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for item in items:
        answers_by_row.setdefault((item.query, tuple(item.options)), []).append(item.answer)
    n_repeated = sum(len(answers) - 1 for answers in answers_by_row.values())
    if n_repeated:
        n_conflicts = sum(len(set(answers)) > 1 for answers in answers_by_row.values())
        notes.append(
            f"{n_repeated} rows repeat another's query and options; {n_conflicts} such groups disagree on the answer"
        )
    return notes
