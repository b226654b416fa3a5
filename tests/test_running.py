"""The parts of ``crumb-tasks run``: conditions from files, records, names of directories, progress."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mteb
import pytest
from mteb.models.model_implementations import MODEL_REGISTRY
from mteb.results.task_result import TaskResult
from tiny_models import write_static_model

from crumb_tasks import register
from crumb_tasks.cards import find_task
from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.loaders import loader_of
from crumb_tasks.local_models import read_models
from crumb_tasks.models import Instructions, LoadOptions
from crumb_tasks.models.loading import parse_prompts
from crumb_tasks.running.cache import WholeFilesCache
from crumb_tasks.running.candidates import candidates_of
from crumb_tasks.running.condition import Condition, label_of
from crumb_tasks.running.directories import name_directory
from crumb_tasks.running.first_stage import file_stage, folder_stage, open_first_stage
from crumb_tasks.running.plan import find_tasks, make_plan
from crumb_tasks.running.progress import EVERY, Pace, Reporter, duration
from crumb_tasks.running.records import Record, differences, file_sha256
from crumb_tasks.running.rewriting import read_rewritten
from crumb_tasks.running.summary import lines
from crumb_tasks.runs import Run

register()


@pytest.fixture(autouse=True)
def _own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("CRUMB_TASKS_MODELS", str(tmp_path / "models.json"))
    before = dict(MODEL_REGISTRY)
    yield
    MODEL_REGISTRY.clear()
    MODEL_REGISTRY.update(before)


def write(path: Path, text: str) -> Path:
    """Write a file and return it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_rewritten_queries_are_read_as_crumb_has_them(tmp_path: Path) -> None:
    """Whatever else a line holds is left alone; ids may be numbers; U+2028 ends no line."""
    path = write(
        tmp_path / "rewritten v1.jsonl",
        '{"content": "a\u2028b", "id": 7, "metadata": {"prompt": "p"}}\n\n{"id": "q2", "content": "c"}\n',
    )

    queries = read_rewritten(path)

    assert queries.texts("Any", [], {"q2": "?", "7": "?"}) == (["c", "a\u2028b"], ["q2", "7"])
    assert queries.token == f"rewritten-v1-{queries.sha256[:8]}"


