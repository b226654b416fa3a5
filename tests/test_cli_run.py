"""``crumb-tasks run``, each promise in this process and, marked slow, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mteb
import pytest
from standin import ROOT
from tiny_models import write_cross_encoder, write_static_model

from crumb_tasks import register
from crumb_tasks.cli._main import main
from crumb_tasks.errors import UsageError
from crumb_tasks.loaders import load_collection
from crumb_tasks.model_folders import folder_revision
from crumb_tasks.runfiles import write_run
from crumb_tasks.running.cache import WholeFilesCache
from crumb_tasks.running.first_stage import open_first_stage
from crumb_tasks.running.records import file_sha256
from crumb_tasks.runs import Run

register()
TASK = "CRUMBSampleLegalQA"
MAXP = "CRUMBSampleClinicalTrial"
pytestmark = pytest.mark.usefixtures("world")


@dataclass(frozen=True)
class Outcome:
    """What a command did.

    Attributes:
        code: Exit code.
        out: Standard output.
        err: Standard error.
    """

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture(params=["here", pytest.param("subprocess", marks=pytest.mark.slow)])
def crumb(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Command:
    """``crumb-tasks`` as a function."""

    def here(*arguments: str | Path) -> Outcome:
        capsys.readouterr()
        code = main([*map(str, arguments)])
        return Outcome(code, *capsys.readouterr())

    def elsewhere(*arguments: str | Path) -> Outcome:
        return spawn("-m", "crumb_tasks", *arguments)

    return here if request.param == "here" else elsewhere


def spawn(*arguments: str | Path, **environment: str) -> Outcome:
    """Run Python with these arguments and wait for it."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=900,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def static(tmp_path: Path) -> Path:
    """A directory with a tiny model that has prefixes."""
    return write_static_model(tmp_path / "static", prompts={"query": "query: ", "document": "passage: "})


def results(world: Path, model: str, task: str = TASK) -> dict[str, Path]:
    """Return the result files of a model by experiment."""
    base = world / "cache" / "results" / model.replace("/", "__")
    found = {path.parent.name: path for path in base.glob(f"*/experiments/*/{task}.json")}
    found.update(("", path) for path in base.glob(f"*/{task}.json"))
    return found


def main_score(path: Path, split: str = "test") -> float:
    """Return the main score of a result file."""
    return float(json.loads(path.read_text(encoding="utf-8"))["scores"][split][0]["main_score"])


def record_of(path: Path) -> Any:
    """Return the record beside a result file."""
    return json.loads((path.parent / "crumb_tasks" / path.name).read_text(encoding="utf-8"))


def test_conditions_lie_side_by_side(crumb: Command, static: Path, world: Path) -> None:
    """Four conditions are four results under one name, each shown with its gain, none averaged."""
    for condition in ("native", "none", "prepended", r"Instruct: {instruction}\nQuery: {query}"):
        last = crumb("run", static, "-t", TASK, "--instructions", condition)
        assert last.code == 0, last.err

    found = results(world, "local/static")
    assert len(found) == 4
    assert {name.partition("-")[0] for name in found} == {
        "", "instructions_none", "instructions_prepended", "instructions_template",
    }  # fmt: skip
    shown = [line.split() for line in last.out.split("conditions of local/static")[1].splitlines() if TASK in line]
    values = {" ".join(words[2:-2]) or words[2]: words for words in shown}
    assert len(shown) == 4
    native = main_score(found[""])
    prepended = main_score(found["instructions_prepended"])
    assert values["instructions prepended"][-2:] == [f"{prepended:.4f}", f"{prepended - native:+.4f}"]
    assert record_of(found["instructions_none"])["identity"]["condition"] == {"instructions": "none"}


