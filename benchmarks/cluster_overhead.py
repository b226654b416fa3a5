"""(h) What a Ray cluster of one worker costs beside a plain run, in one run of both.

    python benchmarks/cluster_overhead.py [--passages 200000] [--queries 500] [--rounds 3] [--workers 1]

Each round runs ``crumb-tasks run`` twice, each in a process of its own: plainly, and with ``--ray local``. The task is
generated in CRUMB's layout, the encoder is a stub that draws a vector from a hash of each text: the model costs next to
nothing, so that what is left is everything else. Told apart: seconds of the command, and of the task alone (from where
its data are loaded to where it is scored), as the command itself prints them.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
TASK = "CRUMBClinicalTrial"


def main() -> None:
    """Make the data, run both ways, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    from generate_crumb import Shape, write_task

    ways = {"plain": [], "ray": ["--ray", "local", "--workers", str(arguments.workers)]}
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # from 2 to 14 passages a document, 8 on average
        shape = Shape(arguments.passages // 8, 14, queries=arguments.queries, characters=700, use_max_p=True)
        write_task(folder / "data", "clinical_trial", shape)
        _run(folder, "warm", [])
        for round_ in range(arguments.rounds):
            for way, options in ways.items():
                found[way].append(_run(folder, f"{way}{round_}", options))
                print(f"{way}: {found[way][-1][0]:.1f} s, the task {found[way][-1][1]:.1f} s", flush=True)
    for place, name in enumerate(("command", "task")):
        medians = {way: statistics.median(one[place] for one in rounds) for way, rounds in found.items()}
        print(f"{name}: plain {medians['plain']:.1f} s, ray {medians['ray']:.1f} s", end="")
        print(f", {medians['ray'] - medians['plain']:+.1f} s, x {medians['ray'] / medians['plain']:.2f}")


def _run(folder: Path, name: str, options: list[str]) -> tuple[float, float]:
    """Run the command; return its seconds and those of the task."""
    environment = os.environ | {
        "PYTHONPATH": str(TESTS),
        "CRUMB_TASKS_DATA": str(folder / "data"),
        "CRUMB_TASKS_CACHE": str(folder / "cache"),
        "CRUMB_TASKS_MODELS": str(folder / "models.json"),
        "MTEB_CACHE": str(folder / name),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, str(TESTS / "stub_cluster.py"), "run", "test/stub", "-t", TASK, *options]
    started = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    seconds = time.monotonic() - started
    told = re.search(rf"{TASK}: ndcg_at_10 [\d.]+ in ([\d.]+) (s|min)", done.stderr)
    if done.returncode or told is None:
        sys.exit(done.stderr)
    return seconds, float(told[1]) * (60 if told[2] == "min" else 1)


if __name__ == "__main__":
    main()
