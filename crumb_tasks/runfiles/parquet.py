"""Parquet with named columns: query, document and score, optionally the winning passage; other columns are not read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crumb_tasks.errors import RunFileError
from crumb_tasks.runfiles.columns import RunColumns
from crumb_tasks.runfiles.compression import FREE_BYTES, GROWTH_LIMIT, RunBytes

_QUERY = ("query_id", "query-id", "qid", "q_id")
_DOCUMENT = ("doc_id", "document_id", "docno", "docid", "corpus_id", "corpus-id")
_SCORE = ("score",)
_PASSAGE = ("passage_id",)
_BATCH_ROWS = 2**16
DEPTH_KEY = "crumb_tasks.depth"
"""Of the file's own metadata: how deep the search went."""


class ParquetReader:
    """Reads one Parquet file into columns.

    Args:
        source: The opened file.
        columns: Where the rows go.

    Attributes:
        search_depth: How deep the search went, where the file says it.
        notes: What a user should know about the file.
    """

    def __init__(self, source: RunBytes, columns: RunColumns) -> None:
        self._source = source
        self.search_depth: int | None = None
        self._columns = columns
        self._n_rows = 0
        self._n_bytes = 0
        self.notes: list[str] = []

    def read(self) -> None:
        """Read to the end.

        Raises:
            RunFileError: The file is damaged, or a column is missing, ambiguous, of a wrong type or has nulls.
        """
        import pyarrow.parquet as pq

        self._source.line = None
        if self._source.is_plain:  # then only the columns that are kept are held
            size = sum(map(len, self._source.blocks()))
            data: str | pa.BufferReader = self._source.path
        else:
            whole = self._source.read_all()
            size, data = len(whole), pa.BufferReader(whole)
        try:
            file = pq.ParquetFile(data)
            names = self._find_columns(file.schema_arrow)
            told = (file.schema_arrow.metadata or {}).get(DEPTH_KEY.encode(), b"")
            self.search_depth = int(told) if re.fullmatch(rb"[1-9][0-9]{0,9}", told) else None
            ids = [name for what, name in names.items() if what != "score"]
            texts = [name for name in ids if not pa.types.is_integer(file.schema_arrow.field(name).type)]
            self._refuse_bomb(file.metadata, set(names.values()), size)
            file = pq.ParquetFile(data, read_dictionary=texts)  # a text of many rows is held once until it is measured
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(names.values()), use_threads=False):
                self._add(batch, names, size)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._source.error(
                f"damaged Parquet file ({' '.join(str(error).split())[:120]}); write it again"
            ) from error

    def _refuse_bomb(self, metadata: Any, names: set[str], n_compressed: int) -> None:
        """Refuse pages that would be unpacked beyond the limit; the file's own figures say how large each is."""
        n_bytes = 0
        for group in range(metadata.num_row_groups):
            columns = (metadata.row_group(group).column(at) for at in range(metadata.num_columns))
            n_bytes += sum(column.total_uncompressed_size for column in columns if column.path_in_schema in names)
        if n_bytes > max(FREE_BYTES, GROWTH_LIMIT * n_compressed):
            raise self._too_large()

    def _too_large(self) -> RunFileError:
        return self._source.error(
            f"decoded data passed {FREE_BYTES // 2**20} MiB and {GROWTH_LIMIT} times the file's size; stopped"
        )

    def _find_columns(self, schema: pa.Schema) -> dict[str, str]:
        wanted = {"query": _QUERY, "document": _DOCUMENT, "score": _SCORE}
        found = {what: self._find(schema, what, names) for what, names in wanted.items()}
        if _PASSAGE[0] in schema.names:
            found["passage"] = self._find(schema, "passage", _PASSAGE)
        for what, name in found.items():
            kind = schema.field(name).type
            if what != "score" and not _is_id(kind):
                raise self._source.error(f"column '{name}' holds {kind}; ids are strings or integers")
            if what == "score" and not _is_number(kind):
                raise self._source.error(f"column '{name}' holds {kind}; scores are numbers")
            if what != "score" and pa.types.is_integer(kind):
                self.notes.append(f"column '{name}' holds integers; they are read as text (7 is '7')")
        return found

    def _find(self, schema: pa.Schema, what: str, names: tuple[str, ...]) -> str:
        found: list[str] = [name for name in schema.names if name in names]
        if len(found) == 1:
            return found[0]
        has = ", ".join(schema.names[:12])
        if not found:
            raise self._source.error(f"no column for the {what}: expected {' or '.join(names)}; the file has {has}")
        raise self._source.error(f"columns {' and '.join(found)} could both be the {what}; keep one")

    def _add(self, batch: pa.RecordBatch, names: Mapping[str, str], n_compressed: int) -> None:
        self._n_bytes += sum(_decoded_bytes(batch.column(name)) for name in names.values())
        if self._n_bytes > max(FREE_BYTES, GROWTH_LIMIT * n_compressed):
            raise self._too_large()
        column = {what: _plain(batch.column(name), is_score=what == "score") for what, name in names.items()}
        for what, values in column.items():
            if values.null_count:
                row = self._n_rows + int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) + 1
                raise self._source.error(f"row {row}: column '{names[what]}' is null; every row needs a {what}")
            if what != "score" and (empty := pc.equal(values, "").to_numpy(zero_copy_only=False)).any():
                row = self._n_rows + int(np.flatnonzero(empty)[0]) + 1
                raise self._source.error(f"row {row}: column '{names[what]}' is empty; every row needs a {what}")
        runs = pc.run_end_encode(column["query"])
        ends = runs.run_ends.to_numpy()
        self._columns.add(
            list(zip(runs.values.to_pylist(), np.diff(ends, prepend=0).tolist(), strict=True)),
            column["document"],
            np.array(column["score"].to_numpy(zero_copy_only=False), dtype=np.float64),
            passage_ids=column.get("passage"),
        )
        self._n_rows += len(batch)


def _is_id(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_id(kind.value_type)
    return str(kind) in {"string", "large_string", "string_view"} or bool(pa.types.is_integer(kind))


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _decoded_bytes(values: pa.Array) -> int:
    """Return the bytes of ``values`` with each value written out, before that is done."""
    if not pa.types.is_dictionary(values.type) or pa.types.is_integer(values.type.value_type):
        return int(values.nbytes)
    lengths = pc.binary_length(values.dictionary).take(values.indices)
    return int(pc.sum(lengths.cast(pa.int64())).as_py() or 0) + 4 * len(values)


def _plain(values: pa.Array, *, is_score: bool) -> pa.Array:
    """Return ids as strings and scores as float64."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    values.validate(full=True)  # Parquet's strings may be no UTF-8
    # float64 rounds integers beyond 2^53, as it does in every other format
    return values.cast(pa.float64(), safe=False) if is_score else values.cast(pa.string())
