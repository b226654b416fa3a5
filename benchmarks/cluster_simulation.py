"""(g) A cluster that is simulated: the real shards, schedule and merge, with answers that are generated.

    python benchmarks/cluster_simulation.py [--passages 100000000] [--workers 8 64 256] [--queries 500] [--depth 1000]
                                            [--max-passage] [--rate 100] [--lost 0.01]
    python benchmarks/cluster_simulation.py --driver [--passages 10000000]

Workers are events on a clock of their own: each encodes ``--rate`` passages a second, a fifth more or less, and loses a
shard with probability ``--lost``, after which another worker of its place needs two minutes to load the model. Each
finished shard is answered with what a search of its size would find: the best of as many random scores. What is
measured is real: traffic in bytes of the answers, seconds of the merge, memory of this process.

With ``--driver`` what the driver does before the first shard: ordering the ids, and reading all texts once to balance
shards and to tell whether workers have the same ones.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crumb_tasks.cluster.jobs import Found
from crumb_tasks.cluster.merging import Merge
from crumb_tasks.cluster.schedule import Schedule
from crumb_tasks.cluster.shards import Blocks, Shard, shards_of
from crumb_tasks.search import grid
from crumb_tasks.search.topk import Ranked

LENGTH = 750  # bytes of a passage, on average
PASSAGES = 6  # of a document, on average
LOADING = 120.0  # seconds until a lost worker is replaced


@dataclass
class Answers:
    """What searches of shards would find: for each query the best of random scores."""

    n_queries: int
    depth: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def of(self, shard: Shard) -> Found:
        """Return what a search of ``shard`` has found."""
        kept = min(self.depth, len(shard))
        # the smallest of n uniform numbers are about the sums of exponential ones, divided by n
        scores = -np.cumsum(self.rng.standard_exponential((self.n_queries, kept)), axis=1) / len(shard)
        chosen = self.rng.permutation(len(shard))[:kept]
        turned = (chosen + 7919 * np.arange(self.n_queries)[:, np.newaxis]) % len(shard) + shard.first
        offsets = np.arange(self.n_queries + 1, dtype=np.int64) * kept
        return Found(offsets, turned.reshape(-1).astype(np.int32), scores.reshape(-1).astype(np.float32))


@dataclass
class Outcome:
    """What a simulated run has taken.

    Attributes:
        n_shards: Shards.
        n_lost: Shards that were lost and done again.
        hours: On the simulated clock.
        ideal_hours: The same work by the same workers without losses and without a remainder at the end.
        traffic: Bytes of all answers.
        merging: Seconds of all merges.
        ranked: The rankings.
    """

    n_shards: int
    n_lost: int
    hours: float
    ideal_hours: float
    traffic: int
    merging: float
    ranked: Ranked


def blocks_of(n_passages: int, rng: np.random.Generator) -> Blocks:
    """Return the blocks of a corpus whose texts are of uneven length."""
    rows = np.full(-(-n_passages // grid.BLOCK), grid.BLOCK)
    rows[-1] = n_passages - grid.BLOCK * (len(rows) - 1)
    sizes = (rows * LENGTH * np.clip(rng.lognormal(0, 0.3, len(rows)), 0.3, 3)).astype(np.int64)
    return Blocks(n_passages, sizes, ("",) * len(rows))


def finished(
    shards: list[Shard], speed: NDArray[np.float64], *, lost: float, rng: np.random.Generator
) -> Iterator[tuple[float, Shard | None]]:
    """Run the real schedule on a simulated clock: yield when each shard is finished, ``None`` where one is lost.

    Args:
        shards: What is searched.
        speed: Bytes of text that each worker encodes in a second.
        lost: Probability with which a shard is lost.
        rng: Decides which.
    """
    n_workers = len(speed)
    schedule = Schedule()
    schedule.add(0, shards)
    ready: list[tuple[float, int]] = [(0.0, worker) for worker in range(n_workers)]
    idle: list[tuple[float, int]] = []
    heapq.heapify(ready)
    while ready:
        now, worker = heapq.heappop(ready)
        if worker in schedule.running:
            if rng.random() < lost and schedule.running[worker].n_tried < 2:
                schedule.lose(worker)
                yield now, None
                heapq.heappush(ready, (now + LOADING, worker))
                for _, other in idle:
                    heapq.heappush(ready, (now, other))
                idle.clear()
                continue
            yield now, schedule.finish(worker).shard
        job = schedule.take(worker, n_workers)
        if job is None:
            idle.append((now, worker))
        else:
            heapq.heappush(ready, (now + job.shard.size / speed[worker], worker))


def simulate(
    n_passages: int,
    n_workers: int,
    *,
    n_queries: int,
    depth: int,
    max_passage: bool = False,
    rate: float = 100.0,
    lost: float = 0.01,
    seed: int = 0,
) -> Outcome:
    """Search a corpus of that many passages with that many workers."""
    rng = np.random.default_rng(seed)
    blocks = blocks_of(n_passages, rng)
    shards = shards_of(blocks, n_workers)
    speed = rate * LENGTH * rng.uniform(0.8, 1.2, n_workers)
    ordinals = np.arange(n_passages, dtype=np.int32)
    parents: NDArray[np.int32] | None = ordinals // PASSAGES if max_passage else None
    merge = Merge(n_queries, depth, ordinals=ordinals, parent_by_ordinal=parents)
    answers = Answers(n_queries, depth)
    traffic = n_lost = 0
    merging = seconds = 0.0
    for now, shard in finished(shards, speed, lost=lost, rng=rng):
        seconds = now
        if shard is None:
            n_lost += 1
            continue
        found = answers.of(shard)
        traffic += found.offsets.nbytes + found.rows.nbytes + found.scores.nbytes
        started = time.perf_counter()
        merge.add(found)
        merging += time.perf_counter() - started
    ideal = int(blocks.sizes.sum()) / float(speed.sum())
    return Outcome(len(shards), n_lost, seconds / 3600, ideal / 3600, traffic, merging, merge.ranked())


def prepare(n_passages: int, n_read: int = 500_000) -> str:
    """Order the ids of a corpus, read texts of ``n_read`` passages, and return in words what it took."""
    import pyarrow as pa

    from crumb_tasks.search.order import CorpusOrder

    numbers = np.random.default_rng(0).permutation(n_passages)
    ids = pa.chunked_array([pa.array(part).cast(pa.string()) for part in np.array_split(numbers, 100)])
    del numbers
    before, started = resident_mib(), time.perf_counter()
    order = CorpusOrder.of(ids, None)
    ordering, kept = time.perf_counter() - started, resident_mib() - before
    text = pa.array(["x" * LENGTH] * n_read)
    table = pa.table({"id": order.ids[:n_read], "text": text})
    started = time.perf_counter()
    Blocks.of(table.slice(start, grid.BLOCK) for start in range(0, n_read, grid.BLOCK))
    reading = time.perf_counter() - started
    return (
        f"{n_passages:,} ids: ordered in {ordering:.1f} s, {kept:,.0f} MiB more, peak {peak_mib():,.0f} MiB; "
        f"texts read at {n_read * LENGTH / 1e9 / reading:.2f} GB/s"
    )


def resident_mib() -> float:
    """Return the memory of this process now, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def peak_mib() -> float:
    """Return the highest memory that this process has had, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, nargs="+", default=[100_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--max-passage", action="store_true")
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--lost", type=float, default=0.01)
    parser.add_argument("--driver", action="store_true", help="what the driver does before the first shard")
    arguments = parser.parse_args()
    for n_passages in arguments.passages:
        if arguments.driver:
            print(prepare(n_passages), flush=True)
            continue
        for n_workers in arguments.workers:
            options: dict[str, Any] = {
                "n_queries": arguments.queries,
                "depth": arguments.depth,
                "max_passage": arguments.max_passage,
                "rate": arguments.rate,
                "lost": arguments.lost,
            }
            found = simulate(n_passages, n_workers, **options)
            print(
                f"{n_passages:>11,} passages, {n_workers:>3} workers: {found.n_shards:>5,} shards, {found.n_lost:>2} "
                f"lost, {found.hours:8.2f} h ({found.ideal_hours:.2f} h ideal), {found.traffic / 1e9:6.2f} GB traffic, "
                f"merge {found.merging:6.2f} s ({1000 * found.merging / found.n_shards:.1f} ms a shard), "
                f"peak {peak_mib():,.0f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
