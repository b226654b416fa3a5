from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tiny import Grades, RunDict, card, collection, judgements, rankings

from crumb_tasks.errors import DataError, RunError, UsageError
from crumb_tasks.measures import parse_measure
from crumb_tasks.runs import Run
from crumb_tasks.scoring import CRUMB_MEASURES, MTEB_MEASURES, Scores, score


def in_order(*documents: str) -> dict[str, float]:
    """Return scores that rank ``documents`` in this order."""
    return {doc_id: float(-rank) for rank, doc_id in enumerate(documents)}


def said(scores: Scores, *parts: str) -> bool:
    """Return whether one note holds all ``parts``."""
    return any(all(part in note for part in parts) for note in scores.notes)


# ---------------------------------------------------------------- queries


@pytest.mark.parametrize("spelling", [{}, {"q2": {}}])
def test_an_unanswered_query_counts_as_zero(spelling: RunDict) -> None:
    """R16: a run cannot raise its mean by skipping a query, nor by an empty ranking: .5 in both spellings."""
    scores = score({"q1": {"d1": 1.0}, **spelling}, collection({"q1": {"d1": 1}, "q2": {"d1": 1}}))

    assert scores.value("nDCG@10") == 0.5
    assert scores.value("RR") == 0.5
    assert (scores.coverage.n_queries, scores.coverage.n_missing, scores.coverage.n_empty) == (2, 1, len(spelling))
    assert said(scores, "1 of 2 judged queries", "'q2'")


def test_unjudged_queries_of_the_run_are_ignored_and_named() -> None:
    """R17: scores equal those without them, with one note that counts them and gives three examples."""
    tiny = collection({"q1": {"d1": 1}, "q2": {"d2": 1}})
    run = {"q1": in_order("d1"), "q2": in_order("d1", "d2")}
    more = {f"x{number}": in_order("d1") for number in range(5)}

    scores = score(run | more, tiny)

    assert scores.summary == score(run, tiny).summary
    assert scores.coverage.n_unjudged == 5
    assert [note for note in scores.notes if "'x0', 'x1', 'x2' …" in note] == [scores.notes[0]]
    assert "5 queries of the run without judgements ignored" in scores.notes[0]


def test_a_run_of_another_task_is_refused_with_ids_of_both_sides() -> None:
    """No common query is no score of 0 but an error that shows why."""
    tiny = collection({"q1": {"d1": 1}, "q2": {"d1": 1}})

    with pytest.raises(RunError, match=r"the run has '7', '8', the collection 'q1', 'q2'; is it a run of another"):
        score({"7": {"d1": 1.0}, "8": {"d1": 1.0}}, tiny)
    with pytest.raises(RunError, match="the run is empty"):
        score({}, tiny)


def test_a_query_without_judgements_is_left_out_by_name() -> None:
    """R05: an empty relevance set neither corrupts nor vanishes: it is counted, named and left out, every time."""
    tiny = collection({"q1": {"d1": 1}, "q2": {}, "q3": {"d2": 1}}, queries=["q1", "q2", "q3", "q4"])
    run = {query_id: in_order("d1", "d2") for query_id in ("q1", "q2", "q3")}

    results = [score(run, tiny) for _ in range(3)]

    assert results[0].query_ids == ("q1", "q3")
    assert said(results[0], "2 queries without judgements", "'q2', 'q4'")
    assert results[0].coverage.n_omitted == results[0].coverage.n_without_judgements == 2
    assert all(result.summary == results[0].summary for result in results)
    assert all(0 <= value <= 1 for value in results[0].summary.values())
    with pytest.raises(DataError, match="no query has a judgement that counts"):
        score(run, collection({"q1": {}}, ["d1", "d2"]))


def test_the_card_says_what_becomes_of_zero_judgements() -> None:
    """A query judged all zero counts 0 or is left out; either way it is counted, as the lecture asks."""
    tiny = collection({"q1": {"a": 1}, "q2": {"a": 0, "b": -1}})
    run = {"q1": in_order("a", "b"), "q2": in_order("a", "b")}

    zero = score(run, tiny, card(all_zero="zero"))
    left_out = score(run, tiny, card(all_zero="exclude"))

    assert (zero.value("nDCG@10"), zero.coverage.n_omitted, zero.query_ids) == (0.5, 0, ("q1", "q2"))
    assert (left_out.value("nDCG@10"), left_out.coverage.n_omitted, left_out.query_ids) == (1.0, 1, ("q1",))
    assert left_out.coverage.n_all_zero == 1
    assert said(zero, "1 query with only zero judgements in the mean as 0: 'q2'")
    assert said(left_out, "left out of the mean: 'q2'")


