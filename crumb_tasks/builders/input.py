"""Raw dumps, read once from front to back: plain or gzip, with a digest of their bytes and a progress bar."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from crumb_tasks.errors import DataError
from crumb_tasks.loaders._manifest import BuiltFile, sha256_of

_BLOCK = 1 << 20
_BETWEEN = re.compile(r"[\s,]*")


class _Digested(io.RawIOBase):
    """A file that digests what is read and moves a progress bar."""

    def __init__(self, path: Path, bar: Any) -> None:
        self._file = path.open("rb", buffering=0)
        self._bar = bar
        self.sha256 = hashlib.sha256()
        self.n_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n_read = self._file.readinto(buffer) or 0
        self.sha256.update(memoryview(buffer)[:n_read])
        self.n_bytes += n_read
        self._bar.update(n_read)
        return n_read

    def close(self) -> None:
        self._file.close()
        super().close()


class RawFile:
    """One raw file: `opened` reads it and digests its bytes on the way, `described` tells what it was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = f"{path.name}:{path.stat().st_size}"
        self._sha256 = ""

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file, unpacked where its content is gzip; whatever is left unread is read when the block ends."""
        from tqdm import tqdm

        with (
            tqdm(total=self.path.stat().st_size, unit="B", unit_scale=True, desc=self.path.name, disable=None) as bar,
            io.BufferedReader(digested := _Digested(self.path, bar), _BLOCK) as packed,
        ):
            is_gzip = packed.peek(2)[:2] == b"\x1f\x8b"
            stream = cast(IO[bytes], gzip.GzipFile(fileobj=packed)) if is_gzip else packed
            try:
                yield stream
                while packed.read(_BLOCK):
                    pass
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise DataError(
                    f"{self.path}: the gzip file is cut short or broken before byte {digested.n_bytes} ({error})"
                ) from error
            self._sha256 = digested.sha256.hexdigest()

    def described(self, rows: int) -> BuiltFile:
        """Return the file as a manifest names it."""
        return BuiltFile(self.path.name, self.path.stat().st_size, self._sha256 or sha256_of(self.path), rows)


def json_array(stream: IO[bytes], key: str, where: Path) -> Iterator[Any]:
    """Yield the entries of the list under ``key`` at the top of a JSON file, without holding the file in memory.

    What stands before the list must be short.

    Raises:
        DataError: The file is cut short, is no JSON in UTF-8, nests too deep, or has no such list.
    """
    text = io.TextIOWrapper(stream, encoding="utf-8")
    decode = json.JSONDecoder().raw_decode
    buffer = _block_of(text, where)
    if (begin := re.search(rf'"{key}"\s*:\s*\[', buffer)) is None:
        raise DataError(f"{where}: no list '{key}' in it")
    at, number = begin.end(), 1
    while True:
        at = _BETWEEN.match(buffer, at).end()  # type: ignore[union-attr] # it matches nothing too
        if buffer.startswith("]", at):
            text.detach()
            return
        try:
            entry, at = decode(buffer, at)
        except RecursionError as error:
            raise DataError(f"{where}: entry {number} of '{key}' nests too deep") from error
        except ValueError as error:
            if not (more := _block_of(text, where)):
                raise DataError(f"{where}: entry {number} of '{key}' is cut short, or not JSON ({error})") from error
            buffer, at = buffer[at:] + more, 0
        else:
            yield entry
            number += 1


def _block_of(text: io.TextIOWrapper, where: Path) -> str:
    try:
        return text.read(_BLOCK)
    except UnicodeDecodeError as error:
        near = error.object[max(error.start - 30, 0) : error.start].decode("utf-8", "replace")
        raise DataError(f"{where}: not UTF-8 ({error.reason} behind {near!r})") from error
