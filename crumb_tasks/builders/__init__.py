"""Builders: raw public dumps → a collection that a loader reads, where no host offers the data of record.

- `bert_titles`: what NCI tells pages apart by
- `input`: dumps, read once from front to back
- `checkpoint`: what is written, in parts, so that a build that stops goes on
- `natural_questions`, `triviaqa`: the recipes
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from crumb_tasks.cards import TaskCard, iter_tasks
from crumb_tasks.errors import UsageError, did_you_mean
from crumb_tasks.loaders._manifest import MANIFEST, Manifest, read_manifest, sha256_of

__all__ = ["build", "buildable_tasks", "find_buildable"]


def buildable_tasks() -> dict[str, TaskCard]:
    """Return by name the tasks whose cards name a builder."""
    return {task.name: task for task in iter_tasks() if task.options.get("builder")}


def find_buildable(name: str, *, is_fixed: bool) -> TaskCard:
    """Return the task to build.

    Args:
        name: A task that has a builder.
        is_fixed: Its variant without the recipe's mistakes, which is a task of its own.

    Raises:
        UsageError: There is none; the message names those there are.
    """
    known = buildable_tasks()
    wanted = f"{name}Fixed" if is_fixed and not name.endswith("Fixed") else name
    if wanted not in known:
        raise UsageError(
            f"there is no builder for '{wanted}'{did_you_mean(wanted, known)}; there is one for {', '.join(known)}"
        )
    return known[wanted]


def build(task: TaskCard, raw: Path, root: Path) -> tuple[Manifest, Path, bool]:
    """Build the data of ``task``, or go on with a build that was interrupted.

    Args:
        task: From `find_buildable`.
        raw: The folder with the raw files.
        root: The data root; the collection gets the folder that the task's card names.

    Returns:
        What was built, where, and whether it had been there already.

    Raises:
        UsageError: ``raw`` lacks a file, or another build, or one from other files, lies where this one would go.
        DataError: A raw file is broken, or holds nothing.
    """
    target = root / str(task.source.path)
    if not raw.is_dir():
        raise UsageError(f"there is no folder {raw}; --from names the one with the raw files")
    options: Mapping[str, Any] = task.options
    builder = cast(Any, importlib.import_module(f"{__name__}.{options['builder']}"))
    recipe = str(options["recipe"])
    if (target / MANIFEST).is_file():
        manifest = read_manifest(target / MANIFEST)
        if manifest.recipe == recipe and manifest.version == builder.VERSION:
            if other := ", ".join(_other_inputs(manifest, builder.find_inputs(raw))):
                raise UsageError(
                    f"{target} holds a build from other files than those in {raw} ({other}); remove it or choose "
                    "another --to"
                )
            return manifest, target, True
        raise UsageError(
            f"{target} holds a build by the recipe '{manifest.recipe}', version {manifest.version}; remove it or "
            "choose another --to"
        )
    return builder.build(raw, target, recipe=recipe, is_fixed=recipe.endswith("-fixed")), target, False


def _other_inputs(manifest: Manifest, inputs: Mapping[str, Path]) -> Iterator[str]:
    """Yield the names of inputs that are not those of the manifest, which are compared by name, size and hash."""
    built = {file.name: file for file in manifest.inputs}
    yield from sorted(built.keys() ^ inputs.keys())
    for name, path in inputs.items():
        if name not in built:
            continue
        pages = [page for page in path.iterdir() if page.name.endswith(".txt")] if path.is_dir() else [path]
        is_same = sum(page.stat().st_size for page in pages) == built[name].bytes
        if path.is_dir():
            is_same = is_same and len(pages) == built[name].rows
        if not is_same or (built[name].sha256 and sha256_of(path) != built[name].sha256):
            yield name
