"""Rewritten queries: other texts for the queries of a task, from a file.

CRUMB's rewritings are JSON lines with ``id``, ``content`` and the ``original_item`` they were made from
(https://github.com/jfkback/crumb); a table of ``id`` and text separated by a tab is read as well. Query ids of two
tasks may be equal. What tells their lines apart is the original text, a ``task``, or a folder with a file for each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.models.instructions import path_safe, short_hash

_IDS = ("id", "_id", "query_id", "qid")
_TEXTS = ("content", "text", "query")
_ORIGINALS = ("query_content", *_TEXTS)
_SUFFIXES = (".jsonl", ".tsv")
TELL_APART = "tell tasks apart by 'original_item' or 'task' in the lines, or give a folder with a file for each task"


@dataclass(frozen=True)
class Rewriting:
    """One line.

    Attributes:
        text: What is sent.
        original: The query that it was made from, empty where the line does not say.
    """

    text: str
    original: str = ""


@dataclass(frozen=True)
class RewrittenQueries:
    """Texts by query id.

    Attributes:
        name: Of the file or folder, without its suffix.
        sha256: Of its bytes.
        by_id_by_task: The lines of each task; under the empty name those that name none.
    """

    name: str
    sha256: str
    by_id_by_task: Mapping[str, Mapping[str, Sequence[Rewriting]]]

    @property
    def token(self) -> str:
        """A short name for folders."""
        return f"{self.name[:32]}-{self.sha256[:8]}"

    def texts(self, task: str, aliases: Iterable[str], text_by_id: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Return the text of each query, and the ids of those that might be another task's.

        Args:
            task: The task's name.
            aliases: Other names under which its lines may stand.
            text_by_id: All queries of the split as they are.

        Raises:
            DataError: A query has no text, or several and nothing tells which; the message names such queries.
        """
        named = [self.by_id_by_task[name] for name in (task, *aliases) if name in self.by_id_by_task]
        shared = self.by_id_by_task.get("", {})
        texts: list[str] = []
        missing, unclear, unproven = [], [], []
        for query_id, original in text_by_id.items():
            own = next((by_id[query_id] for by_id in named if query_id in by_id), None)
            lines = shared.get(query_id, ()) if own is None else own
            of_it = [line for line in lines if _normal(line.original) == _normal(original)]
            found = {line.text for line in of_it or lines}
            if own is None and not of_it:
                unproven.append(query_id)
            if not found:
                missing.append(query_id)
            elif len(found) > 1:
                unclear.append(query_id)
            texts += sorted(found)[:1]
        if missing:
            raise DataError(
                f"{task}: {len(missing)} of {len(text_by_id)} queries are not in '{self.name}': {_some(missing)}; a "
                "run with some queries rewritten and others not is neither"
            )
        if unclear:
            count = len(unclear)
            raise DataError(
                f"{task}: {count} queries have several texts in '{self.name}': {_some(unclear)}; {TELL_APART}"
            )
        return texts, unproven


def _normal(text: str) -> str:
    return " ".join(text.split())


def _some(query_ids: Sequence[str], most: int = 10) -> str:
    more = f" and {len(query_ids) - most} more" if len(query_ids) > most else ""
    return ", ".join(f"'{query_id}'" for query_id in query_ids[:most]) + more


def read_rewritten(path: Path) -> RewrittenQueries:
    """Read a file, or a folder with one file per task.

    Raises:
        UsageError: There is none, or a folder without such files.
        DataError: A line is not what it should be; the message names it.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
        if not files:
            raise UsageError(f"{path} holds no {' or '.join(_SUFFIXES)} file; name them after the tasks")
        by_task: dict[str, dict[str, list[Rewriting]]] = {}
        for file in files:
            for task, lines in _read(file).items():
                by_task.setdefault(task or file.stem, {}).update(lines)
    elif path.is_file():
        files = [path]
        by_task = _read(path)
    else:
        raise UsageError(f"there is no file or folder {path} with rewritten queries")
    digest = hashlib.sha256()
    for file in files:
        digest.update((b"" if len(files) == 1 else file.name.encode() + b"\0") + file.read_bytes())
    return RewrittenQueries(path_safe(path.stem) or short_hash(path.stem), digest.hexdigest(), by_task)


def _read(path: Path) -> dict[str, dict[str, list[Rewriting]]]:
    by_task: dict[str, dict[str, list[Rewriting]]] = {}
    rows = _tsv_rows(path) if path.suffix == ".tsv" else _json_rows(path)
    for number, task, query_id, line in rows:
        if not line.text.strip():
            raise DataError(f"{path}:{number}: the text of query '{query_id}' is empty")
        by_task.setdefault(task, {}).setdefault(query_id, []).append(line)
    if not by_task:
        raise DataError(f"{path}: the file holds no query")
    return by_task


def _json_rows(path: Path) -> Iterator[tuple[int, str, str, Rewriting]]:
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}:{number}: "
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"{where}no JSON ({error}); expected lines with 'id' and 'content'") from error
            if not isinstance(row, dict):
                raise DataError(f"{where}expected an object with 'id' and 'content'")
            query_id, text = _first(row, _IDS), _first(row, _TEXTS)
            if not isinstance(query_id, str | int) or not isinstance(text, str):
                raise DataError(f"{where}expected 'id' and 'content'; found: {', '.join(map(str, row))}")
            yield (
                number,
                str(row.get("task") or ""),
                str(query_id),
                Rewriting(text, _original(row.get("original_item"))),
            )


def _original(item: Any) -> str:
    """Return the query that a line was made from: a text, or an object that holds one."""
    text = _first(item, _ORIGINALS) if isinstance(item, dict) else item
    return text if isinstance(text, str) else ""


def _first(row: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _tsv_rows(path: Path) -> Iterator[tuple[int, str, str, Rewriting]]:
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, 1):
            cells = line.rstrip("\r\n").split("\t")
            if cells == [""] or (number == 1 and cells[0] in _IDS):
                continue
            if len(cells) != 2:
                raise DataError(f"{path}:{number}: expected a query id and its text, found {len(cells)} columns")
            yield number, "", cells[0], Rewriting(cells[1])