def test_native_result_is_mtebs_own(crumb: Command, static: Path, world: Path) -> None:
    """`native` is no experiment: MTEB finds the result, its tables know the model, and nothing is computed again."""
    assert crumb("run", static, "-t", TASK).code == 0

    there = (
        "import mteb; from mteb.cache import ResultCache; cache = ResultCache()\n"
        f"found = cache.load_results(models=['local/static'], tasks=['{TASK}'])\n"
        f"print(found.to_dataframe().to_string(), mteb.get_model_meta('local/static').revision)\n"
        f"result = mteb.evaluate(mteb.get_model_meta('local/static'), mteb.get_task('{TASK}'), cache=cache,"
        " overwrite_strategy='only-cache')\nprint('again', result.task_results[0].get_score())\n"
    )
    seen = spawn("-c", there)
    assert seen.code == 0, seen.err
    assert f"again {main_score(results(world, 'local/static')[''])}" in seen.out
    assert "local/static" in seen.out


def test_what_was_ranked_scores_as_it_did(crumb: Command, static: Path, world: Path) -> None:
    """The Parquet file of a run has the run's value, and says how deep the search went."""
    assert crumb("run", static, "-t", TASK).code == 0
    result = results(world, "local/static")[""]
    ranked = result.parent / "crumb_tasks" / "runs" / f"{TASK}.test.parquet"

    scored = crumb("score", ranked, "--json", "--measures", "nDCG@10", "R@1000")

    assert scored.code == 0, scored.err
    found = json.loads(scored.out)
    assert (found["coverage"]["depth"], found["no_value"]) == (1000, {})
    live = json.loads(result.read_text(encoding="utf-8"))["scores"]["test"][0]
    assert {key: round(value, 5) for key, value in found["measures"].items()} == {
        "nDCG@10": round(live["ndcg_at_10"], 5),
        "R@1000": round(live["recall_at_1000"], 5),
    }


def test_directories_of_one_name_stay_apart(crumb: Command, world: Path) -> None:
    """Two models in folders of one name have two names, two revisions and two results."""
    first = write_static_model(world / "a" / "model", seed=1)
    second = write_static_model(world / "b" / "model", seed=2)

    assert crumb("run", first, "-t", TASK).code == 0
    other = crumb("run", second, "-t", TASK)

    names = json.loads((world / "models.json").read_text(encoding="utf-8"))
    assert other.code == 0
    assert len(names) == 2
    apart = next(name for name in names if name != "local/model")
    assert apart in other.err
    assert main_score(results(world, "local/model")[""]) != main_score(results(world, apart)[""])
    assert "1 of 1 tasks to evaluate" in other.err
    again = crumb("run", second, "-t", TASK)
    assert "0 of 1 tasks to evaluate" in again.err


def test_name_of_other_weights_is_refused(crumb: Command, world: Path) -> None:
    """A given name is one model's."""
    assert crumb("run", write_static_model(world / "a"), "-t", TASK, "--name", "me/mine").code == 0

    refused = crumb("run", write_static_model(world / "b", seed=9), "-t", TASK, "--name", "me/mine")

    assert refused.code == 2
    assert "'me/mine' is already the name of the model in" in refused.err


def test_cached_results_need_no_model(crumb: Command, static: Path, world: Path) -> None:
    """With everything cached neither weights nor data are touched: the directory may be gone."""
    assert crumb("run", static, "-t", TASK).code == 0
    static.rename(world / "elsewhere")

    again = crumb("run", "local/static", "-t", TASK)

    assert again.code == 0, again.err
    assert "cached" in again.out
    assert "loading" not in again.err


def test_run_of_cached_members_writes_nothing(crumb: Command, world: Path) -> None:
    """An aggregate whose value is stored is not stored again: a cache that cannot be written can still be shown."""
    assert crumb("run", "mteb/baseline-random-encoder", "-t", "CRUMBSampleFullDocument").code == 0
    files = {path: path.stat().st_mtime_ns for path in (world / "cache").rglob("*.json*")}

    again = crumb("run", "mteb/baseline-random-encoder", "-t", "CRUMBSampleFullDocument")

    assert again.code == 0, again.err
    assert {path: path.stat().st_mtime_ns for path in (world / "cache").rglob("*.json*")} == files
    assert any(path.name == "CRUMBSampleFullDocument.json" for path in files)


