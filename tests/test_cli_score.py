"""``crumb-tasks score``: the right number for any run, what it is made of, and a line for whatever is wrong."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ir_measures
import pytest
import run_bytes
from sample_runs import MAXP, PLAIN, document_run, passage_run, sample
from standin import ROOT, start

from crumb_tasks import cli, read_run, score
from crumb_tasks.cards import find_task
from crumb_tasks.runs import Run
from crumb_tasks.scoring import CRUMB_MEASURES

Command = Callable[..., tuple[int, str, str]]
KEYS = {"nDCG": "ndcg", "R": "recall", "P": "precision", "RR": "mrr", "AP": "map"}
"""MTEB's names of measures."""


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs ``crumb-tasks`` and returns exit code, stdout, stderr."""

    def run(*argv: object) -> tuple[int, str, str]:
        code = cli.main([str(argument) for argument in argv])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, bytes], Path]:
    """Return a function that writes a file."""

    def write(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    return write


def measures_of(out: str) -> dict[str, float]:
    """Return the values of the last object of ``--json``."""
    found: dict[str, float] = json.loads(out.splitlines()[-1])["measures"]
    return found


def crumbs_own(run: Mapping[str, Mapping[str, float]], task: str) -> dict[str, float]:
    """Return what CRUMB's evaluator computes with ir_measures: nDCG from graded, P, R and RR from binary judgements."""
    collection = sample(task)
    found = {}
    for name in CRUMB_MEASURES:
        qrels = collection.qrels_for("graded" if "nDCG" in name else "binary").to_dict()
        measure = ir_measures.parse_measure(name)
        found[name] = ir_measures.calc_aggregate([measure], qrels, {q: dict(docs) for q, docs in run.items()})[measure]
    return found


@pytest.mark.parametrize("task", [MAXP, PLAIN, "CRUMBSampleLegalQA", "CRUMBSampleTipOfTheTongue"])
@pytest.mark.parametrize("kind", run_bytes.FORMATS)
def test_the_nine_measures_of_crumbs_evaluator(command: Command, write: Any, task: str, kind: str) -> None:
    """A run keyed by document ids has the nine values of CRUMB's evaluator to 1e-9, in every format."""
    run = document_run(task, depth=1000) if find_task(task).max_passage else passage_run(task, depth=1000)
    path = write("run", run_bytes.FORMATS[kind](run))

    code, out, _ = command("score", path, "--task", task, "--json")

    assert code == 0
    assert measures_of(out) == pytest.approx(crumbs_own(run, task), abs=1e-9)


def test_passages_score_like_the_documents_they_stand_for(command: Command, write: Any) -> None:
    """R26: true passage ids, parents' ids and a mixture of both give the same values, and what was seen is said."""
    passages = passage_run(MAXP, depth=1000)
    collection = sample(MAXP)
    assert collection.parent_ids is not None
    parent = dict(zip(collection.corpus_ids.to_pylist(), collection.parent_ids.to_pylist(), strict=True))
    rows = [(q, p, x) for q, docs in passages.items() for p, x in docs.items()]
    keyed = {
        "passages": rows,
        "documents": [(q, parent[p], x) for q, p, x in rows],
        "mixture": [(q, parent[p] if at % 2 else p, x) for at, (q, p, x) in enumerate(rows)],
    }
    values = {}
    for name, of_name in keyed.items():
        path = write(name, "".join(f"{q} Q0 {p} 1 {x!r} s\n" for q, p, x in of_name).encode())

        code, out, err = command("score", path, "--task", MAXP, "--json")

        assert code == 0, err
        values[name] = measures_of(out)
        assert json.loads(out)["coverage"]["keyed_by"] == name
    assert values["passages"] == values["documents"] == values["mixture"]
    assert values["passages"]["nDCG@10"] > 0.3


def test_every_spelling_of_crumbs_file_names_is_a_task(command: Command, write: Any) -> None:
    """The task is guessed from the file name, and the guess is said."""
    data = run_bytes.jsonl(passage_run(PLAIN))
    for name in (f"{PLAIN}_predictions.json", f"{PLAIN}.bm25.jsonl", f"{PLAIN}_run1.jsonl"):
        code, _, err = command("score", write(name, data))

        assert code == 0
        assert f"{name}: task {PLAIN}, guessed from the file name" in err
    code, _, err = command("score", write("clinical_trial_run1.jsonl", data))
    assert code != 0  # its data are not here, but the name is understood
    assert "CRUMBClinicalTrial" in err
    code, _, err = command("score", write("my_run.jsonl", data))
    assert (code, "tells no task; name one with --task" in err) == (2, True)


