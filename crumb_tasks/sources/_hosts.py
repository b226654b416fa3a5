"""The hosts that benchmarks are fetched from: the Hugging Face Hub and GitHub, at a pinned revision."""

from __future__ import annotations

import socket
import urllib.parse
import urllib.request
from functools import cache
from pathlib import Path

from crumb_tasks.cards import Source
from crumb_tasks.files import written_whole
from crumb_tasks.sources._files import cache_dir

GITHUB_RAW = "https://raw.githubusercontent.com"
_TIMEOUT_S = 60
_CONNECT_S = 10
_BLOCK = 1 << 20


class NotToBeHadError(Exception):
    """A host did not give a file; the text says why."""


def fetch(source: Source, name: str) -> Path:
    """Return the local path of ``name``, a file of the whole repository: from the host's cache, else from the host.

    Raises:
        NotToBeHadError: It is neither in the cache nor to be had.
    """
    if (cached := path_in_cache(source, name)) is not None:
        return cached
    return _fetch_from_hub(source, name) if source.hub else _fetch_from_github(source, name)


def path_in_cache(source: Source, name: str) -> Path | None:
    """Return where ``name`` lies in the host's cache on this machine, or ``None``."""
    if not source.hub:
        path = _github_cache_path(source, name)
        return path if path.is_file() else None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source.hub, name, repo_type="dataset", revision=source.revision)
    return Path(found) if isinstance(found, str) else None


def fetch_from_hub_into(source: Source, name: str, folder: Path) -> bool:
    """Download ``name`` to its place below ``folder``, resuming what broke off; tell whether it is there."""
    if not source.hub or is_offline() or not hub_answers():
        return False
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    try:
        hf_hub_download(source.hub, name, repo_type="dataset", revision=source.revision, local_dir=folder)
    except (EntryNotFoundError, HfHubHTTPError, OSError):
        return False
    return True


def head_revision(source: Source) -> str | None:
    """Return the newest commit of a Hub dataset, or ``None`` where the Hub cannot be asked."""
    if not source.hub or is_offline() or not hub_answers():
        return None
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return HfApi().dataset_info(source.hub, timeout=_TIMEOUT_S).sha
    except (HfHubHTTPError, OSError):
        return None


def is_offline() -> bool:
    """Whether `HF_HUB_OFFLINE` keeps this process from any network."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


@cache
def hub_answers() -> bool:
    """Whether the Hub's host takes connections; its client would try for half a minute and fill the screen."""
    from huggingface_hub import constants

    if urllib.request.getproxies():
        return True  # a proxy reaches hosts that this machine does not
    host = urllib.parse.urlsplit(constants.ENDPOINT)
    try:
        port = host.port or (80 if host.scheme == "http" else 443)
        socket.create_connection((str(host.hostname), port), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


def _fetch_from_hub(source: Source, name: str) -> Path:
    from huggingface_hub import hf_hub_download

    if not is_offline() and not hub_answers():
        raise NotToBeHadError("not in the Hub's cache, and the Hub cannot be reached")
    try:
        return Path(hf_hub_download(str(source.hub), name, repo_type="dataset", revision=source.revision))
    except Exception as error:
        raise NotToBeHadError(_why_not_from_hub(error, source)) from error


def _github_cache_path(source: Source, name: str) -> Path:
    return cache_dir() / "github" / str(source.github) / str(source.revision) / name


def _fetch_from_github(source: Source, name: str) -> Path:
    if is_offline():
        raise NotToBeHadError("not in the cache, and HF_HUB_OFFLINE is set")
    path = _github_cache_path(source, name)
    try:
        _download(f"{GITHUB_RAW}/{source.github}/{source.revision}/{urllib.parse.quote(name)}", path)
    except OSError as error:  # urllib's own errors are OSErrors
        raise NotToBeHadError(f"GitHub did not give it ({_first_line(error)})") from error
    return path


def _download(url: str, path: Path) -> None:
    from tqdm import tqdm

    request = urllib.request.Request(url, headers={"User-Agent": "crumb-tasks"})  # noqa: S310 (one host, https)
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
        return f"not in the Hub's cache, and {'HF_HUB_OFFLINE is set' if is_offline() else 'the Hub cannot be reached'}"
    if isinstance(error, errors.EntryNotFoundError):
        return "the Hub has no such file"
    return f"the Hub did not give it ({_first_line(error)})"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