def test_change_is_said_and_computed_again(crumb: Command, static: Path, world: Path) -> None:
    """A result of another dataset revision, rule or scoring version no longer holds, and the user is told which."""
    assert crumb("run", static, "-t", TASK, "--instructions", "none").code == 0
    path = results(world, "local/static")["instructions_none"]
    record = record_of(path)
    record["identity"]["scoring"], record["identity"]["dataset_revision"] = 0, "older"
    record["identity"]["rules"]["max_passage"] = True
    (path.parent / "crumb_tasks" / path.name).write_text(json.dumps(record), encoding="utf-8")

    again = crumb("run", static, "-t", TASK, "--instructions", "none")

    assert again.code == 0
    for change in ("dataset revision older → sample", "scoring 0 → 1", "rules.max passage True → none"):
        assert change in again.err
    assert "new" in again.out
    assert record_of(path)["identity"]["scoring"] == 1
    assert "0 of 1 tasks" in crumb("run", static, "-t", TASK, "--instructions", "none").err


def test_half_a_file_is_no_result(crumb: Command, static: Path, world: Path) -> None:
    """What a killed process of MTEB left behind is said and computed again."""
    assert crumb("run", static, "-t", TASK).code == 0
    path = results(world, "local/static")[""]
    whole = main_score(path)
    path.write_bytes(path.read_bytes()[:100])

    again = crumb("run", static, "-t", TASK)

    assert again.code == 0
    assert "cannot be read" in again.err
    assert main_score(path) == whole


def test_splits_are_added_to_a_result(crumb: Command, static: Path, world: Path) -> None:
    """A second split is evaluated beside the first, whose values per query are kept."""
    assert crumb("run", static, "-t", TASK).code == 0
    before = main_score(results(world, "local/static")[""])

    both = crumb("run", static, "-t", TASK, "--eval-splits", "test", "validation")

    assert both.code == 0
    rows = {row.split()[1]: row.split() for row in both.out.splitlines() if row.startswith(TASK)}
    assert ("cached" in rows["test"], "new" in rows["validation"]) == (True, True), both.out
    path = results(world, "local/static")[""]
    assert main_score(path) == before
    assert set(json.loads(path.read_text(encoding="utf-8"))["scores"]) == {"test", "validation"}
    assert set(record_of(path)["per_query"]) == {"default/test", "default/validation"}


def test_failing_task_does_not_stop_the_others(crumb: Command, static: Path, world: Path) -> None:
    """What cannot be had is recorded and listed; the rest is finished; the exit code says so."""
    seen = crumb("run", static, "-t", "CRUMBLegalQA", TASK)

    assert seen.code == 1
    assert "1 of 2 tasks failed" in seen.out
    assert main_score(results(world, "local/static")[""]) > 0
    failure = results(world, "local/static")[""].parent / "crumb_tasks" / "CRUMBLegalQA.failure.json"
    assert "CRUMBLegalQA" in json.loads(failure.read_text(encoding="utf-8"))["reason"]


def write_queries(path: Path, text_by_id: dict[str, str]) -> Path:
    """Write a file of rewritten queries as CRUMB has them."""
    rows = [json.dumps({"id": query_id, "content": text}) for query_id, text in text_by_id.items()]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def relevant_texts(task: str = TASK) -> dict[str, str]:
    """Return for each query the text of a relevant document: the best that rewriting could do."""
    collection = load_collection(task, "test")
    rows = zip(collection.corpus["id"].to_pylist(), collection.corpus["text"].to_pylist(), strict=True)
    texts = dict(rows)
    grades = collection.graded.to_dict()
    return {query_id: texts[max(by_doc, key=by_doc.__getitem__)] for query_id, by_doc in grades.items()}


