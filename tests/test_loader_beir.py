from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from beir_folder import CORPUS, QRELS, QUERIES, beir_card, write_beir

from crumb_tasks.errors import CardError, DataError, MissingDataError, UsageError
from crumb_tasks.loaders import load_collection


def test_a_folder_becomes_a_collection(tmp_path: Path) -> None:
    """Corpus, queries and judgements as they stand in the files."""
    write_beir(tmp_path)

    collection = load_collection(beir_card(), data_root=tmp_path)

    assert collection.corpus.to_pydict() == {
        "id": ["d1", "d2", "d3"],
        "title": ["One", "", ""],
        "text": ["a", "b", "c"],
    }
    assert collection.queries.to_pydict() == {"id": ["q1", "q2"], "text": ["first", "second"]}
    assert collection.graded.to_dict() == {"q1": {"d1": 1}, "q2": {"d2": 2, "d3": 0}}
    assert collection.candidates is None
    assert collection.parents is None


def test_only_the_queries_of_the_split_are_loaded(tmp_path: Path) -> None:
    """BEIR's queries file holds those of all splits; without judgement or candidates a query is not of this one."""
    write_beir(tmp_path, queries=(*QUERIES, {"_id": "trained on", "text": "other"}))
    write_beir(tmp_path, queries=(*QUERIES, {"_id": "trained on", "text": "other"}), qrels=QRELS[:1], split="dev")
    card = beir_card(splits={"test": "test", "validation": "dev"})

    assert load_collection(card, data_root=tmp_path).queries["id"].to_pylist() == ["q1", "q2"]
    assert load_collection(card, "validation", data_root=tmp_path).queries["id"].to_pylist() == ["q1"]


def test_candidates_prompts_and_parents_come_with_options(tmp_path: Path) -> None:
    """Re-ranking, an instruction for each query, and passages that stand for documents."""
    write_beir(
        tmp_path,
        corpus=[{"_id": "d1:0", "text": "a", "up": "d1"}, {"_id": "d2", "text": "b", "up": None}],
        queries=[{"_id": "q1", "text": "first", "how": "Find it."}, {"_id": "q2", "text": "second"}],
        qrels=QRELS[:2],
        candidates={"q1": ["d1"], "q2": ["d2", "d1"]},
    )
    options = {"candidates": "top_ranked.jsonl", "prompt_field": "how", "parent_field": "up"}

    collection = load_collection(beir_card(options=options, max_passage=True), data_root=tmp_path)

    assert collection.candidates == {"q1": ["d1"], "q2": ["d2", "d1"]}
    assert collection.queries["prompt"].to_pylist() == ["Find it.", ""]
    assert collection.parents.to_pylist() == ["d1", "d2"]
    assert collection.corpus.column_names == ["id", "title", "text"]


def test_an_unknown_option_is_a_wrong_card() -> None:
    """A misspelt option must not be silently without effect."""
    with pytest.raises(CardError, match=r"Tiny: options\.candidate: .*did you mean 'candidates'"):
        load_collection(beir_card(options={"candidate": "top_ranked.jsonl"}))


@pytest.mark.parametrize(
    ("split", "answer"),
    [
        ("dev", "Tiny calls the split 'dev' 'validation'"),
        ("evaluation_queries", "Tiny calls the split 'evaluation_queries' 'test'"),
        ("train", "Tiny has no training data: load 'test' or 'validation'"),
        ("tests", "Tiny has no split 'tests'; it has: test, validation; did you mean 'test'?"),
    ],
)
def test_a_wrong_split_gets_a_friendly_answer(split: str, answer: str) -> None:
    """What the user meant, in this package's words, before any file is looked for."""
    card = beir_card(splits={"test": "evaluation_queries", "validation": "validation_queries"})

    with pytest.raises(UsageError) as caught:
        load_collection(card, split)
    assert str(caught.value).startswith(answer)


def test_missing_files_are_all_named(tmp_path: Path) -> None:
    """One line for the user's own folder as well."""
    write_beir(tmp_path)
    (tmp_path / "tiny" / "queries.jsonl").unlink()
    (tmp_path / "tiny" / "qrels" / "test.tsv").unlink()

    with pytest.raises(MissingDataError, match=r"queries\.jsonl, qrels/test\.tsv"):
        load_collection(beir_card(), data_root=tmp_path)


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"qrels": (*QRELS, ("q1", "zz", 1))}, r"1 documents .* are not there \('zz'\); the card allows 0"),
        ({"qrels": (*QRELS, ("q9", "d1", 1))}, r"1 queries .* are not there \('q9'\); the card allows 0"),
        ({"candidates": {"q1": ["zz", "d1"]}}, r"1 candidates .* are not there \('zz'\); the card allows 0"),
    ],
    ids=["document", "query", "candidate"],
)
def test_what_is_judged_but_not_there_fails_the_load(tmp_path: Path, parts: dict[str, Any], problem: str) -> None:
    """It would be an invisible ceiling on recall (known problem R20)."""
    write_beir(tmp_path, **parts)
    options = {"candidates": "top_ranked.jsonl"} if "candidates" in parts else {}

    with pytest.raises(DataError, match=problem):
        load_collection(beir_card(options=options), data_root=tmp_path)


