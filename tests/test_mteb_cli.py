"""The unmodified ``mteb`` command, in processes of its own, without a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mteb_models import tiny_sentence_transformer
from mteb_world import CORPUS, MTEB, QUERIES, Installation, install, write_collection
from test_plugin import CARD

BM25, RANDOM = "mteb/baseline-bm25s", "mteb/baseline-random-encoder"
Ended = dict[str, tuple[int, str, str]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An installation with two tasks, an aggregate and a benchmark, and their data; `MiniSecond` is the harder task."""
    made = install(tmp_path_factory.mktemp("site"), {"mini": CARD})
    write_collection(made.data / "test" / "first")
    harder = {"test": {"q1": {"d5": 1}, "q2": {"d2": 1}}, "validation": {"v1": {"d1": 1, "d5": 1}}}
    write_collection(made.data / "test" / "second", qrels=harder)
    return made


@pytest.fixture(scope="module")
def results(world: Installation) -> Path:
    """The folder in which `mteb run -t MiniMean` left its results for BM25."""
    shown = world.mteb(
        "run", "-t", "MiniMean", "-m", BM25, "--output-folder", "results", "--prediction-folder", "predictions"
    )
    assert shown.returncode == 0, shown.stderr
    return world.path / "results"


DRIVER = """
import contextlib, io, json, runpy, sys, traceback
done = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = [MTEB, *arguments]
    out, code, last = io.StringIO(), 0, ""
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(MTEB, run_name="__main__")
        except SystemExit as ended:
            code = ended.code or 0
        except Exception as error:
            code, last = 1, "".join(traceback.format_exception_only(error))
    done.append((code, out.getvalue(), last))
print("RESULT" + json.dumps(done))
"""
COMMANDS = {
    "tasks": ["available-tasks"],
    "named task": ["available-tasks", "-t", "MiniSecond"],
    "benchmarks": ["available-benchmarks"],
    "validation": ["run", "-t", "MiniMean", "-m", BM25, "--eval-splits", "validation", "--output-folder", "validation"],
    "unknown split": ["run", "-t", "MiniFirst", "-m", BM25, "--eval-splits", "dev", "--output-folder", "unknown"],
    "benchmark": ["run", "-b", "mini-bench", "-m", RANDOM, "--output-folder", "benchmark"],
}


@pytest.fixture(scope="module")
def ended(world: Installation) -> Ended:
    """Exit code, output and last line of each of `COMMANDS`: the ``mteb`` script, time after time in one process."""
    script = world.path / "driver.py"
    script.write_text(f"MTEB = {str(MTEB)!r}\n{DRIVER}", encoding="utf-8")
    shown = world.script(script, json.dumps(list(COMMANDS.values())))
    assert "RESULT" in shown.stdout, shown.stderr
    return dict(zip(COMMANDS, json.loads(shown.stdout.rpartition("RESULT")[2]), strict=True))


def read_results(folder: Path, name: str, model: str = BM25) -> dict[str, Any]:
    """Read the one result file of a task, refusing what is not strict JSON."""
    (path,) = (path for path in folder.rglob(f"{name}.json") if model.replace("/", "__") in path.parts)
    found: dict[str, Any] = json.loads(
        path.read_text(encoding="utf-8"), parse_constant=lambda constant: pytest.fail(f"{constant} in {path}")
    )
    return found


def test_available_tasks_and_benchmarks_are_listed(ended: Ended) -> None:
    """Public tasks stand in the listing; a task that a stranger cannot download shows when it is named."""
    listed = ended["tasks"][1]
    assert "MiniFirst" in listed
    assert "MiniMean" in listed
    assert "MiniSecond" not in listed
    assert "MiniSecond" in ended["named task"][1]
    assert "MiniBench" in ended["benchmarks"][1]


def test_run_writes_members_and_aggregate(results: Path) -> None:
    """One command evaluates the members and reduces them; every file is strict JSON with MTEB's keys and ours."""
    first, second, mean = (read_results(results, name) for name in ("MiniFirst", "MiniSecond", "MiniMean"))

    values = [stored["scores"]["test"][0]["main_score"] for stored in (first, second)]
    assert values[0] == 1.0
    assert 0 < values[1] < 1
    assert mean["scores"]["test"][0]["main_score"] == pytest.approx(sum(values) / 2, abs=1e-6)
    assert first["dataset_revision"] == "r1"
    assert first["scores"]["test"][0]["n_queries"] == 3


def test_predictions_are_written(results: Path) -> None:
    """`--prediction-folder` reaches the members."""
    stored = json.loads((results.parent / "predictions" / "MiniFirst_predictions.json").read_text(encoding="utf-8"))

    assert stored["mteb_model_meta"]["model_name"] == BM25
    assert next(iter(stored["default"]["test"]["q1"])) == "d1"


