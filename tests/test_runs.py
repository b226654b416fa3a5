from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import RunDict, rankings

from crumb_tasks.errors import DataError, RunError
from crumb_tasks.runs import Run, Vocabulary


def test_the_order_is_score_then_id_both_descending() -> None:
    """R01: ties go to the higher id, as text: d9 before d10, umlauts after ASCII."""
    run = Run.from_dict({"q": {"d10": 1.0, "d9": 1.0, "low": 0.5, "Zoë": 1.0, "Zoe": 1.0}})

    assert [doc_id for doc_id, _ in run.ranking("q")] == ["d9", "d10", "Zoë", "Zoe", "low"]


@given(rankings())
@settings(deadline=None)
def test_a_run_is_sorted_by_the_total_order(run: RunDict) -> None:
    """Whatever comes in, each ranking is sorted by score in float64 and then by the id's UTF-8 bytes."""
    ranked = Run.from_dict(run)

    for query_id, ranking in run.items():
        expected = sorted(ranking.items(), key=lambda pair: (pair[1], pair[0].encode()), reverse=True)
        assert ranked.ranking(query_id) == expected
    assert ranked.to_dict() == run


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcdefgh"), st.integers(0, 2)), max_size=40), st.data())
@settings(deadline=None)
def test_the_order_of_rows_does_not_matter(rows: list[tuple[int, str, int]], data: st.DataObject) -> None:
    """Rows in any order, sorted ones among them, give the same columns."""
    distinct = list({(query, doc_id): (query, doc_id, score) for query, doc_id, score in rows}.values())
    shuffled = data.draw(st.permutations(distinct))
    runs = [_from_rows(some) for some in (distinct, shuffled, sorted(distinct, key=lambda row: (row[0], -row[2])))]

    for run in runs[1:]:
        assert run.to_dict() == runs[0].to_dict()
        assert [run.ranking(query_id) for query_id in run.query_ids] == [
            runs[0].ranking(query_id) for query_id in runs[0].query_ids
        ]


def _from_rows(rows: list[tuple[int, str, int]]) -> Run:
    queries, doc_ids, scores = ([row[part] for row in rows] for part in range(3))
    return Run.from_columns(
        ["q0", "q1", "q2", "q3"], np.array(queries, dtype=np.int64), doc_ids, np.array(scores, dtype=np.float64)
    )


def test_float64_decides_where_float32_would_tie() -> None:
    """Scores are never narrowed: 1 + 1e-12 is above 1."""
    run = Run.from_dict({"q": {"a": 1.0 + 1e-12, "b": 1.0}})

    assert [doc_id for doc_id, _ in run.ranking("q")] == ["a", "b"]


@pytest.mark.parametrize("kind", ["float32", "float16", "int64", "torch", "torch bfloat16"])
def test_scalars_of_other_libraries_are_welcome(kind: str) -> None:
    """R08: NumPy and torch scalars give the same run as floats, in dictionaries and in columns."""
    if kind.startswith("torch"):
        torch = pytest.importorskip("torch")
        dtype = torch.bfloat16 if "bfloat16" in kind else torch.float32
        scores: list[Any] = [torch.tensor(value, dtype=dtype) for value in (2, 1, 1)]
    else:
        scores = [np.dtype(kind).type(value) for value in (2, 1, 1)]
    plain = Run.from_dict({"q": {"a": 2.0, "b": 1.0, "c": 1.0}})

    from_dict = Run.from_dict({"q": dict(zip("abc", scores, strict=True))})
    from_columns = Run.from_columns(["q"], np.zeros(3, dtype=np.int64), list("abc"), scores)

    assert from_dict.ranking("q") == from_columns.ranking("q") == plain.ranking("q")


def test_ids_of_other_types_become_text() -> None:
    """R23: integer ids in a dictionary are their decimal text."""
    assert Run.from_dict({7: {12: 1.0}}).to_dict() == {"7": {"12": 1.0}}


def test_nan_is_refused_and_infinity_is_not() -> None:
    """A ranking needs an order: NaN has none, and the message names query and document."""
    with pytest.raises(RunError, match="query 'q1': the score of document 'b' is NaN"):
        Run.from_dict({"q0": {"a": 1.0}, "q1": {"a": 1.0, "b": float("nan")}})

    run = Run.from_dict({"q": {"a": -np.inf, "b": 0.0, "c": np.inf}})
    assert [doc_id for doc_id, _ in run.ranking("q")] == ["c", "b", "a"]