def test_the_card_may_allow_some_dangling_judgements(tmp_path: Path) -> None:
    """They stay in the denominator and are noted; a collection where nothing is found is refused all the same."""
    write_beir(tmp_path, qrels=(*QRELS, ("q1", "zz", 1)))
    card = beir_card(dangling={"documents": 9})

    collection = load_collection(card, data_root=tmp_path)

    assert collection.graded.to_dict()["q1"] == {"d1": 1, "zz": 1}
    assert collection.notes == ("1 documents that judgements or candidates name are not there ('zz')",)
    write_beir(tmp_path, qrels=[("q1", "x1", 1), ("q2", "x2", 1)])
    with pytest.raises(DataError, match="not one judged document is in the corpus"):
        load_collection(card, data_root=tmp_path)


def test_fractional_grades_are_refused_or_cut_and_counted(tmp_path: Path) -> None:
    """1.0 is 1; 0.5 is an error naming query and document, unless the card says to truncate (R07)."""
    write_beir(tmp_path, qrels=[("q1", "d1", 1.0), ("q2", "d2", 0.5)])

    with pytest.raises(DataError, match=r"query 'q2', document 'd2': grade 0\.5 is no integer"):
        load_collection(beir_card(), data_root=tmp_path)
    cut = load_collection(beir_card(labels="truncate"), data_root=tmp_path).graded
    assert (cut.to_dict(), cut.n_truncated) == ({"q1": {"d1": 1}, "q2": {"d2": 0}}, 1)


def test_a_grade_that_is_no_number_names_its_line(tmp_path: Path) -> None:
    """`path:line`, as everywhere."""
    write_beir(tmp_path, qrels=[("q1", "d1", "yes")])

    with pytest.raises(DataError, match=r"test\.tsv:2: the score 'yes' is no number"):
        load_collection(beir_card(), data_root=tmp_path)


def test_repeated_judgements_are_dropped_or_refused(tmp_path: Path) -> None:
    """Equal ones are counted, contradicting ones are an error (R06)."""
    write_beir(tmp_path, qrels=[*QRELS, ("q1", "d1", 1)])
    assert load_collection(beir_card(), data_root=tmp_path).graded.n_repeated == 1

    write_beir(tmp_path, qrels=[*QRELS, ("q1", "d1", 0)])
    with pytest.raises(DataError, match="judges document 'd1' twice"):
        load_collection(beir_card(), data_root=tmp_path)


def test_a_relevant_document_that_is_empty_stays(tmp_path: Path) -> None:
    """It keeps its id and its place in the denominator, with the card's placeholder as text (R21)."""
    write_beir(tmp_path, corpus=[{"_id": "d1", "text": " \n"}, *CORPUS[1:]])

    collection = load_collection(beir_card(empty_text="(empty)"), data_root=tmp_path)

    assert collection.corpus["text"].to_pylist()[0] == "(empty)"
    assert collection.n_empty_texts == 1
    assert collection.graded.to_dict()["q1"] == {"d1": 1}


def test_candidates_twice_for_one_query_are_refused(tmp_path: Path) -> None:
    """Which of them counts would depend on the reader."""
    folder = write_beir(tmp_path, candidates={"q1": ["d1"]})
    path = folder / "top_ranked.jsonl"
    path.write_text(path.read_text(encoding="utf-8") * 2, encoding="utf-8")

    with pytest.raises(DataError, match=r"top_ranked\.jsonl:2: candidates of query 'q1' stand there twice"):
        load_collection(beir_card(options={"candidates": "top_ranked.jsonl"}), data_root=tmp_path)


def test_a_count_that_the_card_promises_strictly_is_checked(tmp_path: Path) -> None:
    """A file that was cut short is not quietly a smaller benchmark (R29)."""
    write_beir(tmp_path)
    card = beir_card(expected={"test": {"documents": 4, "strict": True}})

    with pytest.raises(DataError, match=r"Tiny \(test\): 3 documents, expected 4"):
        load_collection(card, data_root=tmp_path)


def test_ids_keep_their_spelling(tmp_path: Path) -> None:
    """No Unicode normalisation, no numbers, no trimming: the id of the judgement must be that of the corpus (R30)."""
    ids = ["Zoe\u0308", "Zo\u00eb", "0012", "12", " d", "a:b/c|d", "文書"]
    write_beir(
        tmp_path,
        corpus=[{"_id": one, "text": f"text of {one!r}"} for one in ids],
        qrels=[("q1", one, 1) for one in ids],
    )

    collection = load_collection(beir_card(), data_root=tmp_path)

    assert collection.corpus["id"].to_pylist() == ids
    assert set(collection.graded.to_dict()["q1"]) == set(ids)
