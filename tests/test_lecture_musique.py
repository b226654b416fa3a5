from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lecture_runs import bm25_scores
from test_loader_analobench import oracle, shown

from crumb_tasks.cards import find_task
from crumb_tasks.checks import check_task
from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.loaders import load_collection
from crumb_tasks.scoring import score

PLACE = "dgslibisey/MuSiQue/musique_ans_v1.0_dev.jsonl"


@pytest.fixture
def real_root(shared_data: Path, tmp_path: Path) -> Path:
    """A data root whose dev file holds 200 real items, in the official schema (they are of another split)."""
    target = tmp_path / PLACE
    target.parent.mkdir(parents=True)
    target.symlink_to(shared_data / "musique_sample200" / "musique_200_official_schema.jsonl")
    return tmp_path


def item(number: int, *, answerable: bool = True, supporting: tuple[int, ...] = (0, 2)) -> dict[str, Any]:
    """Return an item of three paragraphs; the first is the same in every item."""
    texts = ["shared by all", f"about {number}", f"leads on from {number}"]
    paragraphs = [
        {"idx": at, "title": f"T{at}", "paragraph_text": text, "is_supporting": at in supporting}
        for at, text in enumerate(texts)
    ]
    head = {"id": f"{2 + number % 3}hop__{number}", "question": f"What of {number}?", "answerable": answerable}
    return head | {"answer": "x", "answer_aliases": [], "question_decomposition": [], "paragraphs": paragraphs}


def write(root: Path, items: list[dict[str, Any]]) -> Path:
    """Write the dev file of a data root, which is returned."""
    (root / PLACE).parent.mkdir(parents=True)
    (root / PLACE).write_text("".join(json.dumps(row) + "\n" for row in items), encoding="utf-8")
    return root


def test_the_pool_equals_the_ready_made_folder(shared_data: Path, real_root: Path) -> None:
    """3,141 documents of 4,000 paragraphs, 478 judgements, 20 own paragraphs in their order."""
    expected = oracle(shared_data / "musique_sample200" / "beir" / "pooled")

    pooled, own = (load_collection(name, data_root=real_root) for name in ("MuSiQueRetrieval", "MuSiQueReranking"))

    assert pooled.candidates is None
    assert shown(own) | {"candidates": {query: list(ids) for query, ids in own.candidates.items()}} == expected
    assert shown(pooled) | {"candidates": expected["candidates"]} == expected
    assert Counter(pooled.query_labels["hops"].values()) == {"2hop": 145, "3hop": 32, "4hop": 23}
    assert pooled.notes == ()


def test_values_stand_there_for_each_number_of_steps(tmp_path: Path) -> None:
    """A run that finds everything for two-hop questions only shows that, and not in the mean alone."""
    collection = load_collection("MuSiQueRetrieval", data_root=write(tmp_path, [item(number) for number in range(6)]))
    grades = collection.graded.to_dict()
    run = {query: dict.fromkeys(docs, 1.0) if query.startswith("2hop") else {} for query, docs in grades.items()}

    scores = score(run, collection, find_task("MuSiQueRetrieval"), depth=1000)

    assert scores.value("all_recall@10") == pytest.approx(2 / 6)
    by_hops = {hops: scores.value(f"all_recall_at_10_{hops}") for hops in ("2hop", "3hop", "4hop")}
    assert by_hops == {"2hop": 1, "3hop": 0, "4hop": 0}
    assert scores.value("recall_at_5_2hop") == 1
    assert scores.value("n_queries_3hop") == 2


def test_half_the_support_is_half_the_recall_and_nothing_complete(tmp_path: Path) -> None:
    """The lecture's point: an intermediate paragraph is relevant, and an answer needs it as well."""
    collection = load_collection("MuSiQueRetrieval", data_root=write(tmp_path, [item(0)]))
    (query,) = collection.graded.query_ids
    first, second = collection.graded.to_dict()[query]

    half = score({query: {first: 1.0}}, collection, find_task("MuSiQueRetrieval"), depth=20)
    whole = score({query: {first: 1.0, second: 0.5}}, collection, find_task("MuSiQueRetrieval"), depth=20)

    assert (half.value("R@5"), half.value("all_recall@5")) == (0.5, 0.0)
    assert (whole.value("R@5"), whole.value("all_recall@5")) == (1.0, 1.0)


def test_unanswerable_items_are_left_out_and_counted(tmp_path: Path) -> None:
    """MuSiQue-Full's contrast items: not in the mean, in the coverage, in a note; their paragraphs stay in the pool."""
    items = [item(0), item(1, answerable=False, supporting=(0,)), item(2)]
    collection = load_collection("MuSiQueRetrieval", data_root=write(tmp_path, items))

    scores = score(collection.graded.to_dict(), collection, find_task("MuSiQueRetrieval"), depth=1000)

    assert (scores.coverage.n_queries, scores.coverage.n_omitted) == (2, 1)
    assert scores.value("all_recall@5") == 1.0
    assert "n_queries_3hop" not in scores.extras
    assert collection.notes == (
        "1 of 3 questions cannot be answered from their paragraphs and are not judged (such as '3hop__1')",
    )
    assert len(collection.corpus) == 7


def test_another_schema_is_refused_naming_what_was_found(tmp_path: Path) -> None:
    """A copy of the data with other fields is not half read."""
    items = [{"id": "2hop__1", "question": "?", "context": []}]

    with pytest.raises(SchemaError, match=r"dev\.jsonl:1: .*answerable.*found the fields id, question, context"):
        load_collection("MuSiQueRetrieval", data_root=write(tmp_path, items))


def test_an_answerable_item_without_support_is_refused(tmp_path: Path) -> None:
    """It would count zero for every system."""
    with pytest.raises(DataError, match=r"dev\.jsonl:2: item '3hop__1' is answerable, and no paragraph supports it"):
        load_collection("MuSiQueReranking", data_root=write(tmp_path, [item(0), item(1, supporting=())]))


@pytest.mark.parametrize("name", ["MuSiQueRetrieval", "MuSiQueReranking"])
def test_bm25_runs_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The main score is the card's, the parts are in MTEB's result, validation finds nothing."""
    root = write(tmp_path, [item(number) for number in range(7)])

    scores = bm25_scores(name, root, monkeypatch)

    assert scores["main_score"] == scores["recall_at_5" if name == "MuSiQueRetrieval" else "map"]
    assert scores["n_queries"] == 7
    assert scores["n_queries_4hop"] == 2
    assert [report.n_findings for report in check_task(name, data_root=root)] == [0]


@pytest.mark.slow
def test_real_bm25_is_near_the_measured_baseline(real_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R@5 .500, nDCG@10 .543, all support in ten .235 by another BM25; MTEB's stems and drops stop words."""
    scores = bm25_scores("MuSiQueRetrieval", real_root, monkeypatch)

    assert scores["recall_at_5"] == pytest.approx(0.500, abs=0.05)
    assert scores["ndcg_at_10"] == pytest.approx(0.543, abs=0.05)
    assert scores["all_recall_at_10"] == pytest.approx(0.235, abs=0.05)
