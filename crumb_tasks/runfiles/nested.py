"""Nested JSON: ``{query: {document: score}}`` of ranx and BEIR, ``{subset: {split: {query: {…}}}}`` of MTEB.

Such a file is one JSON value, often a single line of hundreds of megabytes. It is read query by query: a scanner walks
the outer levels, and only one query's object is decoded at a time.
"""

from __future__ import annotations

import json
from typing import Literal, NoReturn

import msgspec

from crumb_tasks.runfiles.columns import RunColumns
from crumb_tasks.runfiles.compression import RunBytes
from crumb_tasks.runfiles.jsonl import as_id, as_score
from crumb_tasks.runfiles.scanning import Scanner

_META = "mteb_model_meta"
_DEPTHS = (1, 3)
_WANTED = "expected {query: {document: score}}, or MTEB's {subset: {split: {query: {document: score}}}}"


class NestedReader:
    """Reads one nested JSON file into columns.

    Args:
        source: The opened file.
        columns: Where the rows go.
        form: ``json`` or ``mteb`` when it must be that one.
        split: Of MTEB's predictions the split to read; by default the only one.
        subset: The same for subsets.

    Attributes:
        form: What the file is.
        split: The split that was read; ``None`` for ``json``.
        model: The model that MTEB's file names.
        search_depth: How deep the search went, where the file says it.
        notes: What a user should know about the file.
    """

    def __init__(
        self,
        source: RunBytes,
        columns: RunColumns,
        *,
        form: Literal["json", "mteb"] | None = None,
        split: str | None = None,
        subset: str | None = None,
    ) -> None:
        self._source = source
        self._columns = columns
        self._text = Scanner(source)
        self._decode = msgspec.json.Decoder(dict[str, float]).decode
        self._depth = {"json": 1, "mteb": 3, None: None}[form]
        self._wanted = (subset, split)
        self._read_part: tuple[str, str] | None = None
        self._parts: list[tuple[str, str]] = []
        self._empty: list[tuple[tuple[str, ...], int]] = []
        self.model: str | None = None
        self.search_depth: int | None = None
        self.notes: list[str] = []

    @property
    def form(self) -> Literal["json", "mteb"]:
        """What the file is."""
        return "mteb" if self._depth == 3 else "json"

    @property
    def split(self) -> str | None:
        """The split that was read."""
        return None if self._read_part is None else self._read_part[1]

    def read(self) -> None:
        """Read to the end.

        Raises:
            RunFileError: The JSON is malformed or cut, or it is not clear which part of it is meant.
        """
        self._text.expect(b"{", _WANTED)
        self._object(())
        if self._text.peek_byte() != b"":
            self._text.fail(f"more follows after the JSON value; {_WANTED}")
        for path, line in self._empty:
            if len(path) == (self._depth or 1):
                self._ranking(path, [], [], line)
        if self._depth == 3 and self._read_part is None:
            held = ", ".join(f"'{split}' of '{subset}'" for subset, split in self._parts) or "none"
            names = zip(("subset", "split"), self._wanted, strict=True)
            lacking = " and ".join(f"{what} '{name}'" for what, name in names if name is not None) or "any ranking"
            self._text.fail(f"the predictions lack {lacking}; they have {held}")

    def _object(self, path: tuple[str, ...]) -> None:
        """Read members; the opening brace is consumed."""
        if self._text.skip(b"}"):
            return
        n_keys = 0
        lines: dict[str, int] = {}
        while True:
            key, line = self._text.key(path), self._text.line
            if (first := lines.setdefault(key, line)) != line or len(lines) == n_keys:
                self._refuse_doubled(key, path, first)
            n_keys = len(lines)
            self._value((*path, key))
            if not self._text.skip(b","):
                self._text.expect(b"}", "expected a comma or a closing brace", path)
                return

    def _refuse_doubled(self, key: str, path: tuple[str, ...], first: int) -> NoReturn:
        """A decoder would keep the last of two members and lose the other without a word."""
        what = f"'{key}'" if not path else f"'{key}' of '{path[-1]}'"
        where = f" (first on line {first})" if first != self._text.line else ""
        self._text.fail(f"the key {what} stands twice{where}; keep one")

    def _value(self, path: tuple[str, ...]) -> None:
        first = self._text.peek_byte()
        if first != b"{":
            self._refuse_value(path, first)
        inside = self._text.first_value_of_object(path)
        line = self._text.line
        if path == (_META,):
            self._meta(self._text.flat_object(path))
        elif inside == b"[":
            self._text.fail(f"'{path[-1]}' holds a list where scores should stand; {_WANTED}")
        elif inside == b"}":
            self._text.flat_object(path)
            self._empty.append((path, line))
        elif inside == b"{":
            if len(path) > 3:
                self._text.fail(f"the objects are nested too deeply at '{path[-1]}'; {_WANTED}")
            self._text.expect(b"{", _WANTED)
            self._object(path)
        else:
            self._leaf(path, line)

    def _refuse_value(self, path: tuple[str, ...], first: bytes) -> NoReturn:
        if first == b"":
            self._text.cut(path)
        if first == b"[":
            self._text.fail(f"'{path[-1]}' holds a list, which has no scores; {_WANTED}")
        self._text.fail(f"'{path[-1]}' holds no object; {_WANTED}")

    def _meta(self, text: bytes) -> None:
        try:
            meta = json.loads(text.decode("utf-8"))
        except ValueError:
            self._text.fail(f"'{_META}' is no JSON object")
        name = meta.get("model_name")
        self.model = name if isinstance(name, str) else None
        depth = meta.get("depth")
        self.search_depth = depth if type(depth) is int and depth > 0 else None

    def _leaf(self, path: tuple[str, ...], line: int) -> None:
        text = self._text.flat_object(path)
        if self._depth is None:
            if len(path) not in _DEPTHS:
                self._text.fail(f"'{path[-1]}' stands {len(path)} levels deep; {_WANTED}")
            self._depth = len(path)
        if len(path) != self._depth:
            what = "of MTEB's predictions" if self._depth == 3 else "of a nested run"
            levels = "1 level" if len(path) == 1 else f"{len(path)} levels"
            self._text.fail(
                f"'{path[-1]}' stands {levels} deep, where queries {what} stand {self._depth} deep; {_WANTED}"
            )
        if self._depth == 3 and not self._is_wanted(path[:2]):
            return
        ids, scores = self._pairs(path[-1], text, line)
        self._ranking(path, ids, scores, line)

    def _is_wanted(self, part: tuple[str, ...]) -> bool:
        subset, split = part
        if part not in self._parts:
            self._parts.append((subset, split))
        if any(wanted not in (None, found) for wanted, found in zip(self._wanted, part, strict=True)):
            return False
        if self._read_part not in (None, part):
            held = " and ".join(f"'{name}' of '{of}'" for of, name in self._parts[:4])
            self._text.fail(f"the file holds the predictions of {held}; choose with --split, or with --subset")
        self._read_part = (subset, split)
        return True

    def _ranking(self, path: tuple[str, ...], ids: list[str], scores: list[float], line: int) -> None:
        if self._depth == 3 and not ids and not self._is_wanted(path[:2]):
            return
        self._columns.add_ranking(path[-1], ids, scores, line)

    def _pairs(self, query_id: str, text: bytes, line: int) -> tuple[list[str], list[float]]:
        try:
            score_by_doc = self._decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return self._pairs_slowly(query_id, text, line)
        if b"\\" in text or text.count(b'"') != 2 * len(score_by_doc):  # a key may stand there twice
            return self._pairs_slowly(query_id, text, line)
        return list(score_by_doc), list(score_by_doc.values())

    def _pairs_slowly(self, query_id: str, text: bytes, line: int) -> tuple[list[str], list[float]]:
        try:
            pairs = json.loads(text.decode("utf-8"), object_pairs_hook=lambda pairs: pairs)
        except UnicodeDecodeError as error:
            raise self._source.error(
                f"query '{query_id}': an id is not UTF-8; convert the file: iconv -f LATIN1 -t UTF-8", line
            ) from error
        except RecursionError as error:
            raise self._source.error(f"query '{query_id}': the JSON is nested too deeply to be a run", line) from error
        except ValueError as error:
            raise self._source.error(f"query '{query_id}': no JSON ({error}); {_WANTED}", line) from error
        ids = [f"{as_id(self._source, line, doc_id, f'query {query_id!r}')}" for doc_id, _ in pairs]
        return ids, [as_score(self._source, line, score, query_id, doc_id) for doc_id, score in pairs]