def test_the_worked_example_of_the_lecture_with_a_query_without_gain() -> None:
    """R = 3 in one query, none in the other: the mean is over the one, and the other is reported."""
    tiny = collection({"q1": {"a": 3, "b": 2, "c": 2, "x": 1}, "q2": {"y": 0}})
    task = card(all_zero="exclude", relevant_from=2, main_measure="nDCG@3", measures=["P@3", "Rprec"])
    scores = score({"q1": in_order("a", "x", "b"), "q2": in_order("y")}, tiny, task)

    ideal = 3 + 2 * 0.6309 + 2 * 0.5
    assert scores.value("nDCG@3") == pytest.approx((3 + 0.6309 + 2 * 0.5) / ideal, abs=1e-4)
    assert (scores.value("P@3"), scores.value("Rprec")) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert (scores.coverage.n_queries, scores.coverage.n_omitted) == (1, 1)


def test_ids_that_lost_their_zeros_are_named() -> None:
    """An id that was a number on its way is said to differ in its leading zeros; ids are compared as given."""
    tiny = collection({"007": {"0042": 1}, "q2": {"a": 1}}, ["0042", "a"])

    scores = score({"q2": {"42": 2.0, "a": 1.0}, "7": {"a": 1.0}}, tiny)

    assert said(scores, "1 document of the run that the corpus lacks", "1 of them differs only in leading zeros")
    assert said(scores, "1 query of the run without judgements ignored", "such as '7' for '007'")
    with pytest.raises(RunError, match="2 of them differ only in leading zeros, such as '07' for '7'"):
        score({"07": {"a": 1.0}, "08": {"a": 1.0}, "x": {"a": 1.0}}, collection({"7": {"a": 1}, "8": {"a": 1}}))


def test_equal_texts_under_two_ids_stay_two_queries() -> None:
    """R24: results are keyed by id, never by text."""
    queries = pa.table({"id": ["q1", "q2"], "text": ["same", "same"]})
    tiny = replace(collection({"q1": {"a": 1}, "q2": {"b": 1}}, ["a", "b"]), queries=queries)

    assert score({"q1": in_order("a"), "q2": in_order("a", "b")}, tiny, measures=["RR"]).per_query["RR"].tolist() == [
        1,
        0.5,
    ]


def test_ids_in_another_normalisation_are_named() -> None:
    """R30: NFC in the corpus and NFD in the run is said, not silently worth 0; ids are compared as given."""
    nfc, nfd = "Zo\N{LATIN SMALL LETTER E WITH DIAERESIS}", "Zoe\N{COMBINING DIAERESIS}"
    tiny = collection({nfc: {nfc: 1}, "q2": {"a": 1}}, [nfc, "a"])

    scores = score({"q2": {nfd: 2.0, "a": 1.0}, nfd: {"a": 1.0}}, tiny)

    assert said(scores, "1 document of the run that the corpus lacks", "differ only in Unicode normalisation")
    assert said(scores, "1 query of the run without judgements ignored", "differ only in Unicode normalisation")
    with pytest.raises(RunError, match="differ only in Unicode normalisation"):
        score({nfd: {"a": 1.0}}, collection({nfc: {"a": 1}}))


# ---------------------------------------------------------------- documents


def test_unknown_documents_keep_their_rank_and_are_counted() -> None:
    """An id that the corpus lacks is counted and named; a run of nothing but such ids is refused."""
    tiny = collection({"q1": {"d1": 1}}, ["d1", "d2"])

    scores = score({"q1": in_order("zz", "d1")}, tiny, measures=["RR"])

    assert scores.value("RR") == 0.5
    assert scores.coverage.n_unknown_documents == 1
    assert said(scores, "'zz'")
    with pytest.raises(
        RunError, match="no document of the run is in the corpus of Tiny: the run has 'zz', the corpus 'd1'"
    ):
        score({"q1": in_order("zz")}, tiny)


def test_a_judged_document_that_the_corpus_lacks_stays_in_the_denominator() -> None:
    """R20: a dangling judgement is a ceiling on recall, not a document to forget."""
    tiny = collection({"q1": {"d1": 1, "zz": 1}}, ["d1", "d2"])

    assert score({"q1": in_order("d1", "d2")}, tiny, measures=["R@10"]).value("R@10") == 0.5


