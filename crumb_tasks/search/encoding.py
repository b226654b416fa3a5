"""Calls of a model's ``encode`` as MTEB makes them: queries by their prompt, the corpus block by block."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from numpy.typing import NDArray
from tqdm.auto import tqdm

from crumb_tasks.errors import RunError
from crumb_tasks.search import batches, grid
from crumb_tasks.search.embeddings import StoredCorpus

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Encoding:
    """Calls of the model's ``encode`` as MTEB makes them."""

    model: Any
    task_metadata: TaskMetadata
    hf_split: str
    hf_subset: str
    kwargs: dict[str, Any]
    num_proc: int | None

    def queries(self, queries: Dataset, groups: Sequence[tuple[NDArray[np.integer[Any]], TaskMetadata]] | None) -> Any:
        """Return the embeddings of all queries in their order, one call per group."""
        table = queries.with_format("arrow").select_columns(list(batches.QUERY_COLUMNS))[:]
        table = batches.joined_queries(table)
        if groups is None:
            return self._encode(table, self.task_metadata, "query")
        positions = np.concatenate([np.asarray(members, dtype=np.int64) for members, _ in groups])
        if not np.array_equal(np.sort(positions), np.arange(len(queries))):
            raise ValueError("query_groups must hold every query exactly once")
        asked = [(pa.array(members), metadata) for members, metadata in groups if len(members)]
        parts = [self._encode(table.take(members), metadata, "query") for members, metadata in asked]
        return grid.gather(_concatenated(parts), np.argsort(positions))

    def documents(self, table: pa.Table) -> Any:
        """Return the embeddings of a block of the corpus in its order.

        Longest first, so that a batch holds texts of about one length and memory runs out at once or never. Models that
        sort by themselves get the corpus' order, which costs no copy.
        """
        table = batches.joined_documents(table)
        if batches.prepares_rows_again(self.model):
            table = table.select(["id", "text"])
        if batches.sorts_by_length(self.model) or len(table) <= self.kwargs.get("batch_size", 32):
            return self._encode(table, self.task_metadata, "document")
        order = batches.length_order(table.column("text"))
        return grid.gather(self._encode(table.take(pa.array(order)), self.task_metadata, "document"), np.argsort(order))

    def _encode(self, table: pa.Table, task_metadata: TaskMetadata, kind: str) -> Any:
        from mteb.types import PromptType

        loader = batches.block_loader(table, batch_size=self.kwargs.get("batch_size", 32), num_proc=self.num_proc)
        vectors = self.model.encode(
            loader,
            task_metadata=task_metadata,
            hf_split=self.hf_split,
            hf_subset=self.hf_subset,
            prompt_type=PromptType(kind),
            **self.kwargs,
        )
        if grid.n_rows(vectors) != len(table):
            raise RunError(f"the model returned {grid.n_rows(vectors)} embeddings for {len(table)} texts ({kind})")
        return vectors


def _concatenated(parts: Sequence[Any]) -> Any:
    if all(isinstance(part, torch.Tensor) for part in parts):
        return torch.cat(list(parts), dim=0)
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return [vector for part in parts for vector in part]


class Rows:
    """The corpus rows that are encoded: all, or only candidates."""

    def __init__(self, arrow_corpus: Dataset, rows: NDArray[np.int64] | None) -> None:
        columns = [name for name in batches.CORPUS_COLUMNS if name in arrow_corpus.column_names]
        self._corpus = arrow_corpus.select_columns(columns)
        self.rows = rows

    def __len__(self) -> int:
        return len(self._corpus) if self.rows is None else len(self.rows)

    def table(self, start: int, stop: int) -> pa.Table:
        """Return the columns of rows ``start`` to ``stop``, without a copy where all rows are encoded."""
        return self._corpus[start:stop] if self.rows is None else self._corpus[self.rows[start:stop]]

    def positions(self, start: int, stop: int) -> NDArray[np.int64] | slice:
        """Return the corpus rows that rows ``start`` to ``stop`` are."""
        return slice(start, stop) if self.rows is None else self.rows[start:stop]


def embedded_blocks(
    call: Encoding, rows: Rows, stored: StoredCorpus | None, *, first_block: int = 0
) -> Iterator[tuple[int, Any]]:
    """Yield ``(first row, embeddings)`` block by block, from disk where they are there.

    Args:
        call: How the model is called.
        rows: What is encoded.
        stored: Embeddings on disk.
        first_block: Which block of ``stored`` the first of ``rows`` is, where these are a part of a corpus.
    """
    started, total = time.monotonic(), len(rows)
    quiet = not call.kwargs.get("show_progress_bar", True)
    with tqdm(total=total, unit="doc", unit_scale=True, desc="Encoding and searching", disable=quiet) as progress:
        for start in range(0, total, grid.BLOCK):
            stop = min(start + grid.BLOCK, total)
            vectors = None if stored is None else stored.read(first_block + start // grid.BLOCK, stop - start)
            if vectors is None:
                vectors = call.documents(rows.table(start, stop))
                if stored is not None:
                    vectors = stored.write(first_block + start // grid.BLOCK, vectors)
            yield start, vectors
            progress.update(stop - start)
    seconds = max(time.monotonic() - started, 1e-9)
    logger.info("encoded and searched %d documents in %.1f s, %.0f documents/s", total, seconds, total / seconds)
