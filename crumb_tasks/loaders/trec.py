"""Public topics and qrels over a corpus that is the user's own: TREC, CLEF, and the BEIR sets that nobody may pass on.

Topics are TREC's SGML (``<top>`` with tags that are opened and not closed) or tab-separated lines of id and text;
qrels are TREC's four columns. The corpus is the source's part ``corpus``: a folder ``documents`` with files at any
depth, TREC's SGML (``<DOC>``, ``<DOCNO>``; TIPSTER, Le Monde, ATS) or BEIR's JSONL, plain or gzip. The user's part is
looked for first, so that a missing licence is said before anything is fetched.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError, RunFileError, SchemaError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import Field, open_bytes, read_rows
from crumb_tasks.loaders._tables import Layout, TextTable, first_repeated, read_corpus, text_table
from crumb_tasks.runfiles.qrels import read_qrels
from crumb_tasks.sources import OpenedSource

_TOPIC = re.compile(r"<top>(.*?)</top>", re.DOTALL | re.IGNORECASE)
_OPENING = re.compile(r"<(\w+)>")
_LABEL = re.compile(r"\s*(Number|Domain|Topic|Description|Summary|Narrative|Concept|Factor|Definition)(\(s\))?:")
_DOCUMENT = re.compile(r"<DOC>(.*?)</DOC>", re.DOTALL | re.IGNORECASE)
_ELEMENT = re.compile(r"<(\w+)[^>]*>(.*?)</\1>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_COMPRESS = b"\x1f\x9d"
_SHOWN = 3

Document = tuple[str, str, str]
"""Id, title, text."""


class Options(LoaderOptions):
    """Where topics, qrels and the corpus stand, and what of a topic is the query.

    Attributes:
        topics: Topics: TREC's SGML, or lines of id, tab, text where the name says ``tsv`` or ``topic_field`` is empty.
        qrels: Judgements.
        documents: The user's corpus, in the source's part ``corpus``: a folder or one file.
        topic_field: Tag of the topic's part that is the query: ``title``, ``desc``, ``narr``.
        title_tags: Tags of SGML documents that make the title.
        text_tags: Tags of SGML documents that make the text.
        id_field: Field of the id in JSONL documents.
    """

    topics: str
    qrels: str
    documents: str = "documents"
    topic_field: str = ""
    title_tags: tuple[str, ...] = ("HEAD", "HEADLINE", "HL", "TITLE", "TTL")
    text_tags: tuple[str, ...] = ("LP", "TEXT")
    id_field: str = "_id"


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return topics, qrels and the user's corpus."""
    del split
    options = read_options(task, Options)
    return (f"corpus:{options.documents}", options.topics, options.qrels)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load the one split."""
    options = read_options(task, Options)
    place = source.path(f"corpus:{options.documents}")
    paths = source.paths((options.topics, options.qrels))
    queries = _read_topics(paths[options.topics], options)
    ids, texts = (list(column) for column in zip(*queries, strict=True))
    table = text_table({"id": ids, "text": texts}, empty_text=task.empty_text, where=str(paths[options.topics]))
    corpus, notes = _read_documents(place, options, task.empty_text)
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=table.table,
        qrels={"graded": read_judgements(paths[options.qrels])},
        n_empty_texts=corpus.n_empty,
        notes=notes,
    )


def read_judgements(path: Path) -> Qrels:
    """Return the judgements of a file in TREC's four columns.

    Raises:
        DataError: It holds something else.
    """
    try:
        return read_qrels(path)
    except RunFileError as error:
        raise DataError(str(error)) from error


def _read_topics(path: Path, options: Options) -> list[tuple[str, str]]:
    if not options.topic_field:
        return [(one, text) for _, (one, text) in read_rows(path, (Field("id"), Field("text")), header=("id", "text"))]
    topics = []
    for number, match in enumerate(_TOPIC.finditer(_decoded(path)), start=1):
        part_by_tag = dict(_topic_parts(match[1]))
        missing = [tag for tag in ("num", options.topic_field) if not part_by_tag.get(tag)]
        if missing:
            found = ", ".join(part_by_tag) or "no tags"
            raise SchemaError(f"{path}: topic {number} has no <{missing[0]}>; found {found}")
        topic_id = part_by_tag["num"]
        topics.append((str(int(topic_id)) if topic_id.isdecimal() else topic_id, part_by_tag[options.topic_field]))
    if not topics:
        raise SchemaError(f"{path}: no <top> … </top> in it; are these TREC topics?")
    return topics


def _topic_parts(topic: str) -> Iterator[tuple[str, str]]:
    """Yield (tag, text) of a topic, whose tags are opened and mostly not closed."""
    pieces = _OPENING.split(topic)
    for tag, text in zip(pieces[1::2], pieces[2::2], strict=True):
        yield tag.lower(), _plain(_LABEL.sub("", text, count=1))


def _read_documents(place: Path, options: Options, empty_text: str) -> tuple[TextTable, tuple[str, ...]]:
    """Return the documents of a file, or of all files of a folder."""
    paths = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    tables: list[pa.Table] = []
    n_empty, without = 0, []
    for path in paths:
        if ".jsonl" in path.name:
            layout = Layout(options.id_field, "text", title="title")
            found = read_corpus(path, layout, empty_text=empty_text)
        else:
            found = _sgml_table(path, options, empty_text)
        if len(found.table):
            tables.append(found.table)
            n_empty += found.n_empty
        else:
            without.append(path.name)
    if not tables:
        raise DataError(f"{place}: no document in {len(paths)} files; expected TREC's SGML (<DOC>) or BEIR's JSONL")
    table = pa.concat_tables(tables)
    if (repeated := first_repeated(table.column("id"))) is not None:
        raise DataError(f"{place}: the id '{repeated}' stands in two files; keep one of them")
    named = ", ".join(without[:_SHOWN]) + (" …" if len(without) > _SHOWN else "")
    notes = (f"{len(without)} files hold no document and were skipped: {named}",) if without else ()
    return TextTable(table, n_empty), notes


def _sgml_table(path: Path, options: Options, empty_text: str) -> TextTable:
    documents = list(_sgml_documents(path, options))
    if documents and not any(title or text for _, title, text in documents):
        tags = dict.fromkeys(tag for body in _DOCUMENT.findall(_decoded(path)) for tag, _ in _ELEMENT.findall(body))
        wanted = ", ".join((*options.title_tags, *options.text_tags))
        raise SchemaError(f"{path}: no document has one of {wanted}; found the tags {', '.join(tags)}")
    columns = [list(column) for column in zip(*documents, strict=True)] if documents else [[], [], []]
    return text_table(dict(zip(("id", "title", "text"), columns, strict=True)), empty_text=empty_text, where=str(path))


def _sgml_documents(path: Path, options: Options) -> Iterator[Document]:
    for number, match in enumerate(_DOCUMENT.finditer(_decoded(path)), start=1):
        parts: dict[str, list[str]] = {}
        for tag, text in _ELEMENT.findall(match[1]):
            parts.setdefault(tag.upper(), []).append(_plain(text))
        if not any(parts.get("DOCNO", ())):
            raise SchemaError(f"{path}: document {number} has no <DOCNO>; found the tags {', '.join(parts) or 'none'}")
        yield parts["DOCNO"][0], _joined(parts, options.title_tags), _joined(parts, options.text_tags)


def _joined(parts: dict[str, list[str]], tags: Sequence[str]) -> str:
    return " ".join(text for tag in tags for text in parts.get(tag, ()) if text)


def _plain(text: str) -> str:
    """Return a text without tags and entities, with single spaces."""
    return " ".join(html.unescape(_TAG.sub(" ", text)).split())


def _decoded(path: Path) -> str:
    """Return a file's text: UTF-8, or else Latin-1, as the disks have it."""
    with open_bytes(path) as file:
        content = file.read()
    if content.startswith(_COMPRESS):
        raise DataError(f"{path}: packed with compress(1), which Python cannot read; unpack it: gzip -dr FOLDER")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")
