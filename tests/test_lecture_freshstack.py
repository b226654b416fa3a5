from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lecture_runs import bm25_scores

from crumb_tasks.cards import find_aggregate, find_task
from crumb_tasks.checks import check_task
from crumb_tasks.errors import DataError, MissingDataError, SchemaError
from crumb_tasks.loaders import load_collection
from crumb_tasks.scoring import score

TASK = "FreshStackLangChain"
QUERIES = "freshstack/queries-oct-2024/langchain/test-00000-of-00001.parquet"
CORPUS = "freshstack/corpus-oct-2024/langchain/train-00000-of-00001.parquet"
WORDS = ("chain", "agent", "prompt", "memory", "index", "vector", "loader", "model", "token", "stream", "graph", "tool")


def question(number: int, *nuggets: tuple[list[str], list[str]], text: str = "How?") -> dict[str, Any]:
    """Return a question whose nuggets are given as supporting and other chunks."""
    query = f"{70_000_000 + number}"
    rows = [
        {"_id": f"{query}_{at}", "text": f"fact {at}", "relevant_corpus_ids": one, "non_relevant_corpus_ids": other}
        for at, (one, other) in enumerate(nuggets)
    ]
    return {"query_id": query, "query_title": f"Question {number}", "query_text": text, "nuggets": rows}


def write(root: Path, questions: list[dict[str, Any]], n_chunks: int) -> Path:
    """Write both repositories of a data root, which is returned; chunk i is called c<i>."""
    chance = random.Random(5)
    chunks = [
        {"_id": f"c{at}", "text": " ".join(chance.choices(WORDS, k=8)), "metadata": {"url": "u"}}
        for at in range(n_chunks)
    ]
    for place, rows in ((QUERIES, questions), (CORPUS, chunks)):
        (root / place).parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), root / place)
    return root


def random_questions(n_questions: int, n_chunks: int) -> list[dict[str, Any]]:
    """Return questions with one to six nuggets, whose chunks overlap, in and outside what a run finds."""
    chance = random.Random(7)
    ids = [f"c{at}" for at in range(n_chunks)]

    def nugget() -> tuple[list[str], list[str]]:
        judged = chance.sample(ids, 14)
        cut = chance.randint(1, 6)
        return judged[:cut], judged[cut:]

    return [
        question(at, *(nugget() for _ in range(chance.randint(1, 6))), text=" ".join(chance.choices(WORDS, k=5)))
        for at in range(n_questions)
    ]


def random_run(questions: list[dict[str, Any]], n_chunks: int, depth: int) -> dict[str, dict[str, float]]:
    """Return rankings without ties, some deep, one empty."""
    chance = random.Random(11)
    ids = [f"c{at}" for at in range(n_chunks)]
    run = {}
    for at, row in enumerate(questions):
        found = chance.sample(ids, depth)
        run[row["query_id"]] = {doc: float(depth - place) for place, doc in enumerate(found)} if at else {}
    return run


def test_the_three_measures_are_the_packages(tmp_path: Path) -> None:
    """On random nuggets and rankings FreshStack's own package gets the same alpha-nDCG@10, Coverage@20, Recall@50."""
    evaluation = pytest.importorskip("freshstack.retrieval.evaluation", reason="the freshstack package is the oracle")
    from freshstack.datasets.util import nuggets_to_query_qrels

    questions = random_questions(60, 300)
    run = random_run(questions, 300, 80)
    of_nuggets = {
        nugget["_id"]: dict.fromkeys(nugget["relevant_corpus_ids"], 1)
        | dict.fromkeys(nugget["non_relevant_corpus_ids"], 0)
        for row in questions
        for nugget in row["nuggets"]
    }
    of_queries, qrels = nuggets_to_query_qrels(of_nuggets)
    theirs: dict[str, float] = {}
    answered = {query: ranking for query, ranking in run.items() if ranking}  # it cannot take an empty ranking
    found = evaluation.EvaluateRetrieval(k_values=[10, 20, 50]).evaluate(of_nuggets, of_queries, qrels, answered)
    for values in found:
        theirs |= values

    collection = load_collection(TASK, data_root=write(tmp_path, questions, 300))
    ours = score(run, collection, find_task(TASK))

    assert ours.value("alpha_nDCG@10") == pytest.approx(theirs["alpha-nDCG@10"], abs=6e-5)
    assert ours.value("Coverage@20") == pytest.approx(theirs["Coverage@20"], abs=6e-5)
    assert ours.value("R@50") == pytest.approx(theirs["Recall@50"], abs=6e-5)
    assert 0.02 < ours.value("alpha_nDCG@10") < 0.9
    assert collection.graded.to_dict() == qrels


