"""A place for a worker on the cluster, and who is in it: started, asked, replaced."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from crumb_tasks.cluster.actors import RayWorker, own_versions
from crumb_tasks.cluster.places import Cluster
from crumb_tasks.cluster.shards import Shard
from crumb_tasks.cluster.states import Description, State


@dataclass(frozen=True)
class Hiring:
    """What it takes to start a worker.

    Attributes:
        cluster: Where.
        environment: Variables that it needs.
        packed: The model's loader, pickled.
    """

    cluster: Cluster
    environment: Mapping[str, str]
    packed: bytes


@dataclass(eq=False)
class Slot:
    """A place for a worker.

    Attributes:
        number: Counted from 0.
        hiring: What it takes to fill it.
        phase: What its worker is doing; ``closed`` where none could be started.
        ref: Of the answer that is awaited.
        state: How far the worker was when it was last asked.
        described: What it said about itself.
        encoded_before: Documents that earlier workers of this place have encoded.
        n_failed_starts: How often in a row none could be started.
        reason: Why.
        since: When the present worker was asked for.
    """

    number: int
    hiring: Hiring
    phase: Literal["starting", "idle", "busy", "closed"] = "starting"
    ref: Any = None
    state: State = field(default_factory=State)
    described: Description | None = None
    encoded_before: int = 0
    n_failed_starts: int = 0
    reason: str = ""
    since: float = 0.0
    _actor: Any = None
    _state_ref: Any = None

    def __str__(self) -> str:
        return f"worker {self.number + 1}{f' ({self.place})' if self.place else ''}"

    @property
    def place(self) -> str:
        """Machine and process."""
        return f"{self.described.host}, pid {self.described.pid}" if self.described else ""

    def start(self) -> None:
        """Ask for a worker; the answer says what it is, or why there is none."""
        self.kill()
        self.encoded_before, self.state = self.encoded_before + self.state.in_all, State()
        self.phase, self.described, self.since = "starting", None, time.monotonic()
        self._actor = self.hiring.cluster.actor(RayWorker).remote(dict(self.hiring.environment), self.hiring.packed)
        self.ref = self._actor.load.remote(own_versions())

    def give(self, search: int, work: Any, shard: Shard) -> None:
        """Give the worker a shard of the search to which ``work`` refers."""
        self.phase = "busy"
        self.ref = self._actor.find.remote(search, [work], shard)

    def rest(self) -> None:
        """Take note that the worker has answered."""
        self.phase, self.state = "idle", State(0, self.state.in_all)

    def close(self, reason: str) -> None:
        """Give the place up."""
        self.kill()
        self.phase, self.reason = "closed", reason

    def kill(self) -> None:
        """End the worker, if there is one."""
        if self._actor is not None:
            self.hiring.cluster.ray.kill(self._actor)
        self._actor = self._state_ref = self.ref = None

    def look(self) -> None:
        """Read what the worker last said how far it is, and ask again."""
        ray = self.hiring.cluster.ray
        if self._state_ref is not None:
            ready, _ = ray.wait([self._state_ref], timeout=0)
            if not ready:
                return
            ref, self._state_ref = self._state_ref, None
            try:
                self.state = ray.get(ref)
            except ray.exceptions.RayError:
                return  # the loss is seen where the worker's answer is missing
        if self.phase == "busy":
            self._state_ref = self._actor.state.remote()
