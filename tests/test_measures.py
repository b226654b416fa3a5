from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import Grades, RunDict, judgements, rankings

from crumb_tasks.collection import Qrels
from crumb_tasks.errors import MissingExtraError, UsageError
from crumb_tasks.measures import delegated, mteb_key, notation, parse_measure
from crumb_tasks.measures.kernels import JudgedRanks, evaluate
from crumb_tasks.measures.nuggets import coverage, nugget_reciprocal_rank
from crumb_tasks.runs import Run

CUTOFFS = (1, 2, 3, 5, 10, 1000)
TREC_EVAL = {
    "nDCG": "ndcg",
    "AP": "map",
    "RR": "recip_rank",
    "Rprec": "Rprec",
    **{f"nDCG@{k}": f"ndcg_cut_{k}" for k in CUTOFFS},
    **{f"AP@{k}": f"map_cut_{k}" for k in CUTOFFS},
    **{f"P@{k}": f"P_{k}" for k in CUTOFFS},
    **{f"R@{k}": f"recall_{k}" for k in CUTOFFS},
    **{f"Success@{k}": f"success_{k}" for k in CUTOFFS},
}
"""Our name → trec_eval's, of the measures that both have."""


def values_of(
    run: RunDict, grades: Grades, *measures: str, relevant_from: int = 1, binary: Grades | None = None
) -> dict[str, dict[str, float]]:
    """Return measure → query → value, of all judged queries."""
    qrels = Qrels.from_dict(grades)
    ranked = Run.from_dict(run).select(qrels.query_ids)
    of_binary = None if binary is None else JudgedRanks.find(ranked, Qrels.from_dict(binary).select(qrels.query_ids))
    found = evaluate(
        map(parse_measure, measures), JudgedRanks.find(ranked, qrels), of_binary, relevant_from=relevant_from
    )
    return {name: dict(zip(qrels.query_ids, values.tolist(), strict=True)) for name, values in found.items()}


def value_of(run: Mapping[str, float], grades: Mapping[str, int], measure: str, **rules: Any) -> float:
    """Return the value of one query."""
    return next(iter(values_of({"q": dict(run)}, {"q": dict(grades)}, measure, **rules).values()))["q"]


def in_order(*documents: str) -> dict[str, float]:
    """Return scores that rank ``documents`` in this order."""
    return {doc_id: float(-rank) for rank, doc_id in enumerate(documents)}


# ---------------------------------------------------------------- notation


