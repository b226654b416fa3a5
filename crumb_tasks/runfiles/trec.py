"""TREC runs: ``query Q0 document rank score tag``, one row a line, columns parted by spaces or tabs.

Scores decide; ranks are read only to say when they contradict the scores (trec_eval ignores them as well). Rows of
five and four columns are read where their meaning is certain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crumb_tasks.runfiles.columns import RunColumns
from crumb_tasks.runfiles.compression import RunBytes
from crumb_tasks.runfiles.layout import EXPECTED, FIXED, Layout, explain_foreign, layout_of
from crumb_tasks.runfiles.tokens import is_number, is_rank, is_utf8, tokens_by_line

_DEEP = 10


class TrecReader:
    """Reads one TREC file into columns.

    Args:
        source: The opened file.
        columns: Where the rows go.
        tag: Keep only the rows of this system.

    Attributes:
        notes: What a user should know about the file.
        tag: The system's name in the file.
    """

    def __init__(self, source: RunBytes, columns: RunColumns, tag: str | None = None) -> None:
        self._source = source
        self._columns = columns
        self._only = None if tag is None else tag.encode("utf-8", "surrogateescape")
        self._layout: Layout | None = None
        self._tag: bytes | None = self._only
        self._tag_line = 0
        self._odd_rank: tuple[int, bytes] | None = None
        self._ends_whole = True
        self._seen_tags: set[bytes] = set()
        self.notes: list[str] = []

    @property
    def tag(self) -> str | None:
        """The system's name in the file."""
        return None if self._tag is None else self._tag.decode("utf-8", "replace")

    def read(self) -> None:
        """Read to the end.

        Raises:
            RunFileError: A line is malformed, or the file holds two systems.
        """
        for first_line, block in self._source.line_blocks():
            self._ends_whole = block.endswith(b"\n")
            self._read_block(first_line, block)
        if self._odd_rank is not None:
            line, rank = self._odd_rank
            self.notes.append(
                f"the rank {ascii(rank)[1:]} (line {line}) is no whole number, so ranks were not compared with scores"
            )
        if not self._ends_whole and self._layout is not None and self._layout.score == self._layout.n_columns - 1:
            self.notes.append("the last line has no line end: was the file cut in the middle of its score?")
        if self._only is not None and self._columns.n_rows == 0 and self._seen_tags:
            seen = ", ".join(sorted(f"'{tag.decode('utf-8', 'replace')}'" for tag in self._seen_tags)[:5])
            raise self._source.error(f"no row has the tag '{self.tag}'; the file has {seen}")

    def _read_block(self, first_line: int, block: bytes) -> None:
        tokens = block.split()
        if not tokens:
            return
        counts = tokens_by_line(block)
        lines = np.flatnonzero(counts)
        layout = self._layout or self._find_layout(block, first_line + int(lines[0]))
        if (at := block.find(b"\0")) >= 0:
            line = first_line + block.count(b"\n", 0, at)
            raise self._source.error("the line holds a NUL byte, which no id may; write the run again", line)
        wrong = lines[counts[lines] != layout.n_columns]
        if wrong.size:
            raise self._column_error(layout, int(counts[wrong[0]]), first_line + int(wrong[0]), block, int(wrong[0]))
        n = layout.n_columns
        rows = _Rows(layout, tokens, first_line + lines)
        if layout.tag is not None:
            rows = self._of_one_system(rows, tokens[layout.tag :: n])
        self._add(rows)

    def _add(self, rows: _Rows) -> None:
        if not len(rows.lines):
            return
        layout = rows.layout
        doc_ids = self._text(rows, layout.document, "document id")
        query_ids = self._text(rows, 0, "query id")
        scores = self._scores(rows)
        ranks = self._ranks(rows)
        if layout.n_columns < 6:
            self._refuse_unclear(rows, layout, has_ranks=ranks is not None)
        edges = np.flatnonzero(np.concatenate([[True], rows.lines[1:] != rows.lines[:-1] + 1]))
        for start, end in zip(edges.tolist(), [*edges[1:].tolist(), len(rows.lines)], strict=True):
            queries = _stretches(query_ids.slice(start, end - start))
            before = np.cumsum([0, *(n_rows for _, n_rows in queries[:-1])])
            self._columns.add(
                queries,
                doc_ids.slice(start, end - start),
                scores[start:end],
                lines=rows.lines[start + before].tolist(),
                row_lines=True,
                ranks=None if ranks is None else ranks[start:end],
            )

    def _refuse_unclear(self, rows: _Rows, layout: Layout, *, has_ranks: bool) -> None:
        """Rows of less than six columns must all say in the same way what they hold."""
        has_fixed = layout.document == 2
        for line, token in zip(rows.lines.tolist(), rows.column(1), strict=True):
            if (token.lower() == FIXED) != has_fixed:
                raise self._source.error(
                    f"column 2 is {ascii(token)[1:]} here and not on other lines, so what the {layout.n_columns} "
                    f"columns mean is unclear; {EXPECTED}",
                    line,
                )
        seconds = rows.column(1)
        if not has_fixed and len(seconds) > 1 and seconds[0].isdigit() and seconds.count(seconds[0]) == len(seconds):
            self._refuse_iteration(layout, seconds[0], int(rows.lines[0]))
        if not has_fixed and not has_ranks:
            raise self._source.error(
                f"column 3 holds something that is no rank, so what the {layout.n_columns} columns mean is unclear; "
                f"{EXPECTED}",
                int(rows.lines[0]),
            )

    def _refuse_iteration(self, layout: Layout, second: bytes, line: int) -> None:
        """A number that stands for Q0, as in judgements, would be taken for a document and the document for a rank."""
        raise self._source.error(
            f"column 2 is '{second.decode()}', which may be an iteration or a document, so what the "
            f"{layout.n_columns} columns mean is unclear; {EXPECTED}",
            line,
        )

    def _find_layout(self, block: bytes, line: int) -> Layout:
        fields = block.lstrip().split(b"\n", 1)[0].split()
        layout = layout_of(fields)
        if layout is None:
            raise self._source.error(explain_foreign(block.lstrip().split(b"\n", 1)[0], fields), line)
        if layout.document == 1 and layout.tag is not None and fields[1].isdigit() and is_number(fields[layout.tag]):
            self._refuse_iteration(layout, fields[1], line)
        if layout.n_columns < 6:
            self.notes.append(f"{layout.n_columns} columns, read as: {layout.words}")
        self._score(fields[layout.score], line, is_first=True)
        self._layout = layout
        return layout

    def _column_error(self, layout: Layout, found: int, line: int, block: bytes, at: int) -> Exception:
        text = block.split(b"\n")[at]
        is_last = at == block.count(b"\n") and not self._ends_whole
        if is_last and found < layout.n_columns:
            return self._source.error(
                f"the file was cut in this line: expected {layout.n_columns} columns, found {found}; write it again",
                line,
            )
        if b"\r" in text.rstrip(b"\r"):
            return self._source.error(
                f"expected {layout.n_columns} columns, found {found}: line ends are bare CR; convert them to LF", line
            )
        more = "; an id with whitespace needs JSONL" if found > layout.n_columns else ""
        return self._source.error(f"expected {layout.n_columns} columns, found {found}{more}", line)

    def _of_one_system(self, rows: _Rows, tags: Sequence[bytes]) -> _Rows:
        if self._only is not None:
            self._seen_tags.update(tags if len(self._seen_tags) < 100 else ())
            return rows.keep([tag == self._only for tag in tags])
        if self._tag is None:
            self._tag, self._tag_line = tags[0], int(rows.lines[0])
        if tags.count(self._tag) == len(tags):
            return rows
        at, other = next((at, tag) for at, tag in enumerate(tags) if tag != self._tag)
        line = int(rows.lines[at])
        first, second = self._tag.decode("utf-8", "replace"), other.decode("utf-8", "replace")
        if at == len(tags) - 1 and not self._ends_whole and self._tag.startswith(other):
            raise self._source.error(
                f"the file was cut in this line: tag '{second}' where all others have '{first}'; write the run again",
                line,
            )
        raise self._source.error(
            f"two systems in one file: tag '{second}' begins here, lines from {self._tag_line} have '{first}'; "
            f"split the file, or choose one with --tag {first}",
            line,
        )

    def _text(self, rows: _Rows, column: int, what: str) -> pa.Array:
        tokens = rows.column(column)
        try:
            return pa.array(tokens, type=pa.binary()).cast(pa.string())
        except pa.ArrowInvalid as error:
            line, token = next(
                ((line, token) for line, token in zip(rows.lines.tolist(), tokens, strict=True) if not is_utf8(token)),
                (int(rows.lines[0]), tokens[0]),
            )
            raise self._source.error(
                f"the {what} {ascii(token)[1:]} is not UTF-8; convert the file: iconv -f LATIN1 -t UTF-8", line
            ) from error

    def _scores(self, rows: _Rows) -> NDArray[np.float64]:
        tokens = rows.column(rows.layout.score)
        try:
            parsed = pa.array(tokens, type=pa.binary()).cast(pa.string()).cast(pa.float64())
            return np.array(parsed.to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            return np.array([self._score(token, line) for token, line in zip(tokens, rows.lines.tolist(), strict=True)])

    def _score(self, token: bytes, line: int, *, is_first: bool = False) -> float:
        if is_number(token):
            return float(token)
        hint = ""
        if re.fullmatch(rb"[+-]?[0-9.]*,[0-9]+", token):
            hint = "; write its decimal sign as a point"
        elif is_first and any(map(str.isalpha, token.decode("utf-8", "replace"))):
            hint = "; is this a header? remove the line"
        raise self._source.error(f"the score {ascii(token)[1:]} is no number{hint}", line)

    def _ranks(self, rows: _Rows) -> NDArray[np.int32] | None:
        if rows.layout.rank is None or self._odd_rank is not None:
            return None
        tokens = rows.column(rows.layout.rank)
        try:
            parsed = pa.array(tokens, type=pa.binary()).cast(pa.string()).cast(pa.int32())
        except pa.ArrowInvalid:
            self._odd_rank = next(
                ((line, rank) for line, rank in zip(rows.lines.tolist(), tokens, strict=True) if not is_rank(rank)),
                (int(rows.lines[0]), tokens[0]),
            )
            return None
        return np.array(parsed.to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class _Rows:
    """Rows of a block as tokens, and their line numbers."""

    layout: Layout
    tokens: list[bytes]
    lines: NDArray[np.int64]

    def column(self, column: int) -> list[bytes]:
        return self.tokens[column :: self.layout.n_columns]

    def keep(self, wanted: Sequence[bool]) -> _Rows:
        n = self.layout.n_columns
        tokens = [
            token for row, is_kept in enumerate(wanted) if is_kept for token in self.tokens[row * n : row * n + n]
        ]
        return _Rows(self.layout, tokens, self.lines[np.asarray(wanted, dtype=bool)])


def _stretches(query_ids: pa.Array) -> list[tuple[str, int]]:
    """Return ``(query id, number of rows)`` for each stretch of rows of one query."""
    if len(query_ids) == 0:
        return []
    runs = pc.run_end_encode(query_ids)
    ends = runs.run_ends.to_numpy()
    return list(zip(runs.values.to_pylist(), np.diff(ends, prepend=0).tolist(), strict=True))


def note_short_last_query(counts: NDArray[np.int64], query_ids: Sequence[str]) -> str | None:
    """Return a note when only the last query has fewer documents than the depth that all others share.

    Of two queries the first must be deep enough to look like a chosen depth.
    """
    fewest = _DEEP if len(counts) == 2 else 2
    if len(counts) < 2 or counts[-1] >= counts[0] or not (counts[:-1] == counts[0]).all() or counts[0] < fewest:
        return None
    others = "the other has" if len(counts) == 2 else f"all {len(counts) - 1} others have"
    documents = "1 document" if counts[-1] == 1 else f"{counts[-1]} documents"
    return f"the last query '{query_ids[-1]}' has {documents} where {others} {counts[0]}: was the file cut?"
