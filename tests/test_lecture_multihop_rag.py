from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lecture_runs import bm25_scores

from crumb_tasks.cards import find_task
from crumb_tasks.checks import check_task
from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.loaders import load_collection
from crumb_tasks.loaders.multihop_rag import cut
from crumb_tasks.scoring import score

ARTICLES, CHUNKS = "MultiHopRAGRetrieval", "MultiHopRAGChunkRetrieval"
FOX = "The Times saw a fox at the harbour on Monday."
OWL = "An owl lives in the town hall,\nsays the Herald."


def filler(topic: str, n_sentences: int) -> str:
    """Return sentences of ten words each."""
    return " ".join(f"Sentence {at} of the report is about the {topic} today." for at in range(n_sentences))


def article(name: str, body: str) -> dict[str, Any]:
    """Return an article with all upstream fields."""
    head = {"title": f"On the {name}", "author": "A", "source": "S", "published_at": "2023-10-01T00:00:00+00:00"}
    return head | {"category": "c", "url": f"https://news.example/{name}", "body": body}


def evidence(name: str, fact: str, **other: str) -> dict[str, Any]:
    """Return a piece of evidence with all upstream fields."""
    return {key: value for key, value in article(name, "").items() if key != "body"} | {"fact": fact} | other


def question(text: str, kind: str, *pieces: dict[str, Any]) -> dict[str, Any]:
    """Return a question of a kind."""
    return {"query": text, "answer": "yes", "question_type": f"{kind}_query", "evidence_list": list(pieces)}


def write(root: Path, questions: list[dict[str, Any]], articles: list[dict[str, Any]]) -> Path:
    """Write both files of a data root, which is returned."""
    place = root / "yixuantt" / "MultiHopRAG"
    place.mkdir(parents=True)
    (place / "MultiHopRAG.json").write_text(json.dumps(questions, indent=1), encoding="utf-8")
    (place / "corpus.json").write_text(json.dumps(articles, indent=1), encoding="utf-8")
    return root


def small(root: Path) -> Path:
    """Write three articles, two long ones with a fact in the middle, and a question of each kind."""
    articles = [
        article("fox", f"{filler('weather', 30)} {FOX} {filler('sea', 30)}"),
        article("owl", f"{filler('mayor', 30)} {OWL} {filler('park', 30)}"),
        article("cat", filler("cat", 5)),
    ]
    questions = [
        question("Do fox and owl live in one town?", "comparison", evidence("fox", FOX), evidence("owl", OWL)),
        question("What was seen at the harbour?", "inference", evidence("fox", FOX.replace(" ", "  "))),
        question("Who won the moon race?", "null"),
        question("Where does the owl live?", "temporal", evidence("gone", OWL, title="On the owl")),
    ]
    return write(root, questions, articles)


def test_an_article_is_joined_by_address_and_else_by_title(tmp_path: Path) -> None:
    """All articles of a question are relevant; the null question is not judged, counted and named."""
    collection = load_collection(ARTICLES, data_root=small(tmp_path))

    assert collection.graded.to_dict() == {"q0": {"a0": 1, "a1": 1}, "q1": {"a0": 1}, "q2": {}, "q3": {"a1": 1}}
    assert collection.notes == ("1 questions have no evidence (null_query) and are not judged (such as q2)",)
    assert collection.corpus["title"].to_pylist() == ["On the fox", "On the owl", "On the cat"]
    assert collection.query_labels["type"]["q0"] == "comparison"


def test_half_a_comparison_is_a_hit_and_not_complete(tmp_path: Path) -> None:
    """The lecture's point: Success@k cannot see that one side is missing."""
    collection = load_collection(ARTICLES, data_root=small(tmp_path))
    run = {"q0": {"a0": 1.0}, "q1": {"a0": 1.0}, "q3": {"a1": 1.0}}

    scores = score(run, collection, find_task(ARTICLES), depth=1000)

    assert (scores.value("Success@4"), scores.value("all_recall@10")) == (1.0, pytest.approx(2 / 3))
    assert scores.value("all_recall_at_10_comparison") == 0.0
    assert (scores.coverage.n_queries, scores.coverage.n_omitted) == (3, 1)


def test_a_chunk_is_relevant_when_it_holds_the_fact(tmp_path: Path) -> None:
    """Spaces and line breaks apart, in whichever article; each fact is a nugget."""
    collection = load_collection(CHUNKS, data_root=small(tmp_path))
    text_by_id = dict(zip(*(collection.corpus[name].to_pylist() for name in ("id", "text")), strict=True))

    holders = {fact: [doc for doc, text in text_by_id.items() if fact in text] for fact in (FOX, OWL)}

    assert {len(docs) for docs in holders.values()} == {1}
    assert collection.graded.to_dict()["q0"] == dict.fromkeys(holders[FOX] + holders[OWL], 1)
    assert collection.graded.to_dict()["q1"] == dict.fromkeys(holders[FOX], 1)
    assert collection.nuggets["q0"] == {"f0": frozenset(holders[FOX]), "f1": frozenset(holders[OWL])}
    assert len(text_by_id) == 3 + 3 + 1


