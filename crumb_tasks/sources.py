"""Where the files of a collection come from.

The data root first (``CRUMB_TASKS_DATA``, in the very layout of the upstream repository), then the Hugging Face Hub or
GitHub at the card's revision, only the files that are asked for; or the sample inside this package.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import os
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from crumb_tasks.cards import Source, TaskCard
from crumb_tasks.errors import MissingDataError

GITHUB_RAW = "https://raw.githubusercontent.com"
_TIMEOUT_S = 60
_BLOCK = 1 << 20
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


def cache_dir() -> Path:
    """Return the folder for what can be made again: ``CRUMB_TASKS_CACHE``, else the platform's cache folder."""
    if named := os.environ.get("CRUMB_TASKS_CACHE", ""):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crumb_tasks"


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file beside ``path`` that takes its place when the block ends well and vanishes otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(name).chmod(0o666 & ~_umask())  # mkstemp makes private files; a shared cache must stay readable
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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
        host = "Hub" if self.source.hub else "GitHub"
        return f"{host} {self.source.hub or self.source.github} at {self.source.revision}"

    @property
    def is_local(self) -> bool:
        """Whether every file lies in the data root or in this package."""
        return self.root is not None or self.source.sample is not None

    def path(self, file: str) -> Path:
        """Return the local path of ``file``, a path inside the source's folder with ``/`` between its parts.

        Raises:
            MissingDataError: The file is neither in the data root nor to be had from its host.
        """
        return self.paths([file])[file]

    def paths(self, files: Iterable[str]) -> dict[str, Path]:
        """Return the local path of each of ``files``; errors as `path`, naming all files that are missing."""
        wanted = list(files)
        if not self._may_be_fetched and (lacking := self.missing(wanted)):
            raise self._missing(lacking, self._why_not_here())
        try:
            return {file: self._path(self._full_name(file)) for file in wanted}
        except _NotToBeHadError as error:
            raise self._missing(self.missing(wanted), str(error)) from error.__cause__

    def missing(self, files: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``files`` that are not on this machine; asks no host."""
        return tuple(file for file in files if not self.has(file))

    def has(self, file: str) -> bool:
        """Whether ``file`` is on this machine; asks no host."""
        name = self._full_name(file)
        if self.source.sample is not None:
            return _sample_file(self.source.sample, name).is_file()
        if self.root is not None:
            return (self.root / name).is_file()
        if not self._may_be_fetched:
            return False
        if self.source.hub:
            return _path_in_hub_cache(self.source, name) is not None
        return self._github_cache_path(name).is_file()

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
        return self._fetch_from_hub(name) if self.source.hub else self._fetch_from_github(name)

    def _sample_path(self, name: str) -> Path:
        file = _sample_file(str(self.source.sample), name)
        if not file.is_file():
            raise _NotToBeHadError(self._why_not_here())
        if isinstance(file, Path):
            return file
        # inside a zip: a copy in the cache, named after its content so that another version cannot be mistaken for it
        content = file.read_bytes()
        path = cache_dir() / "samples" / hashlib.sha256(content).hexdigest()[:16] / name
        if not path.is_file():
            with written_whole(path) as copy:
                copy.write(content)
        return path

    def _fetch_from_hub(self, name: str) -> Path:
        from huggingface_hub import hf_hub_download

        try:
            return Path(hf_hub_download(str(self.source.hub), name, repo_type="dataset", revision=self.source.revision))
        except Exception as error:
            raise _NotToBeHadError(_why_not_from_hub(error, self.source)) from error

    def _github_cache_path(self, name: str) -> Path:
        return cache_dir() / "github" / str(self.source.github) / str(self.source.revision) / name

    def _fetch_from_github(self, name: str) -> Path:
        path = self._github_cache_path(name)
        if path.is_file():
            return path
        if _is_offline():
            raise _NotToBeHadError("not in the cache, and HF_HUB_OFFLINE is set")
        try:
            download_url(f"{GITHUB_RAW}/{self.source.github}/{self.source.revision}/{urllib.parse.quote(name)}", path)
        except OSError as error:  # urllib's own errors are OSErrors
            raise _NotToBeHadError(f"GitHub did not give it ({_first_line(error)})") from error
        return path

    def _why_not_here(self) -> str:
        if self.source.sample is not None:
            return "the package lacks its own sample; reinstall crumb-tasks"
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
        return MissingDataError(
            f"{self.task}: {names} of the {host} {repository} at revision {self.source.revision}: {why}; "
            f"get it with: crumb-tasks download {self.task} --data DIR"
        )


class _NotToBeHadError(Exception):
    """A host did not give a file; the text says why."""


def open_source(task: TaskCard, *, root: Path | str | None = None) -> OpenedSource:
    """Return the source of ``task``; no file is touched yet.

    Args:
        task: The task.
        root: A data root that takes the place of `data_root`.
    """
    base = Path(root) if root is not None else data_root()
    place = task.source.hub or task.source.github or task.source.path
    folder = base / place if base is not None and place and task.source.sample is None else None
    return OpenedSource(
        source=task.source,
        task=task.name,
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
    full = str(PurePosixPath(source.folder) / name)
    path = target / str(source.hub or source.github) / full
    if path.is_file():
        return path
    if source.hub and not _is_offline():
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

        try:  # local_dir keeps an interrupted file and goes on where it stopped
            hf_hub_download(
                source.hub, full, repo_type="dataset", revision=source.revision, local_dir=target / source.hub
            )
        except (EntryNotFoundError, HfHubHTTPError, OSError):
            pass  # the cache may hold it; if not, the reason comes from there
        else:
            return path
    cached = OpenedSource(source=source, task=task, root=None, searched=target).path(name)
    with cached.open("rb") as file, written_whole(path) as copy:
        while block := file.read(_BLOCK):
            copy.write(block)
    return path


def download_url(url: str, path: Path) -> None:
    """Download ``url`` to ``path``, with a progress line; the file appears when it is whole.

    Raises:
        OSError: The host did not give the file, or broke off.
    """
    from tqdm import tqdm

    request = urllib.request.Request(url, headers={"User-Agent": "crumb-tasks"})  # noqa: S310 (the caller's host)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
        expected = int(answer.headers.get("Content-Length") or 0)
        with (
            written_whole(path) as file,
            tqdm(total=expected or None, unit="B", unit_scale=True, desc=path.name, disable=None) as progress,
        ):
            received = 0
            while block := answer.read(_BLOCK):
                received += file.write(block)
                progress.update(len(block))
            if expected and received != expected:
                raise OSError(f"{url} broke off after {received} of {expected} bytes")


def head_revision(source: Source) -> str | None:
    """Return the newest commit of a Hub dataset, or ``None`` where the Hub cannot be asked."""
    if not source.hub or _is_offline():
        return None
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return HfApi().dataset_info(source.hub, timeout=_TIMEOUT_S).sha
    except (HfHubHTTPError, OSError):
        return None


def _sample_file(sample: str, name: str) -> importlib.resources.abc.Traversable:
    return importlib.resources.files("crumb_tasks").joinpath("samples", sample, *PurePosixPath(name).parts)


def _is_offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _path_in_hub_cache(source: Source, name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(str(source.hub), name, repo_type="dataset", revision=source.revision)
    return Path(found) if isinstance(found, str) else None


def _why_not_from_hub(error: Exception, source: Source) -> str:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        page = f"https://huggingface.co/datasets/{source.hub}"
        return f"access is gated: accept the terms at {page} and log in with `hf auth login`"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the Hub has no such dataset, or it needs a login (`hf auth login`)"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the Hub has no such revision"
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        return (
            f"not in the Hub's cache, and {'HF_HUB_OFFLINE is set' if _is_offline() else 'the Hub cannot be reached'}"
        )
    if isinstance(error, errors.EntryNotFoundError):
        return "the Hub has no such file"
    return f"the Hub did not give it ({_first_line(error)})"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
