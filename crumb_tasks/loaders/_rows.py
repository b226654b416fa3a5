"""Rows of the file formats that benchmarks come in, with declared fields and without type inference.

``0012``, ``NA`` and ``null`` are texts. JSONL and TSV end a row at a line feed only, so that U+2028, U+0085 and NUL in
a text survive. Every complaint names file and line.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec

from crumb_tasks.errors import DataError, MissingExtraError, SchemaError

RowType = TypeVar("RowType")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Field:
    """One field that is read from a row.

    Attributes:
        name: Its upstream name.
        required: Where a row or header lacks it, the schema is another one; otherwise absent is ``""``.
        nullable: ``null`` becomes ``""``; otherwise it is refused.
        is_id: A JSON or Parquet integer becomes its decimal text; elsewhere it is refused.
    """

    name: str
    required: bool = True
    nullable: bool = False
    is_id: bool = False


Row = tuple[str, ...]
Progress = Callable[[int], object]


def read_rows(
    path: Path,
    fields: Sequence[Field],
    *,
    progress: Progress | None = None,
    form: str = "",
    header: Sequence[str] = (),
) -> Iterator[tuple[int, Row]]:
    """Yield ``(number, values)`` for each row of ``path``, by its suffix: jsonl, csv, tsv, parquet, json.

    The number is the line where the row begins (of a Parquet or JSON file: the row), counted from 1.

    Args:
        path: The file; gzip is recognised by its content.
        fields: What to read; other fields are skipped.
        progress: Called with the number of bytes read since the last call.
        form: One of these formats, where the suffix names another.
        header: The columns of a TSV file that has no header.

    Raises:
        SchemaError: A field is missing or is no text; the message names the fields that were found.
        DataError: A row is broken; the message names the line.
    """
    suffix = form or path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if header:
        return _read_tsv(path, fields, progress, header)
    if suffix not in _READERS:
        raise DataError(f"{path}: cannot tell the format from the name; known are {', '.join(_READERS)}")
    return _READERS[suffix](path, fields, progress)


def read_jsonl(
    path: Path, row_type: type[RowType], *, progress: Progress | None = None
) -> Iterator[tuple[int, RowType]]:
    """Yield ``(line, row)`` for each line of a JSONL file, decoded and checked as ``row_type`` (a `msgspec.Struct`).

    Raises:
        SchemaError: A field is missing or has another type; the message names the fields that were found.
        DataError: A line is no JSON.
    """
    decode = msgspec.json.Decoder(row_type).decode
    for number, line in _lines(path, progress):
        if not line or line.isspace():
            continue
        try:
            yield number, decode(line)
        except msgspec.ValidationError as error:
            raise SchemaError(f"{path}:{number}: {error}; {_found(line)}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}:{number}: not a JSON object in UTF-8 ({error})") from error


def read_structs(path: Path, row_type: type[RowType]) -> Iterator[tuple[int, RowType]]:
    """Yield ``(number, row)`` of a JSONL, JSON (one list) or Parquet file whose fields are nested, as ``row_type``.

    Args:
        path: The file.
        row_type: A `msgspec.Struct`; of a Parquet file only its columns are read.

    Raises:
        SchemaError: A field is missing or has another type; the message names what was found.
        DataError: The file is broken.
    """
    if path.suffix == ".parquet":
        yield from _structs_of_parquet(path, row_type)
    elif path.suffix == ".json":
        yield from enumerate(_decoded_list(path, row_type), start=1)
    else:
        yield from read_jsonl(path, row_type)


def _structs_of_parquet(path: Path, row_type: type[RowType]) -> Iterator[tuple[int, RowType]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
        found = ", ".join(f"{field.name} ({field.type})" for field in schema)
        declared = {field.encode_name for field in msgspec.structs.fields(cast(type[msgspec.Struct], row_type))}
        wanted = [name for name in schema.names if name in declared]
        number = 0
        for batch in file.iter_batches(batch_size=1 << 12, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                try:
                    yield number, msgspec.convert(row, row_type)
                except msgspec.ValidationError as error:
                    raise SchemaError(f"{path}: row {number}: {error}; found the columns {found}") from error


def read_xlsx(path: Path, sheet: str, columns: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Yield ``(row number, values)`` for the rows of one sheet, as text; an empty cell is an empty string.

    Raises:
        MissingExtraError: openpyxl is not installed.
        SchemaError: The sheet or a column is missing.
    """
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError(f"reading {path.name}", "xlsx") from error
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        if sheet not in book.sheetnames:
            raise SchemaError(f"{path}: no sheet '{sheet}'; found {', '.join(book.sheetnames)}")
        rows = book[sheet].iter_rows(values_only=True)
        header = ["" if cell is None else str(cell).strip() for cell in next(rows, ())]
        places = _places(path, header, [Field(name) for name in columns])
        for number, cells in enumerate(rows, start=2):
            if any(cell is not None for cell in cells):
                yield number, tuple("" if (cell := cells[place]) is None else str(cell) for place in places)
    finally:
        book.close()


def open_bytes(path: Path) -> IO[bytes]:
    """Open ``path`` for reading, unpacked where its content is gzip."""
    file = path.open("rb")
    is_gzip = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=file)) if is_gzip else file


def _lines(path: Path, progress: Progress | None) -> Iterator[tuple[int, bytes]]:
    pending = 0
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            if progress is not None and (pending := pending + len(line)) > 1 << 20:
                progress(pending)
                pending = 0
            yield number, (line.removeprefix(_BOM) if number == 1 else line)
    if progress is not None:
        progress(pending)


def _found(line: bytes) -> str:
    try:
        row = json.loads(line)
    except ValueError:
        return "the line is no JSON"
    return f"found {_listed(row)}" if isinstance(row, dict) else f"found a {type(row).__name__}, not an object"


