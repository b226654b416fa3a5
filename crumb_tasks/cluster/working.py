"""What a worker does: read its shard, encode it, search it, and answer with what it found.

It reads texts itself, from the data root or the Hub's cache, and compares them with the digest it was given: a machine
with another copy of the data would give another ranking. What a search needs beside its shard (the collection, the
queries' embeddings) is made once and kept for the next shard.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from numpy.typing import NDArray

from crumb_tasks.cluster.jobs import Found, Work
from crumb_tasks.cluster.patience import PatientEncoding, halving
from crumb_tasks.cluster.shards import Shard, blocks_of, joined
from crumb_tasks.errors import DataError
from crumb_tasks.ranking import rank
from crumb_tasks.request import QueryGroup, Ranking, Request
from crumb_tasks.runs import Run
from crumb_tasks.search import EmbeddingStore, grid
from crumb_tasks.search.encoder import BlockSearch, refuse_nan
from crumb_tasks.search.encoding import Rows, embedded_blocks
from crumb_tasks.search.order import CorpusOrder
from crumb_tasks.search.topk import unpack

_KEPT = 2  # searches whose collection stays open: the one that ends and the one that begins


def dataset_of(table: pa.Table, columns: tuple[str, ...] = ("id", "title", "text")) -> Dataset:
    """Return the columns of a table that models read, without a copy; see `crumb_tasks.tasks`."""
    present = [name for name in columns if name in table.column_names]
    return Dataset(table.select(present), fingerprint=uuid.uuid4().hex[:16])


class _NoTimer:
    """MTEB's timing stack, of which nothing is kept."""

    def __call__(self, *_: Any, **__: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def add_phase(self, *_: Any, **__: Any) -> None:
        """Keep nothing."""


@dataclass(eq=False)
class OpenSearch:
    """One search on one worker: its collection, its queries' embeddings.

    Attributes:
        work: What is searched.
        model: With what.
        note: Told what the user should know.
    """

    work: Work
    model: Any
    note: Callable[[str], None] = lambda _text: None
    encode_kwargs: dict[str, Any] = field(init=False)
    _is_compared: bool = False

    def __post_init__(self) -> None:
        self.encode_kwargs = {**self.work.encode_kwargs, "show_progress_bar": False}

    @cached_property
    def collection(self) -> Any:
        """The collection of a card's task.

        Raises:
            DataError: It has another number of rows than on the driver.
        """
        from crumb_tasks.loaders import load_collection

        if self.work.card is None:
            raise ValueError("a task of MTEB's own has no collection")
        found = load_collection(self.work.card, self.work.split)
        if len(found.corpus) != self.work.n_rows:
            raise DataError(
                f"{self.work.task}: {len(found.corpus)} corpus rows on this worker, {self.work.n_rows} on the driver; "
                "all machines need the same data"
            )
        return found

    @cached_property
    def corpus(self) -> Dataset:
        """The corpus as models read it."""
        if self.work.card is not None:
            return dataset_of(self.collection.corpus)
        from crumb_tasks.cluster.mteb_tasks import corpus_of_mteb

        return corpus_of_mteb(self.work)

    @cached_property
    def rows(self) -> Rows:
        """The rows that are searched."""
        return Rows(self.corpus.with_format("arrow"), self.work.rows)

    @cached_property
    def parents(self) -> pa.ChunkedArray | None:
        """Under MaxP the document of each row that is searched."""
        if self.work.card is None or self.collection.parents is None:
            return None
        parents = self.collection.parents
        chunked = parents if isinstance(parents, pa.ChunkedArray) else pa.chunked_array([parents])
        return chunked if self.work.rows is None else chunked.take(pa.array(self.work.rows))

    @cached_property
    def call(self) -> PatientEncoding:
        """How the model is called."""
        metadata = self.work.groups[0].task_metadata
        return PatientEncoding(
            self.model, metadata, self.work.split, self.work.subset, self.encode_kwargs, self.work.num_proc
        )

    @cached_property
    def query_vectors(self) -> Any:
        """The queries' embeddings: the same calls with the same batches on every worker."""
        groups = [(group.rows, group.task_metadata) for group in self.work.groups]
        found = self.call.queries(dataset_of(self.work.queries), groups)
        refuse_nan(found, "query", self.work.query_ids)
        return found

    @cached_property
    def stored(self) -> Any:
        """The corpus' embeddings on disk, ``None`` where none are kept."""
        if self.work.embeddings is None:
            return None
        metadata = self.work.groups[0].task_metadata
        return EmbeddingStore(self.work.embeddings).open(self.model, metadata, self.rows, self.encode_kwargs)

    def find(self, shard: Shard) -> Found:
        """Search one shard.

        Raises:
            RunError: An embedding or score is NaN.
            DataError: The data on this machine are other data.
        """
        if self.work.kind == "vectors":
            return self._by_vectors(shard)
        self._compare_corpus()
        size = int(self.encode_kwargs.get("batch_size") or 32)
        return halving(lambda batch_size: self._as_a_whole(shard, batch_size), size, self._note_size)

    def _compare_corpus(self) -> None:
        """Compare the whole corpus with the driver's, once, where shards have no digest of their own."""
        if not self.work.corpus or self._is_compared:
            return
        digest = joined(blocks_of(Rows(self.corpus.with_format("arrow"), None), self.parents).digests)
        if digest != self.work.corpus:
            raise DataError(f"{self.work.task}: its corpus on this worker is another than on the driver")
        self._is_compared = True

    def _by_vectors(self, shard: Shard) -> Found:
        table = self.rows.table(shard.first, shard.stop)
        parents = None if self.parents is None else self.parents.slice(shard.first, len(shard))
        part = Rows(dataset_of(table).with_format("arrow"), None)
        if blocks_of(part, parents).shard(0, len(shard)).content != shard.content:
            raise DataError(
                f"{self.work.task}: rows {shard.first} to {shard.stop} of the corpus on this worker are others than on "
                "the driver; all machines need the same data"
            )
        order = CorpusOrder.of(table.column("id"), parents)
        pairs = None if self.work.pairs is None else self.work.pairs.part(shard.first, shard.stop)
        depth = min(self.work.depth, order.n_documents)
        before = self.encode_kwargs.get("batch_size")
        search = BlockSearch(self.model, self.query_vectors, self.work.query_ids, order, part, depth, pairs)
        ranked = search.over(embedded_blocks(self.call, part, self.stored, first_block=shard.first // grid.BLOCK))
        if (after := self.encode_kwargs.get("batch_size")) != before:
            self._note_size(int(after or 0))
        scores, ordinals = unpack(ranked.keys)
        rows = order.row_by_ordinal[ordinals] + np.int32(shard.first)
        return Found(ranked.offsets, rows.astype(np.int32), scores)

    def _note_size(self, batch_size: int) -> None:
        self.note(f"{self.work.task}: memory ran out; batches of {batch_size} from then on")

    def _as_a_whole(self, shard: Shard, batch_size: int) -> Found:
        self.encode_kwargs["batch_size"] = batch_size
        if self.work.kind == "MTEB's":
            from crumb_tasks.cluster.mteb_tasks import rank_as_mteb_does

            found = rank_as_mteb_does(self.model, self.work, self.corpus, self.encode_kwargs)
            return found_in_dicts(found, self.work.query_ids, self.corpus)
        ranking = rank(self.model, self.request(shard))
        return found_in_run(ranking, self.collection.corpus.column("id"))

    def request(self, shard: Shard) -> Request:
        """Return what the model is asked for a shard of queries, or for all of them."""
        candidates: Mapping[str, Any] | None = self.work.candidates
        if self.work.kind == "pairs" and candidates is not None:
            candidates = {query_id: candidates[query_id] for query_id in self.work.asked_ids[shard.first : shard.stop]}
        timer: Any = _NoTimer()
        return Request(
            corpus=self.corpus,
            queries=dataset_of(self.work.queries),
            groups=[QueryGroup(group.task_metadata, group.rows) for group in self.work.groups],
            depth=self.work.depth,
            parents=self.collection.parents,
            candidates=candidates,
            hf_split=self.work.split,
            hf_subset=self.work.subset,
            encode_kwargs=self.encode_kwargs,
            num_proc=self.work.num_proc,
            timer=timer,
        )


class Worker:
    """Searches shards with one model.

    Args:
        model: The model under its condition.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._open: OrderedDict[int, OpenSearch] = OrderedDict()
        self._seen: int | None = None

    def find(self, search: int, work: Callable[[], Work], shard: Shard) -> Found:
        """Search one shard.

        Args:
            search: Number of the search: shards of one share what is made for it.
            work: Returns what is searched; called for the first shard of a search.
            shard: Which part of it.

        Raises:
            RunError: An embedding or score is NaN.
            DataError: The data are missing or differ from the driver's.
        """
        notes: list[str] = []
        if search not in self._open:
            while len(self._open) >= _KEPT:
                self._open.popitem(last=False)
            self._open[search] = OpenSearch(work(), self.model)
        opened = self._open[search]
        self._open.move_to_end(search)
        opened.note = notes.append
        see_corpus = getattr(self.model, "see_corpus", None)
        if callable(see_corpus) and opened.work.card is not None and self._seen != search:
            see_corpus(opened.collection)  # a contextual encoder learns which chunks make up which document
            self._seen = search
        found = opened.find(shard)
        return replace(found, notes=(*found.notes, *notes))


def found_in_run(ranking: Ranking, ids: pa.ChunkedArray) -> Found:
    """Return a run over documents, or under MaxP over documents with their passages, as rows of the corpus."""
    run: Run = ranking.run
    vocabulary, codes = run.documents, run.codes
    if run.passages is not None and run.passage_codes is not None:
        vocabulary, codes = run.passages, run.passage_codes
    rows = positions_of(vocabulary.ids, ids)[codes]
    if (rows < 0).any():
        lost = vocabulary.ids[int(codes[np.flatnonzero(rows < 0)[0]])]
        raise DataError(f"the model ranks '{lost}', which the corpus lacks")
    counts = {
        "n_unproven": ranking.n_unproven,
        "n_unreturned_candidates": ranking.n_unreturned_candidates,
        "searched": ranking.searched,
    }
    return Found(run.offsets, rows.astype(np.int32), run.scores, counts)


def found_in_dicts(found: Mapping[str, Mapping[str, float]], query_ids: list[str], corpus: Dataset) -> Found:
    """Return what a search of MTEB's found, in the order in which it stands there."""
    rankings = [found.get(query_id, {}) for query_id in query_ids]
    offsets = np.concatenate([[0], np.cumsum([len(ranking) for ranking in rankings])]).astype(np.int64)
    ids = pa.array([str(doc_id) for ranking in rankings for doc_id in ranking], pa.string())
    scores = np.array([float(score) for ranking in rankings for score in ranking.values()], dtype=np.float64)
    column = pa.array([str(doc_id) for doc_id in corpus["id"]], pa.string())
    return Found(offsets, positions_of(ids, column).astype(np.int32), scores)


def positions_of(wanted: pa.Array, ids: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the row in ``ids`` of each of ``wanted``, -1 where there is none."""
    flat = ids.cast(pa.string())
    found = pc.fill_null(pc.index_in(wanted, value_set=flat), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)