def test_rewriting_is_compared_query_by_query(crumb: Command, static: Path, world: Path) -> None:
    """Rewritten queries are a condition of their own, and the report says how many they helped."""
    queries = write_queries(world / "rewritten.jsonl", relevant_texts())

    alone = crumb("run", static, "-t", TASK, "--queries", queries)
    assert "not compared: no plain run is cached" in alone.out
    plain = crumb("run", static, "-t", TASK)
    seen = crumb("run", static, "-t", TASK, "--queries", queries)

    assert (alone.code, plain.code, seen.code) == (0, 0, 0)
    found = results(world, "local/static")
    name = next(name for name in found if name)
    assert name.startswith("queries_rewritten-")
    before, after = (record_of(found[key])["per_query"]["default/test"]["values"] for key in ("", name))
    helped = sum(after[query] > before[query] for query in before)
    hurt = sum(after[query] < before[query] for query in before)
    assert helped > 0
    assert (
        f"rewriting helped {helped} queries, hurt {hurt}, left {len(before) - helped - hurt} as they were" in seen.out
    )


def test_missing_queries_are_named(crumb: Command, static: Path, world: Path) -> None:
    """A file that lacks a query of the split is no rewriting of it."""
    texts = relevant_texts()
    gone = min(texts)
    queries = write_queries(world / "rewritten.jsonl", {key: text for key, text in texts.items() if key != gone})

    seen = crumb("run", static, "-t", TASK, "--queries", queries)

    assert seen.code == 1
    assert f"1 of {len(texts)} queries are not in 'rewritten': '{gone}'" in seen.out


def test_cross_encoder_re_ranks_three_kinds_of_first_stage(crumb: Command, world: Path) -> None:
    """A run file, a prediction folder and another model's cached run; each is a result of its own."""
    reranker = write_cross_encoder(world / "reranker")
    assert crumb("run", "mteb/baseline-bm25s", "-t", MAXP).code == 0
    mteb.evaluate(
        mteb.get_model("mteb/baseline-bm25s"), mteb.get_task(MAXP), cache=None, prediction_folder=world / "predictions"
    )
    run_file = world / "bm25.trec"
    collection = load_collection(MAXP, "test")
    documents = collection.parents.unique().to_pylist()[:8]
    queries = collection.queries["id"].to_pylist()
    write_run(Run.from_dict({query: dict.fromkeys(documents, 1.0) for query in queries[1:]}), run_file)

    without = crumb("run", reranker, "-t", MAXP)
    cached = crumb("run", reranker, "-t", MAXP, "--rerank", "mteb/baseline-bm25s", "--depth", "10")
    folder = crumb("run", reranker, "-t", MAXP, "--rerank", world / "predictions", "--depth", "10")
    file = crumb("run", reranker, "-t", MAXP, "--rerank", run_file, "--depth", "5")

    assert (without.code, cached.code, folder.code, file.code) == (2, 0, 0, 0), (cached.err, folder.err, file.err)
    assert "--rerank" in without.err
    found = results(world, "local/reranker", MAXP)
    by_stage = {name.rpartition("rerank_")[2].partition("-")[0]: path for name, path in found.items()}
    assert set(by_stage) == {"mteb", "predictions", "bm25"}
    assert main_score(by_stage["mteb"]) == main_score(by_stage["predictions"])
    scores = json.loads(by_stage["bm25"].read_text(encoding="utf-8"))["scores"]["test"][0]
    assert (scores["n_queries"], scores["n_missing"], scores["depth"]) == (len(queries), 1, 5)
    assert scores["previous_results_model_meta"]["name"] == "bm25"
    assert f"1 of {len(queries)} queries have no candidates and count 0" in file.out
    assert "documents; all their passages are re-ranked" in file.out
    assert "passages, which are re-ranked as they are" in cached.out
    own = by_stage["bm25"].parent.name
    as_shown = next(cell.strip() for cell in file.out.split("  ") if "rerank bm25-" in cell)
    for experiment in (own, as_shown):
        again = crumb("run", reranker, "-t", MAXP, "--rerank", f"local/reranker ({experiment})")
        assert again.code == 0, again.err
    near = crumb("run", reranker, "-t", MAXP, "--rerank", f"local/reranker ({own}0)")
    assert f"did you mean '{own}'" in near.err


