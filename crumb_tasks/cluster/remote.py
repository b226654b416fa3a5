"""A model that ranks on the cluster: what a task on the driver calls in the place of a loaded model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.cluster.jobs import Found, Kind, Work
from crumb_tasks.cluster.keeping import Keeping, KeptShards
from crumb_tasks.cluster.merging import Merge
from crumb_tasks.cluster.shards import (
    Blocks,
    Shard,
    blocks_of,
    cut,
    gaps,
    joined,
    n_pieces,
    shards_of,
    without_overlap,
)
from crumb_tasks.errors import UsageError
from crumb_tasks.request import QueryGroup, Ranking, Request, column
from crumb_tasks.runs import Run
from crumb_tasks.search.candidates import CandidatePairs
from crumb_tasks.search.encoder import to_run
from crumb_tasks.search.encoding import Rows
from crumb_tasks.search.order import CorpusOrder

if TYPE_CHECKING:
    from mteb.models import ModelMeta


class Workers(Protocol):
    """Whoever does the work: a pool of Ray's actors, or in tests this very process."""

    @property
    def n_workers(self) -> int:
        """How many share the work."""

    def kind(self) -> str:
        """Return ``encoder``, ``cross-encoder`` or ``own search``, once a worker has loaded the model.

        Raises:
            CrumbTasksError: No worker can load it.
        """

    def find(self, work: Work, shards: Sequence[Shard], done: int, total: int) -> Iterator[tuple[Shard, Found]]:
        """Yield what each shard has found, in the order in which they are done.

        Args:
            work: What is searched.
            shards: Its parts.
            done: Documents (or pairs) of parts that were done before.
            total: Documents (or pairs) in all.

        Raises:
            CrumbTasksError: A shard cannot be done.
        """


