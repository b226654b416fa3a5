"""What `crumb-tasks validate` finds out about a task's data; needs no model, no GPU and little memory.

A *finding* breaks a promise of the card or of a sound collection, a *note* is worth knowing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.cards import TaskCard, find_task
from crumb_tasks.checks._same_texts import check_same_texts
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError, MissingDataError
from crumb_tasks.loaders import check_split, counts_of, dangling_ids, load_collection, loader_of
from crumb_tasks.loaders._finding import Finding, finding, note
from crumb_tasks.sources import OpenedSource, head_revision, open_source

_SHOWN = 3


@dataclass(frozen=True)
class Report:
    """What was seen of one split; ``split`` is empty for what concerns several."""

    task: str
    split: str
    origin: str
    findings: tuple[Finding, ...]

    @property
    def n_findings(self) -> int:
        """Number of observations that break a promise."""
        return sum(entry.severity == "finding" for entry in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        observations = [entry.to_dict() for entry in self.findings]
        return {"task": self.task, "split": self.split, "origin": self.origin, "findings": observations}


def check_task(
    task: TaskCard | str,
    splits: Sequence[str] | None = None,
    *,
    data_root: Path | str | None = None,
    texts: bool = True,
) -> Iterator[Report]:
    """Yield a report for each split, then one for what they share.

    Args:
        task: A task's card or name.
        splits: By default all that the card has.
        data_root: A data root that takes the place of ``CRUMB_TASKS_DATA``.
        texts: Compare texts as well; without, no text is read once the corpus is in the cache.

    Raises:
        UsageError: No such task or split.
    """
    card = task if isinstance(task, TaskCard) else find_task(task)
    wanted = tuple(card.splits) if splits is None else tuple(splits)
    for split in wanted:
        check_split(card, split)
    source = open_source(card, root=data_root)
    queries_by_split: dict[str, pa.Table] = {}
    for split in wanted:
        seen: list[Finding] = []
        failure = ""
        try:
            collection = load_collection(card, split, data_root=data_root)
            seen += check_collection(card, collection, texts=texts)
        except DataError as error:
            failure = str(error)
            seen.append(finding("load", failure))
        else:
            queries_by_split[split] = collection.queries
        seen += _inspect(card, split, source, failure=failure)
        yield Report(card.name, split, source.origin, tuple(seen))
    shared = (*_check_shared_queries(queries_by_split), *_check_revision(source))
    if shared:
        yield Report(card.name, "", source.origin, shared)


def check_collection(card: TaskCard, collection: Collection, *, texts: bool = True) -> Iterator[Finding]:
    """Yield what can be seen of one loaded split."""
    yield from _check_counts(card, collection)
    yield from (note("loading", text) for text in collection.notes)
    for family, qrels in collection.qrels.items():
        yield from _check_grades(card, family, qrels)
    yield from _check_dangling(card, collection)
    yield from _check_ids("documents", collection.corpus.column("id"))
    yield from _check_ids("queries", collection.queries.column("id"))
    yield from _check_candidates(collection)
    yield from _check_own_ids(card, collection)
    yield from _check_empty_queries(card, collection.queries)
    yield from _check_query_texts(collection.queries)
    yield from _check_empty(card, collection, texts=texts)
    if texts:
        yield from check_same_texts(card, collection)


def _inspect(card: TaskCard, split: str, source: OpenedSource, *, failure: str) -> Iterator[Finding]:
    """Yield what the loader finds out by itself, as far as it comes; ``failure`` is why the data do not load, if so."""
    inspect = getattr(loader_of(card), "inspect", None)
    if inspect is None:
        return
    try:
        yield from inspect(card, split, source)
    except (DataError, OSError, LookupError, pa.ArrowException) as error:
        if failure and isinstance(error, MissingDataError):
            return
        if str(error) != failure:  # what stopped the load may stop this as well
            yield finding("inspect", str(error))


def _check_counts(card: TaskCard, collection: Collection) -> Iterator[Finding]:
    found = counts_of(collection)
    yield note("counts", ", ".join(f"{count} {name}" for name, count in found.items()))
    expected = card.expected.get(collection.split)
    if expected is None:
        return
    for name, count in expected.model_dump(include=set(found), exclude_none=True).items():
        if found[name] != count:
            source = "" if expected.verified else " by a secondary source"
            message = f"{found[name]} {name}, expected {count}{source}"
            yield (finding if expected.verified else note)("counts", message, found[name] - count)


def _check_grades(card: TaskCard, family: str, qrels: Qrels) -> Iterator[Finding]:
    values, counts = np.unique(qrels.grades, return_counts=True)
    shown = tuple(f"{value}: {count}" for value, count in zip(values.tolist(), counts.tolist(), strict=True))
    yield note("grades", f"{family}: {', '.join(shown[:12]) or 'none'}", len(qrels.grades), shown[:12])
    if qrels.n_truncated:
        yield note("grades", f"{family}: {qrels.n_truncated} fractional labels were cut to integers", qrels.n_truncated)
    if qrels.n_repeated:
        yield finding("grades", f"{family}: {qrels.n_repeated} judgements stand there more than once", qrels.n_repeated)
    if negative := int((qrels.grades < 0).sum()):
        yield finding("grades", f"{family}: {negative} grades are negative", negative)
    unjudged = np.flatnonzero(qrels.counts == 0)
    if len(unjudged):
        yield note(
            "grades", f"{family}: {len(unjudged)} queries have no judgement", len(unjudged), _named(qrels, unjudged)
        )
    threshold = card.relevant_from if family == "graded" else 1
    relevant = np.bincount(qrels.row_queries[qrels.grades >= threshold], minlength=len(qrels))
    barren = np.flatnonzero((relevant == 0) & (qrels.counts > 0))
    if len(barren):
        message = f"{family}: {len(barren)} queries have judgements but nothing relevant"
        yield note("grades", message, len(barren), _named(qrels, barren))


def _named(qrels: Qrels, positions: NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(qrels.query_ids[position] for position in positions[:_SHOWN])


def _check_dangling(card: TaskCard, collection: Collection) -> Iterator[Finding]:
    for kind, (count, examples) in dangling_ids(collection).items():
        if not count:
            continue
        allowed = getattr(card.dangling, kind) >= count and card.schema_verified
        message = f"{count} {kind} that judgements or candidates name are not there"
        if kind != "queries":
            message += _explanation(collection, examples)
        yield (note if allowed else finding)("dangling", message, count, tuple(examples))


def _explanation(collection: Collection, lost: Sequence[str]) -> str:
    """Return what the ids that no document has could have meant, where that can be seen."""
    documents = collection.parent_ids
    if documents is None:
        documents = collection.corpus.column("id")
    else:
        named = pa.array(lost, pa.string())
        passages = named.filter(pc.is_in(named, value_set=collection.corpus.column("id")))
        if len(passages):
            return f"; '{passages[0]}' is a passage: a passage is judged where documents are"
    twin = _twin(lost, documents)
    return "" if twin is None else f"; '{twin[0]}' is another spelling of '{twin[1]}'"


def _twin(wanted: Sequence[str], ids: pa.ChunkedArray) -> tuple[str, str] | None:
    place = pc.index_in(_folded(pa.chunked_array([wanted], pa.string())), value_set=_folded(ids))
    for name, found in zip(wanted, place.to_pylist(), strict=True):
        if found is not None:
            return name, str(ids[found].as_py())
    return None


def _folded(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_trim_whitespace(pc.utf8_lower(pc.utf8_normalize(ids, form="NFC")))


def _check_ids(kind: str, ids: pa.ChunkedArray) -> Iterator[Finding]:
    folded = _folded(ids)
    if pc.count_distinct(folded).as_py() == len(ids):
        return
    counted = pc.value_counts(folded.combine_chunks())
    doubled = counted.filter(pc.greater(counted.field("counts"), 1))
    first = pc.filter(ids, pc.equal(folded, doubled.field("values")[0])).to_pylist()
    message = f"{len(doubled)} groups of {kind} have ids that differ in case, white space or Unicode composition only"
    yield finding("ids", message, len(doubled), tuple(map(repr, first[:_SHOWN])))


def _check_candidates(collection: Collection) -> Iterator[Finding]:
    if collection.candidates is None:
        return
    lengths = np.array([len(ids) for ids in collection.candidates.values()])
    sizes = f"{lengths.min()} to {lengths.max()} candidates a query" if len(lengths) else "no query has candidates"
    yield note("candidates", sizes)
    doubled = [query_id for query_id, ids in collection.candidates.items() if len(set(ids)) < len(ids)]
    if doubled:
        message = f"{len(doubled)} queries have a candidate twice"
        say = note if collection.answers else finding  # in multiple choice equal options are one document
        yield say("candidates", message, len(doubled), tuple(doubled[:_SHOWN]))
    lacking = [query_id for query_id in collection.graded.query_ids if query_id not in collection.candidates]
    if lacking:
        message = f"{len(lacking)} judged queries have no candidates"
        yield finding("candidates", message, len(lacking), tuple(lacking[:_SHOWN]))
    outside = [
        query_id
        for query_id, grades in collection.graded.to_dict().items()
        if any(grade > 0 for grade in grades.values())
        and not {doc_id for doc_id, grade in grades.items() if grade > 0} & set(collection.candidates.get(query_id, ()))
    ]
    if outside:
        message = f"{len(outside)} queries have nothing relevant among their candidates"
        yield note("candidates", message, len(outside), tuple(outside[:_SHOWN]))


def _check_own_ids(card: TaskCard, collection: Collection) -> Iterator[Finding]:
    query_ids = collection.queries.column("id")
    shared = query_ids.filter(pc.is_in(query_ids, value_set=collection.corpus.column("id")))
    if len(shared) and not card.exclude_self:
        message = f"{len(shared)} queries have a document of the same id, which stays in their rankings"
        yield note("ids", message, len(shared), tuple(shared.slice(0, _SHOWN).to_pylist()))


def _check_empty_queries(card: TaskCard, queries: pa.Table) -> Iterator[Finding]:
    ids, texts = queries.column("id"), queries.column("text")
    if n_nameless := pc.sum(_is_blank(ids)).as_py():
        yield finding("ids", f"{n_nameless} queries have an empty id", n_nameless)
    empty = ids.filter(pc.or_(_is_blank(texts), pc.equal(texts, card.empty_text)))
    if len(empty):
        message = f"{len(empty)} queries have an empty text; '{card.empty_text}' is sent in its place"
        yield finding("empty", message, len(empty), tuple(empty.slice(0, _SHOWN).to_pylist()))


def _is_blank(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.equal(pc.utf8_trim_whitespace(texts), "")


def _check_query_texts(queries: pa.Table) -> Iterator[Finding]:
    counted = pc.value_counts(queries.column("text").combine_chunks())
    doubled = counted.filter(pc.greater(counted.field("counts"), 1))
    if len(doubled):
        first = pc.filter(queries.column("id"), pc.equal(queries.column("text"), doubled.field("values")[0]))
        message = f"{len(doubled)} query texts stand under several ids; they stay several queries"
        yield note("queries", message, len(doubled), tuple(first.slice(0, _SHOWN).to_pylist()))


def _check_empty(card: TaskCard, collection: Collection, *, texts: bool) -> Iterator[Finding]:
    if not collection.n_empty_texts:
        return
    n_empty = collection.n_empty_texts
    yield note("empty", f"{n_empty} documents are empty; '{card.empty_text}' is sent in their place", n_empty)
    if not texts or collection.parents is not None:
        return
    empty = collection.corpus.filter(pc.equal(collection.corpus.column("text"), card.empty_text)).column("id")
    relevant = collection.graded.documents.decode(collection.graded.codes[collection.graded.grades > 0])
    lost = empty.filter(pc.is_in(empty, value_set=relevant))
    if len(lost):
        shown = tuple(lost.slice(0, _SHOWN).to_pylist())
        yield finding(
            "empty", f"{len(lost)} relevant documents are empty and stay in the denominator", len(lost), shown
        )


def _check_shared_queries(queries_by_split: dict[str, pa.Table]) -> tuple[Finding, ...]:
    found: list[Finding] = []
    names = list(queries_by_split)
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            for column in ("id", "text"):
                ours, theirs = queries_by_split[one].column(column), queries_by_split[other].column(column)
                shared = ours.filter(pc.is_in(ours, value_set=theirs))
                if len(shared):
                    shown = tuple(text[:80] for text in shared.slice(0, _SHOWN).to_pylist())
                    message = f"{len(shared)} queries of {one} stand in {other} as well, by their {column}"
                    found.append(finding("splits", message, len(shared), shown))
    return tuple(found)


def _check_revision(source: OpenedSource) -> tuple[Finding, ...]:
    if source.is_local or (head := head_revision(source.source)) in {None, source.source.revision}:
        return ()
    return (note("revision", f"the newest revision upstream is {head}, the card reads {source.source.revision}"),)
