"""A collection written for other tools: TREC topics, qrels and corpus, or a BEIR folder.

``trec`` is what Anserini, PyTerrier and ir_measures read: ``topics.tsv`` (id, tab, text), ``qrels.txt`` (and
``qrels.binary.txt`` where there are such labels) and ``corpus/corpus.jsonl`` (``id``, ``contents``). ``beir`` is what
`loaders.beir` and the BEIR package read. Files appear when they are whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.files import written_whole

Format = Literal["trec", "beir"]
_BREAKS = re.compile(r"[\t\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_WHITE_SPACE = r"[\s\pZ\x0b\x1c-\x1f\x{85}]"  # what str.split() splits at, in RE2's notation
_BATCH_ROWS = 1 << 13


def export(collection: Collection, task: TaskCard, kind: Format, folder: Path) -> list[Path]:
    """Write ``collection`` into ``folder`` and return the files.

    For MaxP tasks the corpus holds passages, the judgements name documents, and ``parents.tsv`` maps one to the other.

    Args:
        collection: What is written.
        task: Its card; the template ``query_text`` makes the topics' text.
        kind: ``trec`` or ``beir``.
        folder: Made when it is missing; files of the same name are replaced.

    Raises:
        UsageError: An unknown format, or texts that are decoded in memory only.
        DataError: An id has white space, which TREC's files cannot hold.
    """
    writers: dict[str, Callable[[Collection, TaskCard, Path], list[Path]]] = {
        "trec": _export_trec,
        "beir": _export_beir,
    }
    if kind not in writers:
        raise UsageError(f"unknown export format '{kind}'; there are {' and '.join(writers)}")
    if collection.in_memory_only:
        raise UsageError(f"{collection.name} is not exported: its texts are published obfuscated and stay in memory")
    return writers[kind](collection, task, folder)


def query_texts(collection: Collection, task: TaskCard) -> list[str]:
    """Return each query's text as the card's template ``query_text`` makes it."""
    return [task.query_text.format_map(row) for row in collection.queries.to_pylist()]


def _export_trec(collection: Collection, task: TaskCard, folder: Path) -> list[Path]:
    for ids in (collection.queries.column("id"), collection.corpus.column("id"), collection.graded.documents.ids):
        _refuse_white_space(ids)
    query_ids = collection.queries.column("id").to_pylist()
    texts = query_texts(collection, task)
    written = [
        _write(
            folder / "topics.tsv", (f"{one}\t{_one_line(text)}\n" for one, text in zip(query_ids, texts, strict=True))
        )
    ]
    for family, qrels in collection.qrels.items():
        name = "qrels.txt" if family == "graded" else f"qrels.{family}.txt"
        lines = (f"{query_id} 0 {doc_id} {grade}\n" for query_id, doc_id, grade in _judgements(qrels))
        written.append(_write(folder / name, lines))
    if "prompt" in collection.queries.column_names:
        prompts = collection.queries.column("prompt").to_pylist()
        lines = (f"{one}\t{_one_line(text)}\n" for one, text in zip(query_ids, prompts, strict=True))
        written.append(_write(folder / "prompts.tsv", lines))
    contents = (
        _json({"id": one, "contents": f"{title}\n{text}" if title else text})
        for one, title, text in _documents(collection)
    )
    written.append(_write(folder / "corpus" / "corpus.jsonl", contents))
    if collection.candidates is not None:
        pairs = ((one, doc_id) for one, ids in collection.candidates.items() for doc_id in ids)
        written.append(_write(folder / "candidates.tsv", (f"{one}\t{doc_id}\n" for one, doc_id in pairs)))
    return written + _export_parents(collection, folder) + _export_exclusions(collection, task, folder)


def _export_beir(collection: Collection, task: TaskCard, folder: Path) -> list[Path]:
    rows = zip(collection.queries.to_pylist(), query_texts(collection, task), strict=True)
    queries = (
        _json({"_id": row["id"], "text": text} | ({"prompt": row["prompt"]} if "prompt" in row else {}))
        for row, text in rows
    )
    parents = collection.parents
    documents = (_json({"_id": one, "title": title, "text": text}) for one, title, text in _documents(collection))
    if parents is not None:
        stands_for = iter(_values(parents))
        documents = (
            _json({"_id": one, "title": title, "text": text, "parent_id": next(stands_for)})
            for one, title, text in _documents(collection)
        )
    written = [_write(folder / "corpus.jsonl", documents), _write(folder / "queries.jsonl", queries)]
    for family, qrels in collection.qrels.items():
        name = f"{collection.split}.tsv" if family == "graded" else f"{collection.split}.{family}.tsv"
        written.append(_write(folder / "qrels" / name, _beir_qrels(qrels)))
    if collection.candidates is not None:
        ranked = (_json({"query-id": one, "corpus-ids": list(ids)}) for one, ids in collection.candidates.items())
        written.append(_write(folder / "top_ranked.jsonl", ranked))
    return written + _export_exclusions(collection, task, folder)


def _export_parents(collection: Collection, folder: Path) -> list[Path]:
    if collection.parents is None:
        return []
    pairs = zip(_values(collection.corpus.column("id")), _values(collection.parents), strict=True)
    return [_write(folder / "parents.tsv", (f"{passage}\t{document}\n" for passage, document in pairs))]


def _export_exclusions(collection: Collection, task: TaskCard, folder: Path) -> list[Path]:
    pairs = [(query_id, doc_id) for query_id, ids in collection.exclusions.items() for doc_id in sorted(ids)]
    if task.exclude_self:
        pairs += [(query_id, query_id) for query_id in collection.queries.column("id").to_pylist()]
    if not pairs:
        return []
    return [_write(folder / "exclusions.tsv", (f"{query_id}\t{doc_id}\n" for query_id, doc_id in pairs))]


def _beir_qrels(qrels: Qrels) -> Iterator[str]:
    yield "query-id\tcorpus-id\tscore\n"
    for query_id, doc_id, grade in _judgements(qrels):
        yield f"{query_id}\t{doc_id}\t{grade}\n"


def _judgements(qrels: Qrels) -> Iterator[tuple[str, str, int]]:
    for query_id, grade_by_doc in qrels.to_dict().items():
        for doc_id, grade in grade_by_doc.items():
            yield query_id, doc_id, grade


def _documents(collection: Collection) -> Iterator[tuple[str, str, str]]:
    for batch in collection.corpus.select(["id", "title", "text"]).to_batches(max_chunksize=_BATCH_ROWS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _values(column: pa.Array | pa.ChunkedArray) -> Iterator[str]:
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        for start in range(0, len(chunk), _BATCH_ROWS):
            yield from chunk.slice(start, _BATCH_ROWS).to_pylist()


def _refuse_white_space(ids: pa.Array | pa.ChunkedArray) -> None:
    bad = ids.filter(pc.match_substring_regex(ids, _WHITE_SPACE))
    if len(bad):
        raise DataError(f"the id {bad[0].as_py()!r} has white space, which TREC's files cannot hold; use --format beir")


def _one_line(text: str) -> str:
    return _BREAKS.sub(" ", text)


def _json(row: dict[str, object]) -> str:
    return msgspec.json.encode(row).decode() + "\n"


def _write(path: Path, lines: Iterator[str] | Sequence[str]) -> Path:
    with written_whole(path) as file:
        for line in lines:
            file.write(line.encode())
    return path