def test_the_name_of_crumbs_evaluator_names_a_task(command: Command, write: Any) -> None:
    """``--task clinical_trial`` is what its users type."""
    _, _, err = command("score", write("x", run_bytes.jsonl({"q": {"d": 1.0}})), "--task", "clinical_trial")

    assert err.startswith("crumb-tasks: CRUMBClinicalTrial")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param(
            ["--task", "CRUMBSampleClinicalTrail"],
            "neither crumb_tasks nor MTEB has a task 'CRUMBSampleClinicalTrail'; did you mean",
            marks=pytest.mark.skipif(find_spec("mteb") is None, reason="asks MTEB for its tasks"),
        ),
        (["--task", "CRUMB"], "CRUMB is an aggregate; score a run for each of its members (CRUMBClinicalTrial"),
        (["--task", PLAIN, "--measures", "recall@100"], "did you mean 'R@100'"),
        (["--task", PLAIN, "--split", "dev"], f"{PLAIN} calls the split 'dev' 'validation'"),
        (
            ["--task", PLAIN, "--max-passage", "on"],
            "has labels of whole documents, so no passage can stand for its document; leave",
        ),
        (["--task", PLAIN, "--qrels", "x"], "--qrels takes the place of a task"),
        (["--task", "CRUMBSampleLegalQA"], "no query of the run is judged in CRUMBSampleLegalQA (test)"),
        (["--task", PLAIN, "--format", "trec"], "JSON is no TREC run"),
        ([], "tells no task"),
    ],
)
def test_misuse_is_one_line(command: Command, write: Any, argv: Sequence[str], words: str) -> None:
    """Whatever is asked wrongly: one line that names it, exit code 2, nothing on standard output."""
    code, out, err = command("score", write("x", run_bytes.jsonl(passage_run(PLAIN))), *argv)

    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("CRUMBSampleLegalQA", "labels of single passages"),
        ("CRUMBSampleLegalQAFullDocument", "labels of whole documents"),
    ],
)
def test_max_passage_is_refused_with_the_reason(command: Command, write: Any, task: str, words: str) -> None:
    """MaxP where labels are per passage, or on whole documents, measures nothing that the benchmark means."""
    path = write("x", run_bytes.jsonl(passage_run(task)))

    code, out, err = command("score", path, "--task", task, "--max-passage", "on")

    assert (code, out) == (2, "")
    assert words in err
    assert command("score", path, "--task", task, "--max-passage", "off")[0] == 0


def test_a_malformed_run_is_one_line(command: Command, write: Any) -> None:
    """File, line, offender, remedy and exit code 2."""
    path = write("x", b"q1 Q0 d1 1 0.9 s\nq1 Q0 d 1 2 0.5 s\n")

    code, out, err = command("score", path, "--task", PLAIN)

    expected = f"crumb-tasks: {path}:2: expected 6 columns, found 7; an id with whitespace needs JSONL\n"
    assert (code, out, err) == (2, "", expected)


def test_one_bad_run_does_not_stop_the_others(command: Command, write: Any) -> None:
    """The good ones are scored, the bad one is named, the exit code says that something was wrong."""
    good = write("good", run_bytes.jsonl(passage_run(PLAIN)))
    bad = write("bad", b"x\n")

    code, out, err = command("score", bad, good, good, "--task", PLAIN, "--csv")

    assert code == 2
    assert f"{bad}:1: expected 6 columns" in err
    assert {row["run"] for row in csv.DictReader(io.StringIO(out))} == {str(good)}


def test_a_run_of_another_split_is_named(command: Command, write: Any) -> None:
    """Scored on the wrong split a run has nothing but zeros; the right split is said instead."""
    path = write("x", run_bytes.trec(passage_run(PLAIN, split="validation")))

    code, out, err = command("score", path, "--task", PLAIN)

    assert (code, out) == (2, "")
    assert (
        f"queries of the run are of split 'validation' of {PLAIN}, 0 of 'test'; score it with --split validation" in err
    )
    assert command("score", path, "--task", PLAIN, "--split", "validation")[0] == 0


