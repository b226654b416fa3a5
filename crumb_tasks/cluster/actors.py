"""A worker as Ray's actor: loads the model, finds shards, tells how far it is. Nothing heavy is imported before that.

Methods return failures instead of raising them: an exception of a library need not survive the way to the driver.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crumb_tasks.cluster.states import Description, State

if TYPE_CHECKING:
    from crumb_tasks.cluster.jobs import Failure, Found
    from crumb_tasks.cluster.shards import Shard

VERSIONS = ("crumb-tasks", "mteb")
"""Packages whose versions must be the driver's."""


class RayWorker:
    """A worker in a process of its own.

    Args:
        environment: Variables of the driver's environment that say where data and models are.
        packed: The model's loader, pickled: unpickling it imports mteb, which reads the environment.
    """

    def __init__(self, environment: Mapping[str, str], packed: bytes) -> None:
        os.environ.update(environment)
        self._packed = packed
        self._worker: Any = None
        self._lock = threading.Lock()
        self._in_shard = 0
        self._in_all = 0

    def load(self, versions: Mapping[str, str]) -> Description | Failure:
        """Load the model and return what and where the worker is.

        Args:
            versions: Of `VERSIONS`, as the driver has them.
        """
        from crumb_tasks.cluster.jobs import Failure
        from crumb_tasks.errors import CrumbTasksError

        try:
            return self._load(versions)
        except CrumbTasksError as error:
            return Failure(str(error), is_final=True)
        except Exception as error:  # noqa: BLE001 -- whatever stops a worker is the driver's business
            return Failure(reason_of(error))

    def _load(self, versions: Mapping[str, str]) -> Description:
        import pickle

        from crumb_tasks.cluster.working import Worker

        refuse_other_versions(versions)
        be_quiet()
        make = pickle.loads(self._packed)  # noqa: S301 -- the driver has packed it
        model = make(self._observe)
        self._worker = Worker(model)
        return Description(kind_of(model), os.getpid(), platform.node(), _node_id())

    def _observe(self, kind: str, count: int) -> None:
        if kind != "query":
            with self._lock:
                self._in_shard += count
                self._in_all += count

    def find(self, search: int, work: Sequence[Any], shard: Shard) -> Found | Failure:
        """Search one shard.

        Args:
            search: Number of the search.
            work: A reference to what is searched, in a list, so that Ray hands over the reference.
            shard: Which part of it.
        """
        import ray

        from crumb_tasks.cluster.jobs import Failure
        from crumb_tasks.errors import RunError, UsageError

        with self._lock:
            self._in_shard = 0
        try:
            found: Found = self._worker.find(search, lambda: ray.get(work[0]), shard)
        except (RunError, UsageError) as error:
            return Failure(str(error), is_final=True)
        except Exception as error:  # noqa: BLE001 -- as above
            return Failure(reason_of(error))
        return found

    def state(self) -> State:
        """Return how far the worker is; answered while it searches."""
        with self._lock:
            return State(self._in_shard, self._in_all)


def refuse_other_versions(versions: Mapping[str, str]) -> None:
    """Refuse to work with other packages than the driver.

    Raises:
        UsageError: A version differs.
    """
    from crumb_tasks.errors import UsageError

    for name, found in own_versions().items():
        if found != versions.get(name):
            raise UsageError(
                f"{platform.node()} has {name} {found or 'nowhere'}, the driver {versions.get(name)}; install the same "
                "on every machine of the cluster"
            )


def own_versions() -> dict[str, str]:
    """Return the versions of `VERSIONS` in this process, empty where one is not installed."""
    import importlib.metadata

    found = {}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def kind_of(model: Any) -> str:
    """Return ``encoder``, ``cross-encoder`` or ``own search``, as `crumb_tasks.ranking.rank` tells them apart."""
    from mteb.models import CrossEncoderProtocol, EncoderProtocol, SearchProtocol

    if isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
        return "encoder"
    return "cross-encoder" if isinstance(model, CrossEncoderProtocol) else "own search"


def reason_of(error: BaseException) -> str:
    """Return an error in one line."""
    from crumb_tasks.errors import CrumbTasksError

    text = " ".join(str(error).split())
    return text if isinstance(error, CrumbTasksError) else f"{type(error).__name__}: {text[:300]}"


def be_quiet() -> None:
    """Leave the screen to the driver: bars of libraries would be lost, or mixed."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    import datasets

    datasets.disable_progress_bars()


def _node_id() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())
