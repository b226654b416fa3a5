from __future__ import annotations

import json
from pathlib import Path

import pytest
from lecture_runs import bm25_scores

from crumb_tasks.cards import find_task
from crumb_tasks.checks import check_task
from crumb_tasks.errors import DataError, MissingDataError, SchemaError
from crumb_tasks.loaders import load_collection
from crumb_tasks.scoring import score

TASKS = tuple(f"SPECTERSciDocs{relation}" for relation in ("Cite", "CoCite", "CoRead", "CoView"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two queries with thirty candidates in each relation and split; one has no abstract, one no metadata at all."""
    folder = tmp_path / "scidocs-specter"
    folder.mkdir()
    papers = {
        f"p{at}": {"paper_id": f"p{at}", "title": f"Title {at}", "abstract": f"About subject {at}.", "year": 2019}
        for at in range(60)
    } | {
        f"{split}{at}": {"title": f"Query {split} {at}", "abstract": None} for split in ("test", "val") for at in (0, 1)
    }
    del papers["p59"]
    (folder / "paper_metadata_view_cite_read.json").write_text(json.dumps(papers), encoding="utf-8")
    for relation in ("cite", "cocite", "coread", "coview"):
        (folder / relation).mkdir()
        for split in ("test", "val"):
            rows = [(f"{split}{at // 30}", f"p{at}", int(at % 30 < 5)) for at in range(60)]
            rows.append((f"{split}gone", "p1", 1))
            lines = (f"{query} 0 {paper} {grade}\n" for query, paper, grade in rows)
            (folder / relation / f"{split}.qrel").write_text("".join(lines), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", TASKS)
def test_thirty_papers_of_which_five_are_related(root: Path, name: str) -> None:
    """A query is a paper's title and abstract; an absent abstract is no word `None`."""
    collection = load_collection(name, data_root=root)

    assert collection.queries.to_pylist()[0] == {"id": "test0", "text": "Query test 0"}
    assert collection.candidates is not None
    assert [len(pool) for pool in collection.candidates.values()] == [30, 29]
    assert [sum(found.values()) for found in collection.graded.to_dict().values()] == [5, 5]
    assert collection.corpus.to_pylist()[0] == {"id": "p0", "title": "Title 0", "text": "About subject 0."}


def test_papers_without_metadata_are_left_out_and_counted(root: Path) -> None:
    """As the official code skips them, but said."""
    collection = load_collection(TASKS[0], data_root=root)

    assert collection.notes == (
        "1 of 3 queries are papers without metadata: left out",
        "1 candidates are papers without metadata: left out",
    )
    assert score(collection.graded.to_dict(), collection, find_task(TASKS[0]), depth=1000).value("AP") == 1.0


def test_without_the_copy_one_line_says_how_to_get_it(tmp_path: Path) -> None:
    """The bucket is open, and no repository."""
    with pytest.raises(MissingDataError, match=r"aws s3 sync --no-sign-request.*DIR/scidocs-specter") as said:
        load_collection(TASKS[0], data_root=tmp_path)
    assert "\n" not in str(said.value)


def test_other_files_are_refused(root: Path) -> None:
    """Papers without titles, judgements in other columns."""
    path = root / "scidocs-specter/paper_metadata_view_cite_read.json"
    kept = path.read_text(encoding="utf-8")
    path.write_text(json.dumps({"p1": {"name": "x"}}), encoding="utf-8")
    with pytest.raises(SchemaError, match=r"expected papers with title and abstract.*`title`"):
        load_collection(TASKS[0], data_root=root)
    path.write_text(kept, encoding="utf-8")
    (root / "scidocs-specter/cite/test.qrel").write_text("a b c\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"test\.qrel:1: found 3 columns"):
        load_collection(TASKS[0], data_root=root)


def test_bm25_runs_end_to_end_and_validation_finds_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AP is the main score, uncut nDCG stands beside it, as in the paper's table."""
    scores = bm25_scores("SPECTERSciDocsCoRead", root, monkeypatch)

    assert scores["main_score"] == scores["map"]
    assert "ndcg" in scores
    assert sum(report.n_findings for report in check_task("SPECTERSciDocsCoRead", data_root=root)) == 0