@pytest.mark.parametrize(
    ("text", "name", "key"),
    [
        ("nDCG@10", "nDCG@10", "ndcg_at_10"),
        ("NDCG@10", "nDCG@10", "ndcg_at_10"),
        ("nDCG(dcg='exp-log2')@10", "nDCG(dcg='exp-log2')@10", "ndcg_exp_at_10"),
        ("nDCG(dcg='log2')@10", "nDCG@10", "ndcg_at_10"),
        ("R@100", "R@100", "recall_at_100"),
        ("P@5", "P@5", "precision_at_5"),
        ("P(rel=2)@5", "P(rel=2)@5", "precision_rel2_at_5"),
        ("P(rel=2, cutoff=5)", "P(rel=2)@5", "precision_rel2_at_5"),
        ("MRR@10", "RR@10", "mrr_at_10"),
        ("RR", "RR", "mrr"),
        ("MAP", "AP", "map"),
        ("AP@10", "AP@10", "map_at_10"),
        ("Success@1", "Success@1", "hit_rate_at_1"),
        ("Rprec", "Rprec", "r_precision"),
        ("Judged@10", "Judged@10", "judged_at_10"),
        ("all_recall@5", "all_recall@5", "all_recall_at_5"),
        ("Coverage@20", "Coverage@20", "coverage_at_20"),
        ("nugget_RR@10", "nugget_RR@10", "nugget_rr_at_10"),
        ("Robustness@10", "Robustness@10", "robustness_at_10"),
        ("accuracy", "accuracy", "accuracy"),
        ("alpha_nDCG@10", "alpha_nDCG@10", "alpha_ndcg_at_10"),
        ("alpha_nDCG(alpha=0.9)@10", "alpha_nDCG(alpha=0.9)@10", "alpha_ndcg_alpha0_9_at_10"),
        ("IPrec@0.1", "IPrec@0.1", "iprec_at_0.1"),
        ("RBP(p=1)", "RBP(p=1.0)", "rbp_p1_0"),
    ],
)
def test_a_measure_has_one_name_and_one_key_of_mteb(text: str, name: str, key: str) -> None:
    """Whatever way it is written, results store a measure under one canonical name."""
    measure = parse_measure(text)

    assert measure.name == name
    assert mteb_key(measure) == key
    assert parse_measure(measure.name) == measure


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("recall@100", "did you mean 'R@100' (which MTEB calls recall_at_100)?"),
        ("recall_at_100", "'R@100'"),
        ("ndcg_at_10", "'nDCG@10'"),
        ("ndcg_cut_10", "'nDCG@10'"),
        ("hit_rate@5", "'Success@5' (which MTEB calls hit_rate_at_5)"),
        ("map", "'AP'"),
        ("robustness_at_10", "'Robustness@10'"),
        ("ndgc@10", "'nDCG'"),
        ("nonsense", "write it as in nDCG@10"),
        ("", "write it as in nDCG@10"),
        ("nDCG@@10", "write it as in nDCG@10"),
        ("nDCG@0", "a cutoff is an integer from 1 on"),
        ("nDCG@1.5", "a cutoff is an integer from 1 on"),
        ("P", "P needs a cutoff, as in P@10"),
        ("Rprec@3", "Rprec takes no cutoff; write Rprec"),
        ("P(rel='a')@5", "rel takes an integer, not 'a'"),
        ("P(rel=True)@5", "rel takes an integer, not True"),
        ("P(rell=2)@5", "did you mean 'rel'?"),
        ("P(2)@5", "cannot read '(2)'"),
        ("P(rel=__import__('os'))@5", "cannot read"),
        ("P(rel=1).x()@5", "cannot read|write it as"),
        ("P(cutoff=5)@5", "two cutoffs"),
        ("nDCG(dcg='ln')@10", "dcg is 'log2' or 'exp-log2'"),
        ("nDCG(gains=3)@10", "a mapping from grade to gain"),
        ("BPM@10", "BPM needs max_rel"),
        ("IPrec", "a recall level, as in IPrec@0.1"),
    ],
)
def test_a_wrong_measure_is_one_line_with_the_remedy(text: str, said: str) -> None:
    """R15: `recall@100` names R@100 and MTEB's recall_at_100; a typo is never a silent other measure."""
    with pytest.raises(UsageError) as caught:
        parse_measure(text)

    assert any(part in str(caught.value) for part in said.split("|"))
    assert "\n" not in str(caught.value)


@given(st.text(max_size=20))
def test_no_text_breaks_the_reader_of_measures(text: str) -> None:
    """Whatever is typed, the answer is a measure or our own error."""
    try:
        measure = parse_measure(text)
    except UsageError:
        return
    assert parse_measure(measure.name) == measure


