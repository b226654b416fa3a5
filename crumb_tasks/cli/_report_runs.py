"""The run files that `report` is given: which there are, what they are called, and their scores."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from crumb_tasks.errors import UsageError

if TYPE_CHECKING:
    from crumb_tasks.report import ScoredRun


def score_runs(given: Sequence[str], split: str | None) -> list[ScoredRun]:
    """Read and score run files, and all in folders, under the rules of the tasks that their names tell.

    Raises:
        UsageError: A name tells no task of this package, or a folder is empty.
        RunError: A file cannot be read or has nothing to do with its task.
    """
    from crumb_tasks.cli._runs import Collections, guess_target, print_notes, score_file
    from crumb_tasks.report import ScoredRun
    from crumb_tasks.scoring import MTEB_MEASURES

    options = argparse.Namespace(
        task=None, qrels=None, max_passage="auto", depth=None, format="auto", split=split, subset=None, tag=None
    )
    collections, found = Collections(), list[ScoredRun]()
    files = _run_files(given)
    for path in (file.path for file in files):
        if guess_target(Path(path).name) is None:
            raise UsageError(f"the name '{path}' tells no task; name the file after its task, as CRUMBLegalQA.trec")
        scored = score_file(path, options, collections, None)
        card = scored.target.card
        if card is None:
            raise UsageError(f"{path}: {scored.target.name} is a task of MTEB; --results reads MTEB's results on it")
        from crumb_tasks.scoring import score

        measures = dict.fromkeys([*(m.name for m in scored.scores.measures), *MTEB_MEASURES])
        scores = score(scored.file.run, scored.collection, card, list(measures), depth=scored.file.depth)
        print_notes(path, scored.notes)
        found.append(ScoredRun(scored.file.system or "", path, card, scored.file.run, scored.collection, scores))
    names = _names(files, [run.name for run in found])
    return [replace(run, name=name) for run, name in zip(found, names, strict=True)]


def _names(files: Sequence[_Given], said: Sequence[str]) -> list[str]:
    """Return what the runs are called: as the user says, as the file or all of a folder's files say, or the folder."""
    said_by_folder: dict[Path, set[str]] = {}
    for file, name in zip(files, said, strict=True):
        if file.folder is not None:
            said_by_folder.setdefault(file.folder, set()).add(name)
    return [
        file.name
        or (name if file.folder is None or len(said_by_folder[file.folder]) == 1 else "")
        or Path(file.path).resolve().parent.name
        for file, name in zip(files, said, strict=True)
    ]


class _Given(NamedTuple):
    """A run file, what the user calls it, and the folder that was given in its place."""

    name: str
    path: str
    folder: Path | None = None


def _run_files(given: Sequence[str]) -> list[_Given]:
    """Return the run files, those in folders too."""
    found: list[_Given] = []
    for text in given:
        name, path = _parted(text)
        if not path:
            raise UsageError(f"--runs '{text}' names no file; write it as NAME=FILE, or as FILE alone")
        if not Path(path).is_dir():
            found.append(_Given(name, path))
            continue
        inside = sorted(str(file) for file in Path(path).iterdir() if file.is_file() and not file.name.startswith("."))
        if not inside:
            raise UsageError(f"{path}: the folder holds no run file")
        found += [_Given(name, file, Path(path)) for file in inside]
    return found


def _parted(text: str) -> tuple[str, str]:
    """Return name and path of ``NAME=FILE`` or ``FILE``, where both may hold further equals signs."""
    parts = text.split("=")
    ways = [("=".join(parts[:at]), "=".join(parts[at:])) for at in range(len(parts))]
    return next((way for way in ways if way[1] and Path(way[1]).exists()), ways[1] if len(ways) > 1 else ways[0])