def test_first_stage_is_the_directory_as_it_is_now(crumb: Command, static: Path, world: Path) -> None:
    """Of several weights under one folder name, `--rerank DIR` takes the runs of those that lie there."""
    weights = next(static.rglob("*.safetensors"))
    first = weights.read_bytes()
    assert crumb("run", static, "--name", "me/one", "-t", TASK).code == 0
    write_static_model(static, seed=1)
    assert crumb("run", static, "--name", "me/one", "-t", TASK).code == 0
    revisions = {path.parent.name for path in (world / "cache" / "results" / "me__one").glob(f"*/{TASK}.json")}
    cache = WholeFilesCache(world / "cache")
    second = folder_revision(static)
    assert open_first_stage(str(static), cache).identity["revision"] == second
    assert open_first_stage("me/one", cache).identity["revision"] == second

    shutil.rmtree(static)
    write_static_model(static, prompts={"query": "query: ", "document": "passage: "})
    assert weights.read_bytes() == first

    (other,) = revisions - {second}
    assert open_first_stage(f"me/one@{other}", cache).identity["revision"] == other
    with pytest.raises(UsageError, match="no run of 'me/one' at revision abc is cached"):
        open_first_stage("me/one@abc", cache)
    with pytest.raises(UsageError, match="no run of the model in"):  # nobody calls it so any more
        open_first_stage(str(static), cache)
    assert crumb("run", static, "-t", TASK).code == 0
    assert open_first_stage(str(static), cache).identity["model"] == "local/static"


def test_overwriting_one_split_keeps_the_other(crumb: Command, static: Path, world: Path) -> None:
    """`--overwrite` evaluates whatever of the request has a result, and loses nothing of another split."""
    assert crumb("run", static, "-t", TASK).code == 0
    path = results(world, "local/static")[""]
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["scores"]["test"][0]["main_score"] = 0.125
    path.write_text(json.dumps(stored), encoding="utf-8")
    record = record_of(path) | {"result_sha256": file_sha256(path)}
    (path.parent / "crumb_tasks" / path.name).write_text(json.dumps(record), encoding="utf-8")

    other = crumb("run", static, "-t", TASK, "--eval-splits", "validation", "--overwrite")

    assert other.code == 0, other.err
    assert main_score(path) == 0.125
    assert main_score(path, "validation") > 0
    assert set(record_of(path)["per_query"]) == {"default/test", "default/validation"}
    assert "0 of 1 tasks" in crumb("run", static, "-t", TASK, "--eval-splits", "test", "validation").err

    path.write_text(json.dumps(stored), encoding="utf-8")
    record = record_of(path) | {"result_sha256": file_sha256(path)}
    (path.parent / "crumb_tasks" / path.name).write_text(json.dumps(record), encoding="utf-8")
    both = crumb("run", static, "-t", TASK, "--eval-splits", "test", "validation", "--overwrite")

    assert "asked for again" in both.err
    assert main_score(path) != 0.125


def test_half_written_condition_is_left_out(crumb: Command, static: Path, world: Path) -> None:
    """What another run has left behind costs a note, not the table."""
    assert crumb("run", static, "-t", TASK).code == 0
    broken = results(world, "local/static")[""].parent / "experiments" / "x" / "model_meta.json"
    broken.parent.mkdir(parents=True)
    broken.write_text('{"name": ', encoding="utf-8")

    seen = crumb("run", static, "-t", TASK)

    assert seen.code == 0, seen.err
    assert f"note: {broken} cannot be read" in seen.out