def test_the_corpus_may_be_unknown() -> None:
    """`score run --qrels file` has judgements only: no document is unknown."""
    tiny = collection({"q1": {"d1": 1}})
    tiny = replace(tiny, corpus=tiny.corpus.slice(0, 0))

    scores = score({"q1": in_order("x", "d1")}, tiny, measures=["RR", "R@2"])

    assert (scores.value("RR"), scores.value("R@2")) == (0.5, 1.0)
    assert (scores.coverage.n_unknown_documents, scores.coverage.n_retrievable) == (0, None)


@pytest.mark.parametrize("run", [["q1"], "q1", None, {"q1": ["d1"]}, {"q1": {"d1": "1"}}, {"q1": {"d1": True}}])
@pytest.mark.parametrize("has_corpus", [False, True])
def test_what_is_no_run_is_an_error_of_ours(run: RunDict, *, has_corpus: bool) -> None:
    """Lists, text and truth values are named, with a corpus and without; none of them counts as a score."""
    tiny = collection({"q1": {"d1": 1}})

    with pytest.raises(RunError, match="of type"):
        score(run, tiny if has_corpus else replace(tiny, corpus=tiny.corpus.slice(0, 0)), measures=["RR"])


NUMBERS = [str(number) for number in range(10)]


def test_identical_ids_are_left_alone_unless_the_card_says_so() -> None:
    """R11: queries and documents 0..9, a perfect run: 1 everywhere; with the policy self-hits go before the cutoff."""
    grades = {number: {number: 1} for number in NUMBERS}
    run = {number: in_order(number, *(other for other in NUMBERS if other != number)) for number in NUMBERS}
    before = json.dumps(run)
    ranked = Run.from_dict(run)

    kept = score(ranked, collection(grades), card(), ["nDCG@10", "P@1", "R@10"])
    taken_out = score(ranked, collection(grades), card(exclude_self=True), ["nDCG@10", "P@1", "R@10"])

    assert set(kept.summary.values()) == {1.0}
    assert set(taken_out.summary.values()) == {0.0}
    assert (kept.coverage.n_excluded, taken_out.coverage.n_excluded) == (0, 10)
    assert json.dumps(run) == before
    assert ranked.to_dict() == run


def test_excluded_documents_make_room_before_the_cutoff() -> None:
    """The document behind an excluded one moves up; exclusions of the data and of the card add up."""
    tiny = collection({"q1": {"b": 1}, "a": {"b": 1}}, ["a", "b", "c", "q1"], exclusions={"q1": frozenset({"a"})})
    run = {"q1": in_order("a", "q1", "b"), "a": in_order("a", "c", "b")}

    assert score(run, tiny, card(), ["RR"]).per_query["RR"].tolist() == pytest.approx([1 / 2, 1 / 3])
    assert score(run, tiny, card(exclude_self=True), ["RR"]).per_query["RR"].tolist() == pytest.approx([1, 1 / 2])


def test_a_re_ranking_ranks_candidates_only() -> None:
    """R54: others are taken out and counted, candidates not returned too, and a query without candidates counts 0."""
    tiny = collection(
        {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}},
        ["a", "b", "c"],
        candidates={"q1": ["a", "b"], "q2": ["b", "c"]},
    )
    run = {"q1": in_order("c", "a"), "q2": in_order("b", "c"), "q3": in_order("a")}

    scores = score(run, tiny, card(kind="reranking"), ["RR"])

    assert scores.per_query["RR"].tolist() == [1.0, 0.0, 0.0]
    assert (scores.coverage.n_not_candidates, scores.coverage.n_unranked_candidates) == (2, 1)
    assert said(scores, "2 retrieved documents taken out: not among the query's candidates")


# ---------------------------------------------------------------- MaxP

PASSAGES = ["NCT1:0", "NCT1:1", "NCT1:2", "NCT2:0", "NCT3:0"]
PARENTS = pa.array([passage.partition(":")[0] for passage in PASSAGES])


def trials(**fields: object) -> object:
    """Return a collection whose passages stand for their documents."""
    return collection({"q": {"NCT1": 1, "NCT3": 1}}, PASSAGES, parents=PARENTS, **fields)


