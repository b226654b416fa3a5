"""A run and a collection brought together: the same queries in the same order, and only documents that count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks import aggregators
from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection
from crumb_tasks.errors import DataError, RunError, UsageError
from crumb_tasks.runs import Run
from crumb_tasks.scoring.depth import is_complete, retrievable, without_excluded
from crumb_tasks.scoring.result import Coverage
from crumb_tasks.scoring.wording import examples, near_spelling, no_max_passage, some

MaxPassage = Literal["auto", "on", "off"]


@dataclass(frozen=True)
class Rules:
    """What of a card scoring follows."""

    name: str = ""
    relevant_from: int = 1
    all_zero: Literal["zero", "exclude"] = "zero"
    max_passage: bool = False
    judges_passages: bool = False
    exclude_self: bool = False
    is_choice: bool = False
    mean_over: str = ""

    @classmethod
    def of(cls, task: TaskCard | None) -> Self:
        """Return the rules of a card; without one those of a plain collection, whose candidates are no options."""
        if task is None:
            return cls()
        return cls(
            name=task.name,
            relevant_from=task.relevant_from,
            all_zero=task.all_zero,
            max_passage=task.max_passage,
            judges_passages=bool(task.options.get("chunked")) and task.options.get("level") != "full_document",
            exclude_self=task.exclude_self,
            is_choice=task.kind == "choice",
            mean_over=task.mean_over,
        )


@dataclass(frozen=True)
class Matched:
    """What the measures look at.

    Attributes:
        run: Rankings of exactly the queries in the mean, after MaxP, candidates and exclusions.
        coverage: What was answered, missing, left out.
        notes: The same in sentences.
    """

    run: Run
    coverage: Coverage
    notes: tuple[str, ...]


def match(
    run: Run, collection: Collection, rules: Rules, *, max_passage: MaxPassage = "auto", depth: int | None = None
) -> Matched:
    """Bring ``run`` and ``collection`` together under ``rules``; errors as in `crumb_tasks.scoring.score`."""
    query_ids, coverage, notes = _queries_in_the_mean(collection, rules)
    ignored = sorted(set(run.query_ids) - _judged(collection))
    _refuse_foreign_queries(run, query_ids, ignored, collection)
    notes += _ignored_queries(ignored, query_ids)
    answered = set(run.query_ids)
    matched = run.select(query_ids)
    missing = [query_id for query_id, length in zip(query_ids, matched.depths.tolist(), strict=True) if not length]
    if missing:
        of_all = f"{len(missing)} of {some(len(query_ids), 'judged query')}"
        notes.append(f"{of_all} have no document in the run and count 0: {examples(missing)}")
    matched, keyed_by, holds_passages = _apply_max_passage(matched, collection, rules, max_passage, notes)
    n_unknown = _count_unknown(matched, collection, notes)
    matched, n_foreign, n_unranked = _keep_candidates(matched, collection, notes)
    longest = matched.depth
    pool = retrievable(matched, collection, holds_passages=holds_passages)
    matched, n_excluded, pool = _take_out(matched, collection, rules, pool)
    if n_excluded:
        notes.append(f"{some(n_excluded, 'retrieved document')} taken out by the task's exclusions, before any cutoff")
    coverage = replace(
        coverage,
        n_missing=len(missing),
        n_empty=sum(query_id in answered for query_id in missing),
        n_unjudged=len(ignored),
        n_retrievable=None if pool is None else int(pool.max(initial=0)),
        n_unknown_documents=n_unknown,
        n_excluded=n_excluded,
        n_not_candidates=n_foreign,
        n_unranked_candidates=n_unranked,
        depth=max(longest, depth or 0),
        is_complete=is_complete(matched.depths, pool, depth),
        keyed_by=keyed_by,
    )
    return Matched(matched, coverage, tuple(notes))


def _judged(collection: Collection) -> set[str]:
    counts = collection.graded.counts
    return {query_id for query_id, count in zip(collection.graded.query_ids, counts.tolist(), strict=True) if count}


def _queries_in_the_mean(collection: Collection, rules: Rules) -> tuple[tuple[str, ...], Coverage, list[str]]:
    graded = collection.graded
    highest = np.full(len(graded), -1, dtype=np.int64)
    np.maximum.at(highest, graded.row_queries, np.maximum(graded.grades, 0))
    known = collection.queries.column("id").cast(pa.string()).to_pylist() if collection.queries.num_columns else []
    unjudged = [query_id for query_id, grade in zip(graded.query_ids, highest.tolist(), strict=True) if grade < 0]
    unjudged += sorted(set(known) - set(graded.query_ids))
    all_zero = [query_id for query_id, grade in zip(graded.query_ids, highest.tolist(), strict=True) if grade == 0]
    lowest = 1 if rules.all_zero == "exclude" else 0
    in_mean = tuple(
        query_id for query_id, grade in zip(graded.query_ids, highest.tolist(), strict=True) if grade >= lowest
    )
    if not in_mean:
        raise DataError(f"{collection.name} ({collection.split}): no query has a judgement that counts")
    notes: list[str] = []
    if unjudged:
        notes.append(f"{some(len(unjudged), 'query')} without judgements left out of the mean: {examples(unjudged)}")
    if all_zero:
        fate = "left out of the mean" if lowest else "in the mean as 0"
        notes.append(f"{some(len(all_zero), 'query')} with only zero judgements {fate}: {examples(all_zero)}")
    n_all_zero = len(all_zero) if lowest else 0
    return in_mean, Coverage(len(in_mean), n_without_judgements=len(unjudged), n_all_zero=n_all_zero), notes


def _refuse_foreign_queries(run: Run, query_ids: Sequence[str], ignored: Sequence[str], collection: Collection) -> None:
    if len(ignored) < len(run.query_ids):
        return
    if not run.query_ids:
        raise RunError(f"the run is empty: it answers none of the {len(query_ids)} judged queries of {collection.name}")
    near = near_spelling(ignored, query_ids)
    hint = f"; {near}" if near else "; is it a run of another task or split?"
    raise RunError(
        f"no query of the run is judged in {collection.name} ({collection.split}): "
        f"the run has {examples(run.query_ids)}, the collection {examples(query_ids)}{hint}"
    )


def _ignored_queries(ignored: Sequence[str], query_ids: Sequence[str]) -> list[str]:
    if not ignored:
        return []
    near = near_spelling(ignored, query_ids)
    return [
        f"{some(len(ignored), 'query')} of the run without judgements ignored: {examples(ignored)}"
        + (f"; {near}" if near else "")
    ]


def _apply_max_passage(
    run: Run, collection: Collection, rules: Rules, wanted: MaxPassage, notes: list[str]
) -> tuple[Run, str, bool]:
    """Return the run after MaxP, what it is keyed by (empty where that is no question), whether it holds passages."""
    _refuse_max_passage(collection, rules, wanted)
    parents = collection.parent_ids
    if parents is None:
        return run, "", False
    is_passage = _occurs(run, collection.corpus_ids)
    is_document = _occurs(run, parents)
    used = _used(run)
    n_passages = int((used & is_passage & ~is_document).sum())
    n_documents = int((used & is_document).sum())
    keyed_by = "mixture" if n_passages and n_documents else "passages" if n_passages else "documents"
    applies = wanted == "on" or (wanted == "auto" and rules.max_passage)
    if not applies:
        if rules.max_passage and n_passages:
            what = "passages" if keyed_by == "passages" else "passages and documents"
            notes.append(f"the run is keyed by {what}, and the judgements know documents only (MaxP is off)")
        return run, keyed_by if rules.max_passage else "", n_passages > 0
    if not n_passages:
        notes.append("the run is keyed by documents: nothing left to do for MaxP")
        return run, keyed_by, False
    what = "passages" if keyed_by == "passages" else f"passages ({n_passages}) and documents ({n_documents})"
    notes.append(f"the run is keyed by {what}: each document stands where its best passage stands (MaxP)")
    return aggregators.max_passage(run, collection.corpus_ids, parents), keyed_by, False


def _refuse_max_passage(collection: Collection, rules: Rules, wanted: MaxPassage) -> None:
    name = rules.name or collection.name
    if wanted == "on" and (collection.parents is None or (rules.name and not rules.max_passage)):
        judges_passages = rules.judges_passages or collection.parents is not None
        raise UsageError(no_max_passage(name, judges_passages=judges_passages))
    if wanted == "auto" and rules.max_passage and collection.parents is None:
        raise DataError(
            f"{name} scores documents by their best passage, but its collection does not say whose passage is whose"
        )


def _used(run: Run) -> NDArray[np.bool_]:
    """Return for each id of the run's vocabulary whether a ranking holds it."""
    used = np.zeros(len(run.documents), dtype=bool)
    used[run.codes] = True
    return used


