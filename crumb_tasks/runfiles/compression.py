"""The bytes of a run file: peeked at, hashed, decompressed as they are read, and bounded.

Compression is told by magic bytes, never by a suffix. Two limits keep a reader's memory and time within its input:
compressed data may grow to `GROWTH_LIMIT` times their size (but always to `FREE_BYTES`), and a line may hold
`LINE_LIMIT` bytes.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import pyarrow as pa

from crumb_tasks.errors import RunFileError, UsageError

FREE_BYTES = 256 * 2**20
GROWTH_LIMIT = 200
LINE_LIMIT = 64 * 2**20
PEEK_BYTES = 64 * 2**10
_BLOCK = 2**18
_GZIP = b"\x1f\x8b"
_ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes((0x50 + low,)) + b"\x2a\x4d\x18" for low in range(16)))
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_ELSEWHERE = {b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip", b"7z\xbc\xaf": "7z", b"\x04\x22\x4d\x18": "lz4"}
_SHOWN = 120
_LONG_NAME = re.compile(rf"'[^']{{{_SHOWN},}}'")
_BOM = b"\xef\xbb\xbf"
_BLANK = _BOM + b" \t\n\r\x0b\x0c"


class RunBytes:
    """A run file opened for reading, decompressed; a context manager.

    Attributes:
        path: What messages call it; ``-`` is standard input.
        line: The line that the reader has reached, for messages; ``None`` before the first and in binary formats.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = str(path)
        self.line: int | None = None
        self.n_read = 0
        self._hash = hashlib.sha256()
        self._handle: BinaryIO | None = None
        self._ahead = b""
        self._is_compressed = False
        self._blocks: Iterator[bytes] = iter(())

    def __enter__(self) -> Self:
        if not self.path:
            raise UsageError("the name of a file is empty; name one, or - for standard input")
        try:
            self._handle = sys.stdin.buffer if self.path == "-" else Path(self.path).open("rb")
        except FileNotFoundError as error:
            raise self.error("no such file; check its name") from error
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror or error})") from error
        try:
            self._blocks = self._decompressed()
            self._ahead = self._first_bytes().removeprefix(_BOM)
            self._refuse_foreign(self._ahead)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None and self.path != "-":
            self._handle.close()

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes as they lie on disk, as far as they were read."""
        return self._hash.hexdigest()

    @property
    def is_plain(self) -> bool:
        """Whether the file can be opened again by its path and holds what is read."""
        return self.path != "-" and not self._is_compressed and Path(self.path).is_file()

    def error(self, problem: str, line: int | None = None) -> RunFileError:
        """Return the error for ``problem`` at ``line``, by default at the line that the reader has reached."""
        short = _LONG_NAME.sub(lambda match: f"{match[0][:_SHOWN]}…'", problem)
        return RunFileError(self.path, self.line if line is None else line, short)

    def peek(self) -> bytes:
        """Return the first bytes, at most `PEEK_BYTES` and a block, without consuming them."""
        return self._ahead

    def blocks(self) -> Iterator[bytes]:
        """Yield the rest in pieces of any size above zero."""
        ahead, self._ahead = self._ahead, b""
        if ahead:
            yield ahead
        yield from self._blocks

    def line_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield ``(number of the first line, whole lines)``; only the last piece may lack its line end."""
        rest: list[bytes] = []
        n_rest = 0
        self.line = first = 1
        for block in self.blocks():
            end = block.rfind(b"\n") + 1
            if end == 0:
                rest.append(block)
                n_rest += len(block)
                if n_rest > LINE_LIMIT:
                    raise self.error(
                        f"the line is longer than {LINE_LIMIT // 2**20} MiB; is this a run with one record a line?"
                    )
                continue
            whole = b"".join((*rest, block[:end]))
            yield first, whole
            self.line = first = first + whole.count(b"\n")
            rest, n_rest = [block[end:]], len(block) - end
        if n_rest:
            yield first, b"".join(rest)

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield ``(line number, line)`` with its line end; lines end at U+000A alone."""
        for first, block in self.line_blocks():
            start = 0
            number = first
            while (end := block.find(b"\n", start) + 1) > 0:
                self.line = number
                yield number, block[start:end]
                start, number = end, number + 1
            if start < len(block):
                self.line = number
                yield number, block[start:]

    def read_all(self) -> bytes:
        """Return the rest as one value, for formats that need random access."""
        return b"".join(self.blocks())

    def read(self, size: int = -1) -> bytes:
        """Read raw bytes for Arrow's decompressor."""
        if self._handle is None:
            return b""
        try:
            data = self._handle.read(_BLOCK if size < 0 else size)
        except OSError as error:
            raise self.error(f"cannot be read ({error.strerror or error})") from error
        self._hash.update(data)
        self.n_read += len(data)
        return data

    def _first_bytes(self) -> bytes:
        """Return the blank bytes that lead, and what tells the format behind them."""
        pieces: list[bytes] = []
        n_blank = n_told = 0
        while n_told < PEEK_BYTES and (block := next(self._blocks, b"")):
            pieces.append(block)
            if n_told or block.strip(_BLANK):
                n_told += len(block)
            elif (n_blank := n_blank + len(block)) > LINE_LIMIT:
                raise self.error(f"the first {LINE_LIMIT // 2**20} MiB are blank; is this a run?", 1)
        return b"".join(pieces)

    def _decompressed(self) -> Iterator[bytes]:
        head = self.read(_BLOCK)
        while 0 < len(head) < 4 and (more := self.read(_BLOCK)):
            head += more
        self._is_compressed = head.startswith((_GZIP, *_ZSTD))
        if head.startswith(_GZIP):
            return self._bounded(self._gunzip(head))
        if head.startswith(_ZSTD):
            return self._bounded(self._unzstd(head))
        return self._plain(head)

    def _plain(self, head: bytes) -> Iterator[bytes]:
        while head:
            yield head
            head = self.read(_BLOCK)

    def _bounded(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        total = 0
        for block in blocks:
            total += len(block)
            if total > max(FREE_BYTES, GROWTH_LIMIT * self.n_read):
                raise self.error(
                    f"decompressed data passed {FREE_BYTES // 2**20} MiB and {GROWTH_LIMIT} times their compressed "
                    "size: stopped; if the file is what you think it is, decompress it first"
                )
            yield block

    def _gunzip(self, data: bytes) -> Iterator[bytes]:
        decoder = zlib.decompressobj(wbits=31)
        try:
            while True:
                while data and not decoder.eof:
                    if block := decoder.decompress(data, _BLOCK):
                        yield block
                    data = decoder.unconsumed_tail
                if decoder.eof:
                    data = decoder.unused_data or self.read(_BLOCK)
                    if not data.strip(b"\0"):  # gzip -c pads with zeros on some systems
                        return
                    decoder = zlib.decompressobj(wbits=31)
                elif not (data := self.read(_BLOCK)):
                    raise self.error("the gzip data end in the middle: the file was cut; copy or write it again")
        except zlib.error as error:
            raise self.error(f"the gzip data are damaged ({error}); copy or write the file again") from error

    def _unzstd(self, head: bytes) -> Iterator[bytes]:
        try:
            with pa.CompressedInputStream(pa.PythonFile(_Prefixed(head, self), mode="r"), "zstd") as stream:
                while block := stream.read(_BLOCK):
                    yield bytes(block)
        except RunFileError:
            raise
        except OSError as error:  # pa.ArrowException for I/O is an OSError
            cut = "Truncated" in str(error)
            problem = "end in the middle: the file was cut" if cut else f"are damaged ({error})"
            raise self.error(f"the zstd data {problem}; copy or write it again") from error

    def _refuse_foreign(self, head: bytes) -> None:
        names = (
            ["bzip2"] if _BZIP2.match(head) else [name for magic, name in _ELSEWHERE.items() if head.startswith(magic)]
        )
        if names:
            raise self.error(f"{names[0]} data are not read; decompress the file, or use gzip or zstd")
        if head.startswith((_GZIP, *_ZSTD)):
            raise self.error("the file is compressed twice; decompress it once")
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise self.error("the text is UTF-16; convert it: iconv -f UTF-16 -t UTF-8", 1)


class _Prefixed:
    """A reader that gives ``head`` back before it goes on; what ``pa.PythonFile`` needs of a file."""

    closed = False

    def __init__(self, head: bytes, source: RunBytes) -> None:
        self._head = head
        self._source = source

    def read(self, size: int) -> bytes:
        if not self._head:
            return self._source.read(size)
        data, self._head = self._head[:size], self._head[size:]
        return data

    def close(self) -> None:
        """Leave the source to its owner."""