@pytest.mark.parametrize(
    ("ids", "keyed_by", "note"),
    [
        (["NCT1:0", "NCT1:2", "NCT2:0"], "passages", "keyed by passages"),
        (["NCT1", "NCT1", "NCT2"], "documents", "keyed by documents"),
        (["NCT1:0", "NCT1", "NCT2:0"], "mixture", "passages (2) and documents (1)"),
    ],
)
def test_runs_by_passages_and_by_documents_have_one_score(ids: list[str], keyed_by: str, note: str) -> None:
    """R26: the same ranking as passages, as documents and mixed scores the same, and what was seen is said."""
    run = Run.from_columns(["q"], np.zeros(3, dtype=np.int64), ids, [3.0, 2.0, 1.0], repeats="best")

    scores = score(run, trials(), card(max_passage=True), ["nDCG@2", "RR", "R@2"])

    assert scores.value("nDCG@2") == pytest.approx(1 / (1 + 1 / math.log2(3)))
    assert (scores.value("RR"), scores.value("R@2")) == (1.0, 0.5)
    assert scores.coverage.keyed_by == keyed_by
    assert said(scores, note)


def test_unknown_passages_are_counted() -> None:
    """R26: an id that is neither passage nor document keeps its rank and is named."""
    scores = score({"q": in_order("NCT9:0", "NCT1:0")}, trials(), card(max_passage=True), ["RR"])

    assert scores.value("RR") == 0.5
    assert said(scores, "1 document of the run that the corpus lacks: 'NCT9:0'")


def test_max_passage_can_be_turned_off() -> None:
    """Off means as it stands: passages are unknown to labels of documents, and the note says so."""
    scores = score({"q": in_order("NCT1:0", "NCT3")}, trials(), card(max_passage=True), ["RR"], max_passage="off")

    assert scores.value("RR") == 0.5
    assert said(scores, "keyed by passages", "MaxP is off")


def test_max_passage_is_refused_where_it_makes_no_sense() -> None:
    """`on` over labels of passages, or over a corpus of documents, is refused with the reason."""
    with pytest.raises(UsageError, match="Tiny has labels of single passages, so no"):
        score({"q": in_order("NCT1:0")}, trials(), card(), max_passage="on")
    with pytest.raises(UsageError, match="Tiny has labels of whole documents, so no"):
        score({"q": in_order("a")}, collection({"q": {"a": 1}}), card(), max_passage="on")
    with pytest.raises(DataError, match="does not say whose passage is whose"):
        score({"q": in_order("a")}, collection({"q": {"a": 1}}), card(max_passage=True))
    assert score({"q": in_order("NCT1:0")}, trials(), measures=["RR"], max_passage="on").value("RR") == 1.0


# ---------------------------------------------------------------- depth


def deep(n_documents: int, depth: int) -> tuple[RunDict, object]:
    """Return a run of ``depth`` documents over a corpus of ``n_documents``."""
    documents = [f"d{number}" for number in range(n_documents)]
    return {"q": in_order(*documents[:depth])}, collection({"q": {"d0": 1, "d99999": 1}}, documents)


def test_a_shallow_run_has_no_deep_recall() -> None:
    """R12: R@1000 of 100 documents out of 5,000 is flagged and has no value; R@100 has one."""
    scores = score(*deep(5000, 100), measures=["R@1000", "R@100", "nDCG@1000", "RR", "AP"])

    assert set(scores.summary) == {"R@100", "RR", "AP"}
    assert set(scores.flagged) == {"R@1000", "nDCG@1000"}
    assert said(scores, "depth 100 < cutoff 1000", "R@1000, nDCG@1000")
    assert "recall_at_1000" not in scores.mteb_scores()
    with pytest.raises(UsageError, match=r"R@1000 has no value: the run is 100 documents deep"):
        scores.value("R@1000")


def test_a_corpus_smaller_than_the_cutoff_is_fine() -> None:
    """R12: five documents, all retrieved: nothing is missing below rank 5."""
    scores = score(*deep(5, 5), measures=["R@1000"])

    assert scores.value("R@1000") == 0.5
    assert scores.coverage.is_complete
    assert not scores.notes


@pytest.mark.parametrize("cutoff", [900, 1000])
def test_a_small_corpus_wants_all_of_it(cutoff: int) -> None:
    """R@900 and R@1000 look at each of 900 documents, so a run of 100 has neither, and both numbers are said."""
    scores = score(*deep(900, 100), measures=[f"R@{cutoff}"])

    assert set(scores.flagged) == {f"R@{cutoff}"}
    assert said(scores, f"depth 100 < cutoff {cutoff}, and 900 documents could be retrieved", f"--depth {cutoff}")
    assert not score(*deep(900, 900), measures=[f"R@{cutoff}"]).flagged


