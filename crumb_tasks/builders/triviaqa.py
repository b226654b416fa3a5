"""TriviaQA as NCI (Wang et al. 2022, arXiv 2206.02743) makes it from the Wikipedia part of triviaqa-rc.

The recipe, from its description: every ``evidence/wikipedia/*.txt`` is a page. Its title is the file's name with spaces
for underscores, its body the first 10,240 characters of the file with line breaks and tabs as spaces. Titles are
brought into the form of `normalise_title`; of the pages with one title the first is kept, its place is its id, and its
text is that title and the body without anything between them. All EntityPages of a question are relevant. The original
keeps questions in a mapping, so of those with one text the last counts.

Between its steps the original writes tables without quoting and reads them with it. So a title, body or question that
begins with a quotation mark loses it and its partner; a question whose mark does not close swallows the next one, and
the two are dropped for the line break in them. This is reproduced for questions and within a page.
``triviaqa-nci-fixed`` reads what is written, keeps bodies whole and titles as they are, puts a space between the two,
and keeps every question.

Only dev is scored. The order of pages was that of the original author's folder, which nobody knows; here it is by name.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from crumb_tasks.builders.bert_titles import normalise_title
from crumb_tasks.builders.checkpoint import Checkpoint
from crumb_tasks.builders.input import RawFile, json_array
from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.loaders._manifest import BuiltFile, Manifest

VERSION = 1
BODY_CHARACTERS = 10_240
_EVIDENCE = Path("evidence", "wikipedia")
_QUESTIONS = {split: Path("qa", f"wikipedia-{split}.json") for split in ("train", "dev")}
_ORDER = (
    "Pages are numbered by file name; the original took them as its folder listed them, which decides the ids and "
    "which of two pages with one title is kept."
)
_UNCLOSED = (
    "A page whose leading quotation mark does not close is kept as it is; in the original it swallows the next one."
)


def find_inputs(raw: Path) -> dict[str, Path]:
    """Return what a build reads, by its name in the manifest.

    Raises:
        UsageError: Files are missing.
    """
    missing = [str(path) for path in (_EVIDENCE, *_QUESTIONS.values()) if not (raw / path).exists()]
    if missing:
        archive = " Unpack it first: tar -xzf triviaqa-rc.tar.gz." if any(raw.glob("*.tar.gz")) else ""
        raise UsageError(
            f"{raw}: {', '.join(missing)} of triviaqa-rc is missing.{archive} The archive is at "
            "https://nlp.cs.washington.edu/triviaqa/"
        )
    return {_EVIDENCE.as_posix(): raw / _EVIDENCE} | {path.name: raw / path for path in _QUESTIONS.values()}


def build(raw: Path, target: Path, *, recipe: str, is_fixed: bool) -> Manifest:
    """Build the collection; see the module for how.

    Args:
        raw: The unpacked folder of triviaqa-rc.
        target: Folder of the collection.
        recipe: Its name, for the manifest.
        is_fixed: Without the original's mistakes.

    Raises:
        UsageError: Files are missing.
        DataError: A question names a page that is not there, or a file is no UTF-8, no JSON or has no question.
    """
    find_inputs(raw)
    return _Build(raw, target, recipe, is_fixed=is_fixed).run()


class _Build:
    def __init__(self, raw: Path, target: Path, recipe: str, *, is_fixed: bool) -> None:
        self._folder = raw / _EVIDENCE
        self._names = sorted(path.name for path in self._folder.iterdir() if path.name.endswith(".txt"))
        self._questions = {split: RawFile(raw / path) for split, path in _QUESTIONS.items()}
        self._recipe = recipe
        self._is_fixed = is_fixed
        identity = [recipe, str(VERSION), str(len(self._names)), *(file.identity for file in self._questions.values())]
        self._checkpoint = Checkpoint(target, " ".join(identity))
        state = self._checkpoint.state
        self._n_read: int = state.get("n_read", 0)
        self._n_bytes: int = state.get("n_bytes", 0)
        self._counts: dict[str, int] = state.get("counts", {"pages_with_unclosed_quote": 0})
        titles = self._checkpoint.column("corpus", "title")
        self._id_by_title = {title: number for number, title in enumerate(titles)}
        self._id_by_name = {name: self._id_by_title[self._title(name)[1]] for name in self._names[: self._n_read]}

    def run(self) -> Manifest:
        from tqdm import tqdm

        with tqdm(total=len(self._names), initial=self._n_read, unit=" pages", desc="evidence", disable=None) as bar:
            for name in self._names[self._n_read :]:
                self._add_page(name)
                bar.update(1)
                if self._checkpoint.is_due:
                    self._checkpoint.save(self._state())
        n_questions: dict[str, list[int]] | None = self._checkpoint.state.get("n_questions")
        if n_questions is None:
            n_questions = {split: self._add_questions(split) for split in _QUESTIONS}
            self._checkpoint.save(self._state() | {"n_questions": n_questions})
        counts = {
            "documents": len(self._id_by_title),
            "pages": len(self._names),
            "train_queries": n_questions["train"][1],
            "queries": n_questions["dev"][1],
            **self._counts,
        }
        evidence = BuiltFile(_EVIDENCE.as_posix(), self._n_bytes, "", len(self._names))
        inputs = [evidence, *(self._questions[split].described(n_questions[split][0]) for split in _QUESTIONS)]
        notes = (_ORDER,) if self._is_fixed else (_ORDER, _UNCLOSED)
        return self._checkpoint.finish(recipe=self._recipe, version=VERSION, inputs=inputs, counts=counts, notes=notes)

    def _state(self) -> dict[str, Any]:
        return {"n_read": self._n_read, "n_bytes": self._n_bytes, "counts": dict(self._counts)}

    def _title(self, name: str) -> tuple[str, str]:
        """Return a page's title, and the form that tells pages apart."""
        title = name.removesuffix(".txt").replace("_", " ")
        if not self._is_fixed:
            title = unquoted(title)
        return title, normalise_title(title)

    def _add_page(self, name: str) -> None:
        path = self._folder / name
        content = path.read_bytes()
        try:
            body = content.decode("utf-8").replace("\r\n", " ")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not UTF-8 ({error.reason})") from error
        for blank in "\n\t\r":
            body = body.replace(blank, " ")
        title, key = self._title(name)
        if key not in self._id_by_title:
            self._id_by_title[key] = len(self._id_by_title)
            self._checkpoint.add("corpus", (str(self._id_by_title[key]), key, self._text(title, key, body)))
        self._id_by_name[name] = self._id_by_title[key]
        self._n_read += 1
        self._n_bytes += len(content)

    def _text(self, title: str, key: str, body: str) -> str:
        if self._is_fixed:
            return f"{title} {body}"
        body = body[:BODY_CHARACTERS]
        if body.startswith('"') and not _closes(body):
            self._counts["pages_with_unclosed_quote"] += 1
            return key + body
        return key + unquoted(body)

    def _add_questions(self, split: str) -> list[int]:
        """Add the questions of one split; return how many were read and how many kept."""
        with self._questions[split].opened() as stream:
            entries = _questions(json_array(stream, "Data", self._questions[split].path), self._questions[split].path)
            rows = _own_rows(entries) if self._is_fixed else _rows_as_read(entries, self._questions[split].path)
            kept: dict[str, tuple[str, str, dict[int, None]]] = {}
            n_read = 0
            for number, query_id, query, pages in rows:
                n_read = number
                if pages is not None:
                    doc_ids = dict.fromkeys(self._id_of(name, query_id) for name in pages)
                    kept[query_id if self._is_fixed else query] = (query_id, query, doc_ids)
        if not n_read:
            raise DataError(f"{self._questions[split].path}: no question in 'Data'; unpack the archive again")
        for query_id, query, doc_ids in kept.values():
            if split == "dev":
                self._checkpoint.add("queries", (query_id, query))
            for doc_id in doc_ids:
                row = (query_id, str(doc_id), 1, "") if split == "dev" else (query_id, query, str(doc_id))
                self._checkpoint.add("qrels" if split == "dev" else "train", row)
        return [n_read, len(kept)]

    def _id_of(self, name: str, query_id: str) -> int:
        if name not in self._id_by_name:
            raise DataError(f"{self._folder}: the question '{query_id}' names the page '{name}', which is not there")
        return self._id_by_name[name]


