"""How deep a run goes, and which measures look deeper than that.

A run's depth is the length of its longest ranking (after MaxP and the choice of candidates, before exclusions), or what
the caller says. A ranking that is shorter than the longest counts as one that ended by itself, as BM25's do, which
holds no document without a word of the query; the longest one is where the whole run may have been cut. So a measure
has a value when the depth reaches its cutoff, or all documents that any answered query can retrieve. Where only
judgements are known, nobody knows how many those are: then only the cutoff counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.collection import Collection
from crumb_tasks.measures import Measure, parse_measure
from crumb_tasks.runs import Run
from crumb_tasks.scoring.result import Coverage

Counts = NDArray[np.int64]


def retrievable(run: Run, collection: Collection, *, holds_passages: bool) -> Counts | None:
    """Return for each query how many documents it could retrieve, without exclusions; ``None`` without a corpus.

    Args:
        run: The rankings.
        collection: What was searched.
        holds_passages: The rankings hold passages that stand for themselves, although the collection has documents.
    """
    if collection.candidates is not None:
        sizes = [len(set(collection.candidates.get(query_id, ()))) for query_id in run.query_ids]
        return np.array(sizes, dtype=np.int64)
    if not collection.n_documents:
        return None
    n_documents = collection.corpus.num_rows if holds_passages else collection.n_documents
    return np.full(len(run), n_documents, dtype=np.int64)


def without_excluded(
    pool: Counts | None, run: Run, collection: Collection, excluded: Mapping[str, Iterable[str]]
) -> Counts | None:
    """Return ``pool`` without those of the excluded documents that it holds."""
    if pool is None:
        return None
    lists = [list(dict.fromkeys(excluded.get(query_id, ()))) for query_id in run.query_ids]
    if collection.candidates is not None:
        candidates = [set(collection.candidates.get(query_id, ())) for query_id in run.query_ids]
        held = [len(own.intersection(ids)) for own, ids in zip(candidates, lists, strict=True)]
    else:
        named = pa.array(list(dict.fromkeys(own for ids in lists for own in ids)), type=pa.string())
        columns = [ids for ids in (collection.corpus_ids, collection.parent_ids) if ids is not None]
        known = {own for ids in columns for own in ids.filter(pc.is_in(ids, value_set=named)).to_pylist()}
        held = [len(known.intersection(ids)) for ids in lists]
    return pool - np.array(held, dtype=np.int64)


def is_complete(ranked: Counts, pool: Counts | None, depth: int | None) -> bool:
    """Return whether the run goes as deep as any query that it answers could.

    Args:
        ranked: Documents of each query that count, exclusions taken out.
        pool: What `retrievable` says of each query, without exclusions.
        depth: How deep the search went, where the caller knows.
    """
    answered = ranked > 0
    if pool is None or not answered.any():
        return False
    return max(int(ranked.max()), depth or 0) >= int(pool[answered].max())


def too_deep(measure: Measure, coverage: Coverage) -> str:
    """Return why a measure looks deeper than the run goes, or an empty string."""
    if measure.cutoff is None or coverage.is_complete or measure.cutoff <= coverage.depth:
        return ""
    return f"the run is {_documents(coverage)} deep, {measure.name} looks at {measure.cutoff}"


def depth_notes(flagged: Sequence[str], coverage: Coverage) -> Iterator[str]:
    """Yield a sentence on the measures without a value."""
    if flagged:
        deepest = max(parse_measure(name).cutoff or 0 for name in flagged)
        yield (
            f"depth {coverage.depth} < cutoff {deepest}{_of(coverage)}: no value for {', '.join(flagged)}; retrieve "
            f"deeper, or say how deep the search went when it found no more (--depth {deepest})"
        )


def _documents(coverage: Coverage) -> str:
    return f"{coverage.depth} document{'s' if coverage.depth != 1 else ''}"


def _of(coverage: Coverage) -> str:
    if coverage.n_retrievable is None:
        return ""
    return f", and {coverage.n_retrievable} documents could be retrieved"
