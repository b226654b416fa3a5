"""Local models: directories that MTEB knows by a name, in every process.

MTEB's command cannot run a directory, stores all local models' results under one name, and drops models it does not
know from its tables. So ``crumb-tasks run`` remembers a directory in a small JSON file of the user's, and the start-up
hook puts what it remembers into MTEB's model registry:

    {"me/my-model": {"path": "/models/mine", "kind": "sentence-transformers", "revision": "1f3a…"}}

The file is ``CRUMB_TASKS_MODELS``, else ``crumb_tasks/models.json`` in the user's configuration folder. Only the
standard library is imported before a model is made or loaded: this is read while MTEB is imported.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb_tasks.errors import UsageError
from crumb_tasks.model_folders import KINDS, Kind

if TYPE_CHECKING:
    from mteb.models import ModelMeta

_logger = logging.getLogger("crumb_tasks")


@dataclass(frozen=True)
class LocalModel:
    """A directory with a model.

    Attributes:
        path: The directory.
        kind: What loads it.
        revision: Hash of its files, see `crumb_tasks.model_folders.folder_revision`; MTEB files results under it.
        n_parameters: Number of parameters, where known.
        embed_dim: Dimensions of its embeddings, where known; several where they may be cut (Matryoshka).
        max_tokens: Length limit, where known.
        load: Further arguments of its constructor, such as ``{"trust_remote_code": true}``.
        stamp: `crumb_tasks.model_folders.folder_stamp` when ``revision`` was computed; empty where written by hand.
    """

    path: str
    kind: Kind
    revision: str
    n_parameters: int | None = None
    embed_dim: int | list[int] | None = None
    max_tokens: int | None = None
    load: Mapping[str, Any] = field(default_factory=dict)
    stamp: str = ""


def models_path() -> Path:
    """Return the file that remembers local models, whether or not it exists."""
    if named := os.environ.get("CRUMB_TASKS_MODELS", ""):
        return Path(named).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "crumb_tasks" / "models.json"


def read_models() -> dict[str, LocalModel]:
    """Return the remembered models by name; none where there is no file.

    An entry that is no model is left out and named in a line of the log; the others stay.

    Raises:
        UsageError: The file is broken, or under ``CRUMB_TASKS_STRICT=1`` an entry; the message names it.
    """
    path = models_path()
    models = {}
    for name, entry in _read_entries(path).items():
        try:
            models[name] = _model(path, name, entry)
        except UsageError as error:
            if os.environ.get("CRUMB_TASKS_STRICT", "0") not in {"", "0"}:
                raise
            _log_once(f"{error}; the other local models stay")
    return models


@functools.cache
def _log_once(message: str) -> None:
    _logger.warning(message)


def _read_entries(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not a JSON file ({error}); correct or remove it") from error
    if not isinstance(entries, dict):
        raise UsageError(f"{path}: expected an object of models by name; correct or remove it")
    return entries


def _model(path: Path, name: str, entry: Any) -> LocalModel:
    try:
        check_name(name)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    try:
        model = LocalModel(**entry)
    except TypeError as error:
        raise UsageError(f"{path}: the entry '{name}' is no model ({error}); correct or remove it") from error
    if model.kind not in KINDS:
        raise UsageError(
            f"{path}: the entry '{name}' has the kind '{model.kind}'; it must be one of: {', '.join(KINDS)}"
        )
    return model


def check_name(name: str) -> None:
    """Check that MTEB can file results under ``name``.

    Raises:
        UsageError: It cannot.
    """
    if name.count("/") != 1 or not all(name.split("/")) or name != name.strip():
        example = f"me/{name.strip('/').rpartition('/')[2] or 'my-model'}"
        raise UsageError(f"'{name}' is no model name for MTEB; it has the form organisation/model, as in '{example}'")


@contextlib.contextmanager
def locked_models() -> Iterator[None]:
    """Keep other processes from changing the file until the end of the block; entering it again inside is harmless."""
    from filelock import FileLock

    path = models_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock"), is_singleton=True):
        yield


def remember(name: str, model: LocalModel) -> None:
    """Write ``model`` into the file under ``name``, replacing what it remembered there.

    Raises:
        UsageError: The name is none for MTEB, or the file is broken.
    """
    check_name(name)
    with locked_models():
        _write_entries(_read_entries(models_path()) | {name: _entry(model)})  # what is broken there is the user's


def forget(name: str) -> None:
    """Take ``name`` out of the file; nothing happens where it is not there."""
    if models_path().is_file():
        with locked_models():
            _write_entries({known: entry for known, entry in _read_entries(models_path()).items() if known != name})


def _write_entries(entries: Mapping[str, Any]) -> None:
    from crumb_tasks.files import written_whole

    with written_whole(models_path()) as file:
        file.write((json.dumps(entries, ensure_ascii=False, indent=2, sort_keys=True) + "\n").encode())


def _entry(model: LocalModel) -> dict[str, Any]:
    return {key: value for key, value in asdict(model).items() if value not in (None, {}, "")}


def model_meta(name: str, model: LocalModel) -> ModelMeta:
    """Return MTEB's entry for a local model; the model itself is loaded when MTEB asks for it."""
    from mteb.models import ModelMeta

    is_pairwise = model.kind == "cross-encoder"
    fields: dict[str, Any] = {
        "loader": functools.partial(load_local, local=model),
        "name": name,
        "revision": model.revision,
        "release_date": None,
        "languages": None,
        "n_parameters": model.n_parameters,
        "memory_usage_mb": None,
        "max_tokens": model.max_tokens,
        "embed_dim": model.embed_dim,
        "license": None,
        "open_weights": True,
        "public_training_code": None,
        "public_training_data": None,
        "framework": ["PyTorch"] if is_pairwise else ["Sentence Transformers"],
        "similarity_fn_name": None,
        "use_instructions": None,
        "training_datasets": None,
        "model_type": ["cross-encoder" if is_pairwise else "dense"],
    }
    return ModelMeta(**fields)


def is_local(meta: ModelMeta | None) -> bool:
    """Return whether an entry of MTEB's registry is that of a local model."""
    loader = None if meta is None else meta.loader
    return isinstance(loader, functools.partial) and loader.func is load_local


def load_local(
    name: str, revision: str | None = None, device: str | None = None, *, local: LocalModel, **kwargs: Any
) -> Any:
    """Load a local model as MTEB runs it.

    Args:
        name: Its name, which MTEB sets on the loaded model.
        revision: Likewise.
        device: Torch device.
        local: The directory.
        **kwargs: Further arguments of the model's constructor.

    Raises:
        UsageError: The directory is gone.
    """
    del revision
    if not Path(local.path).is_dir():
        raise UsageError(f"the directory of '{name}' is gone: {local.path}; name another in {models_path()}")
    # By path, with the slash that MTEB wants in a name: 2.26.0 cannot describe a loaded model of new transformers
    path, arguments = Path(local.path).resolve().as_posix(), {**local.load, **kwargs}
    if local.kind == "cross-encoder":
        from mteb.models import CrossEncoderWrapper

        return CrossEncoderWrapper(path, device=device, **arguments)
    from mteb.models import SentenceTransformerEncoderWrapper

    if local.kind == "model2vec" and not (Path(local.path) / "modules.json").is_file():
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import StaticEmbedding

        static = StaticEmbedding.from_model2vec(path)
        return SentenceTransformerEncoderWrapper(SentenceTransformer(modules=[static], device=device, **arguments))
    return SentenceTransformerEncoderWrapper(path, device=device, **arguments)