def test_the_notation_is_that_of_ir_measures() -> None:
    """Names, aliases, parameters and defaults are those of ir_measures' registry, so that its documentation holds."""
    ir_measures = pytest.importorskip("ir_measures")
    counts = {"NumQ", "NumRel", "NumRet"}  # sums that are no measure of a run; scoring's coverage has them
    theirs: dict[str, set[str]] = {}
    for alias, measure in ir_measures.measures.registry.items():
        theirs.setdefault(measure.NAME, set()).add(alias)
    ours = {"all_recall", "Coverage", "nugget_RR", "Robustness", "accuracy", "accuracy_argmax"}

    assert set(theirs) - counts == set(notation._SPECS) - ours
    for name, aliases in theirs.items():
        if name in counts:
            continue
        spec = notation._SPECS[name]
        params = dict(ir_measures.measures.registry[name].SUPPORTED_PARAMS)
        at = params.pop("recall" if name == "IPrec" else "cutoff", None)
        assert set(spec.aliases) == aliases - {name}
        assert set(spec.defaults) == set(params), name
        assert (at is None, at is not None and at.required) == (spec.at == "none", spec.at in {"required", "recall"})
        for key, default in spec.defaults.items():
            if isinstance(default, type):
                assert params[key].dtype is default
            elif (name, key) != ("RBP", "rel"):  # theirs has none: graded gains, which none of its tools computes
                assert params[key].default == default


def test_canonical_names_are_those_that_ir_measures_prints() -> None:
    """A name from our results can be pasted into ir_measures and back."""
    ir_measures = pytest.importorskip("ir_measures")
    if sys.version_info >= (3, 14):
        pytest.skip("ir_measures' parser uses nodes that the ast of Python 3.14 lacks")
    for text in (
        "NDCG@10", "P(rel=2)@5", "MRR", "MAP(rel=3)@7", "nDCG(dcg='exp-log2')@20", "Recall@1", "IPrec@0.5",
        "SetF(beta=2.0,rel=2)", "nDCG(gains={1:5,2:2})@10", "BPM(max_rel=2)@10", "alpha_nDCG(alpha=0.9)@10",
    ):  # fmt: skip
        assert parse_measure(text).name == str(ir_measures.parse_measure(text))