def test_options_are_recorded_and_kept_apart(crumb: Command, static: Path, world: Path) -> None:
    """What changes values is another result; what does not is written down."""
    options = ("--prompt", "query=q: ", "--dtype", "float16", "--batch-size", "7", "--device", "cpu")
    assert crumb("run", static, "-t", TASK, *options).code == 0

    (name, path), *others = results(world, "local/static").items()
    assert not others
    assert name.startswith("dtype_float16__prompt_")
    record = record_of(path)
    assert record["settings"]["batch_size"] == 7
    assert record["settings"]["device"] == "cpu"
    assert record["settings"]["prompts"] == {"query": "q: "}
    assert record["settings"]["versions"]["mteb"] == mteb.__version__
    assert record["identity"]["condition"]["prompts"] == {"query": "q: "}


def test_embeddings_are_kept_between_runs(crumb: Command, static: Path, world: Path) -> None:
    """`--embeddings` fills a folder, and another condition of the queries reads it."""
    folder = world / "embeddings"
    assert crumb("run", static, "-t", TASK, "--embeddings", folder).code == 0
    written = {path: path.stat().st_mtime_ns for path in folder.rglob("*.npy")}

    assert crumb("run", static, "-t", TASK, "--embeddings", folder, "--instructions", "prepended").code == 0

    assert written
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.npy")} == written