def test_eval_splits_reach_the_members(world: Installation, ended: Ended) -> None:
    """`--eval-splits validation` gives an aggregate over validation, and no file has another split."""
    assert ended["validation"][0] == 0
    for name in ("MiniFirst", "MiniSecond", "MiniMean"):
        assert set(read_results(world.path / "validation", name)["scores"]) == {"validation"}


def test_unknown_split_ends_with_one_clear_line(ended: Ended) -> None:
    """MTEB shows a traceback; its last line says which splits there are."""
    code, _, last = ended["unknown split"]

    assert code == 1
    assert last == "crumb_tasks.errors.UsageError: MiniFirst calls the split 'dev' 'validation'\n"


def test_benchmark_runs_its_tasks(world: Installation, ended: Ended) -> None:
    """`-b` and its alias evaluate the benchmark's tasks."""
    assert ended["benchmark"][0] == 0
    names = {path.name for path in (world.path / "benchmark").rglob("Mini*.json")}
    assert names == {"MiniFirst.json", "MiniSecond.json"}


TABLE = """
import mteb
from mteb.cache import ResultCache
cache = ResultCache("FOLDER")
results = cache.load_results(tasks="MiniBench", models=["MODEL"])
print(results.get_benchmark_result()[["Rank", "Model", "Mean (nDCG@10)"]].to_dict("records"))
print(mteb.get_benchmark("MiniBench").get_score(results))
"""
LOOK_UP = """
again = cache.load_results(tasks=["MiniFirst", "MiniMean"], models=["MODEL"], validate_and_filter=True)
print(again.to_dataframe(aggregation_level="task").to_dict("records"))
print(sorted(r.task_type for m in again for r in m.task_results), again[0].task_results[0].is_public)
"""


def test_later_process_looks_up_and_tabulates(world: Installation, results: Path) -> None:
    """A new process loads, filters and tabulates the results: the tasks are in MTEB's registry there, too."""
    mean = read_results(results, "MiniMean")["scores"]["test"][0]["main_score"]

    shown = world.python((TABLE + LOOK_UP).replace("FOLDER", "results").replace("MODEL", BM25))

    assert shown.returncode == 0, shown.stderr
    table, scores, frame, types = shown.stdout.splitlines()[-4:]
    assert eval(table) == [{"Rank": 1, "Model": BM25, "Mean (nDCG@10)": mean}]
    assert eval(scores)[BM25]["Mean(nDCG@10)"] == mean
    assert {row["task_name"]: row[BM25] for row in eval(frame)} == {"MiniFirst": 1.0, "MiniMean": mean}
    assert types == "['Retrieval', 'Retrieval'] True"


def test_second_run_evaluates_nothing(world: Installation, results: Path) -> None:
    """With everything stored the data are not read: the run succeeds although they are gone."""
    before = read_results(results, "MiniFirst")["date"]
    data = world.data.rename(world.path / "moved")
    try:
        shown = world.mteb("run", "-t", "MiniMean", "-m", BM25, "--output-folder", "results")
    finally:
        data.rename(world.data)

    assert shown.returncode == 0, shown.stderr
    assert read_results(results, "MiniFirst")["date"] == before


def test_local_model_runs_and_is_tabulated(world: Installation) -> None:
    """A directory that the user's file remembers runs by its name, under its own revision, and shows in the table."""
    tiny_sentence_transformer([*CORPUS.values(), *QUERIES.values()]).save(str(world.path / "model"))
    entry = {"path": str(world.path / "model"), "kind": "sentence-transformers", "revision": "abc"}
    models = world.path / "models.json"
    models.write_text(json.dumps({"me/tiny": entry}), encoding="utf-8")

    shown = world.mteb("run", "-b", "MiniBench", "-m", "me/tiny", "--output-folder", "local")
    table = world.python(TABLE.replace("FOLDER", "local").replace("MODEL", "me/tiny"))
    models.unlink()

    assert shown.returncode == 0, shown.stderr
    assert read_results(world.path / "local", "MiniFirst", "me/tiny")["scores"]["test"][0]["n_queries"] == 3
    assert list((world.path / "local").rglob("me__tiny/abc/MiniFirst.json"))
    assert "'Model': 'me/tiny'" in table.stdout, table.stderr


def test_nothing_went_out_to_a_network(world: Installation, results: Path, ended: Ended) -> None:
    """Every process above ran under an audit hook: not one look-up of a name, not one connection."""
    assert results.exists()
    assert ended["benchmark"][0] == 0
    assert world.connections() == ""


def test_audit_hook_would_see_a_connection(world: Installation, tmp_path: Path) -> None:
    """The check above can fail."""
    log = tmp_path / "log.txt"
    world.python(
        "import socket\ntry: socket.create_connection(('127.0.0.1', 9), timeout=1)\nexcept OSError: pass",
        TEST_SOCKET_LOG=str(log),
    )

    assert "socket.getaddrinfo" in log.read_text(encoding="utf-8")
    assert "socket.connect" in log.read_text(encoding="utf-8")
