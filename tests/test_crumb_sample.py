"""What the embedded sample promises: complex queries, honest distractors, neither trivial nor hopeless."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crumb_tasks
from crumb_tasks import load_collection, score
from crumb_tasks.cards import TaskCard, iter_tasks
from crumb_tasks.runs import Run

SAMPLE = Path(crumb_tasks.__file__).parent / "samples" / "crumb"
FOLDERS = (
    "clinical_trial",
    "code_retrieval",
    "legal_qa",
    "scientific_paper",
    "set_operation_entity_retrieval",
    "stack_exchange",
    "theorem_retrieval",
    "tip_of_the_tongue",
)
CHUNKED = ("clinical_trial", "legal_qa", "set_operation_entity_retrieval", "stack_exchange", "tip_of_the_tongue")
PASSAGE_TASKS = tuple(
    task for task in iter_tasks() if task.name.startswith("CRUMBSample") and not task.name.endswith("FullDocument")
)


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


def _queries(folder: str) -> Iterator[dict[str, Any]]:
    for split in ("eval", "val"):
        yield from _rows(SAMPLE / folder / split / "query_labels.jsonl")


def _documents(folder: str) -> list[dict[str, Any]]:
    name = "full_document_corpus.jsonl" if folder in CHUNKED else "passage_corpus.jsonl"
    return _rows(SAMPLE / folder / name)


def _relevant_ids(query: dict[str, Any]) -> set[str]:
    return {
        judgement["id"]
        for column in ("passage_qrels", "full_document_qrels")
        for judgement in query[column]
        if judgement["label"] > 0
    }


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@pytest.mark.parametrize("folder", FOLDERS)
def test_sample_has_the_promised_size(folder: str) -> None:
    """Enough queries to see a difference, few enough documents to read them."""
    assert len(_rows(SAMPLE / folder / "eval" / "query_labels.jsonl")) >= 15
    assert len(_rows(SAMPLE / folder / "val" / "query_labels.jsonl")) >= 3
    assert 80 <= len(_documents(folder)) <= 150


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_query_is_complex(folder: str) -> None:
    """A query states at least three constraints and has at least four near misses."""
    for query in _queries(folder):
        facts = json.loads(query["metadata"])

        assert len(facts["constraints"]) >= 3, query["query_id"]
        assert len(set(facts["near_misses"])) >= 4, query["query_id"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_near_miss_names_the_one_constraint_it_violates(folder: str) -> None:
    """A distractor says for each of its queries which one constraint it breaks, in the query's own words."""
    violations = {
        row["document_id"]: {
            entry["query_id"]: entry["constraint"] for entry in json.loads(row["metadata"]).get("violates", [])
        }
        for row in _documents(folder)
    }
    full_relevance = 2 if folder == "clinical_trial" else 1  # a trial that excludes the patient has grade 1
    for query in _queries(folder):
        facts = json.loads(query["metadata"])
        column = "full_document_qrels" if query["full_document_qrels"] else "passage_qrels"
        relevant = {judgement["id"] for judgement in query[column] if judgement["label"] >= full_relevance}
        for near_miss in facts["near_misses"]:
            assert violations[near_miss][query["query_id"]] in facts["constraints"]
            assert near_miss not in relevant


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_query_shares_a_five_gram_with_its_relevant_documents(folder: str) -> None:
    """No query can be answered by copying its words."""
    rows = [*_rows(SAMPLE / folder / "passage_corpus.jsonl"), *_documents(folder)]
    text_by_id = {row["document_id"]: row["document_content"] for row in rows}
    for query in _queries(folder):
        asked = _words(query["query_content"])
        grams = {tuple(asked[start : start + 5]) for start in range(len(asked) - 4)}
        for doc_id in _relevant_ids(query):
            words = _words(text_by_id[doc_id])
            shared = grams & {tuple(words[start : start + 5]) for start in range(len(words) - 4)}
            assert not shared, (query["query_id"], doc_id, shared)


