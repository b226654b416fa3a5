from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lecture_runs import bm25_scores

from crumb_tasks.cards import find_aggregate, iter_tasks
from crumb_tasks.checks import check_task
from crumb_tasks.errors import DataError, MissingDataError, SchemaError
from crumb_tasks.loaders import load_collection

SETS = [task for task in iter_tasks() if task.benchmark == "conteb"]
CHUNKS = [
    {"chunk_id": f"{city}_{at}", "chunk": text, "og_chunk": f"{city}: {text}"}
    for city, texts in {
        "paris": ["Paris is a city.", "It has a tower of iron.", "Its river is the Seine."],
        "old_rome": ["Rome is a city.", "It has an arena of stone.", ""],
    }.items()
    for at, text in enumerate(texts)
]
QUERIES = [
    {"query": "What is the tower in Paris made of?", "chunk_id": "paris_1", "answer": "iron"},
    {"query": "What is the arena in Rome made of?", "chunk_id": "old_rome_1", "answer": "stone"},
]


def write(root: Path, queries: list[dict[str, Any]], chunks: list[dict[str, Any]] = CHUNKS) -> Path:
    """Write the set Geography of a data root, which is returned."""
    place = root / "illuin-conteb" / "geography"
    for name, rows in (("documents", chunks), ("queries", queries)):
        (place / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), place / name / "train-00000-of-00001.parquet")
    return root


def test_a_row_carries_its_document_and_position(tmp_path: Path) -> None:
    """The id is split at its last underscore, once, by the loader; an encoder reads columns."""
    collection = load_collection("ConTEBGeography", data_root=write(tmp_path, QUERIES))

    assert collection.corpus["document"].to_pylist() == ["paris"] * 3 + ["old_rome"] * 3
    assert collection.corpus["position"].to_pylist() == ["0", "1", "2"] * 2
    assert collection.corpus["text"].to_pylist()[:2] == ["Paris is a city.", "It has a tower of iron."]
    assert collection.graded.to_dict() == {"q0": {"paris_1": 1}, "q1": {"old_rome_1": 1}}
    assert collection.candidates is None
    assert collection.notes == ("6 chunks of 2 documents",)
    assert collection.n_empty_texts == 1


def test_a_query_may_name_several_chunks(tmp_path: Path) -> None:
    """Some sets have `chunk_ids`, some a list under `chunk_id`; one that names none is counted."""
    several = [{"query": "a", "chunk_ids": ["paris_0", "paris_2"]}, {"query": "b", "chunk_ids": []}]
    collection = load_collection("ConTEBGeography", data_root=write(tmp_path / "one", several))
    as_list = [{"query": "a", "chunk_id": ["paris_0", "paris_2"]}]

    assert collection.graded.to_dict() == {"q0": {"paris_0": 1, "paris_2": 1}, "q1": {}}
    assert collection.notes[1] == "1 queries name no chunk and are not judged (such as q1)"
    other = load_collection("ConTEBGeography", data_root=write(tmp_path / "two", as_list))
    assert other.graded.to_dict() == {"q0": {"paris_0": 1, "paris_2": 1}}


@pytest.mark.parametrize(
    ("queries", "chunks", "says"),
    [
        ([{"query": "a", "gold": "paris_0"}], CHUNKS, r"no query names a chunk .*; found the columns query, gold"),
        ([{"question": "a"}], CHUNKS, r"missing required field `query`; found the columns question \(string\)"),
        (QUERIES, [{"id": "paris_0", "text": "a"}], r"missing required field `chunk_id`; found the columns id"),
    ],
)
def test_other_columns_are_named(tmp_path: Path, queries: Any, chunks: Any, says: str) -> None:
    """The schema of most sets was never seen: one that differs fails saying what it is."""
    with pytest.raises(SchemaError, match=says):
        load_collection("ConTEBGeography", data_root=write(tmp_path, queries, chunks))


@pytest.mark.parametrize("chunk_id", ["paris", "paris_x", "_1", "paris_"])
def test_an_id_of_another_make_is_refused(tmp_path: Path, chunk_id: str) -> None:
    """Its document would be guessed."""
    chunks = [{"chunk_id": chunk_id, "chunk": "a"}]

    with pytest.raises(DataError, match=rf"row 1: the chunk id '{chunk_id}' is not a document's id"):
        load_collection("ConTEBGeography", data_root=write(tmp_path, QUERIES, chunks))


def test_all_eight_sets_are_there() -> None:
    """The aggregate is their mean; one without a pinned revision says how to get it."""
    aggregate = find_aggregate("ConTEB")

    assert aggregate is not None
    assert [task.name for task in SETS] == list(aggregate.task_names)
    assert len(SETS) == 8
    for task in SETS:
        assert task.source.revision or f"hf download {task.source.hub} --repo-type dataset" in str(task.source.user)


def test_the_line_that_helps(tmp_path: Path) -> None:
    """What is missing, where from, and where to."""
    with pytest.raises(
        MissingDataError, match=r"train-00000.*hf download illuin-conteb/covid-qa .*CRUMB_TASKS_DATA=DIR"
    ):
        load_collection("ConTEBCovidQA", data_root=tmp_path)


def test_bm25_runs_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MTEB's BM25 reads the chunks as they are; validation finds nothing."""
    root = write(tmp_path, QUERIES)

    scores = bm25_scores("ConTEBGeography", root, monkeypatch)

    assert scores["main_score"] == scores["ndcg_at_10"] > 0
    assert [report.n_findings for report in check_task("ConTEBGeography", data_root=root)] == [0]
