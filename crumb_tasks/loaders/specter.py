"""SciDocs as SPECTER evaluates it (Cohan et al. 2020, arXiv 2004.07180): 30 papers ranked for a paper.

``<relation>/<split>.qrel`` has lines ``query 0 candidate relevance``, five candidates of thirty being relevant, and
``paper_metadata_view_cite_read.json`` maps a paper's id to its title and abstract. The relation is recorded behaviour:
read or viewed in one session, cited, cited together. Papers without metadata are left out, as the official code leaves
out those without an embedding, and counted.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.loaders.trec import read_judgements
from crumb_tasks.sources import OpenedSource


class Options(LoaderOptions):
    """Which relation.

    Attributes:
        relation: Folder of the judgements.
        metadata: The papers.
    """

    relation: Literal["cite", "cocite", "coread", "coview"]
    metadata: str = "paper_metadata_view_cite_read.json"


class _Paper(msgspec.Struct, gc=False):
    title: str | None
    abstract: str | None


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the judgements of ``split`` and the papers."""
    options = read_options(task, Options)
    return (f"{options.relation}/{task.upstream_split(split)}.qrel", options.metadata)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load ``split``; a query's own text is title and abstract, like a document's."""
    qrel, metadata = source.paths(files(task, split)).values()
    try:
        papers = msgspec.json.decode(metadata.read_bytes(), type=dict[str, _Paper])
    except msgspec.ValidationError as error:
        raise SchemaError(f"{metadata}: expected papers with title and abstract by their ids ({error})") from error
    except msgspec.DecodeError as error:
        raise DataError(f"{metadata}: not JSON ({error})") from error
    judged = read_judgements(qrel).to_dict()
    grades = {
        query: {paper: grade for paper, grade in found.items() if paper in papers}
        for query, found in judged.items()
        if query in papers
    }
    shown = list(dict.fromkeys(paper for found in grades.values() for paper in found))
    corpus = text_table(
        {
            "id": shown,
            "title": [papers[paper].title or "" for paper in shown],
            "text": [papers[paper].abstract or "" for paper in shown],
        },
        empty_text=task.empty_text,
        where=str(metadata),
    )
    texts = [" ".join(filter(None, (papers[query].title, papers[query].abstract))) for query in grades]
    queries = text_table({"id": list(grades), "text": texts}, empty_text=task.empty_text, where=str(metadata))
    n_lost = sum(len(found) for query, found in judged.items() if query in papers) - sum(map(len, grades.values()))
    notes = []
    if len(grades) < len(judged):
        notes.append(f"{len(judged) - len(grades)} of {len(judged)} queries are papers without metadata: left out")
    if n_lost:
        notes.append(f"{n_lost} candidates are papers without metadata: left out")
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=queries.table,
        qrels={"graded": Qrels.from_dict(grades, name=task.name)},
        candidates={query: tuple(found) for query, found in grades.items()},
        n_empty_texts=corpus.n_empty,
        notes=tuple(notes),
    )