def _occurs(run: Run, ids: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return for each id of the run's vocabulary whether it is among ``ids``; the shorter side is hashed."""
    if len(ids) < len(run.documents):
        return np.asarray(pc.is_in(run.documents.ids, value_set=ids).to_numpy(zero_copy_only=False))
    found = np.zeros(len(run.documents), dtype=bool)
    found[pc.drop_null(pc.index_in(ids, value_set=run.documents.ids)).to_numpy()] = True
    return found


def _count_unknown(run: Run, collection: Collection, notes: list[str]) -> int:
    if not collection.n_documents:
        return 0
    known = _occurs(run, collection.corpus_ids)
    if collection.parent_ids is not None:
        known |= _occurs(run, collection.parent_ids)
    used = _used(run)
    unknown = np.flatnonzero(used & ~known)
    if not len(unknown):
        return 0
    ids = run.documents.decode(unknown).to_pylist()
    ours = collection.corpus_ids if collection.parent_ids is None else collection.parent_ids
    near = near_spelling(ids, ours)
    hint = f"; {near}" if near else ""
    if not (used & known).any():
        raise RunError(
            f"no document of the run is in the corpus of {collection.name}: the run has {examples(ids)}, "
            f"the corpus {examples(ours[:3].to_pylist())}{hint}"
        )
    notes.append(f"{some(len(ids), 'document')} of the run that the corpus lacks: {examples(ids)}{hint}")
    return len(ids)


def _keep_candidates(run: Run, collection: Collection, notes: list[str]) -> tuple[Run, int, int]:
    if collection.candidates is None:
        return run, 0, 0
    pairs = _pairs(run, collection.candidates)
    keep = _is_among(run, pairs)
    n_foreign = int(len(keep) - keep.sum())
    if n_foreign:
        notes.append(f"{some(n_foreign, 'retrieved document')} taken out: not among the query's candidates")
    n_candidates = sum(len(set(collection.candidates.get(query_id, ()))) for query_id in run.query_ids)
    n_unranked = n_candidates - int(keep.sum())
    if n_unranked:
        notes.append(f"{n_unranked} of {n_candidates} candidates are not in the run and count as not retrieved")
    return (run.rows(keep) if n_foreign else run), n_foreign, n_unranked


def _take_out(
    run: Run, collection: Collection, rules: Rules, pool: NDArray[np.int64] | None
) -> tuple[Run, int, NDArray[np.int64] | None]:
    """Take excluded documents out of the rankings; the pool of what can be retrieved shrinks by them as well."""
    excluded: dict[str, Iterable[str]] = {
        query_id: collection.exclusions[query_id] for query_id in run.query_ids if query_id in collection.exclusions
    }
    if rules.exclude_self:
        excluded = {query_id: {query_id, *excluded.get(query_id, ())} for query_id in run.query_ids}
    if not excluded:
        return run, 0, pool
    out = _is_among(run, _pairs(run, excluded))
    left = without_excluded(pool, run, collection, excluded)
    return (run.rows(~out) if out.any() else run), int(out.sum()), left


def _pairs(run: Run, documents_by_query: Mapping[str, Iterable[str]]) -> NDArray[np.int64]:
    """Return (query, document) as one number each, of those documents that the run's vocabulary has."""
    lists = [list(dict.fromkeys(documents_by_query.get(query_id, ()))) for query_id in run.query_ids]
    queries = np.repeat(np.arange(len(run), dtype=np.int64), [len(documents) for documents in lists])
    codes = run.documents.find([document for documents in lists for document in documents])
    return np.asarray((queries * max(len(run.documents), 1) + codes)[codes >= 0])


def _is_among(run: Run, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
    width = max(len(run.documents), 1)
    named = np.zeros(len(run.documents), dtype=bool)
    named[pairs % width] = True
    rows = np.flatnonzero(named[run.codes])
    among = np.zeros(len(run.codes), dtype=bool)
    among[rows] = np.isin(run.row_queries[rows] * width + run.codes[rows], pairs)
    return among