def test_predictions_say_their_split(command: Command, write: Any) -> None:
    """What MTEB wrote for the validation split is scored on it without being told."""
    predictions = {"default": {"validation": passage_run(PLAIN, split="validation")}}
    path = write(f"{PLAIN}_predictions.json", json.dumps(predictions).encode())

    code, out, err = command("score", path, "--json")

    assert (code, json.loads(out)["split"]) == (0, "validation")
    assert "split 'validation', as the file says" in err


def test_unanswered_and_unjudged_queries_are_counted(command: Command, write: Any) -> None:
    """R16, R17: the mean is over the judged queries; what the run lacks counts 0, what it has beyond is ignored."""
    run = passage_run(PLAIN)
    whole = score(Run.from_dict(run), sample(PLAIN), find_task(PLAIN)).value("nDCG@10")
    missing = next(iter(run))
    lost = score(Run.from_dict({missing: run[missing]}), sample(PLAIN), find_task(PLAIN)).value("nDCG@10")
    rest = {query_id: docs for query_id, docs in run.items() if query_id != missing} | {"nobody": dict(run[missing])}

    code, out, err = command("score", write("x", run_bytes.trec(rest)), "--task", PLAIN, "--measures", "nDCG@10")

    n = len(run)
    assert code == 0
    assert f"nDCG@10  {whole - lost:.4f}" in out
    assert (
        f"{n - 1} of {n} judged queries answered, 1 missing (count 0), 1 of the run not judged (ignored)"
        in " ".join(out.split())
    )
    assert "'nobody'" in err


def test_a_shallow_run_has_no_deep_value(command: Command, write: Any) -> None:
    """R12: R@100 of a 20-deep run is not printed as if it were one, nor R@1000 although the corpus is smaller."""
    path = write("x", run_bytes.trec(passage_run(PLAIN, depth=20)))

    code, out, err = command("score", path, "--task", PLAIN, "--measures", "R@20", "R@50", "R@1000")

    assert code == 0
    assert "R@50     none (depth 20)" in out
    assert "R@1000   none (depth 20)" in out
    n_documents = sample(PLAIN).n_documents
    assert (
        f"depth 20 < cutoff 1000, and {n_documents} documents could be retrieved: no value for R@50, R@1000; retrieve "
        "deeper, or say how deep the search went when it found no more (--depth 1000)"
    ) in err
    told = command("score", path, "--task", PLAIN, "--measures", "R@50", "--depth", "50", "--json")[1]
    assert 0 < measures_of(told)["R@50"] <= 1
    assert "--depth 0 is no depth" in command("score", path, "--task", PLAIN, "--depth", "0")[2]
    assert json.loads(command("score", path, "--task", PLAIN, "--measures", "R@50", "--json")[1])["measures"] == {}
    whole = write("y", run_bytes.trec(passage_run(PLAIN, depth=10_000)))
    assert "none" not in command("score", whole, "--task", PLAIN, "--measures", "R@1000")[1]


def test_an_id_in_another_normalisation_is_no_silent_zero(command: Command, write: Any) -> None:
    """R30: the document Zoë in another Unicode form is named as a near miss."""
    composed, decomposed = (unicodedata.normalize(form, "Zoë") for form in ("NFC", "NFD"))
    qrels = write("qrels", f"q1 0 {composed} 1\nq1 0 d 0\nq2 0 d 1\n".encode())

    _, _, err = command("score", write("x", run_bytes.trec({"q1": {decomposed: 1.0, "d": 0.5}})), "--qrels", qrels)
    assert "judged" in err  # without a corpus unknown documents cannot be told; queries can
    qrels = write("qrels", f"{composed} 0 d 1\nq2 0 d 1\n".encode())
    _, _, err = command(
        "score", write("x", run_bytes.trec({decomposed: {"d": 1.0}, "q2": {"d": 1.0}})), "--qrels", qrels
    )

    assert "differ only in Unicode normalisation (NFC or NFD)" in err


