"""What a build of `crumb_tasks.builders` says about itself: ``manifest.json`` beside its Parquet files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from crumb_tasks.errors import DataError

MANIFEST = "manifest.json"
_BLOCK = 1 << 20


class BuiltFile(msgspec.Struct, frozen=True):
    """One file that went in or came out.

    Attributes:
        name: Its name, without folders of the machine.
        bytes: Its size.
        sha256: Of its bytes; empty for a folder of many files.
        rows: Rows of a table; of input, how many examples or files were read.
    """

    name: str
    bytes: int
    sha256: str
    rows: int


class Manifest(msgspec.Struct, frozen=True):
    """A finished build.

    Attributes:
        recipe: How text and ids were made, such as ``nq320k-nci``.
        version: Raised when the recipe's code changes what comes out.
        inputs: What was read.
        files: What was written.
        counts: Documents, queries and what the recipe ran into.
        notes: Where the recipe leaves a choice, and what was chosen.
    """

    recipe: str
    version: int
    inputs: tuple[BuiltFile, ...]
    files: tuple[BuiltFile, ...]
    counts: dict[str, int]
    notes: tuple[str, ...] = ()


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        DataError: It is none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.MsgspecError as error:
        raise DataError(f"{path}: not the manifest of a build ({error}); build the task again") from error


def write_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of ``manifest.json``; the same manifest has the same bytes."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
