"""The schedule on Ray: actors that are started, given shards, watched and replaced.

One thread talks to Ray. Whoever searches (a thread per task) puts shards into the schedule and waits for what they have
found. A worker that is lost is replaced, and Ray waits for a place for it; meanwhile its shard is another's.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crumb_tasks.cluster.jobs import Failure, Found, Work
from crumb_tasks.cluster.places import Cluster
from crumb_tasks.cluster.schedule import TRIES, Job, Schedule
from crumb_tasks.cluster.shards import Shard
from crumb_tasks.cluster.slots import Hiring, Slot
from crumb_tasks.cluster.states import Description, Progress, WorkerLine
from crumb_tasks.errors import ClusterError

_TICK = 0.05
_LOOK = 1.0  # seconds between two questions how far a worker is
_LATE = 60.0  # seconds after which the user is told that workers wait


@dataclass(eq=False)
class _Search:
    """One search and who waits for it."""

    work: Work
    ref: Any
    answers: queue.SimpleQueue[tuple[Shard, Found] | BaseException] = field(default_factory=queue.SimpleQueue)


class Pool:
    """Workers on a cluster; see `crumb_tasks.cluster.remote.Workers`.

    Args:
        cluster: Where.
        make: Loads the model, given an observer; it must survive pickling.
        environment: Variables that workers need.
        say: Told what the user should know.
    """

    def __init__(
        self,
        cluster: Cluster,
        make: Callable[[Any], Any],
        environment: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._ray = cluster.ray
        self._say = say
        self._schedule = Schedule()
        self._lock = threading.Lock()
        self._searches: dict[int, _Search] = {}
        self._numbers = itertools.count()
        hiring = Hiring(cluster, environment, self._ray.cloudpickle.dumps(make))
        self._slots = [Slot(number, hiring) for number in range(cluster.n_workers)]
        self._kind: str | None = None
        self._fatal: ClusterError | None = None
        self._is_over = threading.Event()
        self._done = self._total = 0
        self._begun: float | None = None
        self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)
        self._has_told = False
        for slot in self._slots:
            slot.start()
        self._thread.start()

    @property
    def n_workers(self) -> int:
        """How many workers share the work, those that are being started included."""
        return max(1, sum(slot.phase != "closed" for slot in self._slots))

    @property
    def n_unfinished(self) -> int:
        """Number of shards that wait or are being done."""
        with self._lock:
            return self._schedule.n_waiting + len(self._schedule.running)

    def kind(self) -> str:
        """Return the kind of the model once a worker has loaded it.

        Raises:
            ClusterError: None can.
            KeyboardInterrupt: The pool was closed meanwhile.
        """
        while self._kind is None:
            self._stop_if_over()
            if self._fatal is not None:
                raise self._fatal
            time.sleep(_TICK)
        return self._kind

    def find(self, work: Work, shards: Sequence[Shard], done: int, total: int) -> Iterator[tuple[Shard, Found]]:
        """Yield what each shard has found, in the order in which they are done.

        Raises:
            ClusterError: A shard cannot be done, or no worker is left.
            KeyboardInterrupt: The pool was closed meanwhile.
        """
        number, search = next(self._numbers), _Search(work, self._ray.put(work))
        with self._lock:
            self._searches[number] = search
            self._schedule.add(number, shards)
            self._done += done
            self._total += total
        try:
            for _ in shards:
                yield self._answer(search)
        finally:
            with self._lock:
                self._searches.pop(number, None)
                self._schedule.drop(number)

    def _answer(self, search: _Search) -> tuple[Shard, Found]:
        while True:
            self._stop_if_over()
            if self._fatal is not None:
                raise self._fatal
            try:
                answer = search.answers.get(timeout=0.2)
            except queue.Empty:
                continue
            if isinstance(answer, BaseException):
                raise answer
            return answer

    def _stop_if_over(self) -> None:
        if self._is_over.is_set():
            raise KeyboardInterrupt

    def close(self) -> None:
        """End the workers; whoever waits for them is interrupted."""
        self._is_over.set()
        self._thread.join()
        for slot in self._slots:
            slot.kill()

    def progress(self) -> Progress:
        """Return how far all workers are."""
        with self._lock:
            done = self._done
            lines = []
            for slot in self._slots:
                job = self._schedule.running.get(slot.number)
                line = WorkerLine(slot.number + 1, slot.place, slot.phase)
                if slot.phase == "closed":
                    line.doing = f"closed: {slot.reason}"
                elif job is not None and job.search in self._searches:
                    shard = job.shard
                    line.doing = self._searches[job.search].work.words(shard)
                    line.done, line.total = min(slot.state.in_shard, shard.count), shard.count
                    done += line.done
                lines.append(line)
            encoded = sum(slot.encoded_before + slot.state.in_all for slot in self._slots)
            seconds = 0.0 if self._begun is None else time.monotonic() - self._begun
            return Progress(done, self._total, encoded, seconds, lines)

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._tick()
        except Exception as error:  # noqa: BLE001 -- whoever waits must not wait for ever
            self._fatal = ClusterError(f"the cluster is gone: {type(error).__name__}: {' '.join(str(error).split())}")

    def _tick(self) -> None:
        by_ref = {slot.ref: slot for slot in self._slots if slot.ref is not None}
        if by_ref:
            ready, _ = self._ray.wait(list(by_ref), num_returns=1, timeout=_TICK)
            if ready:
                ready, _ = self._ray.wait(list(by_ref), num_returns=len(by_ref), timeout=0)
            for ref in ready:
                self._take(by_ref[ref])
        else:
            time.sleep(_TICK)
        self._give()
        self._look()

    def _take(self, slot: Slot) -> None:
        """Take the answer of a worker that has one, or has died."""
        ref, slot.ref = slot.ref, None
        try:
            answer = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            answer = Failure(" ".join(str(error.cause or error).split())[:300])
        except self._ray.exceptions.RayError as error:
            self._replace(slot, error)
            return
        if slot.phase == "starting":
            self._started(slot, answer)
            return
        slot.rest()
        with self._lock:
            if isinstance(answer, Failure):
                self._failed(slot, answer)
                return
            job = self._schedule.finish(slot.number)
            self._done += job.shard.count
            if job.search in self._searches:
                self._searches[job.search].answers.put((job.shard, answer))

    def _started(self, slot: Slot, answer: Description | Failure) -> None:
        if isinstance(answer, Description):
            slot.described, slot.phase, slot.n_failed_starts = answer, "idle", 0
            self._kind = answer.kind
            self._say(f"{slot} is ready")
        elif answer.is_final:
            self._fatal = ClusterError(answer.reason)
        else:
            self._retry_start(slot, answer.reason)

    def _retry_start(self, slot: Slot, reason: str) -> None:
        slot.n_failed_starts += 1
        if slot.n_failed_starts < TRIES:
            slot.start()
            return
        slot.close(reason)
        self._say(f"{slot} cannot be started: {reason}")
        if all(other.phase == "closed" for other in self._slots):
            self._fatal = ClusterError(f"no worker can be started: {reason}")

    def _replace(self, slot: Slot, error: Exception) -> None:
        """Put a new worker in the place of one that died."""
        reason = _in_short(error)
        if slot.phase == "busy":
            with self._lock:
                text = f"{slot} is lost ({reason}){self._again(self._schedule.running.get(slot.number))}"
                self._failed(slot, Failure(f"its worker was lost ({reason})"))
            self._say(text)
            slot.start()
        else:
            self._retry_start(slot, f"its process ended ({reason})")

    def _again(self, job: Job | None) -> str:
        if job is None or job.search not in self._searches:
            return ""
        return f"; {self._searches[job.search].work.words(job.shard)} is done again"

    def _failed(self, slot: Slot, failure: Failure) -> None:
        """Have a job done again, or give its search up; called with the lock."""
        job = self._schedule.running[slot.number]
        last = self._schedule.lose(slot.number)
        search = self._searches.get(job.search)
        if search is None:
            self._schedule.drop(job.search)
        elif failure.is_final:
            self._schedule.drop(job.search)
            search.answers.put(ClusterError(failure.reason))
        elif last is not None:
            self._schedule.drop(job.search)
            search.answers.put(
                ClusterError(
                    f"{search.work.words(job.shard)}: given up after {TRIES} tries; the last, by worker "
                    f"{slot.number + 1}: {failure.reason}"
                )
            )

    def _give(self) -> None:
        """Give jobs to idle workers."""
        n_ready = sum(slot.phase in {"idle", "busy"} for slot in self._slots)
        for slot in self._slots:
            if slot.phase != "idle":
                continue
            with self._lock:
                job = self._schedule.take(slot.number, n_ready)
                if job is None:
                    continue
                search = self._searches[job.search]
            if self._begun is None:
                self._begun = time.monotonic()
            slot.give(job.search, search.ref, job.shard)

    def _look(self) -> None:
        """Ask workers how far they are, and say which wait for a place."""
        if time.monotonic() - self._looked < _LOOK:
            return
        self._looked = time.monotonic()
        for slot in self._slots:
            if slot.phase != "closed":
                slot.look()
        late = [slot for slot in self._slots if slot.phase == "starting" and self._looked - slot.since > _LATE]
        if late and not self._has_told:
            self._has_told = True
            self._say(f"{len(late)} of {len(self._slots)} workers wait for a place on the cluster, or for the model")


def _in_short(error: Exception) -> str:
    """Return the first line of an error of Ray, and the last where that is another error's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    cause = f": {lines[-1]}" if "Error: " in lines[-1] and len(lines) > 1 else ""
    return f"{lines[0].rstrip('.:')}{cause}"[:300]
