"""The Ray cluster: joining one, or starting one on this machine, and what a worker gets of it."""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crumb_tasks.errors import MissingExtraError, UsageError

_PATHS = ("CRUMB_TASKS_DATA", "CRUMB_TASKS_CACHE", "CRUMB_TASKS_MODELS", "HF_HOME", "HF_HUB_CACHE", "MTEB_CACHE")
_LOOPBACK = ("127.", "localhost", "[::1]")
_PATIENCE = 10.0  # seconds for a machine to answer
_SWITCHES = ("CRUMB_TASKS_DISABLE", "CRUMB_TASKS_STRICT", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "TQDM_DISABLE")


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process has joined.

    Attributes:
        ray: The module.
        n_workers: Workers to start.
        n_nodes: Machines.
        gpus: GPUs of all machines.
        cpus_per_worker: Processors that Ray sets aside for each worker.
        gpus_per_worker: GPUs likewise; less than 1 shares one.
        session: Where a cluster of this process' own keeps sockets and logs, ``None`` for other clusters.
    """

    ray: Any
    n_workers: int
    n_nodes: int
    gpus: float
    cpus_per_worker: float
    gpus_per_worker: float
    session: Path | None = None

    @classmethod
    def join(cls, address: str, n_workers: int | None, gpus_per_worker: float | None) -> Cluster:
        """Join a cluster.

        Args:
            address: ``local`` starts one on this machine, for as long as this process lives; ``auto`` takes the one
                that ``ray start`` has started here; anything else is the address of one.
            n_workers: How many workers; by default as many as there are GPUs for, without GPUs one for each machine.
            gpus_per_worker: GPUs of each; by default 1 where the cluster has any.

        Raises:
            MissingExtraError: Ray is not installed.
            UsageError: There is no such cluster, or no machine of it has so many GPUs.
        """
        ray = _import_ray(address)
        if address not in {"local", "auto"}:
            _refuse_silence(address)
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        session = None
        try:
            if address == "local":
                started = ray.init("local", include_dashboard=False, **quiet)
                session = Path(started.address_info["session_dir"])
            else:
                ray.init(address, **quiet)
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise UsageError(f"--ray {address}: no cluster answers there ({type(error).__name__}: {text})") from error
        try:
            return replace(cls._of_nodes(ray, n_workers, gpus_per_worker), session=session)
        except BaseException:
            _shut_down(ray, session)
            raise

    @classmethod
    def _of_nodes(cls, ray: Any, n_workers: int | None, gpus_per_worker: float | None) -> Cluster:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = sum(node.get("GPU", 0.0) for node in nodes)
        most = max(node.get("GPU", 0.0) for node in nodes)
        of_each = gpus_per_worker if gpus_per_worker is not None else float(gpus > 0)
        if of_each > most:
            raise UsageError(f"no machine of the cluster has {of_each:g} GPUs for a worker; the most is {most:g}")
        count = n_workers or (max(1, int(gpus / of_each)) if of_each else len(nodes))
        cpus = [node.get("CPU", 0.0) for node in nodes if node.get("GPU", 0.0) >= of_each]
        return cls(ray, count, len(nodes), gpus, cpus_each(cpus, count), of_each)

    def actor(self, of: type) -> Any:
        """Return ``of`` as an actor class whose actors get a worker's share."""
        options = {
            "num_cpus": self.cpus_per_worker,
            "num_gpus": self.gpus_per_worker,
            "max_concurrency": 2,  # how far it is, is told while it works
            "scheduling_strategy": "SPREAD",
        }
        return self.ray.remote(**options)(of)

    def leave(self) -> None:
        """Leave the cluster; one that was started for this process ends."""
        _shut_down(self.ray, self.session)

    def __str__(self) -> str:
        """Return the cluster in words."""
        nodes = "1 machine" if self.n_nodes == 1 else f"{self.n_nodes} machines"
        gpus = f", {self.gpus:g} GPUs" if self.gpus else ""
        workers = "1 worker" if self.n_workers == 1 else f"{self.n_workers} workers"
        return f"by {workers} on {nodes}{gpus}"

    def describe(self) -> dict[str, Any]:
        """Return what results record."""
        return {
            "engine": f"ray {self.ray.__version__}",
            "workers": self.n_workers,
            "nodes": self.n_nodes,
            "gpus": self.gpus,
            "gpus_per_worker": self.gpus_per_worker,
        }


def cpus_each(cpus: Sequence[float], n_workers: int) -> float:
    """Return how many processors each of ``n_workers`` gets on machines with so many: as many as all find a place with.

    Whole ones where there are enough: Ray sets as many threads as a worker has processors.
    """
    for share in range(int(sum(cpus) // n_workers), 0, -1):
        if sum(int(of_node // share) for of_node in cpus) >= n_workers:
            return float(share)
    return int(100 * sum(cpus) / n_workers) / 100 / 2  # halved, since fractions may not fill a machine


def _import_ray(address: str) -> Any:
    """Import Ray; a cluster of this process' own stays on the loopback, under a token that nobody else has."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read when Ray starts: nothing is reported to anybody
    if address == "local":
        os.environ.setdefault("RAY_AUTH_MODE", "token")
        os.environ.setdefault("RAY_AUTH_TOKEN", uuid.uuid4().hex)
    if address == "local" or address.startswith(_LOOPBACK):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # else Ray takes another address in its place
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--ray", "ray") from error
    return ray


def _refuse_silence(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would go on asking for minutes.

    Raises:
        UsageError: It is none, or nothing listens there.
    """
    scheme, _, rest = address.rpartition("://")
    host, _, port = rest.rpartition(":")
    if scheme not in {"", "ray"}:
        return  # a provider's own kind of address
    if not host or not port.isdigit():
        raise UsageError(f"--ray {address}: that is no address; give HOST:PORT, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"--ray {address}: nothing listens there ({error})") from error


def _shut_down(ray: Any, session: Path | None) -> None:
    """Leave Ray; of a cluster of this process' own nothing is left on disk."""
    ray.shutdown()
    if session is None:
        return
    shutil.rmtree(session, ignore_errors=True)
    latest = session.parent / "session_latest"
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)


def environment_of_workers(environment: Mapping[str, str], data: Path | None = None) -> dict[str, str]:
    """Return what workers need of the driver's environment: where data are, absolutely, and switches; no secret.

    Args:
        environment: The driver's.
        data: The data root that is in force, where that is not the environment's.
    """
    named = {**environment, "CRUMB_TASKS_DATA": str(data or environment.get("CRUMB_TASKS_DATA", ""))}
    paths = {name: str(Path(named[name]).expanduser().absolute()) for name in _PATHS if named.get(name)}
    return paths | {name: environment[name] for name in _SWITCHES if name in environment}
