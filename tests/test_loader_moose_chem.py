from __future__ import annotations

import json
from pathlib import Path

import pytest

from crumb_tasks.errors import DataError
from crumb_tasks.loaders import load_collection
from crumb_tasks.loaders.moose_chem import _key

pytest.importorskip("openpyxl", reason="the papers stand in a spreadsheet: needs the extra xlsx")


@pytest.mark.parametrize(("size", "documents", "repeated"), [(150, 149, 1), (300, 300, 0), (1000, 997, 3)])
def test_each_corpus_equals_the_ready_made_folder(
    shared_data: Path, upstream_root: Path, size: int, documents: int, repeated: int
) -> None:
    """Papers without repeats, questions in their stricter wording, 116 inspirations, all found."""
    folder = shared_data / "moose_chem" / "beir" / f"corpus{size}"
    papers = [json.loads(line) for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    questions = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    qrels: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query_id, doc_id, grade = line.split("\t")
        qrels.setdefault(query_id, {})[doc_id] = int(grade)

    collection = load_collection(f"MOOSEChem{size}", data_root=upstream_root)

    assert collection.corpus.to_pylist() == [
        {"id": paper["_id"], "title": paper["title"], "text": paper["text"]} for paper in papers
    ]
    assert collection.queries.to_pylist() == [
        {"id": question["_id"], "text": question["text"], "survey": question["survey"]} for question in questions
    ]
    assert collection.graded.to_dict() == qrels
    assert (len(collection.corpus), len(collection.queries), len(collection.graded.codes)) == (documents, 51, 116)
    assert collection.notes == (
        (f"{repeated} papers stand in the corpus twice; the first is kept",) if repeated else ()
    )


def test_the_stricter_wording_is_used(upstream_root: Path) -> None:
    """14 questions give less away in their second wording; `NA` elsewhere means there is none, not a question."""
    questions = load_collection("MOOSEChem150", data_root=upstream_root).queries["text"].to_pylist()

    assert "NA" not in questions
    assert questions[0].startswith("How can we design a flexible thermogalvanic device")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "Effect of strain on the reactivity of metal \nsurfaces",
            "Effect of Strain on the Reactivity of Metal Surfaces",
        ),
        ("energy\u2013structure\u2013function maps", "energy-structure-function maps"),
        ("The <i>Ectocarpus</i> genome", "The Ectocarpus genome\u2020"),
    ],
)
def test_spellings_of_one_title_are_one(one: str, other: str) -> None:
    """Line breaks, dashes, marks, case and markup do not part a title from itself."""
    assert _key(one) == _key(other)


def test_greek_letters_part_titles() -> None:
    """What differs in words is another paper."""
    assert _key("PPAR-\u03b3 agonists") != _key("PPAR-\u03b1 agonists")


def test_an_inspiration_that_is_not_there_is_named(upstream_root: Path, tmp_path: Path) -> None:
    """Row and title, not a smaller denominator."""
    place = tmp_path / "ZonglinY" / "MOOSE-Chem" / "Data"
    place.mkdir(parents=True)
    upstream = upstream_root / "ZonglinY" / "MOOSE-Chem" / "Data"
    (place / "chem_research_2024.xlsx").write_bytes((upstream / "chem_research_2024.xlsx").read_bytes())
    papers = json.loads((upstream / "Inspiration_Corpus_300.json").read_text(encoding="utf-8"))
    kept = [paper for paper in papers if not paper[0].startswith("Beyond Hofmeister")]
    (place / "Inspiration_Corpus_300.json").write_text(json.dumps(kept), encoding="utf-8")

    with pytest.raises(DataError, match=r"row 2: the inspiration 'Beyond Hofmeister' is not in the corpus"):
        load_collection("MOOSEChem300", data_root=tmp_path)
