"""The work of a cluster in this very process: the real shards, worker and merge, without Ray."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from crumb_tasks.cluster.actors import kind_of
from crumb_tasks.cluster.jobs import Found, Work
from crumb_tasks.cluster.keeping import Keeping
from crumb_tasks.cluster.remote import RemoteModel
from crumb_tasks.cluster.shards import Shard
from crumb_tasks.cluster.working import Worker


class Here:
    """Workers that take turns in one process and answer in an order of their own.

    Attributes:
        shards: All that were asked for, in the order of the answers.
    """

    def __init__(self, model: Any, n_workers: int, *, stop_after: int | None = None) -> None:
        self.n_workers = n_workers
        self.shards: list[Shard] = []
        self._kind = kind_of(model)
        self._workers = [Worker(model) for _ in range(n_workers)]
        self._stop_after = stop_after
        self._n_searches = 0

    def kind(self) -> str:
        """Return the kind of the model."""
        return self._kind

    def find(self, work: Work, shards: Sequence[Shard], done: int, total: int) -> Iterator[tuple[Shard, Found]]:
        """Search the shards, each on a worker, in any order; what travels is pickled on the way."""
        assert done + sum(shard.count for shard in shards) == total
        packed = pickle.dumps(work)
        self._n_searches += 1
        for at, shard in enumerate(random.Random(len(shards)).sample(list(shards), len(shards))):
            if self._stop_after is not None and len(self.shards) == self._stop_after:
                raise KeyboardInterrupt
            worker = self._workers[at % self.n_workers]
            found = worker.find(self._n_searches, lambda: pickle.loads(packed), pickle.loads(pickle.dumps(shard)))
            self.shards.append(shard)
            yield shard, pickle.loads(pickle.dumps(found))


def remote(
    model: Any, n_workers: int, *, keep_in: Path | None = None, stop_after: int | None = None
) -> tuple[RemoteModel, Here]:
    """Return ``model`` as a cluster of ``n_workers`` ranks with it, and the workers."""
    workers = Here(model, n_workers, stop_after=stop_after)
    keeping = None if keep_in is None else Keeping(keep_in)
    return RemoteModel(model.mteb_model_meta, workers, keeping), workers