@dataclass(eq=False)
class RemoteModel:
    """A model of MTEB's kinds with its own search, which is the cluster's.

    Attributes:
        mteb_model_meta: MTEB's metadata of the model, with the experiment.
        workers: Who does the work.
        keeping: Where finished shards are kept, else ``None``.
        waiting: Entered while the driver waits, so that another task can go on.
        embedding_store: Set by whoever keeps document embeddings.
        say: Told what the user should know.
    """

    mteb_model_meta: ModelMeta
    workers: Workers
    keeping: Keeping | None = None
    waiting: Any = nullcontext
    embedding_store: Any = None
    say: Any = lambda _text: None

    def rank_elsewhere(self, request: Request) -> Ranking:
        """Rank what a card's task asks for; see `crumb_tasks.ranking.rank`.

        Raises:
            UsageError: A cross-encoder without candidates.
            CrumbTasksError: A shard cannot be done.
        """
        name = request.groups[0].task_metadata.name
        if request.in_memory_only:
            raise UsageError(f"{name}: its queries are decoded in memory only and may not travel; run it without --ray")
        kind = self.workers.kind()
        if kind == "encoder":
            with request.timer("Searching corpus", split=request.hf_split, subset=request.hf_subset):
                return self._rank_by_vectors(request)
        if kind == "cross-encoder" and request.candidates is None:
            raise UsageError(f"{name}: a cross-encoder scores pairs and needs candidates; name them with --rerank")
        with request.timer("Encoding queries and documents", split=request.hf_split, subset=request.hf_subset):
            return self._rank_by_queries(request, "pairs" if kind == "cross-encoder" else "own search")

    def _rank_by_vectors(self, request: Request) -> Ranking:
        order = CorpusOrder.of(request.corpus_ids, request.parents)
        query_ids = [str(query_id) for query_id in request.query_ids]
        candidates = request.candidates
        pairs = None if candidates is None else CandidatePairs.of(candidates, query_ids, order)
        if not query_ids or not len(order.ids) or request.depth < 1 or (pairs is not None and not len(pairs)):
            return Ranking(Run.from_dict({query_id: {} for query_id in query_ids}))
        rows = None if pairs is None else pairs.rows
        depth = min(request.depth, order.n_documents)
        work = replace(self._work("vectors", request), rows=rows, pairs=pairs, depth=depth, candidates=None)
        blocks = blocks_of(Rows(request.corpus.with_format("arrow"), rows), _parents(request, rows))
        ordinals = order.ordinals if rows is None else order.ordinals[rows]
        merge = Merge(len(query_ids), depth, ordinals=ordinals, parent_by_ordinal=order.parent_by_ordinal)
        with self.waiting():
            for found in self._found(work, blocks):
                merge.add(found)
        return Ranking(to_run(query_ids, order, merge.ranked()))

    def _found(self, work: Work, blocks: Blocks) -> Iterator[Found]:
        """Yield what all shards of a corpus have found, those first that an earlier run has finished."""
        kept = None if self.keeping is None else self.keeping.open(work.identity(self.mteb_model_meta))
        finished: list[tuple[int, int]] = []
        if kept is not None:
            usable = [one for one in kept.ranges() if blocks.is_boundary(one[0]) and blocks.is_boundary(one[1])]
            for first, stop in without_overlap(usable):
                if first < stop and (found := kept.read(blocks.shard(first, stop))) is not None:
                    finished.append((first, stop))
                    yield found
        shards = shards_of(blocks, self.workers.n_workers, finished)
        done = sum(stop - first for first, stop in finished)
        yield from self._rest(work, shards, kept, before=(len(finished), done), total=blocks.n_rows)

    def _rest(
        self, work: Work, shards: Sequence[Shard], kept: KeptShards | None, *, before: tuple[int, int], total: int
    ) -> Iterator[Found]:
        """Yield what the shards find that were not done ``before``: so many shards with so many documents were."""
        n_finished, done = before
        if n_finished:
            noun = "shard" if n_finished == 1 else "shards"
            self.say(f"{work.task}: {done:,} of {total:,} were done by an earlier run ({n_finished} {noun})")
        for shard, found in self.workers.find(work, shards, done, total):
            if kept is not None:
                kept.write(shard, found)
            for note in found.notes:
                self.say(note)
            yield found

    def _rank_by_queries(self, request: Request, kind: Kind) -> Ranking:
        """Rank with models that see whole rankings: cross-encoders some queries a shard, others all at once."""
        parents = _parents(request, None)
        digest = joined(blocks_of(Rows(request.corpus.with_format("arrow"), None), parents).digests)
        work = replace(self._work(kind, request), corpus=digest)
        queries = _asked_queries(work, request) if kind == "pairs" else _one_range(work)
        with self.waiting():
            found = list(self._found_by_query(work, queries))
        owners = np.concatenate([np.empty(0, dtype=np.int64), *(part.owners for part in found)])
        rows = np.concatenate([np.empty(0, dtype=np.int64), *(part.rows for part in found)])
        scores = np.concatenate([np.empty(0), *(part.scores for part in found)])
        ids = request.corpus_ids.take(pa.array(rows))
        documents = ids if request.parents is None else request.parents.take(pa.array(rows))
        run = Run.from_columns(
            work.query_ids,
            owners,
            documents,
            scores,
            passage_ids=None if request.parents is None else _flat(ids),
        )
        return Ranking(
            run,
            n_unproven=sum(part.counts.get("n_unproven", 0) for part in found),
            n_unreturned_candidates=sum(part.counts.get("n_unreturned_candidates", 0) for part in found),
            searched=max((part.counts.get("searched", 0) for part in found), default=0),
        )

    def _found_by_query(self, work: Work, queries: _Queries) -> Iterator[Found]:
        """Yield what ranges of queries have found."""
        kept = None if self.keeping is None else self.keeping.open(work.identity(self.mteb_model_meta))
        finished: list[tuple[int, int]] = []
        for first, stop in without_overlap(kept.ranges()) if kept is not None else ():
            if stop <= len(queries.sizes) and kept is not None:
                found = kept.read(queries.shard(first, stop))
                if found is not None:
                    finished.append((first, stop))
                    yield found
        shards = [
            queries.shard(first + start, first + end)
            for first, stop in gaps(len(queries.sizes), finished)
            for start, end in cut(queries.sizes[first:stop], queries.n_pieces(first, stop, self.workers.n_workers))
        ]
        done = sum(queries.shard(first, stop).count for first, stop in finished)
        yield from self._rest(work, shards, kept, before=(len(finished), done), total=int(queries.counts.sum()))

    def _work(self, kind: Kind, request: Request) -> Work:
        queries = request.queries.with_format("arrow")[:] if len(request.queries) else _NO_QUERIES
        return Work(
            kind=kind,
            task=request.groups[0].task_metadata.name,
            card=request.card,
            split=request.hf_split,
            subset=request.hf_subset,
            queries=queries,
            groups=[QueryGroup(group.task_metadata, np.asarray(group.rows)) for group in request.groups],
            depth=request.depth,
            encode_kwargs=dict(request.encode_kwargs),
            num_proc=request.num_proc,
            n_rows=len(request.corpus),
            candidates=_plain(request.candidates),
            embeddings=None if self.embedding_store is None else Path(self.embedding_store.path).absolute(),
        )

    def index(self, corpus: Any, **_: Any) -> None:
        """Take note of the corpus of a task of MTEB's own, which a worker will load itself."""
        self._n_rows = len(corpus)
        self._ids = [str(doc_id) for doc_id in corpus["id"]]

    def search(
        self, queries: Any, *, task_metadata: Any, top_k: int, top_ranked: Any = None, **asked: Any
    ) -> dict[str, dict[str, float]]:
        """Rank a task of MTEB's own on one worker, as MTEB does."""
        from crumb_tasks.cluster.mteb_tasks import all_queries

        work = Work(
            kind="MTEB's",
            task=task_metadata.name,
            card=None,
            split=asked["hf_split"],
            subset=asked["hf_subset"],
            queries=queries.with_format("arrow")[:],
            groups=[QueryGroup(task_metadata, all_queries(len(queries)))],
            depth=top_k,
            encode_kwargs=dict(asked["encode_kwargs"]),
            num_proc=asked.get("num_proc"),
            n_rows=self._n_rows,
            candidates=_plain(top_ranked),
        )
        ids = self._ids
        with self.waiting():
            (found,) = self._found_by_query(work, _one_range(work))
        bounds, rows, scores = found.offsets.tolist(), found.rows.tolist(), found.scores.tolist()
        return {
            query_id: {ids[row]: score for row, score in zip(rows[start:end], scores[start:end], strict=True)}
            for query_id, start, end in zip(work.query_ids, bounds, bounds[1:], strict=False)
        }


