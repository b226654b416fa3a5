"""Real Ray clusters on this machine, through the command: whole runs, and runs whose workers or drivers are ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from generate_crumb import Shape, write_task
from standin import ROOT

ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'crumb-tasks[ray]')")
pytestmark = pytest.mark.slow

AUTHENTICATION = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

LARGE = "CRUMBClinicalTrial"
"""A task that is generated with 200,000 passages, which stand for 25,000 documents."""

ANALOGIES = "JHU-CLSP"
"""Where AnaloBench stands in a data root."""

HEAD = """
import ray, sys
found = ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
print(found.address_info["address"], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the generated task, and with AnaloBench where that is at hand."""
    root = tmp_path_factory.mktemp("cluster_data")
    with contextlib.suppress(pytest.skip.Exception):
        shutil.copytree(request.getfixturevalue("upstream_root") / ANALOGIES, root / ANALOGIES)
    # from 2 to 14 passages a document
    write_task(root, "clinical_trial", Shape(25_000, 14, queries=40, characters=180, use_max_p=True))
    return root


@dataclass
class Command:
    """``crumb-tasks run test/stub`` in a process of its own.

    Attributes:
        folder: Where its results go.
        data: The data root.
        lines: What it has said so far.
    """

    folder: Path
    data: Path
    lines: list[str] = field(default_factory=list)

    @property
    def tasks(self) -> list[str]:
        """The generated task, a sample of eight, and AnaloBench's full bank where that is at hand."""
        return [LARGE, "CRUMBSample", *(["AnaloBenchT2S10"] if (self.data / ANALOGIES).is_dir() else [])]

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        """Start it."""
        own = {
            "PYTHONPATH": str(ROOT / "tests"),
            "CRUMB_TASKS_DATA": str(self.data),
            "CRUMB_TASKS_CACHE": str(self.data / "cache"),
            "CRUMB_TASKS_MODELS": str(self.folder / "models.json"),
            "MTEB_CACHE": str(self.folder),
            "HF_HUB_OFFLINE": "1",
            **AUTHENTICATION,
        }
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "stub_cluster.py"), "run", "test/stub", *map(str, arguments)],
            env=os.environ | own | environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        self.lines.clear()
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in iter(process.stdout.readline, ""))

    def run(self, *arguments: str | Path, **environment: str) -> int:
        """Run it to its end and return its exit code."""
        return self.end(self.start(*arguments, **environment))

    def end(self, process: subprocess.Popen[str]) -> int:
        """Wait for its end."""
        code = process.wait(timeout=600)
        time.sleep(0.2)  # for the thread that reads
        return code

    @property
    def said(self) -> str:
        """What it has said so far."""
        return "\n".join(self.lines)

    def results(self) -> dict[str, Any]:
        """Return the scores of each task, and what was ranked."""
        found: dict[str, Any] = {}
        for path in (self.folder / "results").rglob("*.json"):
            stored = json.loads(path.read_text(encoding="utf-8"))
            if "scores" in stored:
                found[path.stem] = stored["scores"]
        for path in (self.folder / "results").rglob("*.parquet"):
            found[path.stem] = pq.read_table(path)
        return found

    def record(self, task: str) -> Any:
        """Return the record beside a result."""
        (path,) = (self.folder / "results").rglob(f"crumb_tasks/{task}.json")
        return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def command(tmp_path: Path, data: Path) -> Command:
    """The command, with results of its own."""
    return Command(tmp_path / "results", data)


@pytest.fixture(scope="module")
def plain(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """What one process finds."""
    found = Command(tmp_path_factory.mktemp("plain"), data)
    assert found.run("-t", *found.tasks) == 0, found.said
    return found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a cluster of two processors on this machine's loopback."""
    environment = {"PYTHONPATH": str(ROOT / "tests"), "RAY_USAGE_STATS_ENABLED": "0", **LOOPBACK, **AUTHENTICATION}
    with subprocess.Popen(
        [sys.executable, "-c", HEAD],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    ) as head:
        assert head.stdout is not None
        yield head.stdout.readline().strip()


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str], command: Command) -> Any:
    """Wait until ``condition`` holds while the process runs, and return what it returned."""
    until = time.monotonic() + 300
    while not (found := condition()):
        assert process.poll() is None, command.said
        assert time.monotonic() < until, command.said
        time.sleep(0.05)
    return found


def pids(command: Command) -> list[int]:
    """Return the processes of the workers that are ready."""
    return [int(pid) for pid in re.findall(r"pid (\d+)\) is ready", command.said)]