def test_of_a_fact_that_a_boundary_cuts_all_parts_are_relevant(tmp_path: Path) -> None:
    """Such a fact supports nothing, as in the benchmark's evaluation, and is counted."""
    fact = "This is the last one before. And this one stands behind the boundary."
    body = f"{filler('sea', 22)} {fact} {filler('park', 5)}"
    assert [fact in chunk for chunk in cut(body, 256)] == [False, False]
    collection = load_collection(
        CHUNKS, data_root=write(tmp_path, [question("?", "inference", evidence("x", fact))], [article("x", body)])
    )

    assert collection.graded.to_dict() == {"q0": {"a0-0": 1, "a0-1": 1}}
    assert collection.nuggets == {"q0": {"f0": frozenset()}}
    assert collection.notes == (
        "1 facts are cut by a boundary of chunks: all their parts are relevant, none supports them",
    )


def test_a_fact_that_is_told_twice_makes_both_chunks_relevant(tmp_path: Path) -> None:
    """As in the benchmark's evaluation; one of them covers the fact, and the note says that there are such."""
    articles = [article("x", f"{FOX} {filler('sea', 30)} {FOX}"), article("y", f"Once more: {FOX}")]
    root = write(tmp_path, [question("?", "inference", evidence("x", FOX))], articles)

    collection = load_collection(CHUNKS, data_root=root)

    assert collection.graded.to_dict() == {"q0": {"a0-0": 1, "a0-1": 1, "a1-0": 1}}
    assert collection.nuggets == {"q0": {"f0": frozenset({"a0-0", "a0-1", "a1-0"})}}
    assert collection.notes == ("1 facts stand in several chunks, all of which are relevant",)


def test_a_question_whose_evidence_is_not_there_is_not_judged(tmp_path: Path) -> None:
    """Its support could not be complete, so it would count zero for every system."""
    pieces = (evidence("cat", "Sentence 1 of the report"), evidence("gone", "No such thing."))
    root = write(tmp_path, [question("?", "inference", *pieces), question("?", "inference", pieces[0])], [CAT])

    for name in (ARTICLES, CHUNKS):
        collection = load_collection(name, data_root=root)
        assert [len(grades) for grades in collection.graded.to_dict().values()] == [0, 1]
        assert collection.notes == (
            "1 questions have evidence that is not in the corpus and are not judged (such as q0)",
        )


CAT = article("cat", filler("cat", 5))


@settings(max_examples=200, deadline=None)
@given(text=st.text("ab .!?\n\"')(-", max_size=300), most_words=st.integers(1, 20))
def test_chunks_are_the_text_and_none_is_too_long(text: str, most_words: int) -> None:
    """Nothing is lost or doubled but white space at the seams, whatever the punctuation."""
    chunks = cut(text, most_words)

    assert "".join("".join(chunk.split()) for chunk in chunks) == "".join(text.split())
    assert all(len(re.findall(r"\w+|[^\w\s]", chunk)) <= most_words for chunk in chunks)
    assert all(chunk == chunk.strip() != "" for chunk in chunks)


def test_the_chunker_is_pinned() -> None:
    """Other chunks would be another task: sentences stay whole, quotes stay with them, a long one is cut by words."""
    text = 'He said: "Go." Then he went.\nA new line! (Really?) One two three four five six seven eight'

    assert cut(text, 7) == [
        'He said: "Go."',
        "Then he went.",
        "A new line!",
        "(Really?)",
        "One two three four five six seven",
        "eight",
    ]
    assert cut(text, 11) == [
        'He said: "Go." Then he went.',
        "A new line! (Really?)",
        "One two three four five six seven eight",
    ]


def test_other_fields_are_named(tmp_path: Path) -> None:
    """A copy with another schema fails saying what it holds."""
    root = write(tmp_path, [{"question": "?", "answer": "x"}], [CAT])
    with pytest.raises(SchemaError, match=r"missing required field `query`.*found the fields question, answer"):
        load_collection(ARTICLES, data_root=root)

    (root / "yixuantt" / "MultiHopRAG" / "corpus.json").write_text('[{"title": "t", "text": "b"}]', encoding="utf-8")
    with pytest.raises(SchemaError, match=r"missing required field `url`.*found the fields title, text"):
        load_collection(ARTICLES, data_root=root)


def test_a_git_lfs_pointer_is_no_data(tmp_path: Path) -> None:
    """What GitHub has in the place of the files."""
    root = write(tmp_path, [], [])
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5169000\n"
    (root / "yixuantt" / "MultiHopRAG" / "corpus.json").write_text(pointer, encoding="utf-8")

    with pytest.raises(DataError, match=r"corpus\.json: not a JSON list"):
        load_collection(ARTICLES, data_root=root)


def test_two_articles_with_one_address_are_refused(tmp_path: Path) -> None:
    """Evidence names an article by it."""
    with pytest.raises(DataError, match=r"two articles have the address https://news.example/cat"):
        load_collection(ARTICLES, data_root=write(tmp_path, [], [CAT, CAT]))


def test_bm25_runs_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both corpora, with the benchmark's own MAP under its own key; validation finds nothing."""
    root = small(tmp_path)

    articles, chunks = (bm25_scores(name, root, monkeypatch) for name in (ARTICLES, CHUNKS))

    assert articles["main_score"] == articles["all_recall_at_10"] == 1.0
    assert chunks["main_score"] == chunks["all_recall_at_10"]
    assert 0 < chunks["nugget_rr_at_10"] <= 1
    assert (chunks["n_queries"], chunks["n_omitted"]) == (3, 1)
    assert [report.n_findings for name in (ARTICLES, CHUNKS) for report in check_task(name, data_root=root)] == [0, 0]
