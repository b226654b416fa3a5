"""How a file is written: so that nobody sees half of it, and a symlink, a pipe or a device stays what it is.

Folders that a walk over files would pass over are told as well.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from crumb_tasks.errors import UsageError

_DESCRIPTORS: Final = {"/dev", "/dev/fd", "/proc/self/fd"}
"""Where a name stands for what is open already, a file that a shell redirects to included."""
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENXIO}
_IN_MEMORY: Final = 2**22


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path`` that takes its place when the block ends well and vanishes otherwise.

    A symlink stays, and what it points to is replaced; a file that is replaced hands on its permissions. Pipes and
    devices cannot be replaced: they are written to when the block ends well. ``-`` is standard output.

    Raises:
        OSError: The file cannot be written.
    """
    if str(path) == "-":
        sys.stdout.flush()
        with _gathered(sys.stdout.buffer) as file:
            yield file
        return
    real = Path(os.path.realpath(path))
    real.parent.mkdir(parents=True, exist_ok=True)
    if real.is_symlink():  # it leads back to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if mode is not None and (not stat.S_ISREG(mode) or str(path.absolute().parent) in _DESCRIPTORS):
        with path.open("ab") as target, _gathered(target) as file:
            yield file
        return
    if mode is not None and not os.access(real, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    with _beside(real, 0o666 & ~_umask() if mode is None else stat.S_IMODE(mode)) as file:
        yield file


@contextmanager
def output(path: Path | str) -> Iterator[IO[bytes]]:
    """Open a file that a user named, as `written_whole` does.

    Raises:
        UsageError: It cannot be written: a folder, no permission, no room.
    """
    is_open = False
    try:
        with written_whole(Path(path)) as file:
            is_open = True
            yield file
            is_open = False
    except IsADirectoryError as error:
        raise UsageError(f"cannot write '{path}', which is a folder; name a file") from error
    except BrokenPipeError:
        raise
    except OSError as error:
        if is_open and error.errno not in _NO_ROOM:  # what the block reads may fail as well
            raise
        raise UsageError(f"cannot write '{path}' ({error.strerror or error}); name another file") from error


def refuse_folder(path: Path | None) -> None:
    """Refuse a folder as output before anything is computed.

    Raises:
        UsageError: It is one.
    """
    if path is not None and path.is_dir():
        raise UsageError(f"cannot write '{path}', which is a folder; name a file")


def unreadable_folders(root: Path) -> Iterator[str]:
    """Yield a line for each folder below ``root`` whose files cannot be listed: a walk passes it over in silence."""
    errors: list[OSError] = []
    for _ in os.walk(root, onerror=errors.append):
        pass
    for error in errors:
        yield f"{os.path.relpath(error.filename, root)}: the folder cannot be read ({error.strerror})"


def printable(path: Path | str) -> str:
    """Return ``path`` as text that every encoding of Unicode can hold: a byte that is no UTF-8 gets a backslash."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@contextmanager
def _beside(path: Path, mode: int) -> Iterator[IO[bytes]]:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(name).chmod(mode)  # mkstemp makes private files; a shared cache must stay readable
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def _gathered(target: IO[bytes]) -> Iterator[IO[bytes]]:
    """Gather what is written and hand it to ``target`` at the end: a pipe can neither seek nor take anything back."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        yield file
        file.seek(0)
        shutil.copyfileobj(file, target, 2**16)
        target.flush()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
