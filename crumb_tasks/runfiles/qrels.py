"""Judgements from a file: TREC qrels, tab-separated with a header (BEIR), or ``{query: {document: grade}}``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.files import printable
from crumb_tasks.runfiles.compression import RunBytes

_HEADER = {
    "query": ("query-id", "query_id", "qid", "q_id", "query"),
    "document": ("corpus-id", "corpus_id", "doc_id", "docid", "docno", "document_id", "doc-id", "pid"),
    "grade": ("score", "relevance", "rel", "label", "grade", "relevance_label"),
}
_EXPECTED = "expected TREC qrels (query iteration document grade), tab-separated values with a header, or JSON"
_HIGHEST = 2**31 - 1
_Row = tuple[int | None, str, str, Any]


def read_qrels(path: Path | str) -> Qrels:
    """Read judgements; the format is told by content, gzip and zstd by magic bytes.

    Equal judgements that stand there twice are dropped and counted, different ones refused.

    Raises:
        RunFileError: The file cannot be read, a grade is no integer, or two judgements of a document differ.
    """
    with RunBytes(path) as source:
        head = source.peek().lstrip()
        if not head:
            raise source.error("the file is empty; judgements need at least one row", 1)
        rows = _json_rows(source) if head.startswith(b"{") else _text_rows(source)
        return _gather(source, rows)


def collection_of(path: Path | str) -> Collection:
    """Return a collection of which only the judgements are known; errors as `read_qrels`."""
    qrels = read_qrels(path)
    notes = []
    if qrels.n_repeated:
        notes.append(f"{qrels.n_repeated} judgements stand in '{printable(path)}' more than once and were dropped")
    empty = pa.array([], type=pa.string())
    ids = pa.array(qrels.query_ids, type=pa.string())
    return Collection(
        name=printable(Path(path).name),
        split="all",
        corpus=pa.table({"id": empty, "title": empty, "text": empty}),
        queries=pa.table({"id": ids, "text": pa.array([""] * len(ids), type=pa.string())}),
        qrels={"graded": qrels},
        notes=tuple(notes),
    )


def _gather(source: RunBytes, rows: Iterator[_Row]) -> Qrels:
    seen: dict[tuple[str, str], tuple[int, int | None]] = {}
    position: dict[str, int] = {}
    index: list[int] = []
    doc_ids: list[str] = []
    grades: list[int] = []
    for line, query_id, doc_id, value in rows:
        grade = _grade(source, line, query_id, doc_id, value)
        before = seen.setdefault((query_id, doc_id), (grade, line))
        if before[0] != grade:
            where = f" (line {before[1]})" if before[1] not in {None, line} else ""
            raise source.error(
                f"query '{query_id}' judges document '{doc_id}' twice, as {before[0]}{where} and as {grade}; keep one",
                line,
            )
        index.append(position.setdefault(query_id, len(position)))
        doc_ids.append(doc_id)
        grades.append(grade)
    if not grades:
        raise source.error("the file holds no judgement")
    return Qrels.from_columns(list(position), pa.array(index).to_numpy(), doc_ids, grades, name=source.path)


def _grade(source: RunBytes, line: int | None, query_id: str, doc_id: str, value: Any) -> int:
    try:
        number = float(value)
        if not isinstance(value, bool) and abs(number) <= _HIGHEST and number == int(number) and "_" not in f"{value}":
            return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    what = f"query '{query_id}', document '{doc_id}': grade {value!a}"
    raise source.error(f"{what} is no integer between -{_HIGHEST} and {_HIGHEST}; correct it", line)


def _text_rows(source: RunBytes) -> Iterator[_Row]:
    columns: tuple[int, int, int] | None = None
    n_columns, split_at = 0, None
    for line, raw in source.lines():
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise source.error(
                f"byte {error.start + 1} of the line is not UTF-8; convert the file: iconv -f LATIN1 -t UTF-8", line
            ) from error
        if not text.strip():
            continue
        fields = text.rstrip("\r\n").split("\t") if split_at or columns is None else text.split()
        if columns is None:
            columns, is_header = _find_columns(source, line, text, fields)
            split_at = "\t" if is_header else None
            n_columns = len(fields) if is_header else 4
            if is_header:
                continue
            fields = text.split()
        if len(fields) != n_columns:
            raise source.error(f"expected {n_columns} columns, found {len(fields)}; {_EXPECTED}", line)
        query, document, grade = (fields[column] for column in columns)
        if not query or not document:
            raise source.error("an id is empty; every judgement needs a query and a document", line)
        yield line, query, document, grade


def _find_columns(source: RunBytes, line: int, text: str, fields: list[str]) -> tuple[tuple[int, int, int], bool]:
    names = [field.strip().casefold() for field in fields]
    found = {what: [at for at, name in enumerate(names) if name in known] for what, known in _HEADER.items()}
    if all(len(at) == 1 for at in found.values()):
        return (found["query"][0], found["document"][0], found["grade"][0]), True
    if any(found.values()):
        lacking = " and ".join(what for what, at in found.items() if len(at) != 1)
        raise source.error(
            f"the header '{text.strip()[:80]}' does not name one column for {lacking}; {_EXPECTED}", line
        )
    if len(text.split()) != 4:
        raise source.error(_no_columns(text), line)
    return (0, 2, 3), False


def _no_columns(text: str) -> str:
    if "\r" in text.rstrip("\r\n"):
        return "line ends are bare CR; convert them to LF"
    n_columns = len(text.split())
    if text.lstrip().startswith("["):
        return f"the file is a JSON list; {_EXPECTED}"
    if n_columns == 1 and "," in text:
        return f"comma-separated values are not read; {_EXPECTED}"
    return f"found {n_columns} column{'s' if n_columns != 1 else ''} and no header; {_EXPECTED}"


def _json_rows(source: RunBytes) -> Iterator[_Row]:
    data = source.read_all()
    try:
        pairs = json.loads(data.decode("utf-8"), object_pairs_hook=tuple)
    except UnicodeDecodeError as error:
        raise source.error("the file is not UTF-8; convert it: iconv -f LATIN1 -t UTF-8") from error
    except json.JSONDecodeError as error:
        raise source.error(f"no JSON ({error.msg}); {_EXPECTED}", error.lineno) from error
    except (RecursionError, ValueError) as error:
        raise source.error(f"no JSON that holds judgements ({type(error).__name__}); {_EXPECTED}", 1) from error
    seen: set[str] = set()
    for query_id, grade_by_doc in pairs:
        if query_id in seen:
            raise source.error(f"the key '{query_id}' stands twice; give each query one object", 1)
        seen.add(query_id)
        if not isinstance(grade_by_doc, tuple):
            raise source.error(f"query '{query_id}' holds no object of documents and grades; {_EXPECTED}", 1)
        for doc_id, grade in grade_by_doc:
            if not _is_text(query_id) or not _is_text(doc_id):
                raise source.error(f"the id {doc_id!a} of query {query_id!a} is empty or no text", 1)
            yield None, query_id, doc_id, grade


def _is_text(value: str) -> bool:
    try:
        return bool(value.encode())
    except UnicodeEncodeError:
        return False