@pytest.mark.parametrize("data", [b"q1 0 d1 1\nq1 0 d2 0\nq2 0 d3 2\n", b'{"q1":{"d1":1,"d2":0},"q2":{"d3":2}}'])
def test_any_judgements_can_be_scored_on(command: Command, write: Any, tmp_path: Path, data: bytes) -> None:
    """--qrels needs no task: CRUMB's nine measures by default."""
    path = write("x", run_bytes.trec({"q1": {"d2": 1.0, "d1": 0.5}}))

    code, out, err = command("score", path, "--qrels", write("qrels", data), "--json")

    assert code == 0
    assert measures_of(out)["RR"] == pytest.approx(0.25)
    assert "1 of 2 judged queries have no document in the run and count 0: 'q2'" in err
    assert "R@1000" not in measures_of(out)  # nobody knows whether there is more to retrieve
    assert json.loads(out)["coverage"]["n_retrievable"] is None
    _, out, _ = command("score", path, "--qrels", tmp_path / "qrels", "--depth", "1000", "--json")
    assert measures_of(out)["R@1000"] == 0.5


def test_judgements_of_trec_are_read(command: Command, write: Any, shared_data: Path) -> None:
    """Real TREC-1 judgements: a run that is right on top has the value 1 there."""
    run = {"51": {"AP881206-0124": 1.0}, "52": {}}
    qrels = shared_data / "trec1" / "qrels.adhoc.51-100.txt"
    relevant = next(
        line.split()[2] for line in qrels.read_text(encoding="utf-8").splitlines() if line.split()[::3] == ["51", "1"]
    )
    run["51"] = {relevant: 1.0}

    code, out, _ = command("score", write("x", run_bytes.jsonl(run)), "--qrels", qrels, "--measures", "P@1", "--json")

    assert (code, measures_of(out)) == (0, {"P@1": pytest.approx(1 / 50)})
    assert json.loads(out)["coverage"]["n_empty"] == 1


def test_json_is_strict_and_whole(command: Command, write: Any) -> None:
    """R46, R47: one strict JSON object a line, per query before the run, with what produced it."""
    path = write("x", run_bytes.mteb(passage_run(PLAIN)))

    _, out, _ = command("score", path, "--task", PLAIN, "--per-query", "--json")

    def refuse(name: str) -> None:
        pytest.fail(f"{name} is no JSON")

    *queries, of_run = [json.loads(line, parse_constant=refuse) for line in out.splitlines()]
    assert [row["query_id"] for row in queries] == list(sample(PLAIN).graded.query_ids)
    mean = sum(row["measures"]["nDCG@10"] for row in queries) / len(queries)
    assert of_run["measures"]["nDCG@10"] == pytest.approx(mean, abs=1e-12)
    assert of_run["file"]["system"] == "org/model"
    assert len(of_run["file"]["sha256"]) == 64
    assert of_run["rules"]["relevant"].startswith("P, R, RR and their like from the task's own binary judgements")


def test_csv_is_tidy(command: Command, write: Any) -> None:
    """One value a row; the mean has no query."""
    _, out, _ = command(
        "score", write("x", run_bytes.mteb(passage_run(PLAIN))), "--task", PLAIN, "--csv", "--per-query"
    )

    rows = list(csv.DictReader(io.StringIO(out)))
    of_queries = [float(row["value"]) for row in rows if row["measure"] == "R@10" and row["query_id"]]
    of_run = [float(row["value"]) for row in rows if row["measure"] == "R@10" and not row["query_id"]]
    assert of_run == [pytest.approx(sum(of_queries) / len(of_queries))]


def test_several_runs_stand_in_one_table(command: Command, write: Any) -> None:
    """Runs of one task share a table; those of another get their own."""
    paths = [
        write(f"{task}_{seed}.trec", run_bytes.trec(passage_run(task, seed=seed)))
        for task in (PLAIN, MAXP)
        for seed in (1, 2)
    ]

    code, out, _ = command("score", *paths, "--measures", "nDCG@10,R@5", "P(rel=2)@5", "--per-query")

    assert code == 0
    assert [line for line in out.splitlines() if line.endswith("(test)")] == [f"{PLAIN} (test)", f"{MAXP} (test)"]
    assert out.count("nDCG@10  R@5     P(rel=2)@5") == 6
    assert next(iter(sample(PLAIN).graded.query_ids)) in out


def test_output_goes_to_a_file_whole(command: Command, write: Any, tmp_path: Path) -> None:
    """-o leaves standard output empty and an old file in place until the new one is whole."""
    target = tmp_path / "scores.json"
    target.write_text("old", encoding="utf-8")
    path = write("x", run_bytes.trec(passage_run(PLAIN)))
    assert command("score", path, "--task", PLAIN, "--measures", "nonsense", "-o", target)[0] == 2
    assert target.read_text(encoding="utf-8") == "old"

    code, out, _ = command("score", path, "--task", PLAIN, "--json", "-o", target)

    assert (code, out) == (0, "")
    assert json.loads(target.read_text(encoding="utf-8"))["task"] == PLAIN


