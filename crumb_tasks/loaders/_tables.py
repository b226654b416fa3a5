"""Corpora and queries as Arrow tables: normalised while they are read, big ones kept memory-mapped.

A file of at least `KEPT_FROM` bytes is turned into an Arrow IPC file in the cache folder, batch by batch, so that no
load holds its text in memory and a second one reads nothing. Its name is a digest of the source's path, size and time
and of everything that decides what is read; it appears when it is whole and checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crumb_tasks.errors import DataError
from crumb_tasks.files import written_whole
from crumb_tasks.loaders._rows import Field, Progress, Row, read_rows
from crumb_tasks.sources import cache_dir

KEPT_FROM = 32 << 20
_FORMAT = "1"  # raise it when what a kept file holds changes
_BATCH_ROWS = 1 << 13
_BATCH_BYTES = 16 << 20  # bounds memory; one chunk of Arrow's string type could address 2 GiB


@dataclass(frozen=True)
class Layout:
    """Which upstream fields become which columns.

    Attributes:
        id: Field of the id; empty where documents are numbered by their place, from 0.
        text: Field of the text; null counts as empty.
        title: Field of the title, if the format has one; absent and null count as empty.
        parent: Field of a passage's document; where it is null the passage stands for itself.
        more: Further upstream fields, kept under their own names; absent and null are ``""``.
        form: The file's format, where its name tells another.
        header: The columns of a TSV file without a header.
    """

    id: str
    text: str
    title: str | None = None
    parent: str | None = None
    more: tuple[str, ...] = ()
    form: str = ""
    header: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        """What is read from each row, in the order of `columns`."""
        title = () if self.title is None else (Field(self.title, required=False, nullable=True),)
        parent = () if self.parent is None else (Field(self.parent, nullable=True, is_id=True),)
        return (
            *((Field(self.id, is_id=True),) if self.id else ()),
            Field(self.text, nullable=True),
            *title,
            *parent,
            *(Field(name, required=False, nullable=True) for name in self.more),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in the order of `fields`."""
        named = (("title", self.title), ("parent", self.parent))
        return ("id", "text", *(name for name, field in named if field is not None), *self.more)


@dataclass(frozen=True, eq=False)
class TextTable:
    """A normalised table and what normalising it found.

    Attributes:
        table: String columns without nulls: ``id``, ``title`` (corpora), ``text``, ``parent`` where the layout has one.
        n_empty: Rows whose text (and title) was blank and carries the placeholder.
        n_orphans: Rows whose parent was null.
    """

    table: pa.Table
    n_empty: int
    n_orphans: int = 0


def read_corpus(path: Path, layout: Layout, *, empty_text: str, kept_from: int | None = None) -> TextTable:
    """Read a corpus: ``id``, ``title`` (``""`` where there is none), ``text`` and what else ``layout`` names.

    Args:
        path: The file, in any format of `read_rows`.
        layout: Which field is what.
        empty_text: Stands for a text that is blank when the title is blank as well.
        kept_from: Files of at least this size are kept as memory-mapped Arrow.

    Raises:
        DataError: An id occurs twice or is empty; the message names both lines.
        SchemaError: As `read_rows`.
    """
    if path.stat().st_size < (KEPT_FROM if kept_from is None else kept_from):
        batches = _Batches(path, layout, empty_text)
        table = pa.Table.from_batches(list(batches), schema=batches.schema)
        _refuse_repeated_ids(table.column("id"), path, layout)
        return TextTable(table, batches.n_empty, batches.n_orphans)
    kept = _kept_path(path, layout, empty_text)
    if not kept.is_file():
        try:
            _keep(path, layout, empty_text, kept)
        except OSError as error:
            raise DataError(
                f"cannot turn {path} into Arrow in {kept.parent} ({error}); let CRUMB_TASKS_CACHE name a roomy folder"
            ) from error
    return _read_kept(kept)


def read_queries(path: Path, layout: Layout, *, empty_text: str) -> TextTable:
    """Read queries: ``id``, ``text`` and what else ``layout`` names; errors as `read_corpus`."""
    found = read_corpus(path, layout, empty_text=empty_text, kept_from=1 << 62)
    return replace(found, table=found.table.drop_columns("title")) if layout.title is None else found


def text_table(columns: Mapping[str, Sequence[str]], *, empty_text: str, where: str) -> TextTable:
    """Build a normalised table from columns in memory; ``id`` and ``text`` are needed.

    Raises:
        DataError: An id occurs twice; the message names both rows and ``where``.
    """
    texts = list(columns["text"])
    titles = columns.get("title", [""] * len(texts))
    blank = [not text.strip() and not title.strip() for text, title in zip(texts, titles, strict=True)]
    texts = [empty_text if is_blank else text for text, is_blank in zip(texts, blank, strict=True)]
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in columns])
    table = pa.table({**columns, "text": texts}, schema=schema)
    _refuse_repeated_rows(table, where)
    return TextTable(table, sum(blank))


