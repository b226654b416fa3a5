"""Which candidates a first stage gives to each query of a task."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from crumb_tasks.errors import DataError
from crumb_tasks.runs import Run


@dataclass(frozen=True)
class Candidates:
    """What each query may rank.

    Attributes:
        ids_by_query: Passage or document ids in the first stage's order; queries without any are left out.
        notes: What a person should know.
    """

    ids_by_query: dict[str, list[str]]
    notes: tuple[str, ...]


def candidates_of(
    run: Run,
    query_ids: Sequence[str],
    depth: int,
    *,
    task: str,
    corpus_ids: Collection[str],
    documents: Collection[str] | None = None,
    among: Mapping[str, Sequence[str]] | None = None,
) -> Candidates:
    """Return the first ``depth`` of each query's ranking.

    Args:
        run: The first stage's ranking.
        query_ids: The queries of the split.
        depth: How many.
        task: For messages.
        corpus_ids: What the corpus holds; other ids are left out and counted.
        documents: Under MaxP the documents, each of which stands for all its passages.
        among: What each query may rank, where the task itself says so.

    Raises:
        DataError: The run ranks none of the queries, or nothing that they may rank.
    """
    known = set(run.query_ids)
    if not any(query_id in known for query_id in query_ids):
        raise DataError(
            f"{task}: the first stage ranks none of its queries (it has {_some(run.query_ids)}; the task has "
            f"{_some(query_ids)})"
        )
    ranked = run.select(query_ids)
    if among is not None:
        ranked = _only(ranked, among)
    ids_by_query: dict[str, list[str]] = {}
    unknown: set[str] = set()
    n_documents = n_passages = 0
    for query_id, score_by_doc in ranked.truncate(depth).to_dict(passages=True).items():
        passages = [doc_id for doc_id in score_by_doc if doc_id in corpus_ids]
        whole = [doc_id for doc_id in score_by_doc if doc_id not in corpus_ids and doc_id in (documents or ())]
        n_documents, n_passages = n_documents + len(whole), n_passages + len(passages)
        unknown |= score_by_doc.keys() - {*passages, *whole}
        if passages or whole:
            ids_by_query[query_id] = [doc_id for doc_id in score_by_doc if doc_id not in unknown]
    if not ids_by_query:
        theirs = f": {_some(sorted(unknown))}" if unknown else ""
        raise DataError(
            f"{task}: the first stage holds nothing that a query may rank; is it another task's?"
            f" Documents that the corpus lacks: {len(unknown)}{theirs}"
        )
    notes = []
    if n_without := len(query_ids) - len(ids_by_query):
        notes.append(f"{n_without} of {len(query_ids)} queries have no candidates and count 0")
    if documents is not None and n_documents:
        notes.append(f"{n_documents} candidates of the first stage are documents; all their passages are re-ranked")
    if documents is not None and n_passages:
        notes.append(f"{n_passages} candidates of the first stage are passages, which are re-ranked as they are")
    if unknown:
        notes.append(f"{len(unknown)} documents of the first stage are not in the corpus: {_some(sorted(unknown))}")
    return Candidates(ids_by_query, tuple(notes))


def _some(ids: Sequence[str]) -> str:
    return ", ".join(f"'{one}'" for one in ids[:3])


def _only(run: Run, among: Mapping[str, Sequence[str]]) -> Run:
    """Leave only the documents that each query may rank."""
    kept: dict[str, dict[str, float]] = {}
    for query_id, score_by_doc in run.to_dict(passages=True).items():
        allowed = set(among.get(query_id, ()))
        kept[query_id] = {doc_id: score for doc_id, score in score_by_doc.items() if doc_id in allowed}
    return Run.from_dict(kept)
