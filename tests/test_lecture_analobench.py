from __future__ import annotations

from pathlib import Path

import pytest
from lecture_runs import bm25_scores

from crumb_tasks.cards import find_task
from crumb_tasks.checks import check_task
from crumb_tasks.collection import Collection
from crumb_tasks.loaders import load_collection
from crumb_tasks.scoring import score

SUBSET, FULL = "AnaloBenchT1SubsetS1", "AnaloBenchT1FullS1"


def an_encoders_run(collection: Collection) -> dict[str, dict[str, float]]:
    """Return the best that an encoder can do: the right option before the others, behind the query's own story."""
    text_by_doc = dict(zip(*(collection.corpus[name].to_pylist() for name in ("id", "text")), strict=True))
    text_by_query = dict(zip(*(collection.queries[name].to_pylist() for name in ("id", "text")), strict=True))
    grades = collection.graded.to_dict()
    return {
        query: {doc: 2.0 if text_by_doc[doc] == text_by_query[query] else float(doc in grades[query]) for doc in docs}
        for query, docs in (collection.candidates or {}).items()
    }


def test_a_query_among_its_own_options_bounds_the_accuracy(upstream_root: Path) -> None:
    """Five of 340 items of the subset are lost for any encoder; they are kept, counted and named."""
    collection = load_collection(SUBSET, data_root=upstream_root)

    scores = score(an_encoders_run(collection), collection, find_task(SUBSET))

    assert scores.value("accuracy") == pytest.approx(335 / 340)
    assert collection.notes == ("5 queries stand among their own options: q152, q163, q168, q188, q192",)
    wrong = [query for query, hit in zip(scores.query_ids, scores.per_query["accuracy"], strict=True) if not hit]
    assert wrong == ["q152", "q163", "q168", "q188", "q192"]


def test_the_full_set_has_no_such_item(upstream_root: Path) -> None:
    """2,460 questions that an encoder could answer without exception."""
    collection = load_collection(FULL, data_root=upstream_root)

    scores = score(an_encoders_run(collection), collection, find_task(FULL))

    assert (scores.value("accuracy"), scores.coverage.n_queries) == (1.0, 2460)


@pytest.mark.parametrize("name", [SUBSET, FULL])
def test_a_scorer_that_cannot_tell_options_apart_gets_chance(upstream_root: Path, name: str) -> None:
    """A quarter, wherever the right option stands; argmax depends on that."""
    collection = load_collection(name, data_root=upstream_root)
    constant = {query: dict.fromkeys(docs, 1.0) for query, docs in (collection.candidates or {}).items()}

    scores = score(constant, collection, find_task(name))

    assert scores.value("accuracy") == 0.25
    assert scores.value("accuracy_argmax") != 0.25


@pytest.mark.parametrize("sentences", [1, 10, 30])
@pytest.mark.parametrize("setting", ["Subset", "Full"])
def test_each_length_is_there_and_sound(upstream_root: Path, setting: str, sentences: int) -> None:
    """Validation knows the counts, finds nothing wrong, and tells of the five items where they are."""
    (report,) = check_task(f"AnaloBenchT1{setting}S{sentences}", data_root=upstream_root)

    assert report.n_findings == 0
    told = [entry.message for entry in report.findings if "q152, q163, q168, q188, q192" in entry.message]
    assert len(told) == (setting == "Subset")


@pytest.mark.slow
@pytest.mark.parametrize(("sentences", "measured"), [(1, 0.474), (10, 0.409), (30, 0.418)])
def test_bm25_is_near_the_measured_baseline(
    upstream_root: Path, monkeypatch: pytest.MonkeyPatch, sentences: int, measured: float
) -> None:
    """Another BM25 got .474, .409 and .418; MTEB's stems and drops stop words."""
    scores = bm25_scores(f"AnaloBenchT1SubsetS{sentences}", upstream_root, monkeypatch)

    assert scores["main_score"] == scores["accuracy"] == pytest.approx(measured, abs=0.02)
