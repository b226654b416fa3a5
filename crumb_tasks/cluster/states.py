"""What workers tell about themselves."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Description:
    """What and where a worker is.

    Attributes:
        kind: Of its model: ``encoder``, ``cross-encoder`` or ``own search``.
        pid: Of its process.
        host: Name of its machine.
        node: Ray's id of it.
    """

    kind: str
    pid: int
    host: str
    node: str


@dataclass(frozen=True)
class State:
    """How far a worker is.

    Attributes:
        in_shard: Documents (or pairs) of the shard in work.
        in_all: Documents (or pairs) since it was started.
    """

    in_shard: int = 0
    in_all: int = 0


@dataclass
class WorkerLine:
    """A worker as the view shows it.

    Attributes:
        number: Counted from 1.
        place: Machine and process, once known.
        doing: What it is doing.
        done: Documents (or pairs) of its shard that are done.
        total: Documents (or pairs) of its shard, 0 where it has none.
    """

    number: int
    place: str = ""
    doing: str = "starting"
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        """Return the worker in words."""
        of = f" {self.done:,}/{self.total:,}" if self.total else ""
        return f"worker {self.number}{f' ({self.place})' if self.place else ''}: {self.doing}{of}"


@dataclass
class Progress:
    """How far all workers are.

    Attributes:
        done: Documents (or pairs) of the searches that have begun, finished in this run or an earlier one.
        total: Documents (or pairs) of these searches.
        encoded: Documents (or pairs) that went through a model in this run, lost ones included.
        seconds: Since the first shard was given to a worker.
        workers: Each worker.
    """

    done: int = 0
    total: int = 0
    encoded: int = 0
    seconds: float = 0.0
    workers: list[WorkerLine] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Documents (or pairs) per second over all workers."""
        return self.encoded / self.seconds if self.seconds > 0 else 0.0
