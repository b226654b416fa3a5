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
    """Return whether ``model`` hands its texts to sentence-transformers, which sorts them by length itself."""
    sentence_transformers = sys.modules.get("sentence_transformers")
    if sentence_transformers is None:  # not imported, so no model of it can exist
        return False
    return any(isinstance(layer, sentence_transformers.SentenceTransformer) for layer in layers(model))


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
        self._value_by_key: dict[str, Any] = dict.fromkeys(dataset.column_names, self)  # itself: not read yet

    def __getitem__(self, key: str) -> Any:
        value = self._value_by_key[key]
        if value is self:
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
        self._values_by_column: dict[str, list[Any]] = {}

    def values(self, column: str) -> list[Any]:
        """Return a column of the block as a list, made once."""
        if column not in self._values_by_column:
            self._values_by_column[column] = self.data.column(column).to_pylist()
        return self._values_by_column[column]

    def __getitems__(self, keys: list[int]) -> Sequence[Mapping[str, Any]]:
        """Return the rows ``keys`` for torch's loader; consecutive ones without touching a row."""
        if keys and keys == list(range(keys[0], keys[0] + len(keys))):
            return Rows(self, keys[0], keys[0] + len(keys))
        return [{name: self.values(name)[key] for name in self.column_names} for key in keys]


def collate(rows: Sequence[Mapping[str, Any]]) -> MutableMapping[str, Any]:
    """Return the batch of ``rows``: for each column the list of its values."""
    if isinstance(rows, Rows):
        return rows.batch
    return {key: default_collate([row[key] for row in rows]) for key in rows[0]}


def block_loader(table: pa.Table, *, batch_size: int, num_proc: int | None) -> DataLoader[Any]:
    """Return a DataLoader over ``table`` in its order, with the settings that MTEB gives its own loaders."""
    return DataLoader(
        ColumnDataset(table),
        batch_size=batch_size,
        collate_fn=collate,
        num_workers=num_proc if num_proc is not None and num_proc > 1 else 0,
        shuffle=False,
    )
