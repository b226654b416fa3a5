"""NQ320k as NCI (Wang et al. 2022, arXiv 2206.02743) makes it from the simplified Natural Questions files.

The recipe, from its description: every example of train, then of dev, is a page; the pages' titles are brought into
the form of `normalise_title`, and of the pages with one title the first is kept. Its place, counted from 0, is its id.
Its text is title, abstract and content without anything between them:

- title: between the first ``<H1>`` and ``</H1>`` in train (empty without); the field ``document_title`` in dev
- abstract: between the first ``<P>`` and the first ``</P>``, its tags kept
- content: from behind that ``</P>`` up to the last ``</Ul>`` but one (to the last where it is the only one), its tags
  removed

A query's relevant document is the page of its own title. No example is left out for want of an answer.

A page without ``<P>`` begins its content where the page before it did, since the original does not set the place anew.
This is reproduced: it decides the text of record. ``nq320k-nci-fixed`` mends this and more: such a page's content
begins behind its heading, the title is always the heading, nothing is cut off at the end, tags go from the abstract
too, and a space stands between the parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from crumb_tasks.builders.bert_titles import normalise_title
from crumb_tasks.builders.checkpoint import Checkpoint
from crumb_tasks.builders.input import RawFile
from crumb_tasks.errors import DataError, SchemaError, UsageError
from crumb_tasks.loaders._manifest import Manifest

VERSION = 1
SPLITS = ("train", "dev")
_TAG = re.compile(r"<[^<]+?>")
_FORGETS = (
    "The place where content begins is forgotten at the start of each file; the first page of a file has none before "
    "it and begins at its start."
)
_NO_TITLE = "A dev example without document_title, which is not the released form, has its heading as title."


class _Token(msgspec.Struct):
    token: str


class Example(msgspec.Struct):
    """One line of a simplified file: train has the text, dev its tokens and the title."""

    question_text: str
    example_id: int | str
    document_text: str | None = None
    document_tokens: list[_Token] | None = None
    document_title: str | None = None

    @property
    def page(self) -> str | None:
        """The page's text with its tags."""
        if self.document_text is not None:
            return self.document_text
        return None if self.document_tokens is None else " ".join(token.token for token in self.document_tokens)


@dataclass
class PageReader:
    """Takes pages apart, in their order.

    Attributes:
        is_fixed: Without the original's mistakes.
        content_start: Where the content of the last page with a paragraph began.
        counts: Pages that ran into something.
    """

    is_fixed: bool = False
    content_start: int = 0
    counts: dict[str, int] = field(default_factory=lambda: {"pages_without_paragraph": 0, "dev_without_title": 0})

    def read(self, page: str, title: str | None) -> tuple[str, str]:
        """Return title and text of one page.

        Args:
            page: Its text with tags.
            title: Its title where the data give one.
        """
        heading = _between(page, "<H1>", "</H1>")
        if self.is_fixed:
            return self._read_fixed(page, heading if heading.strip() else title or "")
        title = heading if title is None else title
        end = page.find("</P>")
        abstract = ""
        if "<P>" in page and end >= 0:
            abstract = page[page.index("<P>") + len("<P>") : end]
            self.content_start = end + len("</P>")
        else:
            self.counts["pages_without_paragraph"] += 1
        return title, title + abstract + _without_tags(page[self.content_start : _cut(page)])

    def _read_fixed(self, page: str, title: str) -> tuple[str, str]:
        start = page.find("<P>")
        end = page.find("</P>", start) if start >= 0 else -1
        if end < 0:
            self.counts["pages_without_paragraph"] += 1
            heading = page.find("</H1>")
            abstract, content = "", page[heading + len("</H1>") if heading >= 0 else 0 :]
        else:
            abstract, content = page[start:end], page[end:]
        parts = (title.strip(), _without_tags(abstract), _without_tags(content))
        return title, " ".join(part for part in parts if part)


def _between(text: str, start: str, end: str) -> str:
    first, last = text.find(start), text.find(end)
    return text[first + len(start) : last] if first >= 0 and last >= 0 else ""


def _cut(page: str) -> int:
    """Return where content ends: at the last list's end but one, which leaves out what stands below the article."""
    last = page.rfind("</Ul>")
    if last < 0:
        return len(page)
    before = page.rfind("</Ul>", 0, last)
    return last if before < 0 else before


def _without_tags(text: str) -> str:
    return re.sub(" +", " ", _TAG.sub("", text).replace("\n", "").strip())


def find_raw(folder: Path) -> dict[str, RawFile]:
    """Return the raw file of each split.

    Raises:
        UsageError: One is missing, or there are several.
    """
    found = {}
    for split in SPLITS:
        paths = sorted(path for path in folder.iterdir() if re.search(rf"{split}.*\.jsonl(\.gz)?$", path.name))
        if len(paths) != 1:
            there = ", ".join(path.name for path in paths) or "none"
            raise UsageError(
                f"{folder}: expected one file of the split {split}, named like simplified-nq-train.jsonl.gz or "
                f"nq-dev-all.jsonl.gz, found {there}; they are at https://ai.google.com/research/NaturalQuestions"
            )
        found[split] = RawFile(paths[0])
    return found


