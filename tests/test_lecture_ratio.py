from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lecture_runs import bm25_scores
from mteb_models import WordEncoder

from crumb_tasks.cards import find_task, iter_tasks
from crumb_tasks.checks import check_task
from crumb_tasks.errors import DataError, MissingDataError, SchemaError
from crumb_tasks.loaders import load_collection
from crumb_tasks.scoring import score

PAIRS = {
    "address": [
        ("Our model is prone to overfitting.", "we apply dropout to the model"),
        ("Labels cost a lot.", "we label less"),
    ],
    "broaden": [("Our model is prone to overfitting.", "small data ask for strong priors")],
    "specify": [("Labels cost a lot.", "an hour of speech takes ten hours to label")],
}
CANDIDATES = [*(gold for pairs in PAIRS.values() for _, gold in pairs), "the sky is blue", "we label less"]


def write(root: Path, *, split: str = "silver", columns: tuple[str, str] = ("querySentence", "goldSentence")) -> Path:
    """Write the three relations and their shared candidates into a data root, which is returned."""
    place = root / "maayans" / "RATIO"
    for relation, pairs in PAIRS.items():
        rows = [dict(zip(columns, pair, strict=True)) | {"corpusid": 7, "year": 2026} for pair in pairs]
        (place / relation).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), place / relation / f"{split}-00000-of-00001.parquet")
    (place / "candidates").mkdir(exist_ok=True)
    table = pa.table({"goldSentence": CANDIDATES, "corpusid": list(range(len(CANDIDATES)))})
    pq.write_table(table, place / "candidates" / "test-00000-of-00001.parquet")
    return root


def test_all_relations_rank_the_same_candidates(tmp_path: Path) -> None:
    """The corpus does not give the relation away; a sentence that occurs twice is one document, and told."""
    root = write(tmp_path)

    found = {
        task.name: load_collection(task.name, data_root=root) for task in iter_tasks() if task.benchmark == "ratio"
    }

    assert list(found) == ["RATIOAddress", "RATIOBroaden", "RATIOSpecify"]
    assert len({tuple(one.corpus["text"].to_pylist()) for one in found.values()}) == 1
    assert found["RATIOAddress"].graded.to_dict() == {"q0": {"d0": 1}, "q1": {"d1": 1}}
    assert found["RATIOBroaden"].graded.to_dict() == {"q0": {"d2": 1}}
    assert found["RATIOSpecify"].notes == ("1 of 6 candidates repeat another's text",)


def test_silver_and_mined_pairs_are_two_splits(tmp_path: Path) -> None:
    """Both rank the candidates of upstream's test."""
    write(tmp_path)
    write(tmp_path, split="test")

    assert len(load_collection("RATIOAddress", "mined", data_root=tmp_path).queries) == 2
    assert find_task("RATIOAddress").default_split == "test"


def test_with_one_gold_sentence_the_measures_agree_in_order(tmp_path: Path) -> None:
    """MRR@10 is the main one; Success@10 and Recall@10 are the same number."""
    collection = load_collection("RATIOAddress", data_root=write(tmp_path))
    run = {"q0": {"d4": 2.0, "d0": 1.0}, "q1": {"d1": 1.0}}

    scores = score(run, collection, find_task("RATIOAddress"), ["RR@10", "Success@10", "R@10"], depth=1000)

    assert (scores.value("RR@10"), scores.value("Success@10"), scores.value("R@10")) == (0.75, 1.0, 1.0)


def test_the_relation_is_the_instruction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches the model as the query prompt of the task, a different one for each relation."""
    import mteb

    import crumb_tasks

    monkeypatch.setenv("CRUMB_TASKS_DATA", str(write(tmp_path)))
    crumb_tasks.register()
    prompts = [mteb.get_task(f"RATIO{name}").metadata.prompt for name in ("Address", "Broaden", "Specify")]

    assert len({prompt["query"] for prompt in prompts}) == 3
    assert all(set(prompt) == {"query"} for prompt in prompts)
    encoder = WordEncoder()
    mteb.evaluate(encoder, mteb.get_task("RATIOBroaden"), cache=None)
    assert [prompt for kind, prompt, _ in encoder.calls if kind == "query"] == [prompts[1]]


def test_other_columns_are_named(tmp_path: Path) -> None:
    """The release's columns were never seen; where they differ the message says which there are."""
    with pytest.raises(SchemaError, match=r"no column 'querySentence', 'goldSentence'; found the fields query, gold"):
        load_collection("RATIOAddress", data_root=write(tmp_path, columns=("query", "gold")))


def test_a_gold_sentence_that_is_no_candidate_is_refused(tmp_path: Path) -> None:
    """Its query would count zero for every system."""
    write(tmp_path)
    path = tmp_path / "maayans" / "RATIO" / "candidates" / "test-00000-of-00001.parquet"
    pq.write_table(pa.table({"goldSentence": ["the sky is blue"]}), path)

    with pytest.raises(DataError, match=r"row 1: the sentence is not among the candidates: 'we apply dropout"):
        load_collection("RATIOAddress", data_root=tmp_path)


def test_the_gate_is_one_line(tmp_path: Path) -> None:
    """What to accept, where to log in, what to run."""
    with pytest.raises(
        MissingDataError, match=r"gated: accept the terms at .*hf auth login.*hf download maayans/RATIO"
    ):
        load_collection("RATIOAddress", data_root=tmp_path)
    assert not find_task("RATIOAddress").public


def test_bm25_runs_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MRR@10 is MTEB's main score; validation finds nothing."""
    root = write(tmp_path)

    scores = bm25_scores("RATIOAddress", root, monkeypatch)

    assert scores["main_score"] == scores["mrr_at_10"] > 0
    assert [report.n_findings for report in check_task("RATIOAddress", ["test"], data_root=root)] == [0]