def test_depth_is_that_of_the_longest_ranking() -> None:
    """A ranking that ended before the longest one found no more, as BM25's do: that query is no reason to flag."""
    documents = [f"d{number}" for number in range(9)]
    tiny = collection({"a": {"d0": 1}, "b": {"d1": 1}}, documents)

    whole = score({"a": in_order(*documents), "b": in_order("d1")}, tiny, measures=["R@5", "R@100"])
    cut = score({"a": in_order(*documents[:8]), "b": in_order("d1")}, tiny, measures=["R@5", "R@100"])

    assert (whole.summary, whole.flagged) == ({"R@5": 1.0, "R@100": 1.0}, {})
    assert (cut.summary, set(cut.flagged)) == ({"R@5": 1.0}, {"R@100"})


def test_without_a_corpus_only_the_cutoff_counts() -> None:
    """With judgements alone nobody knows what could be retrieved: a run of 2 has no R@10, unless its depth is told."""
    tiny = collection({"q1": {"d1": 1}})
    tiny = replace(tiny, corpus=tiny.corpus.slice(0, 0))

    scores = score({"q1": in_order("x", "d1")}, tiny, measures=["R@2", "R@10"])

    assert (scores.summary, set(scores.flagged)) == ({"R@2": 1.0}, {"R@10"})
    assert score({"q1": in_order("x", "d1")}, tiny, measures=["R@10"], depth=10).value("R@10") == 1.0


def test_each_query_s_own_candidates_bound_its_depth() -> None:
    """A query with 2 candidates, all ranked, says nothing about another that has 4 and ranks 2."""
    documents = ["a", "b", "c", "d"]
    candidates = {"q1": ["a", "b"], "q2": documents}
    tiny = collection({"q1": {"a": 1}, "q2": {"c": 1}}, documents, candidates=candidates)

    cut = score({"q1": in_order("a", "b"), "q2": in_order("a", "b")}, tiny, measures=["R@3", "R@10"])

    assert set(cut.flagged) == {"R@3", "R@10"}
    assert not score({"q1": in_order("a", "b"), "q2": in_order(*documents)}, tiny, measures=["R@3", "R@10"]).flagged


def test_an_exclusion_that_the_corpus_lacks_makes_no_run_complete() -> None:
    """Three documents, two ranked: taking out the query's own id, which is none of them, leaves three to retrieve."""
    tiny = collection({"q": {"b": 1}}, ["a", "b", "c"])

    assert set(score({"q": in_order("b", "c")}, tiny, card(exclude_self=True), ["R@3"]).flagged) == {"R@3"}


def test_the_caller_may_know_how_deep_the_search_went() -> None:
    """BM25 returns fewer than it was asked for when no more documents match: such rankings are complete."""
    scores = score(*deep(5000, 100), measures=["R@1000"], depth=1000)

    assert scores.value("R@1000") == 0.5
    assert scores.coverage.depth == 1000


def test_candidates_and_exclusions_bound_the_depth() -> None:
    """With 2 candidates, or the query itself taken out of 3 documents, a ranking of 2 is complete."""
    tiny = collection({"a": {"b": 1}}, ["a", "b", "c"])

    scores = score({"a": in_order("b", "c")}, tiny, card(exclude_self=True), ["R@3"])

    assert scores.coverage.is_complete
    assert scores.value("R@3") == 1.0
    candidates = collection({"q": {"a": 1}}, [f"d{n}" for n in range(50)] + ["a"], candidates={"q": ["a", "d1"]})
    assert score({"q": in_order("a", "d1")}, candidates, card(kind="reranking"), ["R@10"]).coverage.is_complete


# ---------------------------------------------------------------- labels


def test_gain_and_relevance_follow_their_own_labels() -> None:
    """R10: nDCG uses the graded labels, R@10 the binary ones; without binary labels it is the card's threshold."""
    graded, binary = {"q": {"a": 1, "b": 2}}, {"q": {"a": 0, "b": 1}}
    run = {"q": in_order("a", "b")}

    two = score(run, collection(graded, binary=binary), card(), ["nDCG@1", "R@1", "P@2"])
    one = score(run, collection(graded), card(relevant_from=2), ["nDCG@1", "R@1", "P@2"])

    for scores in (one, two):
        assert scores.summary == {"nDCG@1": 0.5, "R@1": 0.0, "P@2": 0.5}


