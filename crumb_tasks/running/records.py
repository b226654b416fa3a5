"""What stands beside a result of MTEB's cache: what it was made of, its values per query, its run.

MTEB keys its cache on model, experiment and task alone. The record of a result holds what else decides a value, so that
a changed dataset revision, rule, first stage or scoring version is seen, said, and computed again. Records lie in the
folder ``crumb_tasks`` beside the results, where MTEB does not look.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from crumb_tasks.files import written_whole

_FOLDER = "crumb_tasks"
DATA = "local_data"
"""Key of an identity that holds, by split, a digest of the files in a data root."""


@dataclass(frozen=True)
class Record:
    """What a result was made of.

    Attributes:
        task: Task name.
        identity: What decides its values.
        settings: What does not, or only in rounding: device, batch size, versions.
        first_stage: By split where the re-ranked candidates are from.
        per_query: By split the main measure and its value for each query.
        notes: What was found on the way.
        result_sha256: Of the result file, which MTEB may have replaced since.
        finished: When, in UTC.
    """

    task: str
    identity: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    first_stage: Mapping[str, Any] = field(default_factory=dict)
    per_query: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    result_sha256: str = ""
    finished: str = ""

    @classmethod
    def read(cls, folder: Path, task: str) -> Self | None:
        """Return the record of ``task`` in a folder of results, ``None`` where there is none that can be read."""
        try:
            stored = json.loads(_path(folder, task).read_text(encoding="utf-8"))
            return cls(**{**stored, "notes": tuple(stored.get("notes", ()))})
        except (OSError, ValueError, TypeError):
            return None

    def write(self, folder: Path) -> None:
        """Write the record into a folder of results, whole or not at all."""
        with written_whole(_path(folder, self.task)) as file:
            file.write(json.dumps(asdict(self), ensure_ascii=False, allow_nan=False, indent=1).encode())

    def describes(self, result: Path) -> bool:
        """Return whether it is the record of that very file."""
        return result.is_file() and self.result_sha256 == file_sha256(result)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def now() -> str:
    """Return the time as records hold it."""
    return dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")


def run_path(folder: Path, task: str, split: str, subset: str) -> Path:
    """Return where the run of a result is kept."""
    part = split if subset == "default" else f"{subset}.{split}"
    return folder / _FOLDER / "runs" / f"{task}.{part}.parquet"


def write_failure(folder: Path, task: str, reason: str) -> None:
    """Keep why a task failed, until it succeeds."""
    with written_whole(_failure_path(folder, task)) as file:
        file.write(json.dumps({"task": task, "failed": now(), "reason": reason}, ensure_ascii=False).encode())


def clear_failure(folder: Path, task: str) -> None:
    """Forget a failure that is over."""
    _failure_path(folder, task).unlink(missing_ok=True)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return in words where two identities differ."""
    found: list[str] = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        name = f"{prefix}{key}"
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{name}.")
        elif before != after:
            found.append(f"{name.replace('_', ' ')} {_short(before)} → {_short(after)}")
    return found


def changes(stored: Mapping[str, Any], current: Mapping[str, Any], splits: Iterable[str]) -> list[str]:
    """Return in words where the identity of a result differs from the current one, as far as ``splits`` go.

    Data that are not there now are not compared: a result needs none to be shown.
    """
    old, new = ({key: value for key, value in one.items() if key != DATA} for one in (stored, current))
    before, after = stored.get(DATA) or {}, current.get(DATA) or {}
    changed = [split for split in splits if after.get(split) != "" and before.get(split) != after.get(split)]
    data = [f"the data in the data root have changed ({', '.join(changed)})"] if changed else []
    return differences(old, new) + data


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def _path(folder: Path, task: str) -> Path:
    return folder / _FOLDER / f"{task}.json"


def _failure_path(folder: Path, task: str) -> Path:
    return folder / _FOLDER / f"{task}.failure.json"
