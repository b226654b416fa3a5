"""From an encoder and a corpus to a Run: the exact ranking of every query, or of given candidates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from numpy.typing import NDArray

from crumb_tasks.errors import RunError
from crumb_tasks.runs import Run, Vocabulary
from crumb_tasks.search import grid
from crumb_tasks.search.candidates import CandidatePairs
from crumb_tasks.search.embeddings import EmbeddingStore
from crumb_tasks.search.encoding import Encoding, Rows, embedded_blocks
from crumb_tasks.search.order import CorpusOrder, inverse
from crumb_tasks.search.topk import NaNScoreError, Ranked, RunningTopK, unpack
from crumb_tasks.search.topk_torch import RunningTopKTorch

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import EncoderProtocol
    from mteb.timing import TimingStack
    from mteb.types import EncodeKwargs


def search_encoder(
    model: EncoderProtocol,
    *,
    corpus: Dataset,
    queries: Dataset,
    task_metadata: TaskMetadata,
    hf_split: str,
    hf_subset: str,
    depth: int,
    encode_kwargs: EncodeKwargs | Mapping[str, Any],
    query_groups: Sequence[tuple[NDArray[np.integer[Any]], TaskMetadata]] | None = None,
    parents: pa.Array | pa.ChunkedArray | None = None,
    candidates: Mapping[str, Sequence[str]] | None = None,
    num_proc: int | None = None,
    timer: TimingStack | None = None,
    store: EmbeddingStore | None = None,
) -> Run:
    """Rank the corpus for every query, exactly.

    The result does not depend on how the corpus is chunked or on which queries are asked together, as long as the model
    gives a text the same vector in both. Scores are float32, as MTEB computes them.

    Args:
        model: An encoder with MTEB's protocol (``encode``, ``similarity``).
        corpus: Columns ``id``, ``text`` and perhaps ``title``; read block by block, never as a whole. Ids are distinct.
        queries: Columns ``id`` and ``text``.
        task_metadata: What the model's ``encode`` is told about the task, and where it finds its prompts.
        hf_split: Passed to ``encode``.
        hf_subset: Passed to ``encode``.
        depth: Documents to keep per query; more than there are gives all.
        encode_kwargs: Passed to ``encode``; ``batch_size`` (32) and ``show_progress_bar`` (true) count here too.
        query_groups: Where queries have different instructions: positions of queries, and the metadata that carries the
            prompt they share. One call of ``encode`` per group; every query belongs to exactly one.
        parents: For MaxP the document that each corpus row stands for. The run then ranks documents by their best
            passage, and keeps that passage.
        candidates: The ids that each query may rank: corpus ids, or with ``parents`` also parents, which stand for all
            their passages. Only those are encoded; a query without an entry gets an empty ranking.
        num_proc: Worker processes of the loaders, as MTEB's.
        timer: MTEB's timing stack; the phases are called as in MTEB's own search.
        store: Embeddings on disk, read where they are complete and written where not.

    Raises:
        RunError: An embedding or score is NaN, a corpus id stands there twice, a candidate is not in the corpus, or the
            model returned another number of embeddings than it got texts.
        UsageError: The store holds embeddings that were made under other settings.
    """
    call = Encoding(model, task_metadata, hf_split, hf_subset, dict(encode_kwargs), num_proc)
    arrow_corpus = corpus.with_format("arrow")
    ids = arrow_corpus.select_columns(["id"])[:].column("id") if len(corpus) else pa.array([], pa.string())
    order = CorpusOrder.of(ids, parents)
    query_ids = [str(query_id) for query_id in queries["id"]] if len(queries) else []
    pairs = None if candidates is None else CandidatePairs.of(candidates, query_ids, order)
    if not query_ids or not len(corpus) or depth < 1 or (pairs is not None and not len(pairs)):
        return Run.from_dict({query_id: {} for query_id in query_ids})
    phase = _phases(timer, hf_split, hf_subset)
    with phase("Encoding queries"):
        query_vectors = call.queries(queries, query_groups)
        refuse_nan(query_vectors, "query", query_ids)
    rows = Rows(arrow_corpus, None if pairs is None else pairs.rows)
    with phase("Searching corpus"):
        stored = None if store is None else store.open(model, task_metadata, rows, encode_kwargs)
        search = BlockSearch(model, query_vectors, query_ids, order, rows, min(depth, order.n_documents), pairs)
        ranked = search.over(embedded_blocks(call, rows, stored))
    return to_run(query_ids, order, ranked)


def _phases(timer: TimingStack | None, split: str, subset: str) -> Any:
    if timer is None:
        return lambda _name: contextlib.nullcontext()
    return lambda name: timer(name, split=split, subset=subset)


@dataclass(frozen=True, eq=False)
class BlockSearch:
    """One pass over the blocks of a corpus, or of the part of one that `rows` and ``order`` are about.

    Attributes:
        model: Whose similarity counts.
        query_vectors: The embeddings of all queries.
        query_ids: Their ids.
        order: The order of the ids.
        rows: What the blocks are cut from.
        depth: Documents to keep for each query.
        pairs: Which documents each query may rank, else ``None``.
    """

    model: Any
    query_vectors: Any
    query_ids: Sequence[str]
    order: CorpusOrder
    rows: Rows
    depth: int
    pairs: CandidatePairs | None

    def over(self, blocks: Iterator[tuple[int, Any]]) -> Ranked:
        """Return the rankings after all blocks."""
        scorer: grid.Scorer | None = None
        top: RunningTopK | RunningTopKTorch | None = None
        for start, vectors in blocks:
            ordinals = self.order.ordinals[self.rows.positions(start, start + grid.n_rows(vectors))]
            if scorer is None:
                scorer = grid.choose_scorer(self.model, self.query_vectors, vectors)
                top = None if self.pairs is not None else self._new_top(scorer)
            try:
                if self.pairs is not None:
                    self.pairs.score(scorer, start, vectors, ordinals)
                elif top is not None:
                    scorer.score(vectors, partial(_add, top, ordinals))
            except NaNScoreError as error:
                self._name_nan(error, vectors, ordinals)
        if self.pairs is not None:
            return self.pairs.ranked(len(self.query_ids), self.depth, self.order.parent_by_ordinal)
        if top is None:
            raise RuntimeError("no block was searched")
        return top.ranked()

    def _new_top(self, scorer: grid.Scorer) -> RunningTopK | RunningTopKTorch:
        parents = self.order.parent_by_ordinal
        if scorer.device.type == "cpu":
            return RunningTopK(len(self.query_ids), self.depth, tile=scorer.tile, parent_by_ordinal=parents)
        return RunningTopKTorch(len(self.query_ids), self.depth, device=scorer.device, parent_by_ordinal=parents)

    def _name_nan(self, error: NaNScoreError, vectors: Any, ordinals: NDArray[np.int32]) -> NoReturn:
        document = self.order.id_of(error.ordinal)
        at = int(np.flatnonzero(ordinals == error.ordinal)[0])
        if grid.is_dense(vectors) and bool(torch.as_tensor(vectors[at]).isnan().any()):
            raise RunError(f"document '{document}': its embedding holds NaN; look at its text and the model") from None
        query = self.query_ids[error.query]
        raise RunError(f"query '{query}', document '{document}': the model's similarity is NaN") from None


def _add(top: RunningTopK | RunningTopKTorch, ordinals: NDArray[np.int32], tile: grid.Tile) -> None:
    scores: Any = tile.scores[: tile.queries.stop - tile.queries.start]
    if scores.device.type == "cpu":
        scores = scores.numpy()
    top.add(tile.queries.start, scores, ordinals[tile.documents])


def refuse_nan(vectors: Any, kind: str, ids: Sequence[str]) -> None:
    """Refuse embeddings that hold NaN.

    Raises:
        RunError: One does; the message names the text by ``kind`` and id.
    """
    if not grid.is_dense(vectors):
        return
    bad = torch.as_tensor(vectors).isnan().any(dim=1).nonzero()
    if len(bad):
        raise RunError(f"{kind} '{ids[int(bad[0])]}': its embedding holds NaN; look at its text and the model")


def to_run(query_ids: Sequence[str], order: CorpusOrder, ranked: Ranked) -> Run:
    """Return the run of ``ranked``, whose vocabularies hold only what was retrieved."""
    scores, ordinals = unpack(ranked.keys)
    ranks = inverse(order.row_by_rank)[order.row_by_ordinal[ordinals]]
    used, codes = _compacted(ranks, len(order.ids))
    retrieved = Vocabulary(order.ids.take(pa.array(order.row_by_rank[used])))
    values = scores.astype(np.float64)
    if order.parents is None or order.parent_by_ordinal is None:
        return Run(tuple(query_ids), ranked.offsets, retrieved, codes, values)
    used, parent_codes = _compacted(order.parent_by_ordinal[ordinals], len(order.parents))
    documents = Vocabulary(order.parents.decode(used))
    return Run(tuple(query_ids), ranked.offsets, documents, parent_codes, values, retrieved, codes)


def _compacted(codes: NDArray[np.int32], n_codes: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the distinct ``codes`` ascending, and ``codes`` as positions among them."""
    is_used = np.zeros(n_codes, dtype=np.bool_)
    is_used[codes] = True
    used = np.flatnonzero(is_used)
    position_by_code = np.zeros(n_codes, dtype=np.int32)
    position_by_code[used] = np.arange(len(used), dtype=np.int32)
    return used, position_by_code[codes]
