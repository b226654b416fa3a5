"""What a model reads: a torch DataLoader over a `datasets.Dataset`, made per block from Arrow columns.

MTEB builds the same batches row by row through ``Dataset.map``, which writes the joined corpus to disk. Here the text
of a block is joined by Arrow, turned into Python strings once, and sliced; a column that the model does not ask for is
never turned into strings at all.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from datasets.table import InMemoryTable
from numpy.typing import NDArray
from torch.utils.data import DataLoader, default_collate

from crumb_tasks.search.identity import layers

CORPUS_COLUMNS = ("id", "title", "text")
QUERY_COLUMNS = ("id", "text")
_UNREAD = object()


def joined_documents(table: pa.Table) -> pa.Table:
    """Return the columns that MTEB hands to a model for documents: ``id``, ``text``, ``body``, and ``title`` if there.

    ``text`` is title and text joined by a space and stripped, ``body`` the text alone, as in MTEB's
    ``_corpus_to_dict`` (https://github.com/embeddings-benchmark/mteb/blob/main/mteb/_create_dataloaders.py). An empty
    title leaves the stripped text, which the same join gives.
    """
    body = pc.fill_null(table.column("text"), "")
    columns = {"id": table.column("id")}
    if "title" in table.column_names:
        title = pc.fill_null(table.column("title"), "").cast(body.type)
        columns["text"] = pc.utf8_trim_whitespace(pc.binary_join_element_wise(title, body, " "))
        columns["body"] = body
        columns["title"] = title
    else:
        columns["text"] = pc.utf8_trim_whitespace(body)
        columns["body"] = body
    return pa.table(columns)


def joined_queries(table: pa.Table) -> pa.Table:
    """Return the columns that MTEB hands to a model for queries: ``id``, ``text`` and ``query``, which is the text."""
    text = pc.fill_null(table.column("text"), "")
    return pa.table({"id": table.column("id"), "text": text, "query": text})


def length_order(text: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Return the positions of ``text`` from the longest to the shortest, in bytes; equal lengths keep their order."""
    lengths = pc.binary_length(text).to_numpy()
    return np.argsort(-lengths.astype(np.int64), kind="stable")


def sorts_by_length(model: object) -> bool:
    """Return whether ``model`` sorts what it encodes by length itself.

    Those of sentence-transformers do; any other may say so by an attribute ``sorts_by_length``.
    """
    sentence_transformers = sys.modules.get("sentence_transformers")  # not imported: no model of it can exist
    return any(
        getattr(layer, "sorts_by_length", False) is True
        or (sentence_transformers is not None and isinstance(layer, sentence_transformers.SentenceTransformer))
        for layer in layers(model)
    )


def prepares_rows_again(model: object) -> bool:
    """Return whether ``model`` runs MTEB's preparation on the rows of the loader's dataset, which are prepared already.

    MTEB's ``CachedEmbeddingWrapper`` does, and would put the title in front of the text twice. It keeps vectors by the
    text alone, so that it must see the joined text, and no title beside it.
    """
    from mteb.models import CachedEmbeddingWrapper

    return any(isinstance(layer, CachedEmbeddingWrapper) for layer in layers(model))


class ColumnBatch(MutableMapping[str, Any]):
    """A batch whose columns become Python values when they are asked for; otherwise a dictionary."""

    def __init__(self, dataset: ColumnDataset, start: int, stop: int) -> None:
        self._dataset = dataset
        self._start, self._stop = start, stop
        self._value_by_key: dict[str, Any] = dict.fromkeys(dataset.names, _UNREAD)

    def __getitem__(self, key: str) -> Any:
        value = self._value_by_key[key]
        if value is _UNREAD:
            value = self._value_by_key[key] = self._dataset.values(key)[self._start : self._stop]
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._value_by_key[key] = value

    def __delitem__(self, key: str) -> None:
        del self._value_by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._value_by_key)

    def __len__(self) -> int:
        return len(self._value_by_key)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)  # a worker process sends values, not the block


class Rows(Sequence[Mapping[str, Any]]):
    """The rows of one batch, for a collate function that a model has put in place of ours."""

    def __init__(self, dataset: ColumnDataset, start: int, stop: int) -> None:
        self.batch = ColumnBatch(dataset, start, stop)
        self._length = stop - start

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Mapping[str, Any]]: ...

    def __getitem__(self, at: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        return {key: self.batch[key][at] for key in self.batch}


class ColumnDataset(Dataset):  # type: ignore[misc]  # datasets ships no types
    """A dataset of one block, from which torch's loader takes slices of columns instead of rows."""

    def __init__(self, table: pa.Table) -> None:
        # A random fingerprint: datasets would hash the whole table, and equal ones would share cache files of ``map``.
        super().__init__(InMemoryTable(table), fingerprint=secrets.token_hex(8))
        self.names = tuple(table.column_names)
        self._values_by_column: dict[str, list[Any]] = {}

    def values(self, column: str) -> list[Any]:
        """Return a column of the block as a list, made once."""
        found = self._values_by_column.get(column)
        if found is None:
            found = self._values_by_column[column] = self.data.column(column).to_pylist()
        return found

    def __getitems__(self, keys: Sequence[int]) -> Sequence[Mapping[str, Any]]:
        """Return the rows ``keys`` for torch's loader; consecutive ones without touching a row."""
        if len(keys) and (isinstance(keys, range) or keys == list(range(keys[0], keys[0] + len(keys)))):
            return Rows(self, keys[0], keys[0] + len(keys))
        return [{name: self.values(name)[key] for name in self.names} for key in keys]


class BlockLoader(DataLoader[Any]):
    """torch's loader without its work per row and batch for samplers and profiler, of which a block has no use."""

    def __iter__(self) -> Any:
        """Iterate over the batches; with worker processes as torch does."""
        return super().__iter__() if self.num_workers else self._batches()

    def _batches(self) -> Iterator[Any]:
        dataset: Any = self.dataset
        step, height = self.batch_size or 1, len(dataset)
        for start in range(0, height, step):
            stop = min(start + step, height)
            if self.collate_fn is collate:  # which would take the batch out of the rows again
                yield ColumnBatch(dataset, start, stop)
            else:
                yield self.collate_fn(dataset.__getitems__(range(start, stop)))


def collate(rows: Sequence[Mapping[str, Any]]) -> MutableMapping[str, Any]:
    """Return the batch of ``rows``: for each column the list of its values."""
    if isinstance(rows, Rows):
        return rows.batch
    return {key: default_collate([row[key] for row in rows]) for key in rows[0]}


def block_loader(table: pa.Table, *, batch_size: int, num_proc: int | None) -> DataLoader[Any]:
    """Return a DataLoader over ``table`` in its order, with the settings that MTEB gives its own loaders."""
    return BlockLoader(
        ColumnDataset(table),
        batch_size=batch_size,
        collate_fn=collate,
        num_workers=num_proc if num_proc is not None and num_proc > 1 else 0,
        shuffle=False,
    )
