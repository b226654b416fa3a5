"""Finished shards on disk: whatever ends a run, the next one goes on from there.

A folder per search, found by a hash of all that decides what is found; in it ``key.json``, which says so in plain
words, and a file per shard, named after its range. A file appears whole or not at all. The next run may have another
number of workers: it uses what is there and cuts the rest anew.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crumb_tasks.cluster.jobs import Found
from crumb_tasks.cluster.shards import Shard
from crumb_tasks.files import written_whole

_NAME = re.compile(r"(\d+)-(\d+)\.npz")


@dataclass(frozen=True)
class Keeping:
    """A directory of finished shards.

    Attributes:
        folder: The directory; made when it is first written.
    """

    folder: Path

    def open(self, identity: Mapping[str, Any]) -> KeptShards:
        """Return the finished shards of the search that ``identity`` describes."""
        text = json.dumps(identity, indent=1, sort_keys=True, ensure_ascii=False)
        name = f"{identity['task']}.{identity['split']}"
        digest = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
        return KeptShards(self.folder / f"{name}-{digest}", text)


@dataclass(frozen=True)
class KeptShards:
    """The finished shards of one search.

    Attributes:
        folder: Where they are.
        key: What they are of, as JSON.
    """

    folder: Path
    key: str

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges that are there, not yet read; they may overlap."""
        matches = (_NAME.fullmatch(path.name) for path in self.folder.glob("*.npz"))
        return [(int(match[1]), int(match[2])) for match in matches if match]

    def read(self, shard: Shard) -> Found | None:
        """Return what a shard has found, ``None`` where that is not there, is broken, or is of other texts."""
        try:
            with np.load(self._path(shard), allow_pickle=False) as stored:
                told = json.loads(bytes(stored["told"]))
                if told["content"] != shard.content:
                    return None
                return Found(stored["offsets"], stored["rows"], stored["scores"], told["counts"], tuple(told["notes"]))
        except (OSError, ValueError, KeyError, EOFError, TypeError):
            return None
        except Exception as error:  # zipfile's own error is not imported for its name alone
            if type(error).__name__ == "BadZipFile":
                return None
            raise

    def write(self, shard: Shard, found: Found) -> None:
        """Keep what a shard has found."""
        key = self.folder / "key.json"
        if not key.is_file():
            with written_whole(key) as file:
                file.write(f"{self.key}\n".encode())
        told = {"content": shard.content, "counts": dict(found.counts), "notes": list(found.notes)}
        buffer = io.BytesIO()
        np.savez(
            buffer,
            offsets=found.offsets,
            rows=found.rows,
            scores=found.scores,
            told=np.frombuffer(json.dumps(told).encode(), dtype=np.uint8),
        )
        with written_whole(self._path(shard)) as file:
            file.write(buffer.getbuffer())

    def _path(self, shard: Shard) -> Path:
        return self.folder / f"{shard.first}-{shard.stop}.npz"