Row = tuple[int, str, str, list[str] | None]
"""How many questions were read so far, id, text, and its pages; no pages where the question is dropped."""


class _Page(msgspec.Struct):
    filename: str = msgspec.field(name="Filename")


class _Question(msgspec.Struct):
    query_id: str = msgspec.field(name="QuestionId")
    text: str = msgspec.field(name="Question")
    entity_pages: list[_Page] = msgspec.field(name="EntityPages")

    @property
    def pages(self) -> list[str]:
        return [page.filename for page in self.entity_pages]


def _questions(entries: Iterator[Any], path: Path) -> Iterator[_Question]:
    for number, entry in enumerate(entries, start=1):
        try:
            question = msgspec.convert(entry, _Question)
            "".join((question.query_id, question.text, *question.pages)).encode()
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise DataError(f"{path}: entry {number} of 'Data' is no question of triviaqa-rc ({error})") from error
        yield question


def _own_rows(entries: Iterator[_Question]) -> Iterator[Row]:
    for number, entry in enumerate(entries, start=1):
        yield number, entry.query_id, entry.text, entry.pages


def _rows_as_read(entries: Iterator[_Question], path: Path) -> Iterator[Row]:
    """Yield the questions as a reader of quoted tables understands lines that nobody quoted."""
    number = 0
    entry: _Question

    def lines() -> Iterator[str]:
        nonlocal number, entry
        for entry in entries:
            number += 1
            yield from io.StringIO(f"{entry.text}\t{entry.query_id}\n".replace("\r", "\n"))

    try:
        for cells in csv.reader(lines(), delimiter="\t"):
            if cells and cells[-1].endswith("\n"):
                raise DataError(
                    f"{path}: the quotation mark at the start of a question never closes, from "
                    f"'{cells[-1][:60].strip()}' to the end of the file; the authors' code stops there too, --fixed "
                    "reads such files"
                )
            is_whole = cells[1:] == [entry.query_id] and "\n" not in cells[0] + entry.text
            yield number, entry.query_id, cells[0] if cells else "", entry.pages if is_whole else None
    except csv.Error as error:
        raise DataError(
            f"{path}: entry {number} of 'Data': a quotation mark at the start of a question does not close in time "
            f"({error}); the authors' code stops there too, --fixed reads such files"
        ) from error


def unquoted(text: str) -> str:
    """Return a text without tabs and line breaks as a reader of quoted tables understands it."""
    if not text.startswith('"') or not _closes(text):
        return text
    return next(csv.reader([text], delimiter="\t"))[0]


def _closes(text: str) -> bool:
    """Return whether the quotation mark at the start of ``text`` has a partner; two in a row are none."""
    return '"' in text[1:].replace('""', "")
