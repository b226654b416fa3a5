"""`Run` → a file in any format, written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa

from crumb_tasks.errors import RunError, UsageError
from crumb_tasks.files import output
from crumb_tasks.runfiles.detection import FORMATS, Format, check_format
from crumb_tasks.runfiles.parquet import DEPTH_KEY
from crumb_tasks.runs import Run

_SUFFIXES: dict[str, Format] = {
    ".trec": "trec",
    ".run": "trec",
    ".txt": "trec",
    ".tsv": "trec",
    ".jsonl": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_NOT_WRITTEN = frozenset({".bz2", ".xz", ".lzma", ".zip", ".7z", ".lz4", ".br", ".z", ".tgz"})


def format_by_name(path: Path | str) -> Format:
    """Return the format that a file to be written has by its name.

    Raises:
        UsageError: The name tells none.
    """
    _refuse_compression(path)
    names = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() not in _COMPRESSIONS]
    if f"{path}".removesuffix(".gz").removesuffix(".zst").endswith("_predictions.json"):
        return "mteb"
    if not names or names[-1] not in _SUFFIXES:
        raise UsageError(f"the name of '{path}' tells no format; name one with --to {', '.join(FORMATS)}")
    return _SUFFIXES[names[-1]]


def write_run(
    run: Run,
    path: Path | str,
    format: str = "auto",  # noqa: A002
    *,
    tag: str = "crumb_tasks",
    split: str = "test",
    subset: str = "default",
    depth: int | None = None,
) -> None:
    """Write ``run`` to ``path``, which is replaced when all of it is written; ``.gz`` and ``.zst`` are compressed.

    Winning passages are kept by ``jsonl`` and ``parquet`` (``passage_id``); the other formats have no place for them.
    Empty rankings have no place in ``trec`` and ``parquet``; scoring counts an empty ranking and a missing one alike.

    Args:
        run: The rankings.
        path: The file; ``-`` is standard output.
        format: ``auto`` tells by name: ``.trec .run .txt .tsv``, ``.jsonl``, ``.json``, ``_predictions.json``,
            ``.parquet``.
        tag: The system's name: the last column of TREC, the model's name in MTEB's predictions.
        split: The split in MTEB's predictions.
        subset: The subset in MTEB's predictions.
        depth: How deep the search went, which MTEB's predictions and Parquet keep.

    Raises:
        RunError: The format cannot hold an id or a score; the message names the offender and a format that can.
        UsageError: The name tells no format, or there is no such format, or the file cannot be written.
    """
    _refuse_compression(path)
    kind = check_format(format) or format_by_name(path)
    compression = _COMPRESSIONS.get(Path(path).suffix.lower())
    _refuse_what_cannot_be_written(run, kind, tag)
    with output(path) as handle:
        stream: Any = nullcontext(handle)
        if compression is not None:
            stream = pa.CompressedOutputStream(pa.PythonFile(_LeftOpen(handle), mode="w"), compression)
        with stream as target:
            if kind == "parquet":
                _write_parquet(run, target, depth)
                return
            meta = {"model_name": tag, "revision": None} | ({} if depth is None else {"depth": depth})
            for piece in _pieces(run, kind, tag, meta, (subset, split)):
                target.write(piece)


def _refuse_compression(path: Path | str) -> None:
    """Refuse a name that promises a compression which is not written."""
    ending = Path(path).suffix.lower()
    if ending in _NOT_WRITTEN:
        raise UsageError(f"'{path}': files are not compressed as {ending}; name it {' or '.join(_COMPRESSIONS)}")


def has_place_for_passages(format: Format) -> bool:  # noqa: A002
    """Return whether ``format`` keeps winning passages."""
    return format in {"jsonl", "parquet"}


def _refuse_what_cannot_be_written(run: Run, kind: Format, tag: str) -> None:
    if kind == "trec":
        for what, ids in (("query", run.query_ids), ("document", _used_documents(run))):
            for name in ids:
                raw = name.encode()
                if raw.split() != [raw] or b"\0" in raw:  # what parts columns is ASCII, as for trec_eval
                    raise RunError(
                        f"TREC cannot hold the {what} id {name!a}, which has whitespace; write JSONL instead"
                    )
        if run.query_ids and run.query_ids[0].startswith("\ufeff"):
            raise RunError(
                f"TREC cannot hold the query id {run.query_ids[0]!a} first, where it begins with a byte order mark; "
                "write JSONL instead"
            )
        if tag.split() != [tag]:
            raise UsageError(f"the tag '{tag}' has whitespace, which TREC cannot hold")
    if kind in {"jsonl", "json", "mteb"} and not np.isfinite(run.scores).all():
        row = int(np.flatnonzero(~np.isfinite(run.scores))[0])
        query_id = run.query_ids[int(run.row_queries[row])]
        raise RunError(
            f"query '{query_id}': JSON cannot hold the infinite score of '{run.documents.ids[run.codes[row]]}'; "
            "write TREC or Parquet"
        )


def _used_documents(run: Run) -> Iterator[str]:
    yield from run.documents.decode(np.unique(run.codes)).to_pylist()


def _rankings(run: Run) -> Iterator[tuple[str, list[str], list[float], list[str] | None]]:
    bounds = run.offsets.tolist()
    for query_id, start, end in zip(run.query_ids, bounds, bounds[1:], strict=False):
        ids = run.documents.decode(run.codes[start:end]).to_pylist()
        passages = None
        if run.passages is not None and run.passage_codes is not None:
            passages = run.passages.decode(run.passage_codes[start:end]).to_pylist()
        yield query_id, ids, run.scores[start:end].tolist(), passages


def _pieces(run: Run, kind: Format, tag: str, meta: Mapping[str, Any], part: tuple[str, str]) -> Iterator[bytes]:
    if kind == "trec":
        for query_id, ids, scores, _ in _rankings(run):
            rows = zip(ids, scores, strict=True)
            lines = [f"{query_id} Q0 {doc_id} {rank} {score!r} {tag}\n" for rank, (doc_id, score) in enumerate(rows, 1)]
            yield "".join(lines).encode("utf-8")
    elif kind == "jsonl":
        for query_id, ids, scores, passages in _rankings(run):
            yield msgspec.json.encode({"query": {"id": query_id}, "items": _items(ids, scores, passages)}) + b"\n"
    elif kind == "json":
        yield from _nested(run)
        yield b"\n"
    else:
        yield b'{"mteb_model_meta": %b, %b: {%b: ' % tuple(map(msgspec.json.encode, (meta, *part)))
        yield from _nested(run)
        yield b"}}\n"


def _items(ids: list[str], scores: list[float], passages: list[str] | None) -> list[dict[str, Any]]:
    if passages is None:
        return [{"id": doc_id, "score": score} for doc_id, score in zip(ids, scores, strict=True)]
    rows = zip(ids, scores, passages, strict=True)
    return [{"id": doc_id, "score": score, "passage_id": passage_id} for doc_id, score, passage_id in rows]


def _nested(run: Run) -> Iterator[bytes]:
    yield b"{"
    for at, (query_id, ids, scores, _) in enumerate(_rankings(run)):
        comma = b",\n" if at else b""
        yield comma + msgspec.json.encode(query_id) + b": " + msgspec.json.encode(dict(zip(ids, scores, strict=True)))
    yield b"}"


def _write_parquet(run: Run, handle: Any, depth: int | None) -> None:
    import pyarrow.parquet as pq

    columns = {
        "query_id": pa.DictionaryArray.from_arrays(
            pa.array(run.row_queries.astype(np.int32)), pa.array(run.query_ids, pa.string())
        ),
        "doc_id": pa.DictionaryArray.from_arrays(pa.array(run.codes), run.documents.ids),
        "score": pa.array(run.scores),
    }
    if run.passages is not None and run.passage_codes is not None:
        columns["passage_id"] = pa.DictionaryArray.from_arrays(pa.array(run.passage_codes), run.passages.ids)
    metadata = None if depth is None else {DEPTH_KEY: f"{depth}"}
    pq.write_table(pa.table(columns, metadata=metadata), handle, compression="zstd")


class _LeftOpen:
    """A handle that Arrow's stream, which closes what it writes to, leaves open."""

    closed = False

    def __init__(self, handle: IO[bytes]) -> None:
        self.write = handle.write
        self.flush = handle.flush

    def close(self) -> None:
        """Leave the handle to its owner."""