def test_published_values_stand_beside_as_references(command: Command, write: Any, upstream_root: Path) -> None:
    """Where a card has published numbers of the task, they are shown with their source."""
    from crumb_tasks.cards import read_cards

    published = {value.task for card in read_cards() for value in card.published}
    task = next(card for card in map(find_task, sorted(name for name in published if name.startswith("AnaloBench"))))
    from crumb_tasks import load_collection

    collection = load_collection(task, data_root=upstream_root)
    run = {query_id: dict(docs) for query_id, docs in collection.graded.to_dict().items()}

    code, out, _ = command("score", write("x", run_bytes.jsonl(run)), "--task", task.name, "--data", upstream_root)

    assert code == 0
    assert "published" in out


def test_mteb_s_own_tasks_work(command: Command, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of MTEB is scored with its own judgements, which is said; a query is taken out of its ranking as there."""
    import datasets
    import mteb

    task = mteb.get_task("NFCorpus")

    def load_data(**_: Any) -> None:
        task.dataset["default"]["test"] = {
            "corpus": datasets.Dataset.from_dict(
                {"id": ["q1", "d1", "d2"], "title": [""] * 3, "text": ["a", "b", "c"]}
            ),
            "queries": datasets.Dataset.from_dict({"id": ["q1"], "text": ["what"]}),
            "relevant_docs": {"q1": {"d1": 1}},
            "top_ranked": None,
        }

    task.dataset = {"default": {}}
    monkeypatch.setattr(task, "load_data", load_data)
    monkeypatch.setattr(mteb, "get_task", lambda _: task)
    path = write("NFCorpus_predictions.json", run_bytes.mteb({"q1": {"q1": 3.0, "d1": 2.0, "d2": 1.0}}))
    for ignores, expected in ((False, 0.5), (True, 1.0)):
        task.ignore_identical_ids = ignores

        code, out, err = command("score", path, "--json", "--measures", "RR")

        assert (code, measures_of(out)) == (0, {"RR": expected}), err
        assert "NFCorpus is a task of MTEB: its own judgements, scored by crumb_tasks" in out


def test_an_unreachable_task_of_mteb_is_one_line(command: Command, write: Any) -> None:
    """Without network the line says which task's data are missing."""
    code, out, err = command("score", write("x", run_bytes.jsonl({"q": {"d": 1.0}})), "--task", "HellaSwag")

    assert (code, out) == (1, "")
    assert "HellaSwag: MTEB cannot load its data" in err.splitlines()[-1]


@pytest.mark.parametrize("finds_little", [False, True])
def test_what_mteb_wrote_has_the_live_values(command: Command, tmp_path: Path, *, finds_little: bool) -> None:
    """`mteb run --prediction-folder` and `crumb-tasks score` on what it wrote give identical values.

    So it is with a search that returns fewer documents than it was asked for: the file says how deep it went.
    """
    import mteb
    from mteb_models import QUIET, OwnSearch, WordEncoder

    from crumb_tasks.tasks import task_class

    class Few(OwnSearch):
        def search(self, queries: Any, **options: Any) -> Any:
            found = super().search(queries, **options)
            return {query_id: dict(list(docs.items())[:7]) for query_id, docs in found.items()}

    def chance(query_id: str, doc_id: str) -> float:
        return float(zlib.crc32(f"{query_id} {doc_id}".encode()))

    measures = {f"{short}@{k}": f"{key}_at_{k}" for short, key in KEYS.items() for k in (1, 10, 100, 1000)}
    for name in (MAXP, PLAIN):
        task = task_class(find_task(name))()
        results = mteb.evaluate(
            Few(chance) if finds_little else WordEncoder(),
            task,
            cache=None,
            prediction_folder=tmp_path,
            encode_kwargs=dict(QUIET),
            show_progress_bar=False,
        )
        live = results.task_results[0].scores["test"][0]

        code, out, err = command("score", tmp_path / f"{name}_predictions.json", "--json", "--measures", *measures)

        assert code == 0, err
        assert {key: round(measures_of(out)[own], 5) for own, key in measures.items()} == {
            key: round(live[key], 5) for key in measures.values()
        }


def test_every_refusal_names_its_file(command: Command, write: Any) -> None:
    """Of several runs the one that was meant is told, whatever is wrong with it."""
    for data in (run_bytes.trec({"zz": {"d": 1.0}}), run_bytes.trec(passage_run(PLAIN, split="validation"))):
        path = write("x", data)

        code, _, err = command("score", path, "--task", PLAIN)

        assert (code, err.startswith(f"crumb-tasks: {path}: ")) == (2, True)


def test_standard_input_is_read_once(command: Command) -> None:
    """Neither two runs nor a run and its judgements can be the same stream."""
    for argv in (
        ["score", "-", "-", "--task", PLAIN],
        ["score", "-", "--qrels", "-"],
        ["compare", "-", "x", "--qrels", "-"],
    ):
        code, out, err = command(*argv)

        assert (code, out) == (2, "")
        assert "standard input can be read once" in err


def test_what_a_terminal_would_obey_is_escaped(command: Command, write: Any) -> None:
    """Ids may hold control characters; messages and tables do not."""
    path = write("x", json.dumps({"q\x1b[31m": {"d\x07": 1.0}, "q2": {"d": "high"}}).encode())
    assert "\x1b" not in command("score", path, "--task", PLAIN)[2]
    path = write("x", json.dumps({"q\x1b[31m": {"d\x07": 1.0}}).encode())
    qrels = write("qrels", json.dumps({"q\x1b[31m": {"d": 1}, "z\x1b": {"d": 1}}).encode())

    code, out, err = command("score", path, "--qrels", qrels, "--per-query", "--measures", "RR")

    assert code == 0
    assert "\x1b" not in out + err
    assert "q\\x1b[31m" in out


def test_what_mteb_wrote_of_its_own_task_has_the_live_values(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retrieval task of MTEB itself, run and scored by MTEB, then its predictions scored here: the same values."""
    import datasets
    import mteb
    from mteb_models import QUIET, WordEncoder

    words = ["tea", "coffee", "water", "juice", "milk", "wine", "beer", "soda"]
    texts = [" ".join(words[at : at + 3]) for at in range(6)]
    task = mteb.get_task("SciFact")
    task.dataset = {
        "default": {
            "test": {
                "corpus": datasets.Dataset.from_dict(
                    {"id": [f"d{at}" for at in range(6)], "title": [""] * 6, "text": texts}
                ),
                "queries": datasets.Dataset.from_dict(
                    {"id": ["q1", "q2", "q3"], "text": ["tea coffee", "milk wine", "soda"]}
                ),
                "relevant_docs": {"q1": {"d0": 1, "d1": 1}, "q2": {"d5": 1, "d3": 1}, "q3": {"d1": 1}},
                "top_ranked": None,
            }
        }
    }
    task.data_loaded = True
    monkeypatch.setattr(task, "load_data", lambda **_: None)
    monkeypatch.setattr(task, "unload_data", lambda: None)
    monkeypatch.setattr(mteb, "get_task", lambda _: task)
    results = mteb.evaluate(
        WordEncoder(), task, cache=None, prediction_folder=tmp_path, encode_kwargs=dict(QUIET), show_progress_bar=False
    )
    live = results.task_results[0].scores["test"][0]
    measures = {f"{short}@{k}": f"{key}_at_{k}" for short, key in KEYS.items() for k in (1, 3, 5, 10, 100, 1000)}

    code, out, err = command("score", tmp_path / "SciFact_predictions.json", "--json", "--measures", *measures)

    assert code == 0, err
    found = measures_of(out)
    assert {key: round(found[own], 5) for own, key in measures.items()} == {
        key: round(live[key], 5) for key in measures.values()
    }
    assert 0 < found["nDCG@3"] < 1


def test_repeated_passages_reduce_under_any_judgements(command: Command, write: Any) -> None:
    """With --qrels MaxP has only the run's own ids: a document twice is refused, and `on` keeps its best place."""
    path = write("x", b"q1 Q0 a 1 3 s\nq1 Q0 b 2 2 s\nq1 Q0 a 3 1 s\n")
    qrels = write("qrels", b"q1 0 b 1\n")

    code, _, err = command("score", path, "--qrels", qrels)
    assert (code, "or score with --max-passage on if these are passages" in err) == (2, True)
    code, out, err = command("score", path, "--qrels", qrels, "--max-passage", "on", "--measures", "RR", "--json")

    assert (code, measures_of(out)) == (0, {"RR": 0.5})
    assert "1 repeated documents dropped; each kept its best score" in err


def test_advice_is_advice_that_works(command: Command, write: Any) -> None:
    """Where MaxP cannot be turned on, nobody is told to."""
    path = write("x.trec", b"q1 Q0 a 1 3 s\nq1 Q0 a 3 1 s\n")

    for argv in (["score", path, "--task", PLAIN], ["convert", path, path.parent / "y.json"]):
        code, _, err = command(*argv)

        assert code == 2
        assert err.strip().endswith("(first on line 1); keep one")


@pytest.mark.parametrize("form", ["--json", "--csv", "-o"])
def test_a_file_name_may_be_any_bytes(tmp_path: Path, form: str) -> None:
    """A name that is no UTF-8 is printed with its bytes, everywhere."""
    name = os.fsencode(tmp_path) + b"/r\xffun"
    Path(os.fsdecode(name)).write_bytes(run_bytes.trec({"q1": {"d": 1.0}}))
    qrels = os.fsencode(tmp_path) + b"/q\xfe"
    Path(os.fsdecode(qrels)).write_bytes(b"q1 0 d 1\n")
    to = ["-o", str(tmp_path / "out"), "--json"] if form == "-o" else [form]
    command = [sys.executable, "-m", "crumb_tasks", "score", name, "--qrels", qrels, "--measures", "RR", *to]

    done = subprocess.run(command, capture_output=True, check=False, cwd=ROOT)

    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out").read_bytes() if form == "-o" else done.stdout
    row = next(csv.DictReader(io.StringIO(text.decode()))) if form == "--csv" else json.loads(text)
    assert (row["run"], row["task"]) == (f"{tmp_path}/r\\xffun", "q\\xfe")


def test_a_measure_of_groups_has_no_values_of_queries(command: Command, write: Any) -> None:
    """--per-query with Robustness alone says so instead of a list of ids."""
    path = write("x", run_bytes.trec(passage_run("InstructIRSample")))
    argv = ["score", path, "--task", "InstructIRSample", "--measures", "Robustness@10", "--per-query"]

    code, out, err = command(*argv)

    assert code == 0
    assert "no values of single queries" in out
    assert "--per-query: no measure that was asked for has values of single queries" in err
    assert not any(query_id in out for query_id in sample("InstructIRSample").graded.query_ids)
    assert len(command(*argv, "--json")[1].splitlines()) == 1


def test_published_values_are_a_few_lines() -> None:
    """Where dozens were published, a table shows some of the main measure and says how many more there are."""
    from crumb_tasks.cards import read_cards
    from crumb_tasks.cli._runs import Target, published_values
    from crumb_tasks.cli.score import published_lines

    counts = Counter((value.task, value.measure) for card in read_cards() for value in card.published)
    (name, measure), count = counts.most_common(1)[0]

    lines = list(published_lines(published_values(Target(name), [measure]), measure))

    assert count > 20
    assert [line.startswith("published") for line in lines] == [True] * 5 + [False]
    assert lines[-1].strip() == f"and {count - 5} more; --json has them all"


def test_the_library_does_what_the_command_does(command: Command, write: Any) -> None:
    """`from crumb_tasks import read_run, load_collection, score` gives the command's numbers."""
    path = write("x", run_bytes.jsonl(passage_run(MAXP)))

    found = score(read_run(path), sample(MAXP), find_task(MAXP))

    assert found.summary == measures_of(command("score", path, "--task", MAXP, "--json")[1])


def test_a_pipe_is_scored_under_any_locale() -> None:
    """Standard input under LC_ALL=C and without UTF-8 mode."""
    data = run_bytes.trec(passage_run(PLAIN))
    done = subprocess.run(
        [sys.executable, "-m", "crumb_tasks", "score", "-", "--task", PLAIN],
        input=data,
        capture_output=True,
        cwd=ROOT,
        env={"LC_ALL": "C", "PYTHONUTF8": "0", "PATH": "", "HOME": str(ROOT)},
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert b"nDCG@10" in done.stdout


def test_help_says_what_decides_ties() -> None:
    """R02: --help tells that ranks are ignored, and the total order."""
    done = start(sys.executable, "-m", "crumb_tasks", "score", "--help", cwd=ROOT)

    text = " ".join(done.stdout.split())
    assert "Scores decide, ranks in a file are ignored; ties go to the higher document id" in text