@pytest.mark.parametrize("score", [None, "high", "1", b"1", True, np.True_, np.str_("1"), [1.0]])
def test_what_is_no_number_is_refused(score: object) -> None:
    """A score that is no number is our error, with the query where it is known."""
    with pytest.raises(RunError, match=r"^query 'q': .*not a number"):
        Run.from_dict({"q": {"a": score}})
    with pytest.raises(RunError, match=r"a score is not a number|is NaN|each row has"):
        Run.from_columns(["q"], np.zeros(1, dtype=np.int64), ["a"], [score])


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ({"q": ["d"]}, "query 'q': the ranking is of type list; expected"),
        ({"q": [("d", 1.0)]}, "query 'q': the ranking is of type list"),
        ({"q": 1.0}, "query 'q': the ranking is of type float"),
        ([("q", {"d": 1.0})], "the run is of type list"),
    ],
)
def test_what_is_no_mapping_is_refused(run: Any, words: str) -> None:
    """Lists of documents are what other libraries take; here the type is named, not an attribute that it lacks."""
    with pytest.raises(RunError, match=words):
        Run.from_dict(run)


def test_a_document_twice_is_refused_unless_the_best_is_asked_for() -> None:
    """R06: d1 at .9 and .2 is an error naming query and document; for MaxP the better place counts."""
    columns = (["q0", "q1"], np.array([1, 0, 1, 1]), ["d1", "d1", "d2", "d1"], np.array([0.2, 0.1, 0.5, 0.9]))

    with pytest.raises(RunError, match=r"query 'q1': document 'd1' appears twice; keep one"):
        Run.from_columns(*columns)
    assert Run.from_columns(*columns, repeats="best").to_dict() == {"q0": {"d1": 0.1}, "q1": {"d1": 0.9, "d2": 0.5}}


def test_ids_that_become_equal_as_text_are_a_document_twice() -> None:
    """1 and "1" are one document."""
    with pytest.raises(RunError, match="document '1' appears twice"):
        Run.from_dict({"q": {1: 0.5, "1": 0.4}})
    with pytest.raises(RunError, match="query '1' stands there twice"):
        Run.from_dict({1: {"a": 0.5}, "1": {"a": 0.4}})


def test_a_null_id_is_refused() -> None:
    """A row without an id cannot be ranked; the message counts the row from 0."""
    with pytest.raises(DataError, match="the id in row 1 is null"):
        Run.from_columns(["q"], np.zeros(2, dtype=np.int64), pa.array(["a", None]), np.zeros(2))


def test_select_keeps_the_asked_order_and_fills_gaps() -> None:
    """Rankings come in the order asked for; a query that the run lacks has an empty one."""
    run = Run.from_dict({"q1": {"a": 2.0, "b": 1.0}, "q2": {"c": 1.0}, "q3": {}})

    chosen = run.select(["q3", "nobody", "q2", "q1"])

    assert chosen.to_dict() == {"q3": {}, "nobody": {}, "q2": {"c": 1.0}, "q1": {"a": 2.0, "b": 1.0}}
    assert chosen.depths.tolist() == [0, 0, 1, 2]
    assert run.select(run.query_ids) is run
    assert len(run.select([])) == 0
    assert Run.from_dict({}).select(["q"]).to_dict() == {"q": {}}


def test_truncate_cuts_each_ranking() -> None:
    """The first k of the total order stay; ties at the cut are decided by it."""
    run = Run.from_dict({"q1": {"a": 1.0, "b": 1.0, "c": 2.0}, "q2": {"a": 1.0}})

    assert run.truncate(2).to_dict() == {"q1": {"c": 2.0, "b": 1.0}, "q2": {"a": 1.0}}
    assert run.truncate(3) is run
    assert run.row_ranks.tolist() == [1, 2, 3, 1]


def test_a_vocabulary_is_ascending_whatever_arrow_type_comes_in() -> None:
    """Strings, large strings, chunks, dictionary columns with repeats: codes compare as ids do."""
    ids = ["b", "a", "c", "a"]
    columns = [
        ids,
        pa.array(ids),
        pa.array(ids, pa.large_string()),
        pa.chunked_array([ids[:1], ids[1:]]),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), pa.array(["b", "a", "c", "a"])),
    ]

    for column in columns:
        vocabulary, codes = Vocabulary.encode(column)
        assert vocabulary.ids.to_pylist() == ["a", "b", "c"]
        assert codes.tolist() == [1, 0, 2, 0]
        assert vocabulary.find(["c", "zz", "a"]).tolist() == [2, -1, 0]


def test_large_runs_take_no_longer_than_sorting_them() -> None:
    """A run in order is not sorted again, and one in disorder comes out the same."""
    random = np.random.default_rng(1)
    scores = -np.sort(-random.integers(0, 500, (20, 1000)), axis=1).astype(np.float64)
    doc_ids = [f"d{d}" for d in itertools.chain(*(random.permutation(1000) for _ in range(20)))]
    index = np.repeat(np.arange(20), 1000)
    shuffle = random.permutation(20_000)
    query_ids = [f"q{q}" for q in range(20)]

    in_order = Run.from_columns(query_ids, index, doc_ids, scores.ravel())
    in_disorder = Run.from_columns(query_ids, index[shuffle], [doc_ids[at] for at in shuffle], scores.ravel()[shuffle])

    assert in_order.codes.tolist() == in_disorder.codes.tolist()
    assert in_order.scores.tolist() == in_disorder.scores.tolist()