def test_the_threshold_is_one_of_graded_labels() -> None:
    """`relevant_from = 2` reads grades; binary labels are relevant from 1 whatever it is."""
    tiny = collection({"q": {"a": 1, "b": 2}}, binary={"q": {"a": 1, "b": 0}})

    assert score({"q": in_order("a", "b")}, tiny, card(relevant_from=2), ["R@1"]).value("R@1") == 1.0


def test_binary_labels_may_lack_a_query() -> None:
    """A query that only the graded labels have stays in every mean, with recall 0."""
    tiny = collection({"q1": {"a": 1}, "q2": {"a": 1}}, binary={"q2": {"a": 1}})

    scores = score({"q1": in_order("a"), "q2": in_order("a")}, tiny, card(), ["nDCG@1", "R@1"])

    assert scores.summary == {"nDCG@1": 1.0, "R@1": 0.5}


def test_without_a_card_the_measures_are_crumbs_nine() -> None:
    """A collection without rules gets the defaults of CRUMB's evaluator, in its order."""
    assert tuple(score({"q": {"a": 1.0}}, collection({"q": {"a": 1}})).summary) == CRUMB_MEASURES


def test_a_card_names_its_measures() -> None:
    """With a card these are its main measure and the others, each once; what is asked for goes before."""
    task = card(main_measure="R@100", measures=["nDCG@10", "R@100"])
    run, tiny = {"q": {"a": 1.0}}, collection({"q": {"a": 1}})

    assert list(score(run, tiny, task).summary) == ["R@100", "nDCG@10"]
    assert list(score(run, tiny, task, ["MRR@10", "RR@10"]).summary) == ["RR@10"]
    with pytest.raises(UsageError, match="did you mean 'R@100'"):
        score(run, tiny, task, ["recall@100"])
    with pytest.raises(UsageError, match="no measure was asked for"):
        score(run, tiny, task, [])


def test_mtebs_keys_are_those_of_its_own_scorer() -> None:
    """All 42 standard values have MTEB's key and, on a plain collection, MTEB's own values to five places."""
    metrics = pytest.importorskip("mteb._evaluators.retrieval_metrics")
    random = np.random.default_rng(11)
    documents = [f"d{number}" for number in range(40)]
    grades = {
        f"q{q}": {d: int(random.integers(0, 3)) for d in random.choice(documents, 8, replace=False)} for q in range(9)
    }
    run = {q: {d: float(random.integers(0, 9)) for d in documents} for q in grades}

    ours = score(run, collection(grades, documents), measures=MTEB_MEASURES).mteb_scores()
    theirs = metrics.calculate_retrieval_scores(run, grades, [1, 3, 5, 10, 20, 100, 1000])

    parts = {"ndcg": theirs.ndcg, "map": theirs.map, "recall": theirs.recall, "precision": theirs.precision}
    expected = {
        f"{key}_at_{name.partition('@')[2]}": value for key, part in parts.items() for name, value in part.items()
    }
    assert len(expected) == 28
    assert {key: ours[key] for key in expected} == pytest.approx(expected, abs=6e-6)
    assert {key for key in ours if key.startswith(("mrr", "hit_rate"))} == {
        f"{name}_at_{k}" for name in ("mrr", "hit_rate") for k in (1, 3, 5, 10, 20, 100, 1000)
    }


@given(judgements(), rankings())
@settings(max_examples=100, deadline=None)
def test_the_order_of_a_dictionary_never_shows(grades: Grades, run: Mapping[str, Mapping[str, float]]) -> None:
    """R01: reversing the dictionaries changes no bit of any value, of the mean neither."""
    if not set(run) & set(grades) or not any(run.values()):
        return
    tiny = collection(grades, [*{d for row in (*grades.values(), *run.values()) for d in row}])
    turned = {query_id: dict(reversed(ranking.items())) for query_id, ranking in reversed(run.items())}

    assert score(run, tiny).summary == score(turned, tiny).summary


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_a_constant_scorer_has_one_score(order: tuple[str, ...]) -> None:
    """R01: three ties with the relevant one first in the data: the mean is the same in all orders, 1/3 and not 1."""
    scores = score(
        {"q": dict.fromkeys(order, 1.0)}, collection({"q": {"a": 1}}, "abc"), measures=["RR@10", "AP", "nDCG@2"]
    )

    assert scores.summary == {"RR@10": pytest.approx(1 / 3), "AP": pytest.approx(1 / 3), "nDCG@2": 0.0}


# ---------------------------------------------------------------- groups, choices, parts


