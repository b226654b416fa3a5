"""Rewritten queries: other texts for the queries of a task, from a file.

CRUMB's rewritings are JSON lines with ``id`` and ``content`` (https://github.com/jfkback/crumb); a table of ``id`` and
text separated by a tab is read as well. One file may serve several tasks as long as their query ids differ; lines may
name their ``task``, and a folder holds a file for each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.models.instructions import short_hash

_IDS = ("id", "_id", "query_id", "qid")
_TEXTS = ("content", "text", "query")
_SUFFIXES = (".jsonl", ".tsv")


@dataclass(frozen=True)
class RewrittenQueries:
    """Texts by query id.

    Attributes:
        name: Of the file or folder, without its suffix.
        sha256: Of its bytes.
        text_by_id_by_task: The texts of each task; under the empty name those of lines that name none.
    """

    name: str
    sha256: str
    text_by_id_by_task: Mapping[str, Mapping[str, str]]

    @property
    def token(self) -> str:
        """A short name for folders."""
        return f"{self.name[:32]}-{self.sha256[:8]}"

    def texts(self, task: str, aliases: Iterable[str], query_ids: Iterable[str]) -> list[str]:
        """Return the text of each query.

        Args:
            task: The task's name.
            aliases: Other names under which the texts may stand.
            query_ids: All queries of the split.

        Raises:
            DataError: A query has no text; the message names those.
        """
        by_id: dict[str, str] = dict(self.text_by_id_by_task.get("", {}))
        for name in (*aliases, task):
            by_id |= self.text_by_id_by_task.get(name, {})
        wanted = list(query_ids)
        missing = [query_id for query_id in wanted if query_id not in by_id]
        if missing:
            named = ", ".join(f"'{query_id}'" for query_id in missing[:10])
            more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
            raise DataError(
                f"{task}: {len(missing)} of {len(wanted)} queries are not in '{self.name}': {named}{more}; a run with "
                "some queries rewritten and others not is neither"
            )
        return [by_id[query_id] for query_id in wanted]

    def is_shared(self, task: str, aliases: Iterable[str]) -> bool:
        """Return whether ``task`` takes its texts from lines that name no task."""
        return not any(name in self.text_by_id_by_task for name in (task, *aliases))


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
        by_task: dict[str, dict[str, str]] = {}
        for file in files:
            for task, texts in _read(file).items():
                by_task.setdefault(task or file.stem, {}).update(texts)
    elif path.is_file():
        files = [path]
        by_task = _read(path)
    else:
        raise UsageError(f"there is no file or folder {path} with rewritten queries")
    digest = hashlib.sha256()
    for file in files:
        digest.update((b"" if len(files) == 1 else file.name.encode() + b"\0") + file.read_bytes())
    return RewrittenQueries(_safe(path.stem), digest.hexdigest(), by_task)


def _read(path: Path) -> dict[str, dict[str, str]]:
    by_task: dict[str, dict[str, str]] = {}
    rows = _tsv_rows(path) if path.suffix == ".tsv" else _json_rows(path)
    for line, task, query_id, text in rows:
        where = f"{path}:{line}: "
        if not text.strip():
            raise DataError(f"{where}the text of query '{query_id}' is empty")
        texts = by_task.setdefault(task, {})
        if texts.setdefault(query_id, text) != text:
            raise DataError(f"{where}query '{query_id}' stands there twice with different texts; keep one")
    if not by_task:
        raise DataError(f"{path}: the file holds no query")
    return by_task


def _json_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
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
            yield number, str(row.get("task") or ""), str(query_id), text


def _first(row: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _tsv_rows(path: Path) -> Iterator[tuple[int, str, str, str]]:
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, 1):
            cells = line.rstrip("\r\n").split("\t")
            if cells == [""] or (number == 1 and cells[0] in _IDS):
                continue
            if len(cells) != 2:
                raise DataError(f"{path}:{number}: expected a query id and its text, found {len(cells)} columns")
            yield number, "", cells[0], cells[1]


def _safe(name: str) -> str:
    kept = "".join(character if character.isalnum() or character in "._-" else "-" for character in name)
    return kept.strip(".-") or short_hash(name)
