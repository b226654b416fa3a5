"""JSON lines as CRUMB's evaluator reads them, one query a line.

``{"query": {"id": …}, "items": [{"id": …, "score": …}, …]}``. Only ids, scores and, where a line has them, winning
passages (``passage_id``) are kept; everything else in a line is skipped without being built. A line that the fast
decoder refuses is read again by the standard library, which either explains it or, for what Python's own ``json``
writes beyond the standard (``Infinity``), accepts it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from crumb_tasks.errors import RunFileError
from crumb_tasks.runfiles.columns import RunColumns
from crumb_tasks.runfiles.compression import RunBytes
from crumb_tasks.runfiles.doubled import may_have_doubled, refuse_doubled

_Id = str | int


class _PlainItem(msgspec.Struct, gc=False):
    id: str
    score: float


class _PlainQuery(msgspec.Struct, gc=False):
    id: str


class _PlainLine(msgspec.Struct, gc=False):
    """What nearly all lines hold; the general form below costs a third more."""

    query: _PlainQuery
    items: list[_PlainItem]


class _Item(msgspec.Struct, gc=False):
    id: _Id
    score: float
    passage_id: _Id | None = None


class _Query(msgspec.Struct, gc=False):
    id: _Id


class _Line(msgspec.Struct, gc=False):
    query: _Query
    items: list[_Item]


_PASSAGE_KEY = b"passage_id"
_QUERY_ID = re.compile(rb'"query"\s*:\s*\{\s*"id"\s*:\s*"?([^",}]*)')
_WANTED = 'expected {"query": {"id": …}, "items": [{"id": …, "score": …}, …]}'


class JsonlReader:
    """Reads one JSONL file into columns.

    Args:
        source: The opened file.
        columns: Where the rows go.

    Attributes:
        notes: What a user should know about the file.
    """

    def __init__(self, source: RunBytes, columns: RunColumns) -> None:
        self._source = source
        self._columns = columns
        self._decode_plain = msgspec.json.Decoder(_PlainLine).decode
        self._decode = msgspec.json.Decoder(_Line).decode
        self._has_number_ids = False
        self._has_text_ids = False
        self.notes: list[str] = []

    def read(self) -> None:
        """Read to the end.

        Raises:
            RunFileError: A line is malformed.
        """
        for number, line in self._source.lines():
            if _PASSAGE_KEY not in line:
                try:
                    plain = self._decode_plain(line)
                except (msgspec.MsgspecError, UnicodeError, RecursionError):
                    pass  # the general form reads it, or says what is wrong
                else:
                    self._has_text_ids = True
                    items = plain.items
                    if may_have_doubled(line, len(items), has_passages=False):
                        refuse_doubled(self._source, number, line)
                    doc_ids = [item.id for item in items]
                    self._columns.add_ranking(plain.query.id, doc_ids, [item.score for item in items], number)
                    continue
            if not line.isspace():
                self._read_general(number, line)
        if self._has_number_ids:
            mixed = " in some places and strings in others" if self._has_text_ids else ""
            self.notes.append(f"ids are numbers{mixed}; they are read as text (7 is '7')")

    def _read_general(self, number: int, line: bytes) -> None:
        try:
            parsed = self._decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            parsed = self._read_slowly(number, line)
        has_passages = any(item.passage_id is not None for item in parsed.items)
        if may_have_doubled(line, len(parsed.items), has_passages=has_passages):
            refuse_doubled(self._source, number, line)
        self._add(number, parsed)

    def _add(self, number: int, line: _Line) -> None:
        items = line.items
        query_id, *doc_ids = self._text([line.query.id, *[item.id for item in items]])
        passages = [item.passage_id for item in items]
        n_without = passages.count(None)
        if n_without not in {0, len(items)}:
            raise self._source.error("only some documents have a passage_id; give it to all or to none", number)
        kept = None if n_without or not items else self._text([passage for passage in passages if passage is not None])
        self._columns.add_ranking(query_id, doc_ids, [item.score for item in items], number, kept)

    def _text(self, ids: list[_Id]) -> list[str]:
        kinds = set(map(type, ids))
        if int not in kinds:
            self._has_text_ids = True
            return ids  # type: ignore[return-value]
        self._has_number_ids = True
        self._has_text_ids |= str in kinds
        return list(map(str, ids))

    def _read_slowly(self, number: int, line: bytes) -> _Line:
        try:
            value = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise self._source.error(
                f"byte {error.start + 1} of the line is not UTF-8; convert the file: iconv -f LATIN1 -t UTF-8", number
            ) from error
        except RecursionError as error:
            raise self._source.error("the JSON is nested too deeply to be a run", number) from error
        except ValueError as error:
            raise self._no_json(number, line, error) from error
        return explain(self._source, number, value)

    def _no_json(self, number: int, line: bytes, error: ValueError) -> RunFileError:
        text = line.strip()
        if text == b"{":
            return self._source.error("a record spans several lines; write one JSON object a line: jq -c .", number)
        if text.startswith(b"["):
            return self._source.error("records stand in a list; write one JSON object a line: jq -c '.[]'", number)
        if not line.endswith(b"\n"):
            match = _QUERY_ID.search(line)
            where = f" of query '{match[1].decode('utf-8', 'replace')}'" if match else ""
            return self._source.error(
                f"the line ends in the middle{where}: the file was cut; write the run again", number
            )
        return self._source.error(f"no JSON ({error}); {_WANTED}", number)


def explain(source: RunBytes, number: int, value: Any) -> _Line:
    """Return ``value`` as a line.

    Raises:
        RunFileError: It is none; the message names the offender.
    """
    if not isinstance(value, dict):
        raise source.error(f"a line holds a JSON {_kind(value)}; {_WANTED}", number)
    if "query" not in value or "items" not in value:
        found = ", ".join(f"'{key}'" for key in list(value)[:8])
        raise source.error(f"the line has the keys {found or 'none'}; {_WANTED}", number)
    query, items = value["query"], value["items"]
    if not isinstance(query, dict) or "id" not in query:
        raise source.error(f"'query' is no object with an 'id'; {_WANTED}", number)
    query_id = as_id(source, number, query["id"], "the query")
    if not isinstance(items, list):
        raise source.error(f"query '{query_id}': 'items' is a JSON {_kind(items)}, no list; {_WANTED}", number)
    return _Line(
        _Query(query_id), [_explain_item(source, number, f"{query_id}", at, item) for at, item in enumerate(items, 1)]
    )


def _explain_item(source: RunBytes, number: int, query_id: str, at: int, item: Any) -> _Item:
    if not isinstance(item, dict) or "id" not in item:
        raise source.error(f"query '{query_id}': item {at} is no object with an 'id'; {_WANTED}", number)
    doc_id = as_id(source, number, item["id"], f"query '{query_id}', item {at}")
    score = as_score(source, number, item.get("score"), query_id, doc_id)
    passage = item.get("passage_id")
    return _Item(doc_id, score, None if passage is None else as_id(source, number, passage, f"passage_id of item {at}"))


def as_id(source: RunBytes, number: int | None, value: Any, where: str) -> str | int:
    """Return ``value`` when it can be an id: text or a whole number."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise source.error(f"{where}: the id is a JSON {_kind(value)}; write it as a string", number)
    try:
        f"{value}".encode()
    except UnicodeEncodeError as error:
        raise source.error(
            f"{where}: the id {value!a} holds half a surrogate pair, which no text can hold", number
        ) from error
    except ValueError as error:
        raise source.error(
            f"{where}: the id is a number of more than 4300 digits; write it as a string", number
        ) from error
    return value


def as_score(source: RunBytes, number: int | None, value: Any, query_id: str, doc_id: str | int) -> float:
    """Return ``value`` as a score when it is a number."""
    if value is None:
        raise source.error(f"query '{query_id}': document '{doc_id}' has no score; give it a number", number)
    if isinstance(value, bool) or not isinstance(value, int | float):
        shown = f" {value!a}" if isinstance(value, str) else ""
        raise source.error(
            f"query '{query_id}': the score of document '{doc_id}' is a JSON {_kind(value)}{shown}; write a number",
            number,
        )
    try:
        return float(value)
    except OverflowError as error:
        raise source.error(
            f"query '{query_id}': the score of document '{doc_id}' is beyond the range of a float", number
        ) from error


def _kind(value: Any) -> str:
    names = {
        dict: "object",
        list: "list",
        str: "string",
        bool: "true or false",
        type(None): "null",
        int: "number",
        float: "number",
    }
    return names[type(value)]
