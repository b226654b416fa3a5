"""Local models: directories that MTEB knows by a name, in every process.

MTEB's command cannot run a directory, stores all local models' results under one name, and drops models it does not
know from its tables. So ``crumb-tasks run`` remembers a directory in a small JSON file of the user's, and the start-up
hook puts what it remembers into MTEB's model registry:

    {"me/my-model": {"path": "/models/mine", "kind": "sentence-transformers", "revision": "1f3a…"}}

The file is ``CRUMB_TASKS_MODELS``, else ``crumb_tasks/models.json`` in the user's configuration folder. Only the
standard library is imported before a model is made or loaded: this is read while MTEB is imported.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from crumb_tasks.errors import UsageError

if TYPE_CHECKING:
    from mteb.models import ModelMeta

Kind = Literal["sentence-transformers", "model2vec", "cross-encoder"]
KINDS: tuple[str, ...] = get_args(Kind)

_logger = logging.getLogger("crumb_tasks")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.onnx", "*.gguf", "*.npz")
_SETTINGS = ("*.json", "*.txt", "*.model")


@dataclass(frozen=True)
class LocalModel:
    """A directory with a model.

    Attributes:
        path: The directory.
        kind: What loads it.
        revision: Hash of its files, see `folder_revision`; MTEB files results under it.
        n_parameters: Number of parameters, where known.
        embed_dim: Dimensions of its embeddings, where known.
        max_tokens: Length limit, where known.
        load: Further arguments of its constructor, such as ``{"trust_remote_code": true}``.
    """

    path: str
    kind: Kind
    revision: str
    n_parameters: int | None = None
    embed_dim: int | None = None
    max_tokens: int | None = None
    load: Mapping[str, Any] = field(default_factory=dict)


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


def remember(name: str, model: LocalModel) -> None:
    """Write ``model`` into the file under ``name``, replacing what it remembered there.

    Raises:
        UsageError: The name is none for MTEB, or the file is broken.
    """
    from crumb_tasks.sources import written_whole

    check_name(name)
    entries = _read_entries(models_path()) | {name: _entry(model)}  # what is broken there is the user's to correct
    with written_whole(models_path()) as file:
        file.write((json.dumps(entries, ensure_ascii=False, indent=2, sort_keys=True) + "\n").encode())


def forget(name: str) -> None:
    """Take ``name`` out of the file; nothing happens where it is not there."""
    from crumb_tasks.sources import written_whole

    entries = {known: entry for known, entry in _read_entries(models_path()).items() if known != name}
    if models_path().is_file():
        with written_whole(models_path()) as file:
            file.write((json.dumps(entries, ensure_ascii=False, indent=2, sort_keys=True) + "\n").encode())


def _entry(model: LocalModel) -> dict[str, Any]:
    return {key: value for key, value in asdict(model).items() if value not in (None, {})}


def folder_kind(folder: Path) -> Kind:
    """Return what loads the model in ``folder``, by its files.

    Raises:
        UsageError: It does not look like a model.
    """
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise UsageError(f"{folder} holds no model: there is neither config.json nor modules.json")
    if (folder / "modules.json").is_file():
        return _kind_of_modules(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
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
    saved_by = json.loads(settings.read_text(encoding="utf-8")).get("model_type") if settings.is_file() else None
    if saved_by in {None, "SentenceTransformer"}:
        return "sentence-transformers"
    if saved_by == "CrossEncoder":
        return "cross-encoder"
    raise UsageError(
        f"{folder} holds a {saved_by}; a directory may hold a SentenceTransformer, a CrossEncoder or a model2vec model"
    )


def folder_revision(folder: Path) -> str:
    """Return a hash of a model's weights and settings: the first 16 hexadecimal digits of SHA-256 over names and bytes.

    Raises:
        UsageError: The folder holds no weights.
    """
    weights = sorted({path for pattern in _WEIGHTS for path in folder.rglob(pattern)})
    if not weights:
        raise UsageError(f"{folder} holds no weights ({', '.join(_WEIGHTS)})")
    digest = hashlib.sha256()
    for path in sorted({*weights, *(path for pattern in _SETTINGS for path in folder.rglob(pattern))}):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16]


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
