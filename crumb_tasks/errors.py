"""Every error that this package raises on purpose, and nothing else.

An expected error is one line that names the file or task, the offender and the remedy. ``exit_code`` is what a
command returns for it: 1 for a finding about data or results, 2 for misuse.

    CrumbTasksError
    ├── CardError               a card in ``task_metadata/`` is wrong
    ├── UsageError              an unknown task, split, measure or option
    │   └── MissingExtraError   an optional dependency that this call needs is not installed
    ├── DataError               a collection's data break a promise of its card
    │   ├── MissingDataError    the files are neither in the data root nor to be had from their host
    │   └── SchemaError         columns or fields differ from what the loader reads
    ├── RunError                a run that cannot be ranked (NaN, a document twice)
    │   └── RunFileError        the same in a file, with path and line
    ├── ClusterError            a shard failed on every try, or no worker is left
    ├── AggregateError          an aggregate cannot have a value (missing, doubled or foreign member, mixed scales)
    └── UnsupportedMtebError    the installed mteb is outside the supported range
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class CrumbTasksError(Exception):
    """Base of all expected errors; ``str(error)`` is one line for the user."""

    exit_code = 1


class CardError(CrumbTasksError):
    """A card is wrong: the message names the file, the field and the remedy."""

    exit_code = 2


class UsageError(CrumbTasksError):
    """The caller asked for something that does not exist."""

    exit_code = 2


class MissingExtraError(UsageError):
    """An optional dependency is not installed; the message holds the ``pip install`` line."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional dependency; install it with: pip install 'crumb-tasks[{extra}]'")
        self.extra = extra


class DataError(CrumbTasksError):
    """A collection's data break a promise of its card."""


class MissingDataError(DataError):
    """The files of a source are neither in the data root nor to be had from their host."""


class SchemaError(DataError):
    """Columns or fields differ from what the loader reads; the message names those that were found."""


class RunError(CrumbTasksError):
    """A run that cannot be ranked."""

    exit_code = 2


class RunFileError(RunError):
    """A run file that cannot be read: ``path:line: what is wrong; what to do``.

    Args:
        path: The file; ``-`` for standard input.
        line: Line number, counted from 1; ``None`` where the format has no lines.
        problem: What is wrong and what to do.
    """

    def __init__(self, path: Path | str, line: int | None, problem: str) -> None:
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {problem}")
        self.path = Path(path)
        self.line = line


class ClusterError(CrumbTasksError):
    """Work on a cluster could not be done; the message names the shard or the workers."""


class AggregateError(CrumbTasksError):
    """An aggregate cannot have a value; the message names the member."""


class UnsupportedMtebError(CrumbTasksError):
    """The installed mteb is outside the supported range."""


def did_you_mean(name: str, known: Iterable[str], *, most: int = 3) -> str:
    """Return ``"; did you mean 'A' or 'B'?"`` for near names of ``name``, or an empty string."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=most, cutoff=0.6)
    if not near:
        return ""
    return "; did you mean " + " or ".join(f"'{by_folded[folded]}'" for folded in near) + "?"
