"""ToolRet (Shi et al. 2025, arXiv 2503.01763) as MTEB has it: 35 tasks that search one set of 44,453 tools.

MTEB's repository holds queries and judgements of each task, and the whole set of tools 35 times, once for each. Here
it is read once, from the folder of one task, and encoded once. Files are ``<task>-<part>/test-00000-of-00001.parquet``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import Field, read_rows
from crumb_tasks.loaders._tables import Layout, read_corpus, text_table
from crumb_tasks.loaders.beir import read_qrels
from crumb_tasks.sources import OpenedSource

_FILE = "{task}-{part}/test-00000-of-00001.parquet"
_QRELS_COLUMNS = ("query-id", "corpus-id", "score")
_QUERY = (Field("id", is_id=True), Field("text"), Field("instruction", nullable=True))


class Options(LoaderOptions):
    """Which tasks there are, and whether queries carry their instruction.

    Attributes:
        categories: Category → its tasks.
        instruction: The query's text is ``Instruct: …``, a line break, ``Query: …``, as the paper's code has it.
    """

    categories: Mapping[str, tuple[str, ...]]
    instruction: bool = False


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the set of tools once, and queries and judgements of each task."""
    del split
    names = [name for tasks in read_options(task, Options).categories.values() for name in tasks]
    parts = [_FILE.format(task=name, part=part) for name in names for part in ("queries", "qrels")]
    return (_FILE.format(task=names[0], part="corpus"), *parts)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load the one split; a query id that two tasks have is refused."""
    options = read_options(task, Options)
    corpus_file, *others = files(task, split)
    paths = source.paths((corpus_file, *others))
    corpus = read_corpus(paths[corpus_file], Layout("id", "text", title="title"), empty_text=task.empty_text)
    rows: list[tuple[str, str, str]] = []
    label_by_query: dict[str, dict[str, str]] = {"task": {}, "category": {}}
    asked: list[str] = []
    tools: list[str] = []
    grades: list[float] = []
    for category, names in options.categories.items():
        for name in names:
            own = [row for _, row in read_rows(paths[_FILE.format(task=name, part="queries")], _QUERY)]
            rows += [(query, text, instruction) for query, text, instruction in own]
            label_by_query["task"] |= {query: name for query, _, _ in own}
            label_by_query["category"] |= {query: category for query, _, _ in own}
            found = read_qrels(paths[_FILE.format(task=name, part="qrels")], _QRELS_COLUMNS)
            asked, tools, grades = asked + found[0], tools + found[1], grades + found[2]
    ids, texts, instructions = (list(column) for column in zip(*rows, strict=True))
    columns = {"id": ids, "text": texts}
    if options.instruction:
        columns = {
            "id": ids,
            "text": [f"Instruct: {one}\nQuery: {text}" for one, text in zip(instructions, texts, strict=True)],
            "instruction_part": instructions,
            "query_part": texts,
        }
    queries = text_table(columns, empty_text=task.empty_text, where=str(source.origin))
    position = {query: at for at, query in enumerate(dict.fromkeys((*ids, *asked)))}
    index = np.array([position[query] for query in asked], dtype=np.int64)
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=queries.table,
        qrels={"graded": Qrels.from_columns(tuple(position), index, tools, grades, name=f"{task.name} qrels")},
        query_labels=label_by_query,
        n_empty_texts=corpus.n_empty,
    )
