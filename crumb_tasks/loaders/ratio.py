"""RATIO (Sharon and Hope 2026, arXiv 2608.27394): scientific sentences, and the move that leads from one to the other.

A relation is a configuration of the data set, whose rows are pairs of a query's sentence and the one that followed it
in a paper; the candidates of a split are shared by all relations. A sentence is one document however often it occurs,
since the pairs name it by its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import Field, read_rows
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.sources import OpenedSource


class Options(LoaderOptions):
    """Which relation, and where its files and columns are; ``{relation}`` and ``{split}`` are filled in.

    Attributes:
        relation: The configuration of the pairs.
        pairs: The pairs.
        candidates: The candidates; ``{split}`` is that of ``candidate_split``.
        candidate_split: For each upstream split the one whose candidates it ranks, where that is another.
        query_field: Column of the query's sentence.
        gold_field: Column of the sentence that followed it.
        candidate_field: Column of a candidate's sentence.
    """

    relation: Literal["address", "broaden", "specify"]
    pairs: str = "{relation}/{split}-00000-of-00001.parquet"
    candidates: str = "candidates/{split}-00000-of-00001.parquet"
    candidate_split: Mapping[str, str] = {"silver": "test"}
    query_field: str = "querySentence"
    gold_field: str = "goldSentence"
    candidate_field: str = "goldSentence"


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the pairs of the relation and the candidates that they rank."""
    options = read_options(task, Options)
    upstream = task.upstream_split(split)
    return (
        options.pairs.format(relation=options.relation, split=upstream),
        options.candidates.format(split=options.candidate_split.get(upstream, upstream)),
    )


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load ``split`` of one relation.

    Raises:
        DataError: The sentence that follows a query is not among the candidates.
    """
    options = read_options(task, Options)
    pairs_path, candidates_path = source.paths(files(task, split)).values()
    doc_by_text: dict[str, str] = {}
    n_candidates = 0
    for _, (text,) in read_rows(candidates_path, (Field(options.candidate_field),)):
        n_candidates += 1
        doc_by_text.setdefault(text, f"d{len(doc_by_text)}")
    corpus = text_table(
        {"id": list(doc_by_text.values()), "title": [""] * len(doc_by_text), "text": list(doc_by_text)},
        empty_text=task.empty_text,
        where=str(candidates_path),
    )
    ids: list[str] = []
    texts: list[str] = []
    gold: list[str] = []
    for number, (query, follows) in read_rows(pairs_path, (Field(options.query_field), Field(options.gold_field))):
        if follows not in doc_by_text:
            raise DataError(f"{pairs_path}: row {number}: the sentence is not among the candidates: '{follows[:60]}'")
        ids.append(f"q{number - 1}")
        texts.append(query)
        gold.append(doc_by_text[follows])
    queries = text_table({"id": ids, "text": texts}, empty_text=task.empty_text, where=str(pairs_path))
    grades = {query_id: {document: 1} for query_id, document in zip(ids, gold, strict=True)}
    n_repeated = n_candidates - len(doc_by_text)
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=queries.table,
        qrels={"graded": Qrels.from_dict(grades, name=task.name)},
        n_empty_texts=corpus.n_empty,
        notes=(f"{n_repeated} of {n_candidates} candidates repeat another's text",) if n_repeated else (),
    )