def test_robustness_is_the_mean_of_the_worst_variants() -> None:
    """InstructIR: two variants of one query at 1 and 1/2, one alone at 1: Robustness@10 is (.63 + 1) / 2."""
    tiny = collection({"1_1": {"a": 1}, "1_2": {"b": 1}, "2_1": {"a": 1}}, groups={"1_1": "1", "1_2": "1", "2_1": "2"})
    low = 1 / math.log2(3)

    scores = score(
        {query_id: in_order("a", "b") for query_id in tiny.groups}, tiny, measures=["Robustness@10", "nDCG@10"]
    )

    assert scores.value("Robustness@10") == pytest.approx((low + 1) / 2)
    assert scores.extras["robustness_at_10"] == scores.value("Robustness@10")
    assert scores.extras["group_mean_ndcg_at_10"] == pytest.approx(((1 + low) / 2 + 1) / 2)
    assert scores.extras["group_std_ndcg_at_10"] == pytest.approx(((1 - low) / 2 + 0) / 2)
    assert scores.extras["n_groups"] == 2
    assert scores.value("nDCG@10") == pytest.approx((2 + low) / 3), "the mean over queries stays that"
    with pytest.raises(UsageError, match="Robustness@10 needs groups, which Tiny does not have"):
        score({"q": {"a": 1.0}}, collection({"q": {"a": 1}}), measures=["Robustness@10"])


def choices(run: Mapping[str, float], options: str, answer: int | None, right: str = "") -> dict[str, float]:
    """Return the accuracies of one question with one-letter options."""
    grades = {"q": {right or options[answer or 0]: 1}}
    tiny = collection(
        grades, sorted(set(options)), candidates={"q": list(options)}, answers={} if answer is None else {"q": answer}
    )
    scores = score({"q": dict(run)}, tiny, card(kind="choice", main_measure="accuracy"))
    return {name: scores.extras[name] for name in ("accuracy", "accuracy_argmax")}


def test_accuracy_shares_the_credit_among_ties() -> None:
    """RAR-b: the best option is right, wrong, or one of t that tie (1/t); argmax takes the first of these."""
    assert choices({"a": 2, "b": 1}, "ab", 0) == {"accuracy": 1.0, "accuracy_argmax": 1.0}
    assert choices({"a": 2, "b": 1}, "ab", 1) == {"accuracy": 0.0, "accuracy_argmax": 0.0}
    assert choices(dict.fromkeys("abcd", 1), "abcd", 0) == {"accuracy": 0.25, "accuracy_argmax": 1.0}
    assert choices(dict.fromkeys("abcd", 1), "abcd", 2) == {"accuracy": 0.25, "accuracy_argmax": 0.0}
    assert choices({"a": 1, "b": 1, "c": 0}, "cba", 1) == {"accuracy": 0.5, "accuracy_argmax": 1.0}


def test_a_right_text_that_stands_there_twice_counts_as_the_papers_code_counts_it() -> None:
    """Both share a score: np.argmax returns the first, so the answer is right if it is the first and else shares."""
    assert choices({"a": 2, "b": 1}, "aba", 0) == {"accuracy": 1.0, "accuracy_argmax": 1.0}
    assert choices({"a": 2, "b": 1}, "aba", 2) == {"accuracy": 0.5, "accuracy_argmax": 0.0}
    assert choices({"a": 2, "b": 1}, "aba", None, right="a") == {"accuracy": 1.0, "accuracy_argmax": 1.0}


def test_an_unranked_option_is_below_all_ranked_ones() -> None:
    """Not returning the right option is a wrong answer; returning nothing is one as well."""
    assert choices({"b": -5}, "ab", 0) == {"accuracy": 0.0, "accuracy_argmax": 0.0}
    assert choices({"b": -5}, "ab", 1) == {"accuracy": 1.0, "accuracy_argmax": 1.0}
    assert choices({}, "ab", 0) == {"accuracy": 0.0, "accuracy_argmax": 0.0}


def test_accuracy_is_the_value_of_its_measure() -> None:
    """A card whose main measure is accuracy has it per query and in the summary; a wrong answer position is refused."""
    tiny = collection({"q": {"a": 1}}, "ab", candidates={"q": ["a", "b"]}, answers={"q": 0})
    task = card(kind="choice", main_measure="accuracy")

    scores = score({"q": in_order("a", "b")}, tiny, task)

    assert scores.summary == {"accuracy": 1.0}
    assert scores.per_query["accuracy"].tolist() == [1.0]
    broken = collection({"q": {"a": 1}}, "ab", candidates={"q": ["a", "b"]}, answers={"q": 2})
    with pytest.raises(DataError, match="the answer is option 2 of 2, counted from 0"):
        score({"q": in_order("a", "b")}, broken, task)