def test_plain_lines_say_how_far_it_got(crumb: Command, static: Path) -> None:
    """In a pipe progress is lines without control characters."""
    seen = crumb("run", static, "-t", TASK)

    assert f"[1/1] {TASK}: 160 documents, 17 queries" in seen.err
    assert "documents/s" in seen.err
    assert "\x1b" not in seen.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--depth", "5", "-t", TASK), "--depth says how many of a first stage"),
        ((), "name what to evaluate"),
        (("-t", "CRUMBSampleLegal"), f"Did you mean: '{TASK}'"),
        (("-t", TASK, "--rerank", "nowhere"), "no run of such a model is cached"),
        (("-t", TASK, "--eval-splits", "dev"), f"{TASK} calls the split 'dev' 'validation'"),
        (("-t", TASK, "--eval-splits", "train"), f"{TASK} has no training data: load 'test' or 'validation'"),
        (("-t", "CRUMBSample", "--eval-splits", "train"), "has no training data"),
        (("-t", "PIQA", "--eval-splits", "dev"), "PIQA has no split 'dev'"),
        (("-t", TASK, "--prompt", "documents=passage: "), "did you mean 'document=passage: '?"),
        (("-t", TASK, "--revision", "abc"), "--revision is for models on the Hub"),
        (("-t", TASK, "--batch-size", "0"), "--batch-size must be 1 or more"),
        (("-t", TASK, "--device", "gpu"), "--device 'gpu' is no device of torch"),
        (("-t", TASK, "--rerank", ""), "--rerank: it is empty"),
        (("-t", TASK, "--queries", ""), "--queries: it is empty"),
        (("-t", TASK, "--embeddings", __file__), "is a file; name a folder"),
        (("-t", TASK, "--output-folder", __file__), "is a file; name a folder"),
        (("-t", TASK, "--max-seq-length", "5"), "has no length limit that --max-seq-length could set"),
    ],
)
def test_misuse_is_one_line(
    static: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    """What cannot be meant is refused, and nothing is evaluated."""
    code = main(["run", str(static), *arguments])

    err = capsys.readouterr().err
    assert code == 2
    assert complaint in err


def test_mistyped_model_is_told_the_near_names(capsys: pytest.CaptureFixture[str]) -> None:
    """MTEB knows hundreds of models; the nearest is probably meant."""
    assert main(["run", "mteb/baseline-bm25", "-t", TASK]) == 2
    assert "did you mean 'mteb/baseline-bm25s'" in capsys.readouterr().err


FIVE = ["CodeRetrieval", "LegalQA", "PaperRetrieval", "StackExchange", "TheoremRetrieval"]


def counted(*arguments: str, **environment: str) -> Outcome:
    """Run ``crumb-tasks run test/counted``."""
    return spawn(ROOT / "tests" / "counted_run.py", "run", "test/counted", *arguments, **environment)


def calls(path: Path) -> list[str]:
    """Return the calls that were written down."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.mark.slow
def test_kill_loses_only_the_task_in_work(world: Path) -> None:
    """Killed in the third of five tasks, a second start does the last three and gives what an unbroken run gives."""
    tasks = [f"CRUMBSample{name}" for name in FIVE]
    log = world / "calls"
    with subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "counted_run.py"), "run", "test/counted", "-t", *tasks],
        env=os.environ | {"CALLS": str(log), "STALL": tasks[2]},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        until = time.monotonic() + 600
        while not any(line.startswith(tasks[2]) for line in calls(log)):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    log.unlink()

    again = counted("-t", *tasks, CALLS=str(log))
    unbroken = counted("-t", *tasks, CALLS=str(world / "other"), MTEB_CACHE=str(world / "unbroken"))

    assert (again.code, unbroken.code) == (0, 0), again.err
    assert {line.split()[0] for line in calls(log)} == {"load", *tasks[2:]}
    assert calls(log).count("load model") == 1
    for task in tasks:
        one = world / "cache" / "results" / "test__counted" / "1" / f"{task}.json"
        other = world / "unbroken" / "results" / "test__counted" / "1" / f"{task}.json"
        scores = [json.loads(path.read_text(encoding="utf-8"))["scores"] for path in (one, other)]
        assert scores[0] == scores[1]


@pytest.mark.slow
def test_one_load_for_all_members_and_none_when_cached(world: Path) -> None:
    """The members of an aggregate share a model; while one fails the aggregate has no value."""
    log = world / "calls"
    failing = counted("-t", "CRUMBSample", CALLS=str(log), FAIL="CRUMBSampleLegalQA")

    assert failing.code == 1
    assert calls(log).count("load model") == 1
    assert "7/8 tasks" in failing.out
    assert "no value without CRUMBSampleLegalQA" in failing.out
    assert "CRUMBSampleLegalQA: RuntimeError: out of memory" in failing.out
    log.unlink()

    healed = counted("-t", "CRUMBSample", CALLS=str(log))

    assert healed.code == 0
    assert {line.split()[0] for line in calls(log)} == {"load", "CRUMBSampleLegalQA"}
    assert "8/8 tasks" in healed.out
    log.unlink()

    assert counted("-t", "CRUMBSample", CALLS=str(log)).code == 0
    assert calls(log) == []


@pytest.mark.slow
def test_tasks_of_mteb_run_too(world: Path) -> None:
    """MTEB's own task is scored by MTEB, which the table says; conditions and re-ranking work for it as well."""
    log = str(world / "calls")
    plain = counted("-t", "PIQA", TASK, CALLS=log, FILL="PIQA")
    prepended = counted("-t", "PIQA", "--instructions", "prepended", CALLS=log, FILL="PIQA")
    reranked = counted("-t", "PIQA", "--rerank", "test/counted", "--depth", "1", CALLS=log, FILL="PIQA")

    assert (plain.code, prepended.code, reranked.code) == (0, 0, 0), (plain.err, prepended.err, reranked.err)
    scorer_by_task = {
        line.split()[0]: "MTEB" if "  MTEB" in line else "crumb_tasks" if "  crumb_tasks" in line else ""
        for line in plain.out.splitlines()
        if line.startswith(("PIQA", TASK))
    }
    assert scorer_by_task == {"PIQA": "MTEB", TASK: "crumb_tasks"}
    found = results(world, "test/counted", "PIQA")
    assert len(found) == 3
    assert set(record_of(found["instructions_prepended"])["per_query"]["default/test"]["values"]) == {"q1", "q2"}
