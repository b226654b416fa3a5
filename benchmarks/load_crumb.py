"""Loads a made-up task of CRUMB's largest size (legal_qa: 1.1 million passages, 6,753 queries), cold and warm.

    python benchmarks/load_crumb.py [--passages 1100000] [--characters 2600] [--keep DIR]

Prints, as JSON, seconds and peak resident memory of each load, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
LOAD = """
import json, resource, sys, time
from crumb_tasks.loaders import load_collection
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start, spent = time.perf_counter(), time.process_time()
collection = load_collection(sys.argv[1])
seconds = time.perf_counter() - start
with open("/proc/self/status", encoding="ascii") as status:
    kib = {line.split(":")[0]: line.split()[1] for line in status if line.startswith(("VmHWM", "RssAnon"))}
print(json.dumps({
    "seconds": round(seconds, 2),
    "processor_s": round(time.process_time() - spent, 2),
    "peak_MiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    "imports_MiB": round(before / 1024),
    "anonymous_MiB": round(int(kib.get("RssAnon", 0)) / 1024),
    "passages": len(collection.corpus),
    "queries": len(collection.queries),
    "text_GB": round(collection.corpus.nbytes / 1e9, 2),
}))
"""


def main() -> None:
    """Make the data, load them twice, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=1_100_000)
    parser.add_argument("--queries", type=int, default=6_753)
    parser.add_argument("--characters", type=int, default=2_600)
    parser.add_argument("--task", default="CRUMBLegalQA", help="CRUMBClinicalTrial measures a MaxP task")
    parser.add_argument("--keep", type=Path, help="folder for data and cache, kept; by default a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        shutil.rmtree(folder / "cache", ignore_errors=True)  # or the first load would not be cold
        result = {"making_s": _make(folder / "data", arguments)}
        environment = os.environ | {
            "CRUMB_TASKS_DATA": str(folder / "data"),
            "CRUMB_TASKS_CACHE": str(folder / "cache"),
        }
        for name in ("cold", "warm"):
            command = [sys.executable, "-c", LOAD, arguments.task]
            output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
            result[name] = json.loads(output)
        print(json.dumps(result, indent=2))


def _make(root: Path, arguments: argparse.Namespace) -> float:
    from crumb_tasks.cards import find_task

    sys.path.insert(0, str(TESTS))
    from generate_crumb import REPOSITORY, Shape, write_task

    task = find_task(arguments.task)
    folder = str(task.options["folder"])
    start = time.perf_counter()
    if not (root / REPOSITORY / folder / "val" / "query_labels.jsonl").is_file():
        shape = Shape(
            documents=arguments.passages // 4,
            passages=6,  # 2 to 6, so 4 on average
            queries=arguments.queries,
            characters=arguments.characters,
            use_max_p=task.max_passage,
        )
        write_task(root, folder, shape)
    return round(time.perf_counter() - start, 1)


if __name__ == "__main__":
    main()
