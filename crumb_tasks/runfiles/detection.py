"""Which format a run file has, told by its first bytes and never by its name."""

from __future__ import annotations

import re
from typing import Literal, get_args

from crumb_tasks.errors import UsageError, did_you_mean
from crumb_tasks.runfiles.compression import RunBytes

Format = Literal["trec", "jsonl", "mteb", "json", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
_MAGIC = {
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "HDF5",
    b"%PDF": "a PDF",
    b"version https://git-lfs": "a Git LFS pointer (git lfs pull gets the file)",
    b"<!DOCTYPE": "a web page",
    b"<html": "a web page",
    b"ARROW1": "an Arrow IPC file, not Parquet",
    b"\x93NUMPY": "a NumPy array",
    b"\x89PNG": "a picture",
}
_ITEMS = re.compile(rb'"items"\s*:\s*\[')
_QUERY_OBJECT = re.compile(rb'\{\s*"query"\s*:\s*\{\s*"(id|content|token_ids|metadata)"\s*:')


def check_format(name: str) -> Format | None:
    """Return the format called ``name``, ``None`` for ``auto``.

    Raises:
        UsageError: There is no such format.
    """
    if name == "auto":
        return None
    for known in FORMATS:
        if name == known:
            return known
    raise UsageError(
        f"there is no run format '{name}'; there are auto, {', '.join(FORMATS)}{did_you_mean(name, FORMATS)}"
    )


def detect(source: RunBytes) -> Format:
    """Return the format of ``source``; ``json`` stands for both nested forms, which their reader tells apart.

    Raises:
        RunFileError: The file is empty or of no format that is read.
    """
    head = source.peek()
    text = head.lstrip()
    if not text:
        raise source.error("the file is empty; a run needs at least one row", 1)
    if head.startswith(b"PAR1"):
        return "parquet"
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            raise source.error(f"the file is {name}; expected TREC, JSONL, JSON or Parquet")
    if text.startswith(b"{") and not _is_row(text):
        return "jsonl" if _is_lines(text) else "json"
    if text.startswith(b"[") and not _is_row(text):
        raise source.error("the file is a JSON list; write one object a line: jq -c '.[]'", 1)
    if (at := head.find(b"\0")) >= 0:
        line = head.count(b"\n", 0, at) + 1
        raise source.error("the file holds NUL bytes, so it is no text; expected TREC, JSONL, JSON or Parquet", line)
    return "trec"


def _is_row(text: bytes) -> bool:
    """Whether what looks like JSON begins with a row of columns: an id may begin with a brace."""
    is_json = text[1:].lstrip()[:1] in {b'"', b"}", b"{", b""}
    return not is_json and 4 <= len(text.split(b"\n", 1)[0].split()) <= 6


def _is_lines(text: bytes) -> bool:
    """Whether an object is a line of CRUMB's format: no nested run holds a list, and no document is an object."""
    return _ITEMS.search(text) is not None or _QUERY_OBJECT.match(text) is not None