def test_a_chunk_counts_once_for_each_nugget_that_it_supports(tmp_path: Path) -> None:
    """The grade is the number of nuggets; a chunk that is judged both ways counts as not supporting, and is told."""
    rows = [question(1, (["c0", "c1"], ["c2"]), (["c0"], ["c1"]), (["c3"], ["c3"]), ([], []))]

    collection = load_collection(TASK, data_root=write(tmp_path, rows, 5))

    assert collection.graded.to_dict() == {"70000001": {"c0": 2, "c1": 1, "c2": 0, "c3": 0}}
    assert collection.nuggets["70000001"]["70000001_2"] == frozenset()
    assert collection.notes == (
        "1 times a chunk is named as supporting a nugget and as not supporting it; it counts as not",
        "1 of 4 nuggets have no supporting chunk",
    )


def test_a_ranking_that_repeats_itself_is_worth_less(tmp_path: Path) -> None:
    """Two chunks of one nugget or one of each: recall cannot tell, the set can."""
    rows = [question(1, (["c0", "c1"], []), (["c2", "c3"], []))]
    collection = load_collection(TASK, data_root=write(tmp_path, rows, 4))

    def values(first: str, second: str) -> tuple[float, ...]:
        scores = score({"70000001": {first: 2.0, second: 1.0}}, collection, find_task(TASK), depth=1000)
        return tuple(scores.value(name) for name in ("R@50", "Coverage@20", "alpha_nDCG@10"))

    repeated, covering = values("c0", "c1"), values("c0", "c2")

    assert repeated[0] == covering[0] == 0.5
    assert (repeated[1], covering[1]) == (0.5, 1.0)
    assert repeated[2] < covering[2]


def test_the_query_is_title_and_text(tmp_path: Path) -> None:
    """As FreshStack's own loader makes it."""
    collection = load_collection(TASK, data_root=write(tmp_path, [question(1, (["c0"], []), text="Body")], 2))

    assert collection.queries["text"].to_pylist() == ["Question 1 Body"]


def test_other_columns_are_named(tmp_path: Path) -> None:
    """A schema that was never seen fails saying what it is instead."""
    write(tmp_path, [question(1, (["c0"], []))], 2)
    pq.write_table(pa.Table.from_pylist([{"query_id": "1", "title": "t"}]), tmp_path / QUERIES)
    with pytest.raises(SchemaError, match=r"missing required field `query_title`.*query_id \(string\), title \(string"):
        load_collection(TASK, data_root=tmp_path)

    rows = [question(1) | {"nuggets": [{"_id": "a", "docs": ["c0"]}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / QUERIES)
    with pytest.raises(SchemaError, match=r"`relevant_corpus_ids` - at `\$.nuggets\[0\]`; found .*docs: list"):
        load_collection(TASK, data_root=tmp_path)

    pq.write_table(pa.Table.from_pylist([question(1) | {"nuggets": "none"}]), tmp_path / QUERIES)
    with pytest.raises(SchemaError, match=r"got `str` - at `\$.nuggets`; found .*nuggets \(string\)"):
        load_collection(TASK, data_root=tmp_path)


def test_a_judged_chunk_that_is_not_there_fails(tmp_path: Path) -> None:
    """A corpus of another snapshot would lower every recall without a word."""
    with pytest.raises(DataError, match="1 documents that judgements or candidates name are not there"):
        load_collection(TASK, data_root=write(tmp_path, [question(1, (["c0", "c9"], []))], 2))


def test_each_repository_is_named_when_it_is_missing(tmp_path: Path) -> None:
    """Queries and corpora are two downloads."""
    write(tmp_path, [question(1, (["c0"], []))], 2)
    (tmp_path / CORPUS).unlink()

    with pytest.raises(MissingDataError, match=r"langchain/train-.* freshstack/corpus-oct-2024 at revision 069f66dc"):
        load_collection(TASK, data_root=tmp_path)


def test_the_aggregate_is_the_leaderboards_mean() -> None:
    """Five topics by alpha-nDCG@10, the other two measures reported beside it."""
    aggregate = find_aggregate("FreshStack")

    assert aggregate is not None
    assert [name.removeprefix("FreshStack") for name in aggregate.task_names] == [
        *("LangChain", "YOLO", "Laravel", "Angular", "Godot")
    ]
    assert (aggregate.measure, aggregate.reported) == ("alpha_nDCG@10", ("Coverage@20", "R@50"))


def test_bm25_runs_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MTEB stores the three measures under its kind of key, and validation finds nothing."""
    root = write(tmp_path, random_questions(8, 40), 40)

    scores = bm25_scores(TASK, root, monkeypatch)

    assert scores["main_score"] == scores["alpha_ndcg_at_10"]
    assert 0 < scores["coverage_at_20"] <= 1
    assert 0 < scores["recall_at_50"] <= 1
    assert [report.n_findings for report in check_task(TASK, data_root=root)] == [0]