def is_alive(pid: int) -> bool:
    """Return whether there is such a process, ended ones that nobody has asked for left out."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_two_workers_find_what_one_process_finds(command: Command, plain: Command, address: str) -> None:
    """A sample of eight tasks, AnaloBench and 200,000 passages: equal to the bit, and the cluster is recorded."""
    code = command.run("-t", *command.tasks, "--ray", address, "--workers", "2")

    assert code == 0, command.said
    assert command.results() == plain.results()
    cluster = command.record(LARGE)["settings"]["cluster"]
    assert cluster == {
        "engine": f"ray {ray.__version__}",
        "workers": 2,
        "nodes": 1,
        "gpus": 0.0,
        "gpus_per_worker": 0.0,
    }
    assert "cluster" not in plain.record(LARGE)["settings"]
    assert "\x1b" not in command.said


def test_a_worker_that_is_ended_is_replaced(command: Command, plain: Command) -> None:
    """Ended by its own process id in mid-task, it costs its shard, which is done again, and changes no score."""
    kept = command.folder / "kept"
    process = command.start("-t", LARGE, "--ray", "local", "--workers", "2", "--resume", kept, SLOW="0.6")
    workers = wait_for(lambda: len(pids(command)) == 2 and pids(command), process, command)
    wait_for(lambda: list(kept.rglob("*.npz")), process, command)
    os.kill(workers[0], signal.SIGKILL)

    assert command.end(process) == 0, command.said
    assert f"pid {workers[0]}) is lost" in command.said
    assert re.search(rf"; {LARGE}, rows [\d,]+ to [\d,]+ is done again", command.said)
    found, expected = command.results(), plain.results()
    assert found == {name: expected[name] for name in found}
    assert f"{LARGE}.test" in found


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_is_ended_is_resumed(command: Command, plain: Command, ending: signal.Signals) -> None:
    """Ended in mid-task, the same command goes on with the shards that are there, to the same result."""
    kept = command.folder / "kept"
    arguments = ("-t", LARGE, "--ray", "local", "--workers", "2", "--resume", kept)
    process = command.start(*arguments, SLOW="0.6")
    workers = wait_for(lambda: len(pids(command)) == 2 and pids(command), process, command)
    wait_for(lambda: list(kept.rglob("*.npz")), process, command)
    process.send_signal(ending)
    code = command.end(process)
    assert code == (130 if ending == signal.SIGINT else -signal.SIGKILL), command.said
    assert ending == signal.SIGKILL or "the same command goes on from there" in command.said
    assert command.results() == {}
    until = time.monotonic() + 60
    while any(map(is_alive, workers)):
        assert time.monotonic() < until, "the workers outlive their driver"
        time.sleep(0.1)
    finished = {path: path.stat().st_mtime_ns for path in kept.rglob("*.npz")}

    assert command.run(*arguments) == 0, command.said

    assert f"{LARGE}: " in command.said
    assert "were done by an earlier run" in command.said
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    found, expected = command.results(), plain.results()
    assert found == {name: expected[name] for name in found}
    assert f"{LARGE}.test" in found


def test_a_cluster_of_its_own_leaves_nothing(command: Command, plain: Command) -> None:
    """With the command its workers end, and Ray's folder of sockets and logs goes."""
    task = "CRUMBSampleLegalQA"
    with tempfile.TemporaryDirectory(prefix="ct-") as folder:  # paths of sockets are short
        code = command.run("-t", task, "--ray", "local", "--workers", "1", RAY_TMPDIR=folder)

        assert code == 0, command.said
        assert [path.name for path in Path(folder).rglob("*") if "session" in path.name] == []
    assert command.results()[task] == plain.results()[task]
    until = time.monotonic() + 60
    while any(map(is_alive, pids(command))):
        assert time.monotonic() < until, "the workers outlive the command"
        time.sleep(0.1)


def test_a_shard_that_ends_every_worker_is_given_up(command: Command, plain: Command) -> None:
    """After three tries the shard is named and its task fails alone; the others have their results."""
    other = "CRUMBSampleLegalQA"

    arguments = ("-t", LARGE, other, "--ray", "local", "--workers", "2", "--data", command.data)
    code = command.run(*arguments, POISON="# Item 12345\n", CRUMB_TASKS_DATA="")

    assert code == 1, command.said
    failure = re.search(rf"{LARGE}, rows ([\d,]+) to [\d,]+: given up after 3 tries; the last", command.said)
    assert failure is not None, command.said
    assert "1 of 2 tasks failed" in command.said
    assert command.results()[other] == plain.results()[other]