@pytest.mark.parametrize("folder", CHUNKED)
def test_passages_have_a_header_path_and_a_parent_of_several_passages(folder: str) -> None:
    """Chunked tasks look like the benchmark's: Markdown headings first, several passages a document."""
    passages = _rows(SAMPLE / folder / "passage_corpus.jsonl")
    documents = {row["document_id"]: row["document_content"] for row in _documents(folder)}
    by_parent: dict[str, int] = {}
    for passage in passages:
        by_parent[passage["parent_id"]] = by_parent.get(passage["parent_id"], 0) + 1
        body = [line for line in passage["document_content"].splitlines() if line and not line.startswith("#")]

        assert passage["document_content"].startswith("# ")
        assert passage["document_id"].rpartition(":")[0] == passage["parent_id"]
        assert all(line in documents[passage["parent_id"]] for line in body)
    assert set(by_parent) == set(documents)
    assert min(by_parent.values()) >= 2


def test_papers_have_graded_and_binary_labels_that_differ() -> None:
    """A paper that covers one aspect gains for nDCG and does not count as found."""
    pairs = [
        (judgement["label"], binary["label"])
        for query in _queries("scientific_paper")
        for judgement, binary in zip(query["passage_qrels"], query["passage_binary_qrels"], strict=True)
    ]

    assert {graded for graded, _ in pairs} >= {0.0, 1.0, 2.0, 3.0, 4.0}
    assert (1.0, 0.0) in pairs
    assert (1.0, 1.0) not in pairs


@pytest.mark.parametrize("folder", FOLDERS)
def test_ids_and_texts_are_distinct_and_resolve(folder: str) -> None:
    """Ids are unique, splits share no query, every judgement names something in its corpus."""
    passages = _rows(SAMPLE / folder / "passage_corpus.jsonl")
    documents = _documents(folder)
    for rows in (passages, documents):
        assert len({row["document_id"] for row in rows}) == len(rows)
        assert len({row["document_content"].strip() for row in rows}) == len(rows)
    queries = list(_queries(folder))
    assert len({query["query_id"] for query in queries}) == len(queries)
    assert len({query["query_content"] for query in queries}) == len(queries)
    for query in queries:
        assert {row["id"] for row in query["passage_qrels"]} <= {row["document_id"] for row in passages}
        assert {row["id"] for row in query["full_document_qrels"]} <= {row["document_id"] for row in documents}


@pytest.mark.parametrize("task", PASSAGE_TASKS, ids=lambda task: task.name)
def test_a_perfect_run_scores_one_and_a_random_one_far_below(task: TaskCard) -> None:
    """The scale of the sample is the whole scale."""
    collection = load_collection(task)
    doc_ids = collection.corpus["id"].to_pylist()
    judged_ids = doc_ids if collection.parents is None else collection.parents.to_pylist()
    rng = np.random.default_rng(0)
    perfect, random = {}, {}
    for query, grades in collection.graded.to_dict().items():
        perfect[query] = {doc: grades.get(judged, 0) for doc, judged in zip(doc_ids, judged_ids, strict=True)}
        random[query] = dict(zip(doc_ids, rng.random(len(doc_ids)), strict=True))

    assert score(Run.from_dict(perfect), collection, task).value("nDCG@10") == pytest.approx(1.0)
    assert score(Run.from_dict(random), collection, task).value("nDCG@10") < 0.25


def test_bm25_finds_the_sample_neither_trivial_nor_hopeless() -> None:
    """BM25's mean nDCG@10 over the eight tasks lies between .35 and .75."""
    bm25s = pytest.importorskip("bm25s", reason="BM25 needs the extra bm25")
    values = []
    for task in PASSAGE_TASKS:
        collection = load_collection(task)
        index = bm25s.BM25()
        index.index(
            bm25s.tokenize(collection.corpus["text"].to_pylist(), stopwords="en", show_progress=False),
            show_progress=False,
        )
        doc_ids = collection.corpus["id"].to_pylist()
        asked = bm25s.tokenize(collection.queries["text"].to_pylist(), stopwords="en", show_progress=False)
        found, scores = index.retrieve(asked, k=len(doc_ids), show_progress=False)
        run = {
            query: {doc_ids[row]: float(value) for row, value in zip(rows, values_of_query, strict=True)}
            for query, rows, values_of_query in zip(collection.queries["id"].to_pylist(), found, scores, strict=True)
        }
        passages = Run.from_dict(run)
        values.append(score(passages, collection, task).value("nDCG@10"))

    assert len(values) == 8
    assert 0.35 <= float(np.mean(values)) <= 0.75
