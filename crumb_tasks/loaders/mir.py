"""MIR (Garikaparthi et al. 2025, ACL): from a research proposal to the papers whose methods it takes up.

A row of the CSV is one citation in one context: the citing paper's proposal, the cited paper's abstract, and whether
that citation inspired the method. A cited paper is relevant when any of its contexts says so. The corpus is every
paper that the split cites (the paper's restricted corpus). A proposal without a methodological citation has nothing to
find: it stays among the queries without judgements, so that scoring leaves it out and counts it.
"""

from __future__ import annotations

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import Field, read_rows
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.sources import OpenedSource


class Options(LoaderOptions):
    """Where the rows stand and what marks a methodological citation.

    Attributes:
        file: The CSV; ``{split}`` is the upstream name of the split.
        label: Column that is ``1`` for a methodological citation.
    """

    file: str = "{split}_chronological_df.csv"
    label: str = "inspirational"


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the file of ``split``."""
    return (read_options(task, Options).file.format(split=task.upstream_split(split)),)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load ``split``.

    Raises:
        DataError: A label is neither 0 nor 1, or one paper has two proposals.
    """
    path = source.path(files(task, split)[0])
    label = read_options(task, Options).label
    names = ("paper_id", "cited_paper_id", "proposal", "cited_paper_abstracts", label)
    proposal_by_paper: dict[str, str] = {}
    abstract_by_cited: dict[str, str] = {}
    grades: dict[str, dict[str, int]] = {}
    other_abstracts = set()
    for number, (paper, cited, proposal, abstract, mark) in read_rows(path, tuple(map(Field, names))):
        if mark not in {"0", "1"}:
            raise DataError(f"{path}:{number}: {label} is '{mark}', expected 0 or 1")
        if proposal_by_paper.setdefault(paper, proposal) != proposal:
            raise DataError(f"{path}:{number}: the paper '{paper}' has another proposal than above")
        if abstract_by_cited.setdefault(cited, abstract) != abstract:
            other_abstracts.add(cited)
        grades.setdefault(paper, {})
        if mark == "1":
            grades[paper][cited] = 1
    corpus = text_table(
        {
            "id": list(abstract_by_cited),
            "title": [""] * len(abstract_by_cited),
            "text": list(abstract_by_cited.values()),
        },
        empty_text=task.empty_text,
        where=str(path),
    )
    queries = {"id": list(proposal_by_paper), "text": list(proposal_by_paper.values())}
    without = [paper for paper, found in grades.items() if not found]
    notes = []
    if without:
        notes.append(f"{len(without)} of {len(grades)} proposals cite no paper for its method and are not judged")
    if other_abstracts:
        notes.append(f"{len(other_abstracts)} cited papers have several abstracts; the first is kept")
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=text_table(queries, empty_text=task.empty_text, where=str(path)).table,
        qrels={"graded": Qrels.from_dict(grades, name=task.name)},
        n_empty_texts=corpus.n_empty,
        notes=tuple(notes),
    )
