from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lecture_runs import bm25_scores

from crumb_tasks.cards import find_task
from crumb_tasks.checks import check_task
from crumb_tasks.errors import MissingDataError, SchemaError
from crumb_tasks.loaders import load_collection
from crumb_tasks.scoring import score

TASK = "ResearchBenchInspiration"


def sample(
    number: int, *, gold: tuple[int, ...] = (0, 1), size: int = 75, discipline: str = "Biology"
) -> dict[str, Any]:
    """Return a row as the upstream builder writes it; the pools of all samples share their last paper."""
    candidates = [
        {
            "index": at,
            "title": f"Paper {number}-{at}" if at < size - 1 else "Shared paper",
            "abstract": f"On subject {number} part {at}." if at < size - 1 else "In every pool.",
            "label": "gold" if at in gold else f"negative_t{1 + at % 3}",
        }
        for at in range(size)
    ]
    return {
        "sample_id": f"{discipline}/{number}",
        "discipline": discipline,
        "doi": f"10.1/{number}",
        "research_question": f"How does subject {number} part 0 work?",
        "background_survey": "Much is known.",
        "candidates": candidates,
        "gold_titles": [f"Paper {number}-{at}" for at in gold],
        "label_counts": {},
    }


def write(root: Path, *samples: dict[str, Any]) -> Path:
    """Write the gated file where hf download --local-dir puts it, and return the data root."""
    path = root / "ankilok/ResearchBench/retrieve/retrieve.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in samples), encoding="utf-8")
    return root


def test_pools_are_candidates_and_equal_papers_one_document(tmp_path: Path) -> None:
    """75 candidates each, the shared one once in the corpus, gold alone is relevant."""
    collection = load_collection(TASK, data_root=write(tmp_path, sample(1), sample(2)))

    assert collection.candidates is not None
    assert [len(pool) for pool in collection.candidates.values()] == [75, 75]
    assert len(collection.corpus) == 149
    assert collection.graded.to_dict() == {"Biology/1": {"p0": 1, "p1": 1}, "Biology/2": {"p75": 1, "p76": 1}}
    assert collection.notes == ()


def test_the_share_kept_at_four_and_twenty_percent(tmp_path: Path) -> None:
    """One inspiration in the first 3 and one in the first 15 of 75."""
    collection = load_collection(TASK, data_root=write(tmp_path, sample(1), sample(2, discipline="Cell Biology")))
    first, second = ({f"p{75 * at + n}": -float(n) for n in range(2, 14)} for at in (0, 1))
    run = {"Biology/1": first | {"p0": 9.0, "p1": -99.0}, "Cell Biology/2": second | {"p75": 9.0, "p76": 8.0}}

    scores = score(run, collection, find_task(TASK), depth=1000)

    assert (scores.value("R@3"), scores.value("R@15")) == (0.75, 1.0)
    assert (scores.value("recall_at_3_Biology"), scores.value("recall_at_3_Cell_Biology")) == (0.5, 1.0)


def test_what_has_no_inspiration_is_counted_and_odd_pools_are_named(tmp_path: Path) -> None:
    """Left out of the mean, never silently."""
    twice = sample(3, size=10)
    twice["candidates"].append(twice["candidates"][4])
    root = write(tmp_path, sample(1), sample(2, gold=()), twice)

    collection = load_collection(TASK, data_root=root)
    scores = score(collection.graded.to_dict(), collection, find_task(TASK), depth=1000)

    assert (scores.coverage.n_queries, scores.coverage.n_omitted) == (2, 1)
    assert [note.split(":")[0] for note in collection.notes] == [
        "1 of 3 questions have no inspiration among their candidates",
        "1 of 3 pools do not have 75 papers, of which 3 are 4 % and 15 are 20 %",
        "1 candidates stand in a pool twice; the first is kept",
    ]


def test_without_a_login_one_line_says_how(tmp_path: Path) -> None:
    """The data are gated: nothing is fetched for the user."""
    with pytest.raises(
        MissingDataError, match=r"accept the terms at the Hub.*hf download ankilok/ResearchBench"
    ) as said:
        load_collection(TASK, data_root=tmp_path)

    assert "\n" not in str(said.value)
    assert not find_task(TASK).public


def test_another_schema_is_refused_naming_what_was_found(tmp_path: Path) -> None:
    """The schema comes from the upstream's builder and was never seen in the gated file."""
    with pytest.raises(SchemaError, match=r"retrieve\.jsonl:1: .*sample_id.*found the fields id, question"):
        load_collection(TASK, data_root=write(tmp_path, {"id": 1, "question": "?"}))
    assert not find_task(TASK).schema_verified


def test_bm25_runs_end_to_end_and_validation_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main score is recall at a fifth of the pool."""
    root = write(tmp_path, sample(1), sample(2, discipline="Law"))

    scores = bm25_scores(TASK, root, monkeypatch)

    assert scores["main_score"] == scores["recall_at_15"]
    assert scores["n_queries_Law"] == 1
    assert sum(report.n_findings for report in check_task(TASK, data_root=root)) == 0
