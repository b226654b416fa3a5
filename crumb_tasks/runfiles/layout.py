"""What the columns of a TREC file mean, told by how many there are and by its first line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIXED = b"q0"


@dataclass(frozen=True)
class Layout:
    """Which column holds what; ``None`` where the file lacks it."""

    n_columns: int
    document: int
    score: int
    rank: int | None
    tag: int | None
    words: str


_BY_COLUMNS = {
    6: Layout(6, document=2, score=4, rank=3, tag=5, words="query Q0 document rank score tag"),
    5: Layout(5, document=2, score=4, rank=3, tag=None, words="query Q0 document rank score"),
    4: Layout(4, document=2, score=3, rank=None, tag=None, words="query Q0 document score"),
}
_WITHOUT_FIXED = {
    5: Layout(5, document=1, score=3, rank=2, tag=4, words="query document rank score tag"),
    4: Layout(4, document=1, score=3, rank=2, tag=None, words="query document rank score"),
}
EXPECTED = "expected 6 columns (query Q0 document rank score tag)"


def layout_of(fields: Sequence[bytes]) -> Layout | None:
    """Return the layout of a file whose first line has these fields, ``None`` where there is none of so many."""
    if len(fields) < 6 and len(fields) in _WITHOUT_FIXED and fields[1].lower() != FIXED:
        return _WITHOUT_FIXED[len(fields)]
    return _BY_COLUMNS.get(len(fields))


def explain_foreign(line: bytes, fields: Sequence[bytes]) -> str:
    """Return why a line is no row of a TREC file."""
    shown = b" ".join(fields)[:60].decode("utf-8", "replace")
    if b"\r" in line.rstrip(b"\r"):
        return "line ends are bare CR; convert them to LF"
    if len(fields) == 3:
        return f"3 columns hold no score ('{shown}'); {EXPECTED}"
    if fields[0].startswith((b"{", b"[")):
        return f"JSON is no TREC run ('{shown}'); leave --format out"
    if len(fields) == 1 and b"," in fields[0]:
        return f"comma-separated values are not read ('{shown}'); {EXPECTED}, or JSONL, JSON or Parquet"
    return f"{EXPECTED}, found {len(fields)} ('{shown}')"
