"""(e) Peak memory of a search and of scoring, each in a process of its own.

    python benchmarks/memory.py [--sizes 200000 1000000] [--ways search max_passage mteb] [--threads 2]

Growth is what the call adds to the process: its private memory (``RssAnon``), sampled every 2 ms, above what it was
before the call. Pages of the memory-mapped corpus and vectors are the system's to take back at any time and are told
apart: ``with files`` is the growth of the whole resident set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

MIB = 1024


class Peak:
    """The highest private and whole resident memory, in KiB, while the context is open, above that at its start."""

    def __enter__(self) -> Self:
        """Start sampling."""
        self._base = resident()
        self.private = self.whole = 0
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sampling."""
        self._stop.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.002):
            found = resident()
            self.private = max(self.private, found["RssAnon"] - self._base["RssAnon"])
            self.whole = max(self.whole, sum(found.values()) - sum(self._base.values()))


def resident() -> dict[str, int]:
    """Return the process' resident memory in KiB, private and of files."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    parts = (line.split() for line in lines if line.startswith(("RssAnon", "RssFile")))
    return {part[0].rstrip(":"): int(part[1]) for part in parts}


def one(way: str, size: int, threads: int) -> dict[str, float]:
    """Run one way in this process and return its growth in MiB and its seconds."""
    import torch
    from datasets import disable_progress_bars
    from generated import Generated
    from max_passage import search as max_passage
    from search import ours, theirs

    torch.set_num_threads(threads)
    disable_progress_bars()
    small = Generated(1_000)  # what the first call imports and allocates for good is not the corpus' growth
    generated = Generated(size)
    parents = generated.parents()
    ways: Mapping[str, Callable[[Any, Any, Any], Any]] = {
        "search": lambda vectors, corpus, _: ours(vectors, corpus, loading=True),
        "max_passage": lambda vectors, corpus, parents: ours(vectors, corpus, loading=True, parents=parents),
        "no_loading": lambda vectors, corpus, _: max_passage(vectors, corpus, None),
        "mteb": lambda vectors, corpus, _: theirs(vectors, corpus),
    }
    ways[way](small.vectors(), small.corpus(), small.parents())
    vectors, corpus = generated.vectors(), generated.corpus()
    with Peak() as peak:
        began, worked = time.perf_counter(), time.process_time()
        ways[way](vectors, corpus, parents)
        seconds, worked = time.perf_counter() - began, time.process_time() - worked
    return {"seconds": seconds, "processor": worked, "MiB": peak.private / MIB, "with_files_MiB": peak.whole / MIB}


def in_process(way: str, size: int, threads: int) -> dict[str, float]:
    """Run one way in a process of its own, on data that another one has made."""
    from generated import Generated

    for needed in (1_000, size):
        Generated(needed).make()
    command = [sys.executable, __file__, "--one", way, "--sizes", str(size), "--threads", str(threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--ways", nargs="+", default=["search", "max_passage", "mteb"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(arguments.one, arguments.sizes[0], arguments.threads)))
        return
    for way in arguments.ways:
        first = None
        for size in arguments.sizes:
            found = in_process(way, size, arguments.threads)
            first = first or found["MiB"]
            print(
                f"{way:12} {size:>10,}: {found['MiB']:6.0f} MiB ({found['MiB'] / first:.2f} x the smallest), "
                f"with files {found['with_files_MiB']:6.0f} MiB, {found['seconds']:.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
