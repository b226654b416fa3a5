"""The part of ``crumb-tasks run`` that concerns ``--ray``."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crumb_tasks.errors import UsageError

if TYPE_CHECKING:
    from mteb.models import ModelMeta

    from crumb_tasks.cluster.loading import ModelOnCluster
    from crumb_tasks.cluster.places import Cluster
    from crumb_tasks.cluster.view import View
    from crumb_tasks.running.cache import WholeFilesCache
    from crumb_tasks.running.condition import Condition
    from crumb_tasks.running.execute import Settings
    from crumb_tasks.running.plan import Plan

_OPTIONS = ("workers", "gpus_per_worker", "resume")


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where workers are."""
    cluster = parser.add_argument_group(
        "cluster", "the same results from many workers (pip install 'crumb-tasks[ray]')"
    )
    cluster.add_argument(
        "--ray",
        metavar="WHERE",
        help="evaluate on a Ray cluster: auto takes the one that this machine belongs to, local starts one on this "
        "machine, anything else is the address of one",
    )
    cluster.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="workers, each with the model (default: what the GPUs, or machines, allow)",
    )
    cluster.add_argument(
        "--gpus-per-worker", type=float, metavar="G", help="GPUs of each worker (default: 1 where the cluster has any)"
    )
    cluster.add_argument(
        "--resume", type=Path, metavar="DIR", help="keep finished shards in DIR, and go on from those that are there"
    )


def refuse_cluster_contradictions(args: argparse.Namespace) -> None:
    """Refuse options that mean nothing together.

    Raises:
        UsageError: There are such.
    """
    given = [f"--{name.replace('_', '-')}" for name in _OPTIONS if getattr(args, name) is not None]
    if given and args.ray is None:
        raise UsageError(f"{' and '.join(given)} are for a cluster; name it with --ray auto, local or ADDRESS")
    if args.ray is not None and args.cost:
        raise UsageError("--cost measures a model in this process; run it without --ray")
    if args.workers is not None and args.workers < 1:
        raise UsageError(f"--workers must be 1 or more, not {args.workers}")
    gpus = args.gpus_per_worker
    if gpus is not None and (gpus < 0 or (gpus > 1 and gpus != int(gpus))):
        raise UsageError(f"--gpus-per-worker must be a part of one GPU, such as 0.5, or a whole number, not {gpus:g}")


def evaluate_on_cluster(
    args: argparse.Namespace,
    plan: Plan,
    meta: ModelMeta,
    condition: Condition,
    cache: WholeFilesCache,
    *,
    settings: Settings,
) -> tuple[ModelOnCluster, bool]:
    """Run the plan; return the model and whether the user interrupted it."""
    from crumb_tasks.cluster.places import Cluster
    from crumb_tasks.cluster.view import View

    pending = plan.pending
    noun = "pairs" if "cross-encoder" in meta.model_type else "documents"
    expected = plan.expected_documents() if condition.first_stage is None else {}
    with View(sys.stderr, len(pending), expected, noun) as view:
        cluster = Cluster.join(args.ray, args.workers, args.gpus_per_worker)
        try:
            view.say(
                f"{meta.name} ({condition.label}): {len(pending)} of {len(plan.units)} tasks to evaluate {cluster}"
            )
            settings = replace(settings, recorded={**settings.recorded, "cluster": cluster.describe()})
            return _evaluate(args, plan, meta, condition, cache, settings=settings, cluster=cluster, view=view)
        finally:
            cluster.leave()


def _evaluate(
    args: argparse.Namespace,
    plan: Plan,
    meta: ModelMeta,
    condition: Condition,
    cache: WholeFilesCache,
    *,
    settings: Settings,
    cluster: Cluster,
    view: View,
) -> tuple[ModelOnCluster, bool]:
    from crumb_tasks.cluster.keeping import Keeping
    from crumb_tasks.cluster.loading import Loading, ModelOnCluster
    from crumb_tasks.cluster.places import environment_of_workers
    from crumb_tasks.cluster.pool import Pool
    from crumb_tasks.cluster.remote import RemoteModel
    from crumb_tasks.cluster.turns import Turns
    from crumb_tasks.running.execute import Runner
    from crumb_tasks.running.side_by_side import SideBySide
    from crumb_tasks.sources import data_root

    loading = Loading(meta, condition.options, condition.instructions, condition.experiment)
    pool = Pool(cluster, loading, environment_of_workers(os.environ, data_root()), view.say)
    try:
        view.watch(pool.progress)
        turns = Turns()
        named = meta.model_copy(update={"experiment_kwargs": condition.experiment or None})
        keeping = None if args.resume is None else Keeping(args.resume)
        remote = RemoteModel(named, pool, keeping, waiting=turns.elsewhere, say=view.say)
        model = ModelOnCluster(named, remote)
        each = SideBySide(turns, lambda: pool.n_unfinished <= pool.n_workers, pool.close)
        try:
            Runner(model, condition, cache, settings, view, each=each).run(plan)
        except KeyboardInterrupt:
            done = sum(bool(unit.computed) for unit in plan.units)
            kept = f", with the shards in {args.resume}" if args.resume is not None else ""
            view.say(
                f"interrupted after {done} of {len(plan.pending)} tasks; the same command goes on from there{kept}"
            )
            return model, True
    finally:
        pool.close()
    return model, False
