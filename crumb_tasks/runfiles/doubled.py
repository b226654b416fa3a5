"""Keys that stand twice in one JSON object, of which a decoder keeps the last without a word."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from crumb_tasks.runfiles.compression import RunBytes


def may_have_doubled(line: bytes, n_items: int, *, has_passages: bool) -> bool:
    """Return whether a line of CRUMB's format, all of whose keys are there, holds more keys than these need.

    Each key has its colon, so that a line with no colon to spare holds none twice; counting one byte is quickest. A
    second query or list of items brings ids, which are counted.
    """
    return line.count(b":") > 3 + (3 if has_passages else 2) * n_items and (
        line.count(b'"id"') > n_items + 1
        or line.count(b'"score"') > n_items
        or (has_passages and line.count(b'"passage_id"') > n_items)
    )


def refuse_doubled(source: RunBytes, number: int, line: bytes) -> None:
    """Refuse a line in which a key that is read stands twice in one object.

    Raises:
        RunFileError: There is one; the message names the query and the key.
    """
    try:
        value = json.loads(line, object_pairs_hook=_Members)
    except (ValueError, RecursionError):
        return  # what is skipped without being read may be beyond Python's own reader
    for keys, members, where in _read_members(value):
        if twice := [key for key in keys if key in members.doubled]:
            query = value.get("query")
            query_id = query.get("id") if isinstance(query, dict) else None
            of = "" if query_id is None else f"query '{query_id}': "
            raise source.error(f"{of}the key '{twice[0]}' stands twice in {where}; keep one", number)


class _Members(dict[str, Any]):
    """An object that remembers which of its keys stood there twice."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs) if len(self) < len(pairs) else {}
        self.doubled = {key for key, count in counts.items() if count > 1}


def _read_members(value: Any) -> Iterator[tuple[tuple[str, ...], _Members, str]]:
    """Yield the objects of a line that are read, with the keys that are."""
    if not isinstance(value, _Members):
        return
    yield ("query", "items"), value, "the line"
    if isinstance(query := value.get("query"), _Members):
        yield ("id",), query, "its 'query'"
    if isinstance(items := value.get("items"), list):
        for at, item in enumerate(items, 1):
            if isinstance(item, _Members):
                yield ("id", "score", "passage_id"), item, f"item {at}"
