"""Names for directories with models: no two of different weights share one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from crumb_tasks.errors import UsageError
from crumb_tasks.local_models import (
    LocalModel,
    check_name,
    is_local,
    locked_models,
    model_meta,
    models_path,
    read_models,
    remember,
)
from crumb_tasks.model_folders import folder_kind, folder_revision, folder_stamp, n_parameters, read_settings
from crumb_tasks.models.instructions import path_safe
from crumb_tasks.mteb_compat import model_registry

ORGANISATION = "local"
"""Organisation of models that were given no name."""


def name_directory(folder: Path, name: str | None = None) -> tuple[str, LocalModel, str]:
    """Give a directory a name, remember it, and let MTEB know it in this process too.

    Args:
        folder: The directory.
        name: The name it shall have; by default the one it had, or the folder's.

    Returns:
        Its name, what is remembered, and a line for the user, empty where nothing is new.

    Raises:
        UsageError: It holds no model, or the name is another's.
    """
    folder = folder.resolve()
    model = _describe(folder)
    chosen, kept, message = _choose(folder, model, name)
    if read_models().get(chosen) != kept:
        with locked_models():  # another process may have taken the name since
            chosen, kept, message = _choose(folder, model, name)
            remember(chosen, kept)
        message = message or f"{folder} is '{chosen}' from now on, remembered in {models_path()}"
    import mteb.models.model_implementations

    model_registry(mteb.models.model_implementations)[chosen] = model_meta(chosen, kept)
    return chosen, kept, message


def _describe(folder: Path) -> LocalModel:
    """Return what is to be remembered of a directory; files that are as they were are not read again."""
    stamp = folder_stamp(folder)
    for known in read_models().values():
        if (known.path, known.stamp) == (str(folder), stamp):
            return known
    return LocalModel(str(folder), folder_kind(folder), folder_revision(folder), **_size(folder), stamp=stamp)


def _choose(folder: Path, model: LocalModel, name: str | None) -> tuple[str, LocalModel, str]:
    """Return the name of a model, what is remembered under it, and a line for the user."""
    known = read_models()
    if name is None:
        chosen, message = _default_name(folder, model, known)
    else:
        chosen = name if "/" in name else f"{ORGANISATION}/{name}"
        message = _check_given(chosen, model, known)
    before = known.get(chosen)
    return chosen, model if before is None else replace(model, load=before.load), message


def _default_name(folder: Path, model: LocalModel, known: Mapping[str, LocalModel]) -> tuple[str, str]:
    for name, other in known.items():
        if other.path == model.path and other.revision == model.revision:
            return name, ""
    name = f"{ORGANISATION}/{path_safe(folder.name) or 'model'}"
    named = known.get(name)
    if named is None or named.revision == model.revision:
        return name, ""
    apart = f"{name}-{model.revision[:6]}"
    if named.path == model.path:
        return apart, f"the weights in {folder} have changed since they were called '{name}'; now they are '{apart}'"
    return apart, f"'{name}' is the model in {named.path}; the one in {folder} is '{apart}' (--name gives it another)"


def _check_given(name: str, model: LocalModel, known: Mapping[str, LocalModel]) -> str:
    check_name(name)
    import mteb.models.model_implementations

    other = known.get(name)
    if other is None:
        meta = model_registry(mteb.models.model_implementations).get(name)
        if meta is not None and not is_local(meta):
            raise UsageError(f"'{name}' is a model of MTEB's registry; give yours another name")
        return ""
    if other.revision == model.revision:
        return ""
    if other.path != model.path:
        raise UsageError(
            f"'{name}' is already the name of the model in {other.path}, whose weights differ; choose another"
        )
    return (
        f"the weights of '{name}' have changed: its results go under the revision {model.revision}, and tables of MTEB "
        f"may still show those of {other.revision} for tasks that are not run again"
    )


def _size(folder: Path) -> dict[str, Any]:
    """Return the number of parameters and the length limit, as far as small files tell them."""
    found: dict[str, Any] = {}
    files = sorted(folder.glob("*.safetensors"))
    if files:
        found["n_parameters"] = sum(map(n_parameters, files))
    settings = folder / "sentence_bert_config.json"
    if settings.is_file():
        length = read_settings(settings).get("max_seq_length")
        if isinstance(length, int):
            found["max_tokens"] = length
    if dimensions := _matryoshka_dimensions(folder):
        found["embed_dim"] = dimensions
    return found


def _matryoshka_dimensions(folder: Path) -> list[int]:
    """Return the dimensions that a model was trained to be cut to, from the card that sentence-transformers writes."""
    card = folder / "README.md"
    if not card.is_file():
        return []
    text = card.read_text(encoding="utf-8", errors="replace")
    found = re.search(r'"matryoshka_dims":\s*\[([\d,\s]+)\]', text)
    return sorted({int(number) for number in re.findall(r"\d+", found[1])}) if found else []
