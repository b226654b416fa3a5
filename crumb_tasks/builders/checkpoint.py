"""What a build writes: tables in parts, so that one that stops goes on where it was.

A part is as large as its rows make it, never as the interruption: a build that was resumed ends with the same bytes as
one that ran through. Memory holds one part.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from crumb_tasks.files import written_whole
from crumb_tasks.loaders._manifest import MANIFEST, BuiltFile, Manifest, sha256_of, write_manifest

PART_CHARACTERS = 16 << 20
PART_ROWS = 20_000
SCHEMAS: Mapping[str, pa.Schema] = {
    "corpus": pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "title", "text")]),
    "queries": pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "text")]),
    "qrels": pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=False) for name in ("query-id", "corpus-id")),
            pa.field("score", pa.int64(), nullable=False),
            pa.field("subset", pa.string(), nullable=False),
        ]
    ),
    "train": pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("query-id", "text", "corpus-id")]),
}
"""The tables of a built collection; ``train`` has a row for each training query and document."""


class Checkpoint:
    """The tables of a build that may stop at any time.

    Args:
        target: The folder of the finished collection; parts lie in ``.building`` below it.
        identity: What is built from what; parts of another build are thrown away.
    """

    def __init__(self, target: Path, identity: str) -> None:
        self._target = target
        self._folder = target / ".building"
        self._identity = identity
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMAS}
        self._size = 0
        self._n_parts = 0
        self.state: dict[str, Any] = {}
        """What the builder left when the last part was written; empty at the beginning."""
        self._resume()

    def _resume(self) -> None:
        file = self._folder / "state.json"
        try:
            stored = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        except (FileNotFoundError, msgspec.MsgspecError):
            stored = {}
        if stored.get("identity") != self._identity:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        self._n_parts, self.state = stored["n_parts"], stored["state"]

    def add(self, table: str, row: Sequence[Any]) -> None:
        """Add one row to the part in memory."""
        self._rows[table].append(tuple(row))
        self._size += sum(len(value) for value in row if isinstance(value, str))

    @property
    def is_due(self) -> bool:
        """Whether the part in memory is large enough to be written."""
        return self._size >= PART_CHARACTERS or sum(map(len, self._rows.values())) >= PART_ROWS

    def save(self, state: dict[str, Any]) -> None:
        """Write the part in memory, then ``state``, which stands for everything up to here."""
        for name, rows in self._rows.items():
            if rows:
                columns = [
                    pa.array(column, kind)
                    for column, kind in zip(zip(*rows, strict=True), SCHEMAS[name].types, strict=True)
                ]
                with written_whole(self._part(name, self._n_parts)) as file:
                    pq.write_table(pa.table(columns, schema=SCHEMAS[name]), file, compression="zstd")
                rows.clear()
        self._size = 0
        self._n_parts += 1
        content = {"identity": self._identity, "n_parts": self._n_parts, "state": state}
        with written_whole(self._folder / "state.json") as file:
            file.write(msgspec.json.encode(content))
        self.state = state

    def column(self, table: str, name: str) -> Iterator[str]:
        """Yield one column of what was written before."""
        for path in self._parts(table):
            yield from pq.read_table(path, columns=[name]).column(name).to_pylist()

    def _part(self, table: str, number: int) -> Path:
        return self._folder / f"{table}-{number:05d}.parquet"

    def _parts(self, table: str) -> list[Path]:
        return [path for number in range(self._n_parts) if (path := self._part(table, number)).is_file()]

    def finish(
        self, *, recipe: str, version: int, inputs: Sequence[BuiltFile], counts: dict[str, int], notes: Sequence[str]
    ) -> Manifest:
        """Join the parts, write the manifest last, and remove the parts."""
        files = []
        for name, schema in SCHEMAS.items():
            path = self._target / f"{name}.parquet"
            n_rows = 0
            with written_whole(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for part in self._parts(name):
                    table = pq.read_table(part, schema=schema)
                    n_rows += len(table)
                    writer.write_table(table)
            files.append(BuiltFile(path.name, path.stat().st_size, sha256_of(path), n_rows))
        manifest = Manifest(recipe, version, tuple(inputs), tuple(files), counts, tuple(notes))
        with written_whole(self._target / MANIFEST) as file:
            file.write(write_manifest(manifest))
        shutil.rmtree(self._folder)
        return manifest