def find_inputs(raw: Path) -> dict[str, Path]:
    """Return what a build reads, by its name in the manifest; errors as `find_raw`."""
    return {file.path.name: file.path for file in find_raw(raw).values()}


def build(raw: Path, target: Path, *, recipe: str, is_fixed: bool) -> Manifest:
    """Build the collection; see the module for how.

    Args:
        raw: Folder with the two simplified files, plain or gzip.
        target: Folder of the collection.
        recipe: Its name, for the manifest.
        is_fixed: Without the original's mistakes.
    """
    return _Build(find_raw(raw), target, recipe, is_fixed=is_fixed).run()


class _Build:
    def __init__(self, files: dict[str, RawFile], target: Path, recipe: str, *, is_fixed: bool) -> None:
        identity = [recipe, str(VERSION), *(file.identity for file in files.values())]
        self._files = files
        self._recipe = recipe
        self._checkpoint = Checkpoint(target, " ".join(identity))
        state = self._checkpoint.state
        self._n_read: dict[str, int] = state.get("n_read", dict.fromkeys(SPLITS, 0))
        self._reader = PageReader(is_fixed=is_fixed, content_start=state.get("content_start", 0))
        self._reader.counts |= state.get("counts", {})
        self._n_train_titles: int = state.get("n_train_titles", 0)
        titles = self._checkpoint.column("corpus", "title")
        self._id_by_title = {title: number for number, title in enumerate(titles)}

    def run(self) -> Manifest:
        for split in SPLITS:
            with self._files[split].opened() as stream:
                self._read_split(split, stream)
        self._checkpoint.save(self._state())
        counts = {
            "documents": len(self._id_by_title),
            "documents_of_train": self._n_train_titles,
            "train_queries": self._n_read["train"],
            "queries": self._n_read["dev"],
            **self._reader.counts,
        }
        inputs = [self._files[split].described(self._n_read[split]) for split in SPLITS]
        return self._checkpoint.finish(
            recipe=self._recipe,
            version=VERSION,
            inputs=inputs,
            counts=counts,
            notes=(_NO_TITLE,) if self._reader.is_fixed else (_FORGETS, _NO_TITLE),
        )

    def _state(self) -> dict[str, Any]:
        return {
            "n_read": dict(self._n_read),
            "content_start": self._reader.content_start,
            "counts": dict(self._reader.counts),
            "n_train_titles": self._n_train_titles,
        }

    def _read_split(self, split: str, stream: IO[bytes]) -> None:
        done = self._n_read[split]
        if not done:
            self._reader.content_start = 0
        for number, example in _examples(stream, self._files[split].path, skip=done):
            self._add(split, number, example)
            self._n_read[split] += 1
            if self._checkpoint.is_due:
                self._checkpoint.save(self._state())
        if not self._n_read[split]:
            raise DataError(f"{self._files[split].path}: no example in it; download it again")

    def _add(self, split: str, number: int, example: Example) -> None:
        page = example.page
        if page is None:
            raise SchemaError(f"{self._files[split].path}:{number}: neither document_text nor document_tokens")
        given = example.document_title if split == "dev" else None
        if split == "dev" and given is None:
            self._reader.counts["dev_without_title"] += 1
        raw_title, text = self._reader.read(page, given)
        title = normalise_title(raw_title)
        doc_id = self._id_by_title.get(title)
        if doc_id is None:
            doc_id = self._id_by_title[title] = len(self._id_by_title)
            self._checkpoint.add("corpus", (str(doc_id), title, text))
            if split == "train":
                self._n_train_titles = len(self._id_by_title)
        query_id, query = str(example.example_id), example.question_text
        if split == "train":
            self._checkpoint.add("train", (query_id, query, str(doc_id)))
            return
        subset = "seen" if doc_id < self._n_train_titles else "unseen"
        self._checkpoint.add("queries", (query_id, query))
        self._checkpoint.add("qrels", (query_id, str(doc_id), 1, subset))


def _examples(stream: IO[bytes], path: Path, *, skip: int) -> Iterator[tuple[int, Example]]:
    """Yield line number and example of each line that is not blank, but for the first ``skip``."""
    decode = msgspec.json.Decoder(Example).decode
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        if skip:
            skip -= 1
            continue
        try:
            yield number, decode(line)
        except msgspec.ValidationError as error:
            raise SchemaError(f"{path}:{number}: {error}") from error
        except msgspec.DecodeError as error:
            raise DataError(f"{path}:{number}: not a JSON object in UTF-8 ({error})") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}:{number}: not a JSON object in UTF-8 ({error.reason})") from error
        except RecursionError as error:
            raise DataError(f"{path}:{number}: the JSON nests too deep") from error
