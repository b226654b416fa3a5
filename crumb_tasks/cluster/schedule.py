"""Which worker gets which shard next, and what becomes of one that was not done. Knows nothing of Ray.

Searches are served in the order in which they came, the largest shard of each first. A worker that has begun a search
goes on with it while it has shards: the collection and the queries' embeddings are there already. A shard that was not
done goes to another worker where there is one, and is given up after `TRIES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from crumb_tasks.cluster.shards import Shard

TRIES = 3
"""How often a shard is tried."""


@dataclass(eq=False)
class Job:
    """One shard of one search.

    Attributes:
        search: Number of the search.
        shard: Which part of it.
        n_tried: How often it was not done.
        failed_on: The worker that did not do it last.
    """

    search: int
    shard: Shard
    n_tried: int = 0
    failed_on: int | None = None


@dataclass
class Schedule:
    """Jobs that wait and jobs that are being done.

    Attributes:
        running: The job of each busy worker.
    """

    running: dict[int, Job] = field(default_factory=dict)
    _waiting: dict[int, list[Job]] = field(default_factory=dict)
    _last_search: dict[int, int] = field(default_factory=dict)

    def add(self, search: int, shards: Sequence[Shard]) -> None:
        """Take the shards of a search."""
        jobs = [Job(search, shard) for shard in sorted(shards, key=lambda shard: -shard.size)]
        self._waiting.setdefault(search, []).extend(jobs)

    @property
    def n_waiting(self) -> int:
        """Number of jobs that no worker has."""
        return sum(map(len, self._waiting.values()))

    def take(self, worker: int, n_workers: int) -> Job | None:
        """Give ``worker``, one of ``n_workers`` that are there, its next job; ``None`` where there is none for it."""
        last = self._last_search.get(worker)
        for search in sorted(self._waiting, key=lambda search: search != last):
            jobs = self._waiting[search]
            at = next((at for at, job in enumerate(jobs) if n_workers == 1 or job.failed_on != worker), None)
            if at is not None:
                job = jobs.pop(at)
                if not jobs:
                    del self._waiting[search]
                self.running[worker] = job
                self._last_search[worker] = search
                return job
        return None

    def finish(self, worker: int) -> Job:
        """Take note that ``worker`` has done its job, and return it."""
        return self.running.pop(worker)

    def lose(self, worker: int) -> Job | None:
        """Take note that ``worker`` has not done its job; return the job if that was its last try."""
        job = self.running.pop(worker)
        job.n_tried += 1
        job.failed_on = worker
        if job.n_tried >= TRIES:
            return job
        self._waiting.setdefault(job.search, []).insert(0, job)
        return None

    def drop(self, search: int) -> None:
        """Forget the jobs of a search that wait."""
        self._waiting.pop(search, None)