def _listed(names: Sequence[str] | dict[str, Any]) -> str:
    return "the fields " + ", ".join(map(str, names)) if names else "no fields"


def _read_jsonl(path: Path, fields: Sequence[Field], progress: Progress | None) -> Iterator[tuple[int, Row]]:
    row_type = _struct(fields)
    take = _taker(fields)
    for number, row in read_jsonl(path, row_type, progress=progress):
        yield number, take(row)


def _struct(fields: Sequence[Field]) -> type[Any]:
    members: list[Any] = []
    for index, field in enumerate(fields):
        kind: Any = str | int if field.is_id else str
        kind = kind | None if field.nullable else kind
        members.append((f"f{index}", kind) if field.required else (f"f{index}", kind, ""))
    upstream = {f"f{index}": field.name for index, field in enumerate(fields)}
    return msgspec.defstruct("Row", members, rename=upstream, kw_only=True, gc=False)


def _taker(fields: Sequence[Field]) -> Callable[[Any], Row]:
    names = tuple(f"f{index}" for index in range(len(fields)))
    if not any(field.nullable or field.is_id for field in fields):
        return lambda row: tuple([getattr(row, name) for name in names])
    return lambda row: tuple(["" if (value := getattr(row, name)) is None else str(value) for name in names])


def _read_csv(path: Path, fields: Sequence[Field], progress: Progress | None) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(sys.maxsize)  # a document may be longer than the module's 128 KiB
    with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        number = 1
        try:
            header = next(reader, [])
            places = _places(path, header, fields)
            number = reader.line_num + 1
            for cells in reader:
                if cells:
                    yield number, _cells(path, number, cells, header, places)
                number = reader.line_num + 1
        except csv.Error as error:
            raise DataError(f"{path}:{number}: broken CSV row ({error})") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not UTF-8 after line {number} ({error.reason}); convert the file") from error
    if progress is not None:
        progress(path.stat().st_size)


def _read_tsv(
    path: Path, fields: Sequence[Field], progress: Progress | None, header: Sequence[str] = ()
) -> Iterator[tuple[int, Row]]:
    places = _places(path, header, fields) if header else []
    for number, line in _lines(path, progress):
        try:
            cells = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8").split("\t")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}:{number}: not UTF-8 ({error.reason})") from error
        if not header:
            header, places = cells, _places(path, cells, fields)
        elif cells != [""]:
            yield number, _cells(path, number, cells, header, places)


def _places(path: Path, header: Sequence[str], fields: Sequence[Field]) -> list[int]:
    missing = [field.name for field in fields if field.required and field.name not in header]
    if missing:
        raise SchemaError(f"{path}: no column {', '.join(map(repr, missing))}; found {_listed(header)}")
    return [header.index(field.name) if field.name in header else -1 for field in fields]


def _cells(path: Path, number: int, cells: Sequence[str], header: Sequence[str], places: Sequence[int]) -> Row:
    if len(cells) != len(header):
        raise DataError(f"{path}:{number}: expected {len(header)} fields, found {len(cells)}")
    return tuple("" if place < 0 else cells[place] for place in places)


def _read_parquet(path: Path, fields: Sequence[Field], progress: Progress | None) -> Iterator[tuple[int, Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        places = _places(path, names, fields)
        for field, place in zip(fields, places, strict=True):
            kind = file.schema_arrow.types[place] if place >= 0 else pa.string()
            is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
            if not is_text and not (field.is_id and pa.types.is_integer(kind)):
                raise SchemaError(f"{path}: column '{field.name}' is {kind}, not text")
        number = 0
        wanted = [names[place] for place in places if place >= 0]
        for batch in file.iter_batches(batch_size=1 << 14, columns=wanted):
            columns = [
                batch.column(field.name).cast(pa.string()).to_pylist() if place >= 0 else [""] * len(batch)
                for field, place in zip(fields, places, strict=True)
            ]
            for row in zip(*columns, strict=True):
                number += 1
                yield number, _not_null(path, number, row, fields)
            if progress is not None:
                progress(batch.nbytes)


def _read_json(path: Path, fields: Sequence[Field], progress: Progress | None) -> Iterator[tuple[int, Row]]:
    take = _taker(fields)
    for number, row in enumerate(_decoded_list(path, _struct(fields)), start=1):
        yield number, take(row)
    if progress is not None:
        progress(path.stat().st_size)


def _decoded_list(path: Path, row_type: type[RowType]) -> list[RowType]:
    with open_bytes(path) as file:
        content = file.read().removeprefix(_BOM)
    try:
        return msgspec.json.decode(content, type=list[row_type])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise SchemaError(f"{path}: {error}; {_found_in_list(content)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a JSON list in UTF-8 ({error})") from error


def _found_in_list(content: bytes) -> str:
    """Return what the first row of a JSON list holds."""
    rows = json.loads(content)
    if not isinstance(rows, list):
        return f"found a {type(rows).__name__}, not a list"
    first = rows[0] if rows else None
    return f"found {_listed(first)}" if isinstance(first, dict) else f"found a list of {type(first).__name__}"


def _not_null(path: Path, number: int, row: Sequence[str | None], fields: Sequence[Field]) -> Row:
    for field, value in zip(fields, row, strict=True):
        if value is None and not field.nullable:
            raise SchemaError(f"{path}: row {number}: '{field.name}' is null")
    return tuple("" if value is None else value for value in row)


_READERS: dict[str, Callable[[Path, Sequence[Field], Progress | None], Iterator[tuple[int, Row]]]] = {
    "jsonl": _read_jsonl,
    "ndjson": _read_jsonl,
    "csv": _read_csv,
    "tsv": _read_tsv,
    "parquet": _read_parquet,
    "json": _read_json,
}
