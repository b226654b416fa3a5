"""Where the files of a collection come from.

The data root first (``CRUMB_TASKS_DATA``, in the very layout of the upstream repository), then the Hugging Face Hub or
GitHub at the card's revision, only the files that are asked for; or the sample inside this package.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from crumb_tasks.cards import Source, TaskCard
from crumb_tasks.errors import MissingDataError, UsageError
from crumb_tasks.files import written_whole
from crumb_tasks.sources._files import cache_dir
from crumb_tasks.sources._hosts import NotToBeHadError, fetch, fetch_from_hub_into, head_revision, path_in_cache

__all__ = [
    "OpenedSource",
    "cache_dir",
    "data_root",
    "fetch_into",
    "head_revision",
    "open_source",
    "set_data_root",
]
_chosen_root: list[Path | None] = [None]


def set_data_root(folder: Path | str | None) -> None:
    """Let ``folder`` be the data root of this process (``--data``); ``None`` returns to ``CRUMB_TASKS_DATA``."""
    _chosen_root[0] = None if folder is None else Path(folder).expanduser()


def data_root() -> Path | None:
    """Return the data root that is in force, or ``None``."""
    if _chosen_root[0] is not None:
        return _chosen_root[0]
    named = os.environ.get("CRUMB_TASKS_DATA", "")
    return Path(named).expanduser() if named else None


@dataclass(frozen=True)
class OpenedSource:
    """The files of one task's source, each fetched when it is first asked for.

    Attributes:
        source: The card's source.
        task: Task name, for messages.
        root: The repository's folder in the data root when that exists (then nothing is fetched), else ``None``.
        searched: The data root that was looked into, if any.
    """

    source: Source
    task: str
    root: Path | None
    searched: Path | None

    @property
    def origin(self) -> str:
        """Where files come from, for people and results."""
        if self.root is not None:
            return f"data root {self.root}"
        if self.source.sample is not None:
            return f"sample {self.source.sample} of this package"
        if self.source.user is not None or self.source.path is not None:
            return f"the user's own data, {self.source.hub or self.source.github or self.source.path} in the data root"
        host = "Hub" if self.source.hub else "GitHub"
        return f"{host} {self.source.hub or self.source.github} at {self.source.revision}"

    @property
    def is_local(self) -> bool:
        """Whether every file lies in the data root or in this package."""
        own = self.root is not None or self.source.sample is not None
        return own and all(_open(part, self.task, self.searched).is_local for part in self.source.parts.values())

    def path(self, file: str) -> Path:
        """Return the local path of ``file``, a path inside the source's folder with ``/`` between its parts.

        Raises:
            MissingDataError: The file is neither in the data root nor to be had from its host.
            UsageError: The data root that was named is no directory.
        """
        return self.paths([file])[file]

    def paths(self, files: Iterable[str]) -> dict[str, Path]:
        """Return the local path of each of ``files``; errors as `path`, naming all files that are missing."""
        self._refuse_lost_root()
        wanted = list(files)
        owner_by_file = {file: self.source.locate(file) for file in wanted}
        own = [file for file, (owner, _) in owner_by_file.items() if owner is self.source]
        if not self._may_be_fetched and (lacking := self.missing(own)):
            raise self._missing(lacking, self._why_not_here())
        try:
            path_by_file = {file: self._path(self._full_name(file)) for file in own}
        except NotToBeHadError as error:
            raise self._missing(self.missing(own), str(error)) from error.__cause__
        for part in self.source.parts.values():
            names = {file: name for file, (owner, name) in owner_by_file.items() if owner is part}
            paths = _open(part, self.task, self.searched).paths(names.values())
            path_by_file |= {file: paths[name] for file, name in names.items()}
        return {file: path_by_file[file] for file in wanted}

    def missing(self, files: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``files`` that are not on this machine; asks no host."""
        return tuple(file for file in files if not self.has(file))

    def has(self, file: str) -> bool:
        """Whether ``file`` is on this machine; asks no host."""
        owner, rest = self.source.locate(file)
        if owner is not self.source:
            return _open(owner, self.task, self.searched).has(rest)
        name = self._full_name(file)
        if self.source.sample is not None:
            return _sample_file(self.source.sample, name).is_file()
        if self.root is not None:
            return (self.root / name).exists()  # a user's corpus may be a folder
        return self._may_be_fetched and path_in_cache(self.source, name) is not None

    def _refuse_lost_root(self) -> None:
        """Refuse to ask a host when the data root that was named is not there; for a user's own data see `_missing`."""
        if self._may_be_fetched and self.searched is not None and not self.searched.is_dir():
            raise UsageError(
                f"{self.task}: the data root {self.searched} is no directory; correct --data or CRUMB_TASKS_DATA"
            )

    @property
    def _may_be_fetched(self) -> bool:
        has_host = self.source.hub is not None or self.source.github is not None
        return has_host and self.root is None and self.source.user is None and self.source.sample is None

    def _full_name(self, file: str) -> str:
        return str(PurePosixPath(self.source.folder) / file)

    def _path(self, name: str) -> Path:
        if self.source.sample is not None:
            return self._sample_path(name)
        if self.root is not None:
            return self.root / name
        return fetch(self.source, name)

    def _sample_path(self, name: str) -> Path:
        file = _sample_file(str(self.source.sample), name)
        if not file.is_file():
            raise NotToBeHadError(self._why_not_here())
        if isinstance(file, Path):
            return file
        # inside a zip: a copy in the cache, named after its content so that another version cannot be mistaken for it
        content = file.read_bytes()
        path = cache_dir() / "samples" / hashlib.sha256(content).hexdigest()[:16] / name
        if not path.is_file():
            with written_whole(path) as copy:
                copy.write(content)
        return path

    def _why_not_here(self) -> str:
        if self.source.sample is not None:
            return "the package lacks its own sample; reinstall crumb-tasks"
        if self.root is None and self.searched is not None and not self.searched.is_dir():
            return f"the data root {self.searched} is no directory"
        return f"not in the data root ({self.root or self.searched or 'none is set'})"

    def _missing(self, files: Iterable[str], why: str) -> MissingDataError:
        names = ", ".join(map(self._full_name, files))
        repository = self.source.hub or self.source.github or self.source.path
        if self.source.sample is not None:
            return MissingDataError(f"{self.task}: {names}: {why}")
        if self.source.user is not None or self.source.path is not None:
            yours = f"these data are yours to bring ({self.source.user or 'see the card'})"
            return MissingDataError(
                f"{self.task}: {names}: {why}; {yours}: put them into DIR/{repository} and set CRUMB_TASKS_DATA=DIR"
            )
        host = "Hub dataset" if self.source.hub else "GitHub repository"
        if self.root is None and self.searched is not None:
            why = f"not in the data root ({self.searched}); {why}"
        return MissingDataError(
            f"{self.task}: {names} of the {host} {repository} at revision {self.source.revision}: {why}; "
            f"get it with: crumb-tasks download {self.task} --data DIR"
        )


