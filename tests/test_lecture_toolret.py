from __future__ import annotations

from pathlib import Path
from typing import Any

import mteb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lecture_runs import bm25_scores
from tiny import card, collection

from crumb_tasks.cards import find_task
from crumb_tasks.checks import check_task
from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.loaders import load_collection
from crumb_tasks.loaders.toolret import Options
from crumb_tasks.scoring import score

CATEGORIES = find_task("ToolRet").options["categories"]
TASKS = [name for names in CATEGORIES.values() for name in names]


def write_part(root: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    """Write one Parquet file of MTEB's repository."""
    path = root / "mteb/ToolRetrieval" / name / "test-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """35 sets: two requests in `toolbench`, one in each other; a tool for each set, in the one corpus that is read."""
    tools = [{"id": f"{name}_tool_0", "text": f'{{"name": "{name} doer"}}', "title": ""} for name in TASKS]
    write_part(tmp_path, "craft-math-algebra-corpus", tools)
    for name in TASKS:
        ids = [f"{name}_query_{at}" for at in range(2 if name == "toolbench" else 1)]
        queries = [{"id": one, "text": f"do {name}", "instruction": f"a `{name}` tool"} for one in ids]
        write_part(tmp_path, f"{name}-queries", queries)
        qrels = [{"query-id": one, "corpus-id": f"{name}_tool_0", "score": 1} for one in ids]
        write_part(tmp_path, f"{name}-qrels", qrels)
    return tmp_path


def test_the_categories_are_all_sets_of_mteb() -> None:
    """19 of the web, 7 of code, 9 customized; none twice, none that MTEB lacks."""
    assert {name: len(names) for name, names in CATEGORIES.items()} == {"web": 19, "code": 7, "customized": 9}
    (task,) = mteb.get_tasks(tasks=["ToolRetrieval"])
    assert sorted(TASKS) == sorted(task.metadata.hf_subsets)
    assert find_task("ToolRet").source.revision == task.metadata.revision


def test_the_tools_are_read_once(root: Path) -> None:
    """One file of tools, two files for each set; nothing is there 35 times."""
    collection = load_collection("ToolRet", data_root=root)

    assert (len(collection.corpus), len(collection.queries), len(collection.graded.codes)) == (35, 36, 36)
    assert set(collection.query_labels["category"].values()) == set(CATEGORIES)
    assert Options.model_validate({"categories": CATEGORIES}).categories["web"][0] == "apibank"


def test_the_instruction_is_sent_as_in_the_papers_code(root: Path) -> None:
    """And apart, for runs under other instruction settings."""
    query = load_collection("ToolRetInstruction", data_root=root).queries.to_pylist()[0]

    assert query == {
        "id": "craft-math-algebra_query_0",
        "text": "Instruct: a `craft-math-algebra` tool\nQuery: do craft-math-algebra",
        "instruction_part": "a `craft-math-algebra` tool",
        "query_part": "do craft-math-algebra",
    }


def test_a_large_set_counts_as_much_as_a_small_one(root: Path) -> None:
    """Both requests of `toolbench` fail: one set of 35, one of the 19 of the web, nothing of the others."""
    collection = load_collection("ToolRet", data_root=root)
    run = {query: found for query, found in collection.graded.to_dict().items() if not query.startswith("toolbench_")}

    scores = score(run, collection, find_task("ToolRet"), depth=1000)

    assert scores.value("nDCG@10") == pytest.approx(34 / 35)
    assert scores.value("all_recall@10") == pytest.approx(34 / 35)
    by_category = {name: scores.value(f"ndcg_at_10_{name}") for name in CATEGORIES}
    assert by_category == pytest.approx({"web": 18 / 19, "code": 1, "customized": 1})
    assert scores.value("ndcg_at_10_toolbench") == 0
    assert scores.coverage.n_missing == 2


def test_the_mean_of_parts_is_that_of_those_that_are_judged() -> None:
    """Worked by hand: (1 + 0) / 2 and 0 give 1/4; the query mean would be 1/3. A part without judgements is none."""
    labels = {"set": {"a": "x", "b": "x", "c": "y", "d": "z"}}
    tiny = collection({"a": {"1": 1}, "b": {"2": 1}, "c": {"3": 1}}, queries="abcd", query_labels=labels)
    task = card(main_measure="R@5", mean_over="set")

    scores = score({"a": {"1": 1.0}}, tiny, task, depth=5)

    assert scores.value("R@5") == 0.25
    assert scores.value("recall_at_5_x") == 0.5
    assert score({"a": {"1": 1.0}}, tiny, card(main_measure="R@5"), depth=5).value("R@5") == pytest.approx(1 / 3)
    with pytest.raises(DataError, match=r"the mean is over 'topic', a partition .* that the collection lacks"):
        score({"a": {"1": 1.0}}, tiny, card(main_measure="R@5", mean_over="topic"))


def test_other_files_are_refused_naming_their_columns(root: Path) -> None:
    """The layout was never seen here; an id that two sets have is no query."""
    write_part(root, "gta-qrels", [{"qid": "x", "tool": "y"}])
    with pytest.raises(SchemaError, match=r"gta-qrels.*no column 'query-id', 'corpus-id', 'score'; found .*qid, tool"):
        load_collection("ToolRet", data_root=root)
    write_part(root, "gta-queries", [{"id": "apibank_query_0", "text": "twice", "instruction": ""}])
    write_part(root, "gta-qrels", [{"query-id": "apibank_query_0", "corpus-id": "gta_tool_0", "score": 1}])
    with pytest.raises(DataError, match="'apibank_query_0' stands in rows"):
        load_collection("ToolRet", data_root=root)


def test_bm25_runs_end_to_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of sets and categories are in MTEB's result; validation misses nothing but the release's numbers."""
    scores = bm25_scores("ToolRet", root, monkeypatch)

    assert scores["main_score"] == scores["ndcg_at_10"] > 0.5
    assert {"all_recall_at_10", "ndcg_at_10_web", "all_recall_at_10_gta"} <= set(scores)
    (report,) = check_task("ToolRet", data_root=root)
    assert {finding.check for finding in report.findings if finding.severity == "finding"} == {"counts"}
