"""Embeddings on disk: encode a corpus once, for every task that has it and for every run that follows.

A folder per model, revision, experiment, document prompt and corpus, found by their hash; in it ``key.json``, which
says in plain words what the embeddings are, and one ``.npy`` file per block. A file appears whole or not at all, so
that an interrupted run goes on at the first missing block. Whatever is in the key and differs (the length limit, a
dtype, an argument of ``encode``) is refused by name: silently mixed embeddings would be a wrong score.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from crumb_tasks.errors import UsageError
from crumb_tasks.search import identity
from crumb_tasks.search.grid import BLOCK, is_dense

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

_FORMAT = 1
_HASHED = ("model", "revision", "experiment", "prompt", "corpus")  # what legitimately differs within one directory


class CorpusRows(Protocol):
    """The rows that are encoded, read in blocks."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def table(self, start: int, stop: int) -> pa.Table:
        """Return the columns of rows ``start`` to ``stop``."""


class EmbeddingStore:
    """A directory of embeddings, shared by models, corpora and runs.

    Args:
        path: The directory; made when it is first written.
        dtype: How embeddings are kept: ``float32`` or, at half the size and a rounding of about 5e-4, ``float16``.
        is_optional: Embeddings that cannot be kept (several vectors a document) are not, instead of being refused.
    """

    def __init__(self, path: Path | str, *, dtype: str = "float32", is_optional: bool = False) -> None:
        if dtype not in {"float32", "float16"}:
            raise UsageError(f"embeddings are kept as 'float32' or 'float16', not as '{dtype}'")
        self.path = Path(path)
        self.dtype = dtype
        self.is_optional = is_optional

    def open(
        self, model: object, task_metadata: TaskMetadata, rows: CorpusRows, encode_kwargs: Mapping[str, Any]
    ) -> StoredCorpus:
        """Return the embeddings of ``rows`` by ``model``, as many blocks as there are.

        Raises:
            UsageError: They are there, but were made under other settings.
        """
        tables = (rows.table(start, min(start + BLOCK, len(rows))) for start in range(0, len(rows), BLOCK))
        key = {
            "format": _FORMAT,
            **identity.model_identity(model),
            "prompt": identity.document_prompt(model, task_metadata),
            "corpus": identity.content_hash(tables, ("title", "text")),
            "documents": len(rows),
            "block": BLOCK,
            "max_length": identity.length_limit(model),
            "weights": identity.weights_dtype(model),
            "dtype": self.dtype,
            "encode": {
                name: str(value) for name, value in sorted(encode_kwargs.items()) if name not in identity.WITHOUT_EFFECT
            },
        }
        named = json.dumps({name: key[name] for name in _HASHED}, sort_keys=True).encode()
        model_folder = re.sub(r"[^A-Za-z0-9.-]+", "__", str(key["model"])).strip(".") or "model"
        folder = self.path / model_folder / hashlib.blake2b(named, digest_size=10).hexdigest()
        _claim(folder, key)
        return StoredCorpus(folder, self.dtype, is_optional=self.is_optional)


def _claim(folder: Path, key: Mapping[str, Any]) -> None:
    """Write ``key`` into ``folder``, or compare it with the one that is there."""
    path = folder / "key.json"
    if not path.is_file():
        if next(folder.glob("*.npy"), None) is not None:
            raise UsageError(f"{folder}: embeddings without key.json cannot be trusted; delete the folder")
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(key, indent=1, sort_keys=True, ensure_ascii=False)
        _replace(path, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path}: cannot be read ({error}); delete the folder to encode the corpus again") from error
    differing = [name for name in sorted({*key, *found}) if key.get(name) != found.get(name)]
    if differing:
        what = ", ".join(f"{name} {found.get(name)!r} (now {key.get(name)!r})" for name in differing)
        raise UsageError(f"{folder}: made with {what}; use another --embeddings DIR, or delete this folder")


class StoredCorpus:
    """The embeddings of one corpus by one model, block by block.

    Attributes:
        folder: Where they are.
    """

    def __init__(self, folder: Path, dtype: str, *, is_optional: bool = False) -> None:
        self.folder = folder
        self._dtype = np.dtype(dtype)
        self._is_optional = is_optional

    def read(self, block: int, n_rows: int) -> torch.Tensor | None:
        """Return a block's embeddings, memory-mapped, or ``None`` when it was not yet written.

        Raises:
            UsageError: The file is not what was written.
        """
        path = self._path(block)
        if not path.is_file():
            return None
        try:
            found = np.load(path, mmap_mode="c")  # copy on write: torch takes no read-only memory without a warning
        except (ValueError, EOFError) as error:
            raise UsageError(f"{path}: cannot be read ({error}); delete it to encode the block again") from error
        if found.ndim != 2 or len(found) != n_rows or found.dtype != self._dtype:
            raise UsageError(
                f"{path}: holds {found.shape} of {found.dtype}, not {n_rows} vectors of {self._dtype}; delete it to "
                "encode the block again"
            )
        return torch.from_numpy(found)

    def write(self, block: int, vectors: Any) -> Any:
        """Keep a block's embeddings and return them as a later run will read them.

        Vectors with NaN are returned and not kept: the search refuses them, and a new run shall encode them again.

        Raises:
            UsageError: The embeddings are no ordinary matrix.
        """
        if not is_dense(vectors):
            if self._is_optional:
                return vectors
            raise UsageError(
                "only embeddings with one dense vector per document can be kept on disk; leave out --embeddings"
            )
        values = _as_array(vectors)
        if np.isnan(values).any():
            return vectors
        kept = np.ascontiguousarray(values, dtype=self._dtype)
        _replace(self._path(block), lambda temporary: _save(temporary, kept))
        return self.read(block, len(kept))

    def _path(self, block: int) -> Path:
        return self.folder / f"{block:05d}.npy"


def _as_array(vectors: Any) -> NDArray[Any]:
    if isinstance(vectors, torch.Tensor):
        return np.asarray(vectors.detach().float().cpu().numpy())
    return np.asarray(vectors)


def _save(path: Path, values: NDArray[Any]) -> None:
    with path.open("wb") as file:
        np.save(file, values, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, write: Any) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)  # noqa: PTH105 (the name says what is promised: whole or not at all)
    finally:
        temporary.unlink(missing_ok=True)
