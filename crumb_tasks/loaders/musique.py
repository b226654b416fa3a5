"""MuSiQue (Trivedi et al. 2022, TACL): questions that need two to four paragraphs, each of which leads to the next.

An item has a question and 20 paragraphs, some of them supporting. Two ways to rank: the pool of all items' paragraphs,
as HippoRAG and its successors do, or an item's own 20. Equal paragraphs of several items are one document. An item that
cannot be answered from its paragraphs (MuSiQue-Full has one beside each that can) has no complete support: it is kept
among the queries without judgements, so that scoring leaves it out and counts it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import read_jsonl
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.sources import OpenedSource

_HOPS = re.compile(r"([234])hop")


class Options(LoaderOptions):
    """What a query ranks.

    Attributes:
        file: The items; ``{split}`` is the upstream name of the split.
        bank: ``pooled``: the paragraphs of all items; ``own``: those of its own item.
    """

    file: str = "musique_ans_v1.0_{split}.jsonl"
    bank: Literal["own", "pooled"] = "pooled"


class _Paragraph(msgspec.Struct, gc=False):
    title: str
    paragraph_text: str
    is_supporting: bool


class _Item(msgspec.Struct, gc=False):
    id: str
    question: str
    answerable: bool
    paragraphs: list[_Paragraph]


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the file of ``split``."""
    return (read_options(task, Options).file.format(split=task.upstream_split(split)),)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load ``split``.

    Raises:
        DataError: An item can be answered, and none of its paragraphs supports it.
    """
    path = source.path(files(task, split)[0])
    numbered = list(read_jsonl(path, _Item))
    for number, item in numbered:
        if item.answerable and not any(paragraph.is_supporting for paragraph in item.paragraphs):
            raise DataError(f"{path}:{number}: item '{item.id}' is answerable, and no paragraph supports it")
    items = [item for _, item in numbered]
    doc_by_paragraph: dict[tuple[str, str], str] = {}
    shown = [_doc_ids(item.paragraphs, doc_by_paragraph) for item in items]
    titles, texts = (list(column) for column in zip(*doc_by_paragraph, strict=True)) if doc_by_paragraph else ([], [])
    corpus = text_table(
        {"id": list(doc_by_paragraph.values()), "title": titles, "text": texts},
        empty_text=task.empty_text,
        where=str(path),
    )
    ids, questions = [item.id for item in items], [item.question for item in items]
    queries = text_table({"id": ids, "text": questions}, empty_text=task.empty_text, where=str(path))
    pairs = list(zip(items, shown, strict=True))
    own = read_options(task, Options).bank == "own"
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=queries.table,
        qrels={"graded": Qrels.from_dict({item.id: _grades(item, docs) for item, docs in pairs}, name=task.name)},
        candidates={item.id: tuple(dict.fromkeys(docs)) for item, docs in pairs} if own else None,
        query_labels={"hops": {item.id: found[0] for item in items if (found := _HOPS.match(item.id))}},
        n_empty_texts=corpus.n_empty,
        notes=_notes(items),
    )


def _doc_ids(paragraphs: Sequence[_Paragraph], doc_by_paragraph: dict[tuple[str, str], str]) -> list[str]:
    """Return the documents that ``paragraphs`` are, numbering new ones."""
    keys = [(paragraph.title, paragraph.paragraph_text) for paragraph in paragraphs]
    return [doc_by_paragraph.setdefault(key, f"p{len(doc_by_paragraph)}") for key in keys]


def _grades(item: _Item, documents: Sequence[str]) -> dict[str, int]:
    if not item.answerable:
        return {}
    pairs = zip(item.paragraphs, documents, strict=True)
    return {document: 1 for paragraph, document in pairs if paragraph.is_supporting}


def _notes(items: Sequence[_Item]) -> tuple[str, ...]:
    unanswerable = [item.id for item in items if not item.answerable]
    if not unanswerable:
        return ()
    share = f"{len(unanswerable)} of {len(items)} questions"
    return (f"{share} cannot be answered from their paragraphs and are not judged (such as '{unanswerable[0]}')",)
