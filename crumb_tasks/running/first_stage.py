"""First stages: rankings that a model re-ranks, from a run file, a folder of runs, or another model's cached runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from crumb_tasks.errors import DataError, UsageError, did_you_mean
from crumb_tasks.local_models import read_models
from crumb_tasks.model_folders import folder_revision
from crumb_tasks.models.instructions import path_safe, short_hash
from crumb_tasks.mteb_compat import model_registry
from crumb_tasks.runfiles import read_run_file
from crumb_tasks.running.cache import WholeFilesCache
from crumb_tasks.running.records import file_sha256, run_path
from crumb_tasks.runs import Run

_ENDINGS = ("_predictions.json", ".trec", ".run", ".jsonl", ".json", ".parquet", ".tsv", ".txt")
_COMPRESSIONS = ("", ".gz", ".zst")


class FirstStage(Protocol):
    """Where candidates come from."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def hash(self) -> str:
        """What tells it from others of that name."""

    @property
    def token(self) -> str:
        """A short name for folders, from both."""

    def run(self, task: str, split: str, subset: str) -> tuple[Run, dict[str, Any]]:
        """Return the ranking for one split of a task, and where it is from.

        Raises:
            DataError: There is none.
        """

    def sha256(self, task: str, split: str, subset: str) -> str | None:
        """Return the hash of the ranking where it may change under the same `hash`, else ``None``."""


@dataclass(frozen=True)
class _Named:
    name: str
    hash: str

    @property
    def token(self) -> str:
        """A short name for folders."""
        return f"{path_safe(self.name)[:32]}-{self.hash[:8]}"

    def sha256(self, _task: str, _split: str, _subset: str) -> str | None:
        """Return ``None``: `hash` is that of the contents."""
        return None


@dataclass(frozen=True)
class RunFileStage(_Named):
    """One run file, for the one task that it ranks.

    Attributes:
        path: The file.
    """

    path: Path

    def run(self, task: str, split: str, subset: str) -> tuple[Run, dict[str, Any]]:
        """Return the file's ranking; see `FirstStage`."""
        del task  # a file ranks whatever queries it has; whether these are the task's is seen there
        return _read(self.path, split, subset)


@dataclass(frozen=True)
class FolderStage(_Named):
    """A folder with a run for each task, such as MTEB's prediction folder.

    Attributes:
        path: The folder.
    """

    path: Path

    def run(self, task: str, split: str, subset: str) -> tuple[Run, dict[str, Any]]:
        """Return the ranking of the task's file; see `FirstStage`."""
        for ending in _ENDINGS:
            for compression in _COMPRESSIONS:
                if (file := self.path / f"{task}{ending}{compression}").is_file():
                    return _read(file, split, subset)
        raise DataError(f"{task}: {self.path} holds no run of it ({task}_predictions.json, {task}.trec, …)")


@dataclass(frozen=True)
class CachedStage(_Named):
    """The runs that ``crumb-tasks run`` kept of another model.

    Attributes:
        folder: Where that model's results are.
        identity: Its name, revision and experiment.
    """

    folder: Path
    identity: Mapping[str, Any] = field(default_factory=dict)

    def run(self, task: str, split: str, subset: str) -> tuple[Run, dict[str, Any]]:
        """Return the ranking that was kept; see `FirstStage`."""
        file = run_path(self.folder, task, split, subset)
        if not file.is_file():
            raise DataError(
                f"{task}: no run of '{self.name}' is cached (split {split}); make it with: "
                f"crumb-tasks run {self.identity['model']} -t {task} --overwrite"
            )
        run, origin = _read(file, split, subset)
        return run, {**origin, **self.identity}

    def sha256(self, task: str, split: str, subset: str) -> str | None:
        """Return the hash of the ranking that is cached now."""
        file = run_path(self.folder, task, split, subset)
        return file_sha256(file) if file.is_file() else None


def _read(path: Path, split: str, subset: str) -> tuple[Run, dict[str, Any]]:
    """Read a run, taking of MTEB's predictions the split that is asked for."""
    is_nested = path.name.removesuffix(".gz").removesuffix(".zst").endswith(".json")
    is_predictions = is_nested and "_predictions" in path.name
    found = read_run_file(
        path, repeats="best", split=split if is_predictions else None, subset=subset if is_predictions else None
    )
    origin = {"file": path.name, "sha256": found.sha256, "notes": list(found.notes)}
    return found.run, origin | ({"system": found.system} if found.system else {})