def test_table_of_queries_is_read_without_quoting(tmp_path: Path) -> None:
    """A quotation mark in a query opens nothing."""
    path = write(tmp_path / "q.tsv", 'id\ttext\n0012\t"never closed\nq2\tNA\r\n')

    assert read_rewritten(path).texts("Any", [], {"0012": "", "q2": "?"})[0] == ['"never closed', "NA"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"id": "q1"}', "1: expected 'id' and 'content'; found: id"),
        ('{"id": "q1", "content": " "}', "1: the text of query 'q1' is empty"),
        ("[]", "1: expected an object"),
        ("{", "1: no JSON"),
        ("", "holds no query"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    """A file that is not understood is not half used."""
    with pytest.raises(DataError, match=complaint):
        read_rewritten(write(tmp_path / "q.jsonl", text))


def test_tasks_with_equal_ids_are_told_apart(tmp_path: Path) -> None:
    """By a task in the lines, by files, or by the query that a line was made from; else they are not guessed."""
    lines = '{"id": "1", "content": "x", "task": "A"}\n{"id": "1", "content": "y", "task": "B"}\n'
    named = read_rewritten(write(tmp_path / "one.jsonl", lines))
    folder = write(tmp_path / "many" / "A.jsonl", '{"id": "1", "content": "x"}').parent
    write(folder / "legal.tsv", "1\ty\n")
    files = read_rewritten(folder)
    lines = '{"id": "1", "content": "x", "original_item": {"content": "a"}}\n'
    lines += '{"id": "1", "content": "y", "original_item": "b  c"}\n'
    original = read_rewritten(write(tmp_path / "original.jsonl", lines))
    unclear = read_rewritten(write(tmp_path / "unclear.jsonl", lines.replace("original_item", "from")))

    for queries in (named, files, original):
        assert queries.texts("A", [], {"1": "a"}) == (["x"], [])
    assert named.texts("B", [], {"1": "?"}) == files.texts("CRUMBLegalQA", ["legal"], {"1": "?"}) == (["y"], [])
    assert original.texts("B", [], {"1": "b c"}) == (["y"], [])
    with pytest.raises(DataError, match="A: 1 queries have several texts in 'unclear': '1'"):
        unclear.texts("A", [], {"1": "a"})
    with pytest.raises(DataError, match="1 of 2 queries are not in 'one': '2'"):
        named.texts("A", [], {"1": "a", "2": "b"})


CORPUS = ["d1:0", "d1:1", "d2:0", "d3"]
DOCUMENTS = {"d1", "d2", "d3"}


def test_candidates_are_the_first_of_the_run() -> None:
    """The total order decides which, queries without any are counted, unknown ids are left out and counted."""
    run = Run.from_dict(
        {"q1": {"d1:0": 1.0, "d2:0": 1.0, "d3": 0.5}, "q2": {"zz": 9.0, "d3": 1.0}, "other": {"d3": 1.0}}
    )

    found = candidates_of(run, ["q1", "q2", "q3"], 2, task="T", corpus_ids=set(CORPUS))

    assert found.ids_by_query == {"q1": ["d2:0", "d1:0"], "q2": ["d3"]}
    assert found.notes == (
        "1 of 3 queries have no candidates and count 0",
        "1 documents of the first stage are not in the corpus: 'zz'",
    )


def test_documents_stand_for_their_passages() -> None:
    """Under MaxP a first stage may rank documents or passages, and the notes say which it did."""
    run = Run.from_dict({"q1": {"d1": 2.0, "d2:0": 1.0}})

    found = candidates_of(run, ["q1"], 10, task="T", corpus_ids=set(CORPUS), documents=DOCUMENTS)

    assert found.ids_by_query == {"q1": ["d1", "d2:0"]}
    assert len(found.notes) == 2


def test_candidates_of_the_task_stay_the_widest() -> None:
    """Where a task says what a query may rank, a first stage adds nothing to it."""
    run = Run.from_dict({"q1": {"d1:0": 2.0, "d3": 1.0}})

    found = candidates_of(run, ["q1"], 1, task="T", corpus_ids=set(CORPUS), among={"q1": ["d3"]})

    assert found.ids_by_query == {"q1": ["d3"]}


def test_foreign_first_stage_is_refused() -> None:
    """A run of another task's queries would give every query 0."""
    with pytest.raises(DataError, match=r"ranks none of its queries .it has 'x'; the task has 'q1'"):
        candidates_of(Run.from_dict({"x": {"d3": 1.0}}), ["q1"], 5, task="T", corpus_ids=set(CORPUS))


@pytest.mark.parametrize("ranking", [{"zz": 1.0}, {}])
def test_first_stage_without_a_candidate_is_refused(ranking: dict[str, float]) -> None:
    """Query ids of two tasks may be equal; a run of the other one's documents would give every query 0."""
    with pytest.raises(DataError, match=r"T: the first stage holds nothing that a query may rank"):
        candidates_of(Run.from_dict({"q1": ranking}), ["q1"], 5, task="T", corpus_ids=set(CORPUS))


def test_first_stages_of_one_name_have_two_tokens(tmp_path: Path) -> None:
    """The name of a file says nothing about what is in it."""
    first = file_stage(write(tmp_path / "a" / "bm25.trec", "q1 Q0 d1 1 2.0 x\n"))
    second = file_stage(write(tmp_path / "b" / "bm25.trec", "q1 Q0 d2 1 2.0 x\n"))

    assert first.name == second.name == "bm25"
    assert first.token != second.token
    assert folder_stage(tmp_path / "a").token != folder_stage(tmp_path / "b").token


def test_folder_without_the_task_says_so(tmp_path: Path) -> None:
    """The message names the files that were looked for."""
    stage = open_first_stage(str(write(tmp_path / "runs" / "Other.trec", "q1 Q0 d1 1 2 x\n").parent), cache(tmp_path))

    with pytest.raises(DataError, match=r"T_predictions\.json"):
        stage.run("T", "test", "default")
    with pytest.raises(UsageError, match="holds no run file"):
        folder_stage(tmp_path / "cache")


def cache(tmp_path: Path) -> WholeFilesCache:
    """Return an empty cache."""
    return WholeFilesCache(tmp_path / "cache")


def test_conditions_are_short_and_differ() -> None:
    """An experiment becomes a folder's name; the native one is no experiment."""
    template = Instructions.parse("{instruction}: {query}")
    options = LoadOptions(device="cpu", max_seq_length=512)

    assert Condition(options=LoadOptions(device="cpu")).experiment == {}
    both = Condition(template, options=options)
    assert both.experiment == {"instructions": template.token, "max_seq_length": 512}
    assert both.describe()["template"] == "{instruction}: {query}"
    assert label_of(both.experiment) == f"instructions {template.token}, max_seq_length 512"
    assert label_of(None) == "native"


def test_differences_are_told_in_words() -> None:
    """Nested rules are compared key by key, and long values are cut."""
    old = {"scoring": 1, "rules": {"max_passage": False, "prompt": "x" * 60}}
    new = {"scoring": 2, "rules": {"max_passage": True, "prompt": "x" * 60}, "depth": 10}

    assert differences(old, new) == ["scoring 1 → 2", "rules.max passage False → True", "depth none → 10"]
    assert differences(old, old) == []


def test_record_is_of_one_file(tmp_path: Path) -> None:
    """A result that MTEB has replaced since has no record."""
    result = write(tmp_path / "T.json", "{}")
    record = Record("T", {"scoring": 1}, result_sha256="0")
    record.write(tmp_path)

    assert Record.read(tmp_path, "T") == record
    assert not record.describes(result)
    assert Record.read(tmp_path, "Other") is None


def a_result(task: str, revision: str | None) -> TaskResult:
    """Return a result as MTEB stores it."""
    scores = {"test": {"default": {"main_score": 0.5, "ndcg_at_10": 0.5, "scoring": 1, "hf_subset": "default"}}}
    return TaskResult.from_task_results(mteb.get_task(task), scores, 1.0, None).model_copy(
        update={"dataset_revision": revision}
    )


def test_saved_result_is_whole_and_mtebs(tmp_path: Path) -> None:
    """MTEB's cache reads what ours wrote, nothing else is left behind, and settings of other tasks stay."""
    meta = mteb.get_model_meta("mteb/baseline-bm25s")
    ours = cache(tmp_path)

    for task in ("CRUMBSampleLegalQA", "CRUMBSamplePaperRetrieval"):
        ours.save_to_cache(a_result(task, "sample"), meta, encode_kwargs={"batch_size": 3})

    folder = ours.folder(meta)
    found = mteb.ResultCache(tmp_path / "cache").load_task_result("CRUMBSampleLegalQA", meta)
    assert found is not None
    assert found.scores["test"][0]["main_score"] == 0.5
    assert len((folder / "run_settings.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    assert not [path for path in (tmp_path / "cache").iterdir() if path.name.startswith(".")]


def test_result_of_mteb_run_holds_while_its_data_do(tmp_path: Path) -> None:
    """A native result without a record was made by `mteb run`: it counts, unless its revision is another."""
    meta = mteb.get_model_meta("mteb/baseline-bm25s")
    ours = cache(tmp_path)
    ours.save_to_cache(a_result("CRUMBSampleLegalQA", "sample"), meta)
    ours.save_to_cache(a_result("CRUMBSamplePaperRetrieval", "older"), meta)
    tasks = find_tasks(["CRUMBSampleLegalQA", "CRUMBSamplePaperRetrieval"], [], None)

    holds, stale = make_plan(tasks, meta, Condition(), ours).units

    assert (holds.state, stale.state) == ("cached", "changed")
    assert "dataset revision older → sample" in stale.reason
    assert not stale.keeps
    fresh = make_plan(tasks, meta, Condition(), ours, is_fresh=True)
    assert len(fresh.pending) == 2


def test_interrupted_run_says_what_was_not_run(tmp_path: Path) -> None:
    """What an interrupt left out is neither cached nor of its old value, and an aggregate counts what is there."""
    plan = make_plan(
        [mteb.get_task("CRUMBSample")], mteb.get_model_meta("mteb/baseline-bm25s"), Condition(), cache(tmp_path)
    )
    for at, unit in enumerate(plan.units[:3]):
        unit.result = a_result(unit.name, unit.task.metadata.revision)
        unit.state = ("missing", "changed", "cached")[at]
    plan.units[0].computed = ("test",)

    *units, aggregate = lines(plan, "mteb/baseline-bm25s")

    assert [line.state for line in units] == ["new", "not run", "cached", *["not run"] * 5]
    assert [line.value is None for line in units] == [False, True, False, *[True] * 5]
    assert aggregate.coverage == "2/8 tasks"
    assert aggregate.state.startswith("no value without CRUMBSampleCodeRetrieval, ")
    assert aggregate.state.endswith(" and 3 more")


def test_members_are_evaluated_once(tmp_path: Path) -> None:
    """A task that is asked for by itself and as a member is one unit; splits reach the members."""
    meta = mteb.get_model_meta("mteb/baseline-bm25s")
    tasks = find_tasks(["CRUMBSample", "CRUMBSampleLegalQA"], [], ["validation"])

    plan = make_plan(tasks, meta, Condition(), cache(tmp_path))

    assert len(plan.units) == 8
    assert {tuple(unit.task.eval_splits) for unit in plan.units} == {("validation",)}
    assert [aggregate.metadata.name for aggregate in plan.aggregates] == ["CRUMBSample"]


def test_benchmark_keeps_its_subsets_and_splits() -> None:
    """A benchmark of MTEB has its tasks with some of their subsets; they are not changed for whoever asks next."""
    benchmark = {task.metadata.name: task for task in mteb.get_benchmark("MTEB(eng, v2)").tasks}
    found = {task.metadata.name: task for task in find_tasks([], ["MTEB(eng, v2)"], None)}
    whole = {task.metadata.name: task for task in find_tasks(["STS17"], ["MTEB(eng, v2)"], None)}

    assert list(found) == list(benchmark)
    assert list(found["STS17"].hf_subsets) == ["en-en"]
    assert set(whole["STS17"].hf_subsets) == set(mteb.get_task("STS17").hf_subsets)
    assert list(benchmark["STS17"].hf_subsets) == ["en-en"]


def test_changed_local_data_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result made from files in a data root holds while these do; files that are gone stop no plan."""
    card = find_task("CRUMBLegalQA")
    root = tmp_path / "data"
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(root))
    meta = mteb.get_model_meta("mteb/baseline-bm25s")
    ours = cache(tmp_path)
    ours.save_to_cache(a_result(card.name, card.source.revision), meta)

    def plan(split: str = "test") -> Any:
        return make_plan(find_tasks([card.name], [], [split]), meta, Condition(), ours).units[0]

    assert "local_data" not in plan().identity
    files = [root / str(card.source.hub) / card.source.folder / file for file in loader_of(card).files(card, "test")]
    for file in files:
        write(file, "{}")
    folder = ours.folder(meta)
    Record(card.name, plan().identity, result_sha256=file_sha256(folder / f"{card.name}.json")).write(folder)
    assert plan().state == "cached"
    write(files[0], "{} ")
    assert "the data in the data root have changed (test)" in plan().reason
    assert plan().keeps  # what the result holds of other splits is not of these files
    assert plan("validation").state == "missing"
    files[0].unlink()
    assert plan().state == "cached"
    monkeypatch.delenv("CRUMB_TASKS_DATA")
    assert plan().state == "changed"


def test_nearly_named_prompt_is_refused() -> None:
    """A mistyped word is no query prefix; other text with a sign of equality is."""
    assert parse_prompts(["document=passage: ", "task=search: "]) == {"document": "passage: ", "query": "task=search: "}
    for word in ("documents", "doc", "Query", "queries"):
        with pytest.raises(UsageError, match="did you mean"):
            parse_prompts([f"{word}=x"])


def test_directory_keeps_its_name(tmp_path: Path) -> None:
    """The same weights have the same name, wherever they are moved; other weights in their place get another."""
    folder = write_static_model(tmp_path / "my model", seed=1)
    name, local, message = name_directory(folder)
    assert (name, local.kind) == ("local/my-model", "sentence-transformers")
    assert local.n_parameters == 77 * 16
    assert "from now on" in message
    assert name_directory(folder) == (name, local, "")
    assert mteb.get_model_meta(name).revision == local.revision

    moved = folder.rename(write(tmp_path / "deeper" / "x", "").parent / "my model")
    assert name_directory(moved)[0] == name
    assert read_models()[name].path == str(moved)

    write_static_model(moved, seed=2)
    apart, retrained, message = name_directory(moved)
    assert apart == f"local/my-model-{retrained.revision[:6]}"
    assert "have changed" in message


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        ("model.safetensors", "", "is no safetensors file"),
        ("config_sentence_transformers.json", "{", "cannot be read"),
        ("config_sentence_transformers.json", "[]", "holds no JSON object"),
    ],
)
def test_broken_model_is_named(tmp_path: Path, file: str, content: str, complaint: str) -> None:
    """A clone without its large files looks like a model; the message names the file, and nothing is remembered."""
    folder = write_static_model(tmp_path / "mine")
    write(folder / file, content)

    with pytest.raises(UsageError, match=complaint) as caught:
        name_directory(folder)

    assert file in str(caught.value)
    assert read_models() == {}


def test_name_of_mtebs_registry_is_refused(tmp_path: Path) -> None:
    """A local model never passes for a published one."""
    folder = write_static_model(tmp_path / "model")

    with pytest.raises(UsageError, match="is a model of MTEB's registry"):
        name_directory(folder, "sentence-transformers/all-MiniLM-L6-v2")
    assert name_directory(folder, "mine")[0] == "local/mine"


def test_settings_of_a_remembered_model_stay(tmp_path: Path) -> None:
    """What a user has added to the file is not lost when the model is run again."""
    folder = write_static_model(tmp_path / "model")
    name, *_ = name_directory(folder)
    path = tmp_path / "models.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    entries[name]["load"] = {"trust_remote_code": True}
    path.write_text(json.dumps(entries), encoding="utf-8")

    assert name_directory(folder)[1].load == {"trust_remote_code": True}


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_pace_tells_what_is_left() -> None:
    """Time left covers later tasks only where their sizes are known."""
    clock = Clock()
    pace = Pace(2, {"A": 100, "B": 300}, clock=clock)
    pace.start("A", 100)
    assert pace.line() == "0/100 documents"
    clock.now = 5.0
    pace.advance(50)

    assert pace.line() == "50/100 documents, 10 documents/s, 35 s left"
    assert replace(pace, n_tasks=3).line() == "50/100 documents, 10 documents/s, 5.0 s left in this task"


def test_failed_task_is_counted_once() -> None:
    """A task that fails before it begins has its place, and one that fails later keeps it."""
    stream = io.StringIO()
    with Reporter(stream, Pace(3, {"A": 10, "B": 10, "C": 10})) as reporter:
        reporter.start("A", 10, 1)
        reporter.fail("A", "late")
        reporter.fail("B", "early")
        reporter.start("C", 10, 1)

    places = [line.partition(":")[0] for line in stream.getvalue().splitlines()]
    assert places == ["[1/3] A", "[1/3] A", "[2/3] B", "[3/3] C"]
    assert reporter.pace.knows_all
    assert not reporter.pace.n_expected


def test_lines_come_seldom() -> None:
    """In a pipe a long task is a line every few seconds, not one for each block."""
    clock, stream = Clock(), io.StringIO()
    with Reporter(stream, Pace(1, clock=clock)) as reporter:
        reporter.start("A", 1000, 3)
        for second in range(1, 21):
            clock.now = float(second)
            reporter.observe("document", 10)
            reporter.observe("query", 3)
        reporter.finish("done")

    lines = stream.getvalue().splitlines()
    assert len(lines) == 2 + int(20 / EVERY)
    assert lines[0] == "[1/1] A: 1,000 documents, 3 queries"
    assert lines[-1] == "[1/1] A: done in 20 s, 10 documents/s"


def test_terminal_gets_a_display() -> None:
    """In a terminal the state is drawn, and the lines that stay are the same."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with Reporter(stream, Pace(1)) as reporter:
        reporter.start("A", 10, 1)
        reporter.observe("document", 10)
        reporter.finish("done")

    assert "\x1b" in stream.getvalue()
    assert "[1/1] A: done in" in stream.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(0.25, "0.2 s"), (42, "42 s"), (600, "10 min"), (7200, "2.0 h")])
def test_times_have_a_unit(seconds: float, text: str) -> None:
    """A time is told as a person would."""
    assert duration(seconds) == text
