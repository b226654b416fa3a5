from __future__ import annotations

import csv
from pathlib import Path

import pytest
from lecture_runs import bm25_scores

from crumb_tasks.cards import find_task
from crumb_tasks.checks import check_task
from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.loaders import load_collection
from crumb_tasks.scoring import score

HEADER = (
    "", "paper_id", "actual_ids", "cited_paper_id", "citation_text", "intent", "gen_id", "citing_paper_abstracts",
    "cited_paper_abstracts", "inspirational", "proposal", "keyword",
)  # fmt: skip
ROWS = (
    ("P1", "c1", "Background", "Word vectors from context.", "0", "Find better word vectors, without labels."),
    ("P1", "c1", "Uses", "Word vectors from context.", "1", "Find better word vectors, without labels."),
    ("P1", "c2", "Background", 'Trees, parsed\nand "quoted".', "0", "Find better word vectors, without labels."),
    ("P2", "c3", "Extention", "Graphs of citations.", "1", "Rank citations in a graph."),
    ("P2", "c2", "Uses", 'Trees, parsed\nand "quoted".', "1", "Rank citations in a graph."),
    ("P3", "c4", "Motivation", "Speech at night.", "0", "Hear what is said at night."),
)  # fmt: skip


def write(root: Path, rows: tuple[tuple[str, ...], ...] = ROWS, header: tuple[str, ...] = HEADER) -> Path:
    """Write both splits in the repository's layout and return the data root."""
    for split in ("dev", "test"):
        path = root / "Anikethh/Methodology-Inspiration-Retrieval/data" / f"{split}_chronological_df.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for number, (paper, cited, intent, abstract, mark, proposal) in enumerate(rows):
                own = f"{split}-{paper}"
                text = f"{proposal} ({split})"
                writer.writerow(
                    [number, own, "ACL:1", cited, "In context.", intent, "s2", "About.", abstract, mark, text, "x"]
                )
    return root


def test_a_citation_counts_once_whatever_its_contexts(tmp_path: Path) -> None:
    """c1 is cited for background and used: relevant. What is cited otherwise is in the corpus, not judged."""
    collection = load_collection("MIR", data_root=write(tmp_path))

    assert collection.corpus.column("id").to_pylist() == ["c1", "c2", "c3", "c4"]
    assert collection.corpus.column("text").to_pylist()[1] == 'Trees, parsed\nand "quoted".'
    assert collection.graded.to_dict() == {"test-P1": {"c1": 1}, "test-P2": {"c3": 1, "c2": 1}, "test-P3": {}}


def test_proposals_without_a_method_are_left_out_and_counted(tmp_path: Path) -> None:
    """They would be 0 for every system."""
    collection = load_collection("MIR", data_root=write(tmp_path))

    scores = score({"test-P1": {"c1": 1.0}}, collection, find_task("MIR"), depth=1000)

    assert (scores.coverage.n_queries, scores.coverage.n_omitted) == (2, 1)
    assert scores.value("R@3") == 0.5
    assert collection.notes == ("1 of 3 proposals cite no paper for its method and are not judged",)


def test_another_release_is_refused_naming_its_columns(tmp_path: Path) -> None:
    """An earlier release marks citations in another column."""
    header = tuple("triple_type" if name == "inspirational" else name for name in HEADER)

    with pytest.raises(SchemaError, match=r"no column 'inspirational'; found the fields .*triple_type"):
        load_collection("MIR", data_root=write(tmp_path, header=header))


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (("P1", "c9", "Uses", "New.", "2", "Find better word vectors, without labels."), "inspirational is '2'"),
        (("P1", "c9", "Uses", "New.", "1", "Another one."), "'test-P1' has another proposal than above"),
    ],
)
def test_rows_that_contradict_are_refused(tmp_path: Path, row: tuple[str, ...], complaint: str) -> None:
    """With the line."""
    with pytest.raises(DataError, match=rf"_df\.csv:\d+: .*{complaint}"):
        load_collection("MIR", data_root=write(tmp_path, (*ROWS, row)))


def test_bm25_runs_end_to_end_and_validation_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main score is recall at three; both splits pass."""
    scores = bm25_scores("MIR", write(tmp_path), monkeypatch)

    assert scores["main_score"] == scores["recall_at_3"]
    assert (scores["n_queries"], scores["n_omitted"]) == (2, 1)
    assert sum(report.n_findings for report in check_task("MIR", data_root=tmp_path)) == 0
