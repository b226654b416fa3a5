"""What a directory with a model holds: what loads it, and a revision for whatever decides its output."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from crumb_tasks.errors import UsageError

Kind = Literal["sentence-transformers", "model2vec", "cross-encoder"]
KINDS: tuple[str, ...] = get_args(Kind)

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.onnx", "*.gguf", "*.npz")
_SETTINGS = ("*.json", "*.txt", "*.model", "*.py", "*.jinja", "*.vocab", "*.bpe", "*.tiktoken")


def folder_kind(folder: Path) -> Kind:
    """Return what loads the model in ``folder``, by its files.

    Raises:
        UsageError: It does not look like a model.
    """
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise UsageError(f"{folder} holds no model: there is neither config.json nor modules.json")
    if (folder / "modules.json").is_file():
        return _kind_of_modules(folder)
    config = read_settings(folder / "config.json")
    if config.get("model_type") == "model2vec" or "embedding_dtype" in config:  # the latter without distillation
        return "model2vec"
    if any("SequenceClassification" in name for name in config.get("architectures") or ()):
        return "cross-encoder"
    return "sentence-transformers"


def _kind_of_modules(folder: Path) -> Kind:
    """Return what saved a folder with ``modules.json``; sentence-transformers 6 writes one for cross-encoders too.

    Raises:
        UsageError: Something whose models are not supported from a directory.
    """
    settings = folder / "config_sentence_transformers.json"
    saved_by = read_settings(settings).get("model_type") if settings.is_file() else None
    if saved_by in {None, "SentenceTransformer"}:
        return "sentence-transformers"
    if saved_by == "CrossEncoder":
        return "cross-encoder"
    raise UsageError(
        f"{folder} holds a {saved_by}; a directory may hold a SentenceTransformer, a CrossEncoder or a model2vec model"
    )


def read_settings(path: Path) -> dict[str, Any]:
    """Return what a settings file of a model holds.

    Raises:
        UsageError: It is no JSON object.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); the model is broken or not all there") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds no JSON object; the model is broken")
    return found


def n_parameters(weights: Path) -> int:
    """Return the number of elements of a safetensors file, from its header.

    Raises:
        UsageError: It has none, as the pointers have that Git LFS leaves where it did not fetch the file.
    """
    try:
        with weights.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(length) if length < weights.stat().st_size else b"")
        return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"{weights} is no safetensors file: its header cannot be read; was it fetched as a whole (git lfs pull)?"
        ) from error


def folder_revision(folder: Path) -> str:
    """Return a hash of a model: the first 16 hexadecimal digits of SHA-256 over names and bytes of its files.

    These are the files that decide what it computes: weights, settings, vocabularies, templates and code.

    Raises:
        UsageError: The folder holds no weights.
    """
    digest = hashlib.sha256()
    for path in _files(folder):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16]


def folder_stamp(folder: Path) -> str:
    """Return a hash of names, sizes and times of the files that `folder_revision` reads.

    It changes when one of them is written, and costs no reading.

    Raises:
        UsageError: The folder holds no weights.
    """
    digest = hashlib.sha256()
    for path in _files(folder):
        state = path.stat()
        stamp = f"{path.relative_to(folder).as_posix()}\0{state.st_size}\0{state.st_mtime_ns}\0{state.st_ctime_ns}\0"
        digest.update(stamp.encode())
    return digest.hexdigest()[:16]


def _files(folder: Path) -> list[Path]:
    weights = _matching(folder, _WEIGHTS)
    if not weights:
        raise UsageError(f"{folder} holds no weights ({', '.join(_WEIGHTS)})")
    return sorted(weights | _matching(folder, _SETTINGS))


def _matching(folder: Path, patterns: Sequence[str]) -> set[Path]:
    return {path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()}