def open_first_stage(text: str, cache: WholeFilesCache) -> FirstStage:
    """Return what ``--rerank`` names: a run file, a folder of runs, or a model whose runs are cached.

    Args:
        text: A path, a directory with a model, or a model's name; after the name ``@REVISION`` and an experiment in
            parentheses may follow.
        cache: Where cached runs are.

    Raises:
        UsageError: It is none of these.
    """
    path = Path(text).expanduser()
    if path.is_file():
        return file_stage(path)
    if not path.is_dir():
        name, _, experiment = text.partition(" (")
        name, _, revision = name.partition("@")
        return _model_stage(text, name, revision or None, experiment.removesuffix(")"), cache)
    if not any((path / file).is_file() for file in ("modules.json", "config.json")):
        return folder_stage(path)
    revision = folder_revision(path)
    for name, model in read_models().items():
        if model.revision == revision:
            return _model_stage(text, name, revision, "", cache)
    raise UsageError(f"no run of the model in {path} is cached; make it with: crumb-tasks run {path} -t TASK")


def _model_stage(text: str, name: str, revision: str | None, experiment: str, cache: WholeFilesCache) -> CachedStage:
    """Return the cached runs of a model.

    Without a revision they are those of the one that the name stands for now, else those of the only one there is.
    """
    experiment = _folder_of_experiment(experiment)
    by_revision = _folders_with_runs(cache, name, experiment)
    if not by_revision:
        others = {folder.name for folder in _results_of(cache, name).glob("*/experiments/*")}
        raise UsageError(
            f"--rerank '{text}': there is no such run file or folder, and no run of such a model is cached"
            f"{did_you_mean(experiment, others)}"
        )
    current = _current_revision(name) if revision is None else revision
    if current not in by_revision:
        known = ", ".join(f"'{one}'" for one in by_revision)
        if revision is not None:
            raise UsageError(f"--rerank '{text}': no run of '{name}' at revision {revision} is cached, only of {known}")
        if len(by_revision) > 1:
            raise UsageError(f"--rerank '{text}': runs of several revisions are cached ({known}); name one: {name}@…")
        (current,) = by_revision
    return cached_stage(by_revision[current], model=name, revision=current, experiment=experiment)


def _folder_of_experiment(text: str) -> str:
    """Return MTEB's folder name of an experiment, which may be named as tables do: ``instructions none, depth 5``."""
    return "__".join(part.replace(" ", "_", 1) for part in text.split(", "))


def _current_revision(name: str) -> str | None:
    import mteb.models.model_implementations

    if name in (local := read_models()):
        return local[name].revision
    meta = model_registry(mteb.models.model_implementations).get(name)
    return None if meta is None else meta.revision


def _folders_with_runs(cache: WholeFilesCache, model: str, experiment: str) -> dict[str, Path]:
    """Return by revision the folders that hold runs of a model."""
    base = _results_of(cache, model)
    found = {}
    for folder in sorted(base.iterdir()) if base.is_dir() else []:
        results = folder / "experiments" / experiment if experiment else folder
        if run_path(results, "any", "any", "default").parent.is_dir():
            found[folder.name] = results
    return found


def _results_of(cache: WholeFilesCache, model: str) -> Path:
    return cache.cache_path / "results" / model.replace("/", "__").replace(" ", "_")


def file_stage(path: Path) -> RunFileStage:
    """Return the first stage that is one run file."""
    return RunFileStage(path.name.partition(".")[0], _digest([path]), path)


def folder_stage(path: Path) -> FolderStage:
    """Return the first stage that is a folder of runs.

    Raises:
        UsageError: It holds none.
    """
    files = [file for file in sorted(path.iterdir()) if file.is_file() and _ending(file)]
    if not files:
        raise UsageError(f"{path} holds no run file")
    return FolderStage(path.resolve().name, _digest(files), path)


def cached_stage(folder: Path, *, model: str, revision: str, experiment: str) -> CachedStage:
    """Return the first stage that is another model's cached runs."""
    identity = {"model": model, "revision": revision, "experiment": experiment}
    name = f"{model} ({experiment})" if experiment else model
    return CachedStage(name, short_hash("\0".join(identity.values())), folder, identity)


def _ending(file: Path) -> bool:
    name = file.name.removesuffix(".gz").removesuffix(".zst")
    return name.endswith(_ENDINGS)


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        if len(files) > 1:
            digest.update(file.name.encode() + b"\0")
        with file.open("rb") as handle:
            while block := handle.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()