def test_parts_of_the_queries_have_values_of_their_own() -> None:
    """NCI's seen and unseen, MuSiQue's hops: each part has its count and the card's measures, MTEB's 42 not."""
    tiny = collection(
        {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"b": 1}},
        query_labels={"gold": {"q1": "seen", "q2": "unseen", "q3": "unseen"}, "hops": {"q1": "2hop"}},
    )
    run = {"q1": in_order("a"), "q2": in_order("a", "b"), "q3": in_order("b")}

    scores = score(run, tiny, card(main_measure="RR"), ["RR", *MTEB_MEASURES])

    parts = {key: value for key, value in scores.extras.items() if key.endswith(("seen", "hop"))}
    assert parts == {
        "mrr_seen": 1.0, "mrr_unseen": 0.75, "mrr_2hop": 1.0,
        "n_queries_seen": 1, "n_queries_unseen": 2, "n_queries_2hop": 1,
    }  # fmt: skip
    assert scores.value("mrr_unseen") == 0.75
    clash = collection({"q1": {"a": 1}}, query_labels={"x": {"q1": "same"}, "y": {"q1": "same"}})
    with pytest.raises(DataError, match="a part 'same'"):
        score({"q1": in_order("a")}, clash)


def test_nuggets_make_diversity_measures() -> None:
    """FreshStack: Coverage@k from the nuggets of each query; without nuggets the measure is refused by name."""
    pytest.importorskip("pyndeval")
    nuggets = {"q1": {"n1": frozenset({"a", "b"}), "n2": frozenset({"c"})}}
    tiny = collection({"q1": {"a": 1, "b": 1, "c": 1}, "q2": {"a": 1}}, nuggets=nuggets)
    run = {"q1": in_order("a", "b", "c"), "q2": in_order("a")}

    scores = score(run, tiny, measures=["Coverage@2", "Coverage@3", "alpha_nDCG@3"])

    assert scores.per_query["Coverage@2"].tolist() == [0.5, 0.0]
    assert scores.value("Coverage@3") == 0.5
    assert 0 < scores.per_query["alpha_nDCG@3"][0] < 1
    with pytest.raises(UsageError, match="Coverage@2 needs nuggets, which Tiny does not have"):
        score(run, collection({"q1": {"a": 1}}), measures=["Coverage@2"])


def test_delegated_measures_use_the_cards_labels() -> None:
    """Bpref and the like read the binary labels where there are any, and the card's threshold where not."""
    pytest.importorskip("ir_measures")
    run = {"q": in_order("a", "b"), "q2": {}}
    graded = {"q": {"a": 1, "b": 2}, "q2": {"a": -1}}

    own = score(run, collection(graded, binary={"q": {"a": 0, "b": 1}}), card(), ["SetP", "SetP(rel=1)"])
    threshold = score(run, collection(graded), card(relevant_from=2), ["SetP", "SetP(rel=1)"])

    assert own.per_query["SetP"].tolist() == threshold.per_query["SetP"].tolist() == [0.5, 0.0]
    assert own.per_query["SetP(rel=1)"].tolist() == [1.0, 0.0]


# ---------------------------------------------------------------- results


def test_results_are_plain_numbers() -> None:
    """A summary, extras and MTEB's dictionary go into strict JSON as they are."""
    scores = score({"q": {"a": 1.0}}, collection({"q": {"a": 1}}, groups={"q": "g"}))

    assert json.loads(json.dumps(scores.mteb_scores(), allow_nan=False))["ndcg_at_10"] == 1.0
    assert type(scores.value("nDCG@10")) is float


def test_asking_for_what_was_not_computed_names_what_was() -> None:
    """A typo in a notebook is one line with a suggestion."""
    scores = score({"q": {"a": 1.0}}, collection({"q": {"a": 1}}), measures=["nDCG@10"])

    assert scores.value("NDCG@10") == 1.0
    with pytest.raises(UsageError, match=r"nDCG@5 was not computed; did you mean 'nDCG@10'\? \(there are: nDCG@10\)"):
        scores.value("nDCG@5")


def test_measures_of_results_are_parsed_ones() -> None:
    """Readers of results find each measure's cutoff and labels without parsing names again."""
    scores = score({"q": {"a": 1.0}}, collection({"q": {"a": 1}}), measures=["MRR@10"])

    assert scores.measures == (parse_measure("RR@10"),)
