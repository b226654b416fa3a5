"""Single queries: what was asked, what each system put on top, and what the others found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection
from crumb_tasks.measures import parse_measure
from crumb_tasks.runs import Run
from crumb_tasks.scoring import score
from crumb_tasks.scoring.matching import Rules, match

N_TOP: Final = 5
"""Documents that are shown of each ranking."""
_TEXT: Final = 280
_QUERY_TEXT: Final = 1500
_MOST_RELEVANT: Final = 12


@dataclass(frozen=True)
class Found:
    """A document in a ranking.

    Attributes:
        rank: 1 for the first.
        document: Its id.
        score: The system's number for it.
        grade: Its judgement, ``None`` where nobody judged it.
        is_relevant: Whether the grade makes it relevant.
        passage: The passage that stands for it, empty where it is its own.
        text: The beginning of its title and text.
    """

    rank: int
    document: str
    score: float
    grade: int | None
    is_relevant: bool
    passage: str
    text: str


@dataclass(frozen=True)
class Answer:
    """One system's answer to a query.

    Attributes:
        system: Label of the system.
        value: Of the measure; 0 where the system has no ranking.
        top: The first documents of its ranking.
    """

    system: str
    value: float
    top: tuple[Found, ...]


@dataclass(frozen=True)
class Wanted:
    """A relevant document and where each system has it.

    Attributes:
        document: Its id.
        grade: Its judgement.
        text: The beginning of its title and text.
        ranks: Its rank for each system, in their order; ``None`` where the ranking lacks it.
    """

    document: str
    grade: int
    text: str
    ranks: tuple[int | None, ...]


@dataclass(frozen=True)
class QueryView:
    """One query and all answers.

    Attributes:
        query_id: Its id.
        text: The query.
        instruction: What the model is told with it, empty where it is told nothing.
        answers: One for each system.
        wanted: Relevant documents, best grade first.
        n_wanted: How many there are.
    """

    query_id: str
    text: str
    instruction: str
    answers: tuple[Answer, ...]
    wanted: tuple[Wanted, ...]
    n_wanted: int


@dataclass(frozen=True)
class TaskViews:
    """The queries of one task that are shown.

    Attributes:
        task: Task name.
        split: The split.
        measure: By which queries were chosen.
        systems: Labels.
        n_queries: How many queries are in the mean.
        queries: Those on which the systems differ most; of one system those with its lowest values.
    """

    task: str
    split: str
    measure: str
    systems: tuple[str, ...]
    n_queries: int
    queries: tuple[QueryView, ...]


def view_queries(task: TaskCard, collection: Collection, runs: Mapping[str, Run], n_queries: int) -> TaskViews:
    """Return the queries of ``collection`` that tell most about the systems; none of texts that stay in memory.

    Args:
        task: The rules.
        collection: What was searched.
        runs: Label of a system → its run.
        n_queries: How many queries at most.
    """
    measure = _measure_per_query(task)
    scores = {label: score(run, collection, task, [measure]) for label, run in runs.items()}
    ranked = {label: match(run, collection, Rules.of(task)).run for label, run in runs.items()}
    query_ids = next(iter(scores.values())).query_ids
    values = {
        label: dict(zip(query_ids, found.per_query[measure].tolist(), strict=True)) for label, found in scores.items()
    }
    chosen = sorted(query_ids, key=lambda query_id: _interest([of[query_id] for of in values.values()], query_id))
    chosen = [] if collection.in_memory_only else chosen[:n_queries]
    viewer = _Viewer(task, collection, ranked, chosen)
    return TaskViews(
        task=task.name,
        split=collection.split,
        measure=measure,
        systems=tuple(runs),
        n_queries=len(query_ids),
        queries=tuple(
            viewer.view(query_id, {label: of[query_id] for label, of in values.items()}) for query_id in chosen
        ),
    )


def _measure_per_query(task: TaskCard) -> str:
    """Return the main measure, or nDCG@10 where its unit is no query."""
    main = parse_measure(task.main_measure)
    return "nDCG@10" if task.kind == "choice" or main.kernel.casefold() == "robustness" else main.name


def _interest(values: Sequence[float], query_id: str) -> tuple[float, float, str]:
    return (min(values) - max(values), min(values), query_id)


class _Viewer:
    """Looks documents and queries of a collection up, those that are needed at once."""

    def __init__(
        self, task: TaskCard, collection: Collection, ranked: Mapping[str, Run], query_ids: Sequence[str]
    ) -> None:
        self._task = task
        self._ranked = ranked
        self._grades = collection.graded.select(query_ids).to_dict()
        self._binary = collection.qrels_for("binary").select(query_ids).to_dict()
        self._has_binary = "binary" in collection.qrels
        self._tops = {label: _tops(run, query_ids) for label, run in ranked.items()}
        self._passages = {label: _winning_passages(run.select(query_ids)) for label, run in ranked.items()}
        self._texts = _document_texts(collection, self._needed(query_ids))
        self._queries = _queries(collection, query_ids)

    def _needed(self, query_ids: Iterable[str]) -> set[str]:
        tops = {passage or document for label in self._tops for _, document, passage, _ in self._rows(label, query_ids)}
        return tops | {document for query_id in query_ids for document, _ in self._relevant(query_id)}

    def _rows(self, label: str, query_ids: Iterable[str]) -> Iterable[tuple[str, str, str, float]]:
        for query_id in query_ids:
            for document, value in self._tops[label][query_id][:N_TOP]:
                yield query_id, document, self._passages[label].get((query_id, document), ""), value

    def _is_relevant(self, query_id: str, document: str) -> bool:
        if self._has_binary:
            return self._binary[query_id].get(document, 0) > 0
        return self._grades[query_id].get(document, 0) >= self._task.relevant_from

    def _relevant(self, query_id: str) -> list[tuple[str, int]]:
        grades = {**dict.fromkeys(self._binary[query_id], 0), **self._grades[query_id]}
        found = [(document, grade) for document, grade in grades.items() if self._is_relevant(query_id, document)]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def view(self, query_id: str, values: Mapping[str, float]) -> QueryView:
        text, instruction = self._queries[query_id]
        answers = tuple(Answer(label, value, tuple(self._found(label, query_id))) for label, value in values.items())
        places = {label: {doc: at for at, (doc, _) in enumerate(self._tops[label][query_id], 1)} for label in values}
        relevant = self._relevant(query_id)
        wanted = [
            Wanted(
                document, grade, self._texts.get(document, ""), tuple(places[label].get(document) for label in values)
            )
            for document, grade in relevant[:_MOST_RELEVANT]
        ]
        told = instruction or self._task.prompt.query or ""
        return QueryView(
            query_id, _short(text, _QUERY_TEXT), _short(told, _QUERY_TEXT), answers, tuple(wanted), len(relevant)
        )

    def _found(self, label: str, query_id: str) -> Iterable[Found]:
        for rank, (_, document, passage, value) in enumerate(self._rows(label, [query_id]), 1):
            yield Found(
                rank=rank,
                document=document,
                score=value,
                grade=self._grades[query_id].get(document),
                is_relevant=self._is_relevant(query_id, document),
                passage=passage if passage != document else "",
                text=self._texts.get(passage or document, ""),
            )


def _tops(run: Run, query_ids: Sequence[str]) -> dict[str, list[tuple[str, float]]]:
    chosen = run.select(query_ids)
    return {query_id: chosen.ranking(query_id) for query_id in query_ids}


def _winning_passages(run: Run) -> dict[tuple[str, str], str]:
    if run.passages is None or run.passage_codes is None:
        return {}
    documents = run.documents.decode(run.codes).to_pylist()
    passages = run.passages.decode(run.passage_codes).to_pylist()
    queries = [run.query_ids[at] for at in run.row_queries.tolist()]
    return {(query, document): passage for query, document, passage in zip(queries, documents, passages, strict=True)}


def _document_texts(collection: Collection, ids: Iterable[str]) -> dict[str, str]:
    """Return the beginning of each text; of a document known by its passages that of the first one."""
    wanted = pa.array(sorted(ids), pa.string())
    found: dict[str, str] = {}
    for column in (collection.parent_ids, collection.corpus_ids):
        if column is None:
            continue
        rows = pc.index_in(wanted, value_set=column.combine_chunks())
        known = rows.is_valid()
        table = collection.corpus.take(rows.filter(known))
        titles = table.column("title").to_pylist() if "title" in table.column_names else [""] * table.num_rows
        for document, title, text in zip(
            wanted.filter(known).to_pylist(), titles, table.column("text").to_pylist(), strict=True
        ):
            found[document] = _short(f"{title}: {text}" if title else text, _TEXT)
    return found


def _queries(collection: Collection, query_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    rows = pc.index_in(pa.array(query_ids, pa.string()), value_set=collection.queries.column("id").cast(pa.string()))
    known = rows.is_valid()
    table = collection.queries.take(rows.filter(known))
    prompts = table.column("prompt").to_pylist() if "prompt" in table.column_names else [""] * table.num_rows
    ids = pa.array(query_ids, pa.string()).filter(known).to_pylist()
    found = {
        query_id: (text, prompt or "")
        for query_id, text, prompt in zip(ids, table.column("text").to_pylist(), prompts, strict=True)
    }
    return {query_id: found.get(query_id, ("", "")) for query_id in query_ids}


def _short(text: str, length: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"
