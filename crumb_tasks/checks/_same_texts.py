"""Documents with the same text: reported, never merged.

Texts are read once, batch by batch, and only their digests are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.loaders._finding import Finding, finding, note

_SHOWN = 3


def check_same_texts(card: TaskCard, collection: Collection) -> Iterator[Finding]:
    """Yield the groups of equal documents, and those of which a query judges only some as relevant."""
    digests = _digests(collection.corpus)
    _, inverse, counts = np.unique(digests, return_inverse=True, return_counts=True)
    rows = np.flatnonzero(counts[inverse] > 1)
    if not len(rows):
        return
    groups = inverse[rows]
    n_groups = len(np.unique(groups))
    ids = collection.corpus.column("id").take(pa.array(rows))
    shown = tuple(ids.filter(pa.array(groups == groups[0])).slice(0, _SHOWN).to_pylist())
    yield note("texts", f"{len(rows)} documents in {n_groups} groups have the same text", n_groups, shown)
    if collection.parents is None:  # a passage of a judged document is not itself judged
        yield from _check_split_by_judgement(card, collection.graded, ids.combine_chunks(), groups, counts)


def _check_split_by_judgement(
    card: TaskCard, qrels: Qrels, ids: pa.StringArray, groups: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[Finding]:
    place = np.asarray(pc.fill_null(pc.index_in(qrels.documents.ids, value_set=ids), -1))[qrels.codes]
    rows = np.flatnonzero((place >= 0) & (qrels.grades >= card.relevant_from))
    pairs = np.stack([qrels.row_queries[rows], groups[place[rows]]])
    (queries, judged_groups), n_relevant = np.unique(pairs, axis=1, return_counts=True)
    parted = np.flatnonzero(n_relevant < sizes[judged_groups])
    if len(parted):
        at = judged_groups[parted[0]]
        shown = (qrels.query_ids[queries[parted[0]]], *ids.filter(pa.array(groups == at))[:_SHOWN].to_pylist())
        message = f"{len(parted)} times a query judges only some of the documents with one text as relevant"
        yield finding("texts", message, len(parted), shown)


def _digests(corpus: pa.Table) -> NDArray[np.uint64]:
    parts = []
    for batch in corpus.select(["title", "text"]).to_batches(max_chunksize=1 << 13):
        titles, texts = (batch.column(name).cast(pa.binary()).to_pylist() for name in ("title", "text"))
        digests = [
            blake2b(title + b"\0" + text, digest_size=8).digest() for title, text in zip(titles, texts, strict=True)
        ]
        parts.append(np.frombuffer(b"".join(digests), dtype=np.uint64))
    return np.concatenate([np.empty(0, dtype=np.uint64), *parts])
