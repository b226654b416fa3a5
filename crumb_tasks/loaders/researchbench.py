"""ResearchBench (Liu et al. 2026, arXiv 2503.21248): which of 75 papers inspired the answer to a research question.

A line of ``retrieve.jsonl`` is a question with its candidates, each labelled ``gold`` or as a negative of some
distance. Equal candidates of several questions are one document. The data are gated and may not be passed on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import read_jsonl
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.sources import OpenedSource

_POOL = 75
_LABEL = "gold"


class Options(LoaderOptions):
    """Where the rows stand.

    Attributes:
        file: The questions with their candidates.
    """

    file: str = "retrieve/retrieve.jsonl"


class _Candidate(msgspec.Struct, gc=False):
    title: str
    abstract: str
    label: str


class _Sample(msgspec.Struct, gc=False):
    sample_id: str
    discipline: str
    research_question: str
    candidates: list[_Candidate]


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the one file."""
    del split
    return (read_options(task, Options).file,)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load the one split.

    Raises:
        DataError: A question stands there twice.
    """
    path = source.path(files(task, split)[0])
    doc_by_paper: dict[tuple[str, str], str] = {}
    samples: dict[str, _Sample] = {}
    grades: dict[str, dict[str, int]] = {}
    candidates: dict[str, tuple[str, ...]] = {}
    for number, sample in read_jsonl(path, _Sample):
        if sample.sample_id in samples:
            raise DataError(f"{path}:{number}: the sample '{sample.sample_id}' stands there twice")
        samples[sample.sample_id] = sample
        keys = [(candidate.title, candidate.abstract) for candidate in sample.candidates]
        documents = [doc_by_paper.setdefault(key, f"p{len(doc_by_paper)}") for key in keys]
        candidates[sample.sample_id] = tuple(dict.fromkeys(documents))
        pairs = zip(documents, sample.candidates, strict=True)
        grades[sample.sample_id] = {document: 1 for document, candidate in pairs if candidate.label == _LABEL}
    titles, abstracts = (list(column) for column in zip(*doc_by_paper, strict=True)) if doc_by_paper else ([], [])
    corpus = text_table(
        {"id": list(doc_by_paper.values()), "title": titles, "text": abstracts},
        empty_text=task.empty_text,
        where=str(path),
    )
    questions = {"id": list(samples), "text": [sample.research_question for sample in samples.values()]}
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=text_table(questions, empty_text=task.empty_text, where=str(path)).table,
        qrels={"graded": Qrels.from_dict(grades, name=task.name)},
        candidates=candidates,
        query_labels={"discipline": {name: sample.discipline for name, sample in samples.items()}},
        n_empty_texts=corpus.n_empty,
        notes=_notes(list(samples.values()), candidates, grades),
    )


def _notes(
    samples: Sequence[_Sample], candidates: dict[str, tuple[str, ...]], grades: dict[str, dict[str, int]]
) -> tuple[str, ...]:
    without = sum(not found for found in grades.values())
    other = sum(len(pool) != _POOL for pool in candidates.values())
    repeated = sum(len(sample.candidates) for sample in samples) - sum(map(len, candidates.values()))
    notes = []
    if without:
        notes.append(f"{without} of {len(samples)} questions have no inspiration among their candidates: not judged")
    if other:
        notes.append(f"{other} of {len(samples)} pools do not have {_POOL} papers, of which 3 are 4 % and 15 are 20 %")
    if repeated:
        notes.append(f"{repeated} candidates stand in a pool twice; the first is kept")
    return tuple(notes)