_NO_QUERIES = pa.table({"id": pa.array([], pa.string()), "text": pa.array([], pa.string())})


def _plain(candidates: Mapping[str, Iterable[str]] | None) -> dict[str, list[str]] | None:
    return None if candidates is None else {str(query_id): list(ids) for query_id, ids in candidates.items()}


def _flat(ids: pa.Array | pa.ChunkedArray) -> pa.Array:
    return ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids


def _parents(request: Request, rows: NDArray[np.int64] | None) -> pa.ChunkedArray | None:
    parents = request.parents
    if parents is None:
        return None
    chunked = parents if isinstance(parents, pa.ChunkedArray) else pa.chunked_array([parents])
    return chunked if rows is None else chunked.take(pa.array(rows))


@dataclass(frozen=True, eq=False)
class _Queries:
    """Queries that are cut into shards, each with the bytes and the number of the texts that go through the model.

    Without ``is_cut`` they are one shard: the model ranks the corpus by itself.
    """

    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    is_cut: bool = True

    def shard(self, first: int, stop: int) -> Shard:
        return Shard(first, stop, int(self.sizes[first:stop].sum()), int(self.counts[first:stop].sum()))

    def n_pieces(self, first: int, stop: int, n_workers: int) -> int:
        return n_pieces(int(self.sizes[first:stop].sum()), n_workers) if self.is_cut else 1


def _one_range(work: Work) -> _Queries:
    """Return the queries as one shard, whose size is that of the corpus."""
    share = np.array([work.n_rows], dtype=np.int64)
    return _Queries(share, share, is_cut=False)


def _asked_queries(work: Work, request: Request) -> _Queries:
    """Return the queries that have candidates, with the texts of these."""
    lengths = pc.binary_length(column(request.corpus, "text")).to_numpy().astype(np.int64)
    candidates = work.candidates or {}
    asked = [candidates[query_id] for query_id in work.asked_ids]
    wanted = pa.array([doc_id for ids in asked for doc_id in ids], pa.string())
    rows = pc.index_in(wanted, value_set=request.corpus_ids.cast(pa.string())).to_numpy(zero_copy_only=False)
    counts = np.array([len(ids) for ids in asked], dtype=np.int64)
    total = np.concatenate([[0], np.cumsum(lengths[rows.astype(np.int64)])])
    ends = np.cumsum(counts)
    return _Queries(np.asarray(total[ends] - total[ends - counts], dtype=np.int64), counts)