def test_reading_names_imports_nothing_heavy() -> None:
    """`crumb-tasks list` reads all cards and their measures without ir_measures, scipy or pandas."""
    code = (
        "import sys, crumb_tasks.measures as m; m.parse_measure('ERR@10'); print([n for n in %r if n in sys.modules])"
    )
    heavy = ["ir_measures", "scipy", "pandas", "torch", "mteb", "pytrec_eval"]

    done = subprocess.run([sys.executable, "-c", code % heavy], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------- kernels against trec_eval


@given(judgements(), rankings())
@settings(max_examples=300, deadline=None)
def test_the_common_measures_are_those_of_trec_eval(grades: Grades, run: RunDict) -> None:
    """On runs full of ties and on negative grades every shared measure equals pytrec_eval's."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    evaluator = pytrec_eval.RelevanceEvaluator(
        _safe_for_trec_eval(grades),
        {"ndcg", "map", "recip_rank", "Rprec"}
        | {f"{name}.{','.join(map(str, CUTOFFS))}" for name in ("ndcg_cut", "map_cut", "P", "recall", "success")},
    )
    theirs = evaluator.evaluate({query_id: ranking for query_id, ranking in run.items() if ranking})

    ours = values_of(run, grades, *TREC_EVAL)

    for name, their_name in TREC_EVAL.items():
        for query_id in theirs:
            assert ours[name][query_id] == pytest.approx(theirs[query_id][their_name], abs=1e-12), (name, query_id)


@given(judgements(), rankings(), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_thresholds_are_those_of_ir_measures(grades: Grades, run: RunDict, rel: int) -> None:
    """Measures with a threshold, and reciprocal rank with a cutoff, equal ir_measures' at each query it knows."""
    ir_measures = pytest.importorskip("ir_measures")
    names = [f"P(rel={rel})@3", f"R(rel={rel})@3", f"AP(rel={rel})", f"Success(rel={rel})@2", f"Rprec(rel={rel})"]
    names += [f"RR(rel={rel})", f"RR(rel={rel})@2"]
    objects = {
        f"{name}(rel={rel})" + (f"@{cutoff}" if cutoff else ""): _of_ir_measures(name, rel, cutoff)
        for name, cutoff in [("P", 3), ("R", 3), ("AP", None), ("Success", 2), ("Rprec", None), ("RR", None), ("RR", 2)]
    }
    # scores of our total order: ir_measures' own RR@k breaks ties by the order of the dictionary
    ordered = {query_id: _strictly_falling(ranking) for query_id, ranking in run.items()}
    theirs = ir_measures.calc(objects.values(), _safe_for_trec_eval(grades), ordered).per_query
    name_by_object = {theirs_: name for name, theirs_ in objects.items()}

    ours = values_of(run, grades, *names)

    for result in theirs:
        if run.get(result.query_id):
            value = ours[name_by_object[result.measure]][result.query_id]
            assert value == pytest.approx(result.value, abs=1e-9), result


def _safe_for_trec_eval(grades: Grades) -> dict[str, dict[str, int]]:
    """Return the queries that do not corrupt its memory: pytrec_eval 0.5.11 crashes when all grades are negative."""
    return {
        query_id: dict(grade_by_doc) for query_id, grade_by_doc in grades.items() if max(grade_by_doc.values()) >= 0
    }


def _of_ir_measures(name: str, rel: int, cutoff: int | None) -> Any:
    import ir_measures

    parameters = {"rel": rel} | ({"cutoff": cutoff} if cutoff else {})
    return ir_measures.measures.registry[name](**parameters)


def _strictly_falling(ranking: Mapping[str, float]) -> dict[str, float]:
    order = sorted(ranking, key=lambda doc_id: (ranking[doc_id], doc_id), reverse=True)
    return {doc_id: float(len(order) - rank) for rank, doc_id in enumerate(order)}


@given(judgements(), rankings())
@settings(max_examples=100, deadline=None)
def test_all_values_stay_within_0_and_1(grades: Grades, run: RunDict) -> None:
    """No run and no judgements, however odd, give a value above 1, below 0, or none."""
    names = [*TREC_EVAL, "nDCG(dcg='exp-log2')@3", "RR@2", "Judged", "Judged@3", "all_recall@3"]
    for values in values_of(run, grades, *names).values():
        assert all(0 <= value <= 1 + 1e-12 for value in values.values())


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval needs perl")
def test_exponential_gain_is_that_of_gdeval() -> None:
    """nDCG(dcg='exp-log2')@k equals TREC's gdeval to the five decimals that it prints."""
    ir_measures = pytest.importorskip("ir_measures")
    random = np.random.default_rng(5)
    grades = {str(q): {f"d{d}": int(random.integers(-1, 4)) for d in range(12)} for q in range(1, 20)}
    run = {q: {f"d{d}": float(s) for d, s in enumerate(random.permutation(15))} for q in grades}
    theirs = ir_measures.measures.registry["nDCG"](dcg="exp-log2", cutoff=5)

    ours = values_of(run, grades, "nDCG(dcg='exp-log2')@5")["nDCG(dcg='exp-log2')@5"]

    for result in ir_measures.iter_calc([theirs], grades, run):
        assert ours[result.query_id] == pytest.approx(result.value, abs=6e-6)


# ---------------------------------------------------------------- what differs from the tools


def test_scores_are_compared_in_float64() -> None:
    """trec_eval stores scores in float32, where these two tie and the id decides; here the score decides."""
    run = {"a": 1.0 + 1e-12, "b": 1.0}

    assert value_of(run, {"a": 1}, "RR") == 1.0


def test_an_unanswered_query_is_zero_and_stays() -> None:
    """pytrec_eval drops a query that the run lacks; here it has the value 0."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    grades = {"q1": {"a": 1}, "q2": {"a": 1}}
    dropped = pytrec_eval.RelevanceEvaluator(grades, {"map"}).evaluate({"q1": {"a": 1.0}})

    assert set(dropped) == {"q1"}
    assert values_of({"q1": {"a": 1.0}}, grades, "AP")["AP"] == {"q1": 1.0, "q2": 0.0}


def test_judged_follows_the_total_order() -> None:
    """ir_measures' Judged breaks ties by id ascending; here it looks at the same first k as all other measures."""
    run, grades = {"a": 1.0, "b": 1.0}, {"b": 0}

    assert value_of(run, grades, "Judged@1") == 1.0
    assert value_of(run, grades, "Judged@2") == 0.5
    assert value_of(run, grades, "Judged@9") == 0.5


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_no_measure_sees_the_order_of_the_input(order: tuple[str, ...]) -> None:
    """R01: three tied documents, one relevant: every measure is the same in all six orders, and RR equals AP."""
    run = {"q": dict.fromkeys(order, 0.5)}
    names = [*TREC_EVAL, "RR@2", "Judged@2", "all_recall@2", "nDCG(dcg='exp-log2')@2"]

    for relevant, rank in (("a", 3), ("b", 2), ("c", 1)):
        values = {name: value["q"] for name, value in values_of(run, {"q": {relevant: 1}}, *names).items()}
        assert values["RR"] == values["AP"] == pytest.approx(1 / rank)
        assert values["nDCG"] == pytest.approx(1 / math.log2(rank + 1))
        assert values["P@2"] == values["all_recall@2"] / 2 == (rank <= 2) / 2


@given(judgements(), rankings(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_shuffling_a_run_changes_no_value(grades: Grades, run: RunDict, random: Any) -> None:
    """R01, for any run: two dictionaries with the same pairs have bit-identical values."""
    shuffled = {
        query_id: dict(random.sample(list(ranking.items()), len(ranking)))
        for query_id, ranking in random.sample(list(run.items()), len(run))
    }

    assert values_of(run, grades, *TREC_EVAL) == values_of(shuffled, grades, *TREC_EVAL)


# ---------------------------------------------------------------- definitions


def test_the_worked_example_of_the_lecture() -> None:
    """Relevant {a, b, c}, R = 3; discounts 1, .6309, .5; grades 2 and 3 are relevant for binary measures, 1 is not."""
    grades = {"a": 3, "b": 2, "c": 2, "x": 1}
    run = in_order("a", "x", "b", "y", "c")
    discounts = [1, 0.6309, 0.5]

    at_3 = {name: value_of(run, grades, name, relevant_from=2) for name in ("P@3", "R@3", "Rprec", "RR", "Success@1")}

    assert at_3 == {"P@3": 2 / 3, "R@3": 2 / 3, "Rprec": 2 / 3, "RR": 1.0, "Success@1": 1.0}
    assert value_of(run, grades, "AP", relevant_from=2) == pytest.approx((1 + 2 / 3 + 3 / 5) / 3)
    gained = 3 * discounts[0] + 1 * discounts[1] + 2 * discounts[2]
    ideal = 3 * discounts[0] + 2 * discounts[1] + 2 * discounts[2]
    assert value_of(run, grades, "nDCG@3") == pytest.approx(gained / ideal, abs=1e-4)
    gained = 7 * discounts[0] + 1 * discounts[1] + 3 * discounts[2]
    ideal = 7 * discounts[0] + 3 * discounts[1] + 3 * discounts[2]
    assert value_of(run, grades, "nDCG(dcg='exp-log2')@3") == pytest.approx(gained / ideal, abs=1e-4)


def test_precision_divides_by_the_cutoff_even_if_fewer_were_retrieved() -> None:
    """One relevant document alone is no precision of 1 at 10."""
    assert value_of({"a": 1.0}, {"a": 1}, "P@10") == pytest.approx(0.1)


def test_all_recall_wants_everything() -> None:
    """Completeness is 1 only when no relevant document is missing, and 0 where there is none."""
    grades = {"a": 1, "b": 2, "c": 0}

    assert value_of(in_order("a", "x", "b"), grades, "all_recall@3") == 1.0
    assert value_of(in_order("a", "x", "b"), grades, "all_recall@2") == 0.0
    assert value_of(in_order("a"), {"c": 0}, "all_recall@2") == 0.0


def test_coverage_counts_nuggets_not_documents() -> None:
    """FreshStack: two documents for one nugget cover one of three; one without support in the run stays uncovered."""
    run = Run.from_dict({"q1": in_order("a", "b", "c"), "q2": {}})
    nuggets = [{"n1": {"a", "b"}, "n2": {"c"}, "n3": {"zz"}}, {}]

    assert coverage(run, nuggets, 2).tolist() == [pytest.approx(1 / 3), 0.0]
    assert coverage(run, nuggets, 3).tolist() == [pytest.approx(2 / 3), 0.0]


@settings(max_examples=200, deadline=None)
@given(
    ranking=st.permutations("abcdefgh").map(lambda order: order[:6]),
    supports=st.lists(st.sets(st.sampled_from("abcdefghxy")), max_size=7),
    cutoff=st.integers(1, 8),
)
def test_nugget_rr_adds_what_each_rank_newly_supports(
    ranking: list[str], supports: list[set[str]], cutoff: int
) -> None:
    """Rank by rank, as MultiHop-RAG counts its MAP@10: new facts / rank, over the facts or the cutoff."""
    run = Run.from_dict({"q": in_order(*ranking), "empty": {}})
    nuggets = {str(at): support for at, support in enumerate(supports)}
    found: set[str] = set()
    total = 0.0
    for rank, document in enumerate(ranking[:cutoff], start=1):
        new = {name for name, support in nuggets.items() if document in support} - found
        found |= new
        total += len(new) / rank

    value, of_empty = nugget_reciprocal_rank(run, [nuggets, {"0": {"a"}}], cutoff)

    assert value == pytest.approx(total / min(len(supports), cutoff) if supports else 0.0)
    assert of_empty == 0.0


def test_gain_looks_at_graded_labels_and_recall_at_binary_ones() -> None:
    """R10: a grade-1 document that the binary labels mark 0 counts for nDCG and not for recall."""
    values = values_of(
        {"q": in_order("a", "b")}, {"q": {"a": 1, "b": 2}}, "nDCG@10", "R@1", "P@1", "R(rel=1)@1",
        binary={"q": {"a": 0, "b": 1}},
    )  # fmt: skip

    assert values["nDCG@10"]["q"] == pytest.approx((1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3)))
    assert (values["R@1"]["q"], values["P@1"]["q"]) == (0.0, 0.0)
    assert values["R(rel=1)@1"]["q"] == 0.5, "a threshold that was written out is one of the graded labels"


def test_a_gain_that_overflows_is_refused() -> None:
    """2^5000 is no number; the message says which grade."""
    with pytest.raises(UsageError, match="a grade of 5000"):
        value_of({"a": 1.0}, {"a": 5000}, "nDCG(dcg='exp-log2')@10")
    assert value_of({"a": 1.0}, {"a": 5000}, "nDCG@10") == 1.0


# ---------------------------------------------------------------- delegated measures


def delegated_values(run: RunDict, grades: Grades, *measures: str, **rules: Any) -> dict[str, list[float]]:
    """Return the values of delegated measures."""
    qrels = Qrels.from_dict(grades)
    found = delegated.evaluate(map(parse_measure, measures), Run.from_dict(run).select(qrels.query_ids), qrels, **rules)
    return {name: values.tolist() for name, values in found.items()}


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval needs perl")
def test_err_works_with_any_query_and_document_id() -> None:
    """TREC's gdeval wants integers as query ids and files without spaces in ids; it gets neutral names."""
    pytest.importorskip("ir_measures")
    run = {"a query": in_order("x y", "b"), "q-2": in_order("b"), "unanswered": {}}
    grades = {"a query": {"b": 1}, "q-2": {"b": 4}, "unanswered": {"b": 1}}

    values = delegated_values(run, grades, "ERR@10")["ERR@10"]

    # Chapelle et al. 2009: stop at rank r with R(g) = (2^g - 1) / 2^4
    assert values == pytest.approx([1 / 16 / 2, 15 / 16, 0.0], abs=1e-5)
    with pytest.raises(UsageError, match="gdeval, which knows grades up to 4, not 7"):
        delegated_values(run, {"q-2": {"b": 7}}, "ERR@10")


def test_queries_with_negative_grades_only_never_reach_a_tool() -> None:
    """pytrec_eval 0.5.11 crashes or hangs on them; they have nothing to find, so their value is 0."""
    pytest.importorskip("ir_measures")
    run = {f"q{number}": in_order(*"abcdef") for number in range(50)}
    grades = {query_id: dict.fromkeys("abcdef", -1) for query_id in run} | {"q0": {"a": 1}}

    for _ in range(50):
        assert delegated_values(run, grades, "Bpref")["Bpref"] == [1.0] + [0.0] * 49


def test_rbp_reads_our_order_and_the_tasks_threshold() -> None:
    """Rank-biased precision (p = .8) of a tie follows the total order, whatever its tool does with ties."""
    pytest.importorskip("cwl")
    run, grades = {"q": {"a": 1.0, "b": 1.0}}, {"q": {"b": 2, "a": 1}}

    assert delegated_values(run, grades, "RBP", relevant_from=2)["RBP"] == [pytest.approx(0.2)]
    assert delegated_values(run, grades, "RBP(rel=1)", relevant_from=2)["RBP(rel=1)"] == [pytest.approx(0.36)]


def test_alpha_ndcg_punishes_saying_the_same_again() -> None:
    """alpha-nDCG (alpha = .5, Clarke et al. 2008) on nuggets: the second document of a nugget counts half."""
    pytest.importorskip("pyndeval")
    nuggets = [{"n1": {"a", "b"}, "n2": {"c"}}]
    discount = 1 / math.log2(3)

    values = delegated_values(
        {"q": in_order("a", "b")}, {"q": {"a": 1, "b": 1, "c": 1}}, "alpha_nDCG@2", nuggets=nuggets
    )["alpha_nDCG@2"]

    assert values == [pytest.approx((1 + 0.5 * discount) / (1 + discount), abs=1e-6)]


def test_a_missing_tool_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cwl-eval the error names the extra; a measure that no tool has says so instead."""
    ir_measures = pytest.importorskip("ir_measures")
    monkeypatch.setattr(ir_measures.cwl_eval, "_is_available", False)

    with pytest.raises(MissingExtraError, match=r"pip install 'crumb-tasks\[measures\]'"):
        delegated_values({"q": {"a": 1.0}}, {"q": {"a": 1}}, "RBP")
    with pytest.raises(UsageError, match=r"no tool of ir_measures computes RBP\(rel=1\)@10; try RBP\(rel=1\)"):
        delegated_values({"q": {"a": 1.0}}, {"q": {"a": 1}}, "RBP(rel=1)@10")


# ---------------------------------------------------------------- CRUMB's evaluator


def test_crumb_evaluators_nine_measures() -> None:
    """A run keyed by document ids gets the nine defaults of CRUMB's evaluator to 1e-9.

    Its rule (crumb_eval): labels through int(), nDCG from the graded labels, P, R and RR from the binary, a missing
    query is 0, one with only zero labels counts, one without labels does not.
    """
    ir_measures = pytest.importorskip("ir_measures")
    graded_names = ["nDCG@10", "nDCG@5"]
    binary_names = ["P@10", "P@5", "R@10", "RR", "R@1000", "R@100", "RR@10"]
    random = np.random.default_rng(7)
    labels = {f"q{q}": {f"d{d}": float(random.choice([0, 0.5, 1, 1.7, 2])) for d in range(60)} for q in range(40)}
    graded = {q: {d: int(label) for d, label in row.items()} for q, row in labels.items()}
    binary = {q: {d: int(label >= 1.7) for d, label in row.items()} for q, row in labels.items()}
    graded["q1"] = binary["q1"] = dict.fromkeys(graded["q1"], 0)
    run = {q: {f"d{d}": float(s) for d, s in enumerate(random.permutation(150))} for q in graded if q != "q2"}
    registry = ir_measures.measures.registry
    theirs = {}
    for names, qrels in ((graded_names, graded), (binary_names, binary)):
        objects = {name: registry[name.partition("@")[0]](**_cutoff(name)) for name in names}
        found = ir_measures.calc_aggregate(objects.values(), qrels, run)
        theirs |= {name: found[measure] for name, measure in objects.items()}
    qrels = Qrels.from_dict(labels, labels="truncate")
    assert qrels.to_dict() == graded | {"q1": {d: int(label) for d, label in labels["q1"].items()}}

    ours = values_of(run, graded, *graded_names, *binary_names, binary=binary)

    for name, value in theirs.items():
        assert np.mean(list(ours[name].values())) == pytest.approx(value, abs=1e-9), name


def _cutoff(name: str) -> dict[str, int]:
    cutoff = name.partition("@")[2]
    return {"cutoff": int(cutoff)} if cutoff else {}


def test_values_do_not_depend_on_the_measures_asked_for_beside_them() -> None:
    """MTEB's 42 values, asked for at once, are to the bit those that each gives when asked for alone."""
    random = np.random.default_rng(0)
    query_ids = [f"q{q}" for q in range(200)]
    index = np.repeat(np.arange(200), 1000)
    documents = [f"d{d}" for d in np.tile(np.arange(1000), 200)]
    run = Run.from_columns(query_ids, index, documents, random.random(200_000))
    qrels = Qrels.from_columns(
        query_ids, np.repeat(np.arange(200), 5), [f"d{d}" for d in np.tile(range(5), 200)], np.ones(1000)
    )
    names = [f"{m}@{k}" for m in ("nDCG", "AP", "R", "P", "RR", "Success") for k in (1, 3, 5, 10, 20, 100, 1000)]
    judged = JudgedRanks.find(run, qrels)

    values = evaluate(map(parse_measure, names), judged)

    assert list(values) == names
    assert values["R@1000"].mean() == 1.0
    for name in names:
        assert np.array_equal(values[name], evaluate([parse_measure(name)], judged)[name]), name


def test_instructir_blind_floor() -> None:
    """A retriever blind to instructions gets nDCG@10 .497 and Robustness@10 .321 on InstructIR's real ids."""
    folder = Path(os.environ.get("CRUMB_TASKS_SHARED", Path(__file__).parents[2] / "shared" / "data")) / "instructir"
    path = next(iter(folder.glob("**/qrels/test.tsv")), None) if folder.is_dir() else None
    if path is None:
        pytest.skip(f"{folder} is not there; set CRUMB_TASKS_SHARED")
    from tiny import collection

    from crumb_tasks.scoring import score

    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    grades = {query: {document: 1} for query, document, _ in rows}
    siblings: dict[str, list[str]] = {}
    for _, document, _ in rows:
        siblings.setdefault(document.rpartition("_")[0], []).append(document)
    run = {query: in_order(*siblings[document.rpartition("_")[0]]) for query, document, _ in rows}
    groups = {query: query.rpartition("_")[0] for query in grades}

    scores = score(run, collection(grades, groups=groups), measures=["nDCG@10", "Robustness@10"], depth=10)

    assert len(grades) == 9906
    assert scores.value("nDCG@10") == pytest.approx(0.4969, abs=1e-4)
    assert scores.value("Robustness@10") == scores.value("robustness_at_10") == pytest.approx(0.3214, abs=1e-4)
    assert json.loads(json.dumps(scores.mteb_scores()))["n_groups"] == 1267