def open_source(task: TaskCard, *, root: Path | str | None = None) -> OpenedSource:
    """Return the source of ``task``; no file is touched yet.

    Args:
        task: The task.
        root: A data root that takes the place of `data_root`.
    """
    return _open(task.source, task.name, Path(root) if root is not None else data_root())


def _open(source: Source, task: str, base: Path | None) -> OpenedSource:
    place = source.hub or source.github or source.path
    folder = base / place if base is not None and place and source.sample is None else None
    return OpenedSource(
        source=source,
        task=task,
        root=folder if folder is not None and folder.is_dir() else None,
        searched=base,
    )


def fetch_into(source: Source, name: str, target: Path, *, task: str) -> Path:
    """Copy one file of ``source`` into the data root ``target``, in the upstream layout; resumes what was begun.

    Args:
        source: A source on the Hub or GitHub.
        name: File inside the source's folder.
        target: The data root.
        task: Task name, for messages.

    Raises:
        MissingDataError: As `OpenedSource.path`.
    """
    owner, rest = source.locate(name)
    if owner is not source:
        return fetch_into(owner, rest, target, task=task)
    full = str(PurePosixPath(source.folder) / name)
    path = target / str(source.hub or source.github or source.path) / full
    if path.is_file():
        return path
    if fetch_from_hub_into(source, full, target / str(source.hub)):
        return path
    # the cache may hold it; if not, the reason comes from there, and the data root, which may be new, is none
    is_own = source.user is not None or source.path is not None
    cached = OpenedSource(source=source, task=task, root=None, searched=target if is_own else None).path(name)
    with cached.open("rb") as file, written_whole(path) as copy:
        shutil.copyfileobj(file, copy)
    return path


def _sample_file(sample: str, name: str) -> importlib.resources.abc.Traversable:
    return importlib.resources.files("crumb_tasks").joinpath("samples", sample, *PurePosixPath(name).parts)
