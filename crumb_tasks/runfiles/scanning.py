"""A walk over the outer levels of one JSON value that is read piece by piece."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from crumb_tasks.runfiles.compression import LINE_LIMIT, RunBytes

_SPACE = re.compile(rb"[ \t\r\n]*+")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_FLAT = re.compile(rb'\{(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)


class Scanner:
    """Walks over the outer levels of a JSON value; holds the part that is not yet consumed and no more."""

    def __init__(self, source: RunBytes) -> None:
        self._source = source
        self._blocks = source.blocks()
        self._text = b""
        self._at = 0
        self._counted = 0
        self._dropped = 0
        self._n_line_ends = 0
        self._hold: int | None = None
        self._is_whole = False
        source.line = 1

    @property
    def line(self) -> int:
        """Line of the next byte."""
        if self._at > self._counted:
            self._n_line_ends += self._text.count(b"\n", self._counted, self._at)
            self._counted = self._at
        self._source.line = self._n_line_ends + 1
        return self._source.line

    def fail(self, problem: str) -> NoReturn:
        """Refuse the file at this place."""
        raise self._source.error(f"{problem} (byte {self._dropped + self._at + 1})", self.line)

    def cut(self, path: tuple[str, ...]) -> NoReturn:
        """Refuse the file, which ends here."""
        where = f" in the middle of '{path[-1]}'" if path else ""
        raise self._source.error(f"the JSON ends{where}: the file was cut; write the run again", self.line)

    def peek_byte(self) -> bytes:
        """Return the next byte that is no space, empty at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def skip(self, byte: bytes) -> bool:
        """Consume ``byte`` if it comes next."""
        if self.peek_byte() != byte:
            return False
        self._at += 1
        return True

    def expect(self, byte: bytes, problem: str, path: tuple[str, ...] = ()) -> None:
        """Consume ``byte`` or refuse the file."""
        if not self.skip(byte):
            if self.peek_byte() == b"":
                self.cut(path)
            self.fail(problem)

    def key(self, path: tuple[str, ...]) -> str:
        """Consume a key and its colon."""
        if self.peek_byte() not in (b'"', b""):
            self.fail("expected a key in double quotes")
        raw = self._string(path)
        self.expect(b":", "expected a colon", path)
        try:
            key = json.loads(raw.decode("utf-8"))
            key.encode("utf-8")
        except ValueError as error:
            self.fail(f"the key {ascii(raw[:60])[1:]} is no text ({type(error).__name__})")
        return str(key)

    def first_value_of_object(self, path: tuple[str, ...]) -> bytes:
        """Return the first byte of the first value in the object that comes next, ``}`` when it has none."""
        self._hold = self._at
        try:
            self._at += 1
            first = self.peek_byte()
            if first == b"}":
                return first
            if first not in (b'"', b""):
                self.fail("expected a key in double quotes")
            self._string(path)
            self.expect(b":", "expected a colon", path)
            if (first := self.peek_byte()) == b"":
                self.cut(path)
            return first
        finally:
            self._at, self._hold = self._hold, None

    def flat_object(self, path: tuple[str, ...]) -> bytes:
        """Consume an object without objects inside and return its text."""
        while True:
            match = _FLAT.match(self._text, self._at)
            end = match.end() if match else self._at
            following = self._text[end : end + 1]
            if following == b"}":
                text = self._text[self._at : end + 1]
                self._at = end + 1
                return text
            if following == b"{":
                self.fail(f"'{path[-1]}' holds an object where a score should stand")
            if not self._more():
                self.cut(path)

    def _string(self, path: tuple[str, ...]) -> bytes:
        while (match := _STRING.match(self._text, self._at)) is None:
            if not self._more():
                self.cut(path)
        self._at = match.end()
        return match[0]

    def _more(self) -> bool:
        """Read at least as much as is held, so that rescanning stays linear; drop what is consumed."""
        if self._is_whole:
            return False
        _ = self.line
        keep = self._at if self._hold is None else self._hold
        held = self._text[keep:]
        if len(held) > LINE_LIMIT:
            self.fail(f"one query's object is longer than {LINE_LIMIT // 2**20} MiB; is this a run?")
        pieces, size = [held], 0
        while size < max(len(held), 1):
            block = next(self._blocks, b"")
            if not block:
                self._is_whole = True
                break
            pieces.append(block)
            size += len(block)
        self._text = b"".join(pieces)
        self._dropped += keep
        self._at -= keep
        self._counted -= keep
        if self._hold is not None:
            self._hold = 0
        return size > 0