class _Batches:
    """Normalised record batches of one file; the counts are complete when the iteration ends."""

    def __init__(self, path: Path, layout: Layout, empty_text: str, progress: Progress | None = None) -> None:
        rows = read_rows(path, layout.fields, progress=progress, form=layout.form, header=layout.header)
        self._rows = rows if layout.id else _numbered(rows)
        self._path = path
        self._layout = layout
        self._empty_text = empty_text
        self._id_first = layout.columns.index("id")
        names = [name for name in layout.columns if name not in {"id", "text", "title"}]
        self.names = ("id", "title", "text", *names)
        self.schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in self.names])
        self.n_empty = 0
        self.n_orphans = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        rows: list[Row] = []
        size = 0
        for number, row in self._rows:
            if not row[0]:
                raise DataError(f"{self._path}:{number}: the id is empty")
            rows.append(row)
            size += len(row[1])
            if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield self._batch(rows)
                rows, size = [], 0
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        values = dict(zip(self._layout.columns, map(list, zip(*rows, strict=True)), strict=True))
        titles = values.setdefault("title", [""] * len(rows))
        texts = values["text"]
        for index, (text, title) in enumerate(zip(texts, titles, strict=True)):
            if (not text or text.isspace()) and not title.strip():
                texts[index] = self._empty_text
                self.n_empty += 1
        if self._layout.parent is not None:
            parents = values["parent"]
            self.n_orphans += parents.count("")
            values["parent"] = [parent or id_ for parent, id_ in zip(parents, values["id"], strict=True)]
        return pa.record_batch([pa.array(values[name], pa.string()) for name in self.names], schema=self.schema)


def _numbered(rows: Iterator[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
    for place, (number, row) in enumerate(rows):
        yield number, (str(place), *row)


def _kept_path(path: Path, layout: Layout, empty_text: str) -> Path:
    real = path.resolve()
    state = real.stat()
    what = hashlib.sha256(repr((_FORMAT, str(real), layout, empty_text)).encode()).hexdigest()[:16]
    when = hashlib.sha256(repr((state.st_size, state.st_mtime_ns)).encode()).hexdigest()[:12]
    return cache_dir() / "tables" / f"{what}-{when}.arrow"


def _keep(path: Path, layout: Layout, empty_text: str, kept: Path) -> None:
    from tqdm import tqdm

    with (
        tqdm(
            total=path.stat().st_size,
            unit="B",
            unit_scale=True,
            desc=f"reading {path.parent.name}/{path.name}",
            disable=None,
        ) as bar,
        written_whole(kept) as file,
    ):
        batches = _Batches(path, layout, empty_text, progress=bar.update)
        ids: list[pa.Array] = []
        with pa.ipc.new_file(file, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                ids.append(batch.column("id"))
            _refuse_repeated_ids(pa.chunked_array(ids, pa.string()), path, layout)
            counts = {"n_empty": str(batches.n_empty), "n_orphans": str(batches.n_orphans)}
            nothing = pa.RecordBatch.from_pylist([], schema=batches.schema)
            writer.write_batch(nothing, custom_metadata=counts)
    for old in kept.parent.glob(f"{kept.name.partition('-')[0]}-*.arrow"):
        if old != kept:
            old.unlink(missing_ok=True)


def _read_kept(kept: Path) -> TextTable:
    reader = pa.ipc.open_file(pa.memory_map(str(kept)))
    _, counts = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
    return TextTable(reader.read_all(), int(counts[b"n_empty"]), int(counts[b"n_orphans"]))


def _refuse_repeated_ids(ids: pa.ChunkedArray, path: Path, layout: Layout) -> None:
    repeated = first_repeated(ids)
    if repeated is None:
        return
    rows = read_rows(path, layout.fields, form=layout.form, header=layout.header)
    lines = [(number, row[1]) for number, row in rows if row[0] == repeated]
    (first, text), (second, other) = lines[:2]
    texts = "the same text" if text == other else "different texts"
    raise DataError(f"{path}: the id '{repeated}' stands in lines {first} and {second}, with {texts}; keep one of them")


def _refuse_repeated_rows(table: pa.Table, where: str) -> None:
    repeated = first_repeated(table.column("id"))
    if repeated is not None:
        first, second = np.flatnonzero(pc.equal(table.column("id"), repeated).to_numpy())[:2].tolist()
        texts = "the same text" if table["text"][first].equals(table["text"][second]) else "different texts"
        raise DataError(
            f"{where}: the id '{repeated}' stands in rows {first + 1} and {second + 1}, with {texts}; keep one of them"
        )


def first_repeated(ids: pa.ChunkedArray) -> str | None:
    """Return an id that occurs more than once, or ``None``."""
    if pc.count_distinct(ids).as_py() == len(ids):
        return None
    counted = pc.value_counts(ids.combine_chunks())
    repeated = counted.filter(pc.greater(counted.field("counts"), 1))
    return str(repeated.field("values")[0].as_py())
