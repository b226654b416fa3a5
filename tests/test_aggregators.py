from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crumb_tasks.aggregators import (
    arithmetic_mean,
    geometric_mean,
    group_deviation,
    group_mean,
    group_minimum,
    max_passage,
    reduce_nested,
)
from crumb_tasks.cards import Reduction
from crumb_tasks.errors import AggregateError
from crumb_tasks.runs import Run

PASSAGES = [f"{document}:{number}" for document in ("NCT1", "NCT2", "d", "é") for number in range(3)]
PARENT_BY_PASSAGE = {passage: passage.partition(":")[0] for passage in PASSAGES}


def reduced(run: Run) -> Run:
    """Return MaxP of ``run`` under the passages above."""
    return max_passage(run, PASSAGES, [PARENT_BY_PASSAGE[passage] for passage in PASSAGES])


@given(
    st.dictionaries(
        st.sampled_from(["q1", "q2", "q3"]),
        st.dictionaries(st.sampled_from([*PASSAGES, "NCT1", "alone"]), st.integers(-2, 2).map(float)),
        max_size=3,
    )
)
@settings(deadline=None)
def test_a_document_stands_where_its_best_passage_stands(run: dict[str, dict[str, float]]) -> None:
    """MaxP equals a plain loop: the highest score of a document's passages, sorted by the total order."""
    expected: dict[str, dict[str, float]] = {}
    for query_id, ranking in run.items():
        best = expected.setdefault(query_id, {})
        for doc_id, score in ranking.items():
            parent = PARENT_BY_PASSAGE.get(doc_id, doc_id)
            best[parent] = max(score, best.get(parent, -math.inf))

    found = reduced(Run.from_dict(run))

    assert found.to_dict() == expected
    for query_id, best in expected.items():
        order = sorted(best.items(), key=lambda pair: (pair[1], pair[0]), reverse=True)
        assert found.ranking(query_id) == order


def test_the_winning_passage_is_kept() -> None:
    """Each document carries the passage that won its place: the best, and among equals the one with the higher id."""
    run = Run.from_dict({"q": {"NCT1:0": 1.0, "NCT1:2": 1.0, "NCT1:1": 0.5, "NCT2:0": 2.0}})

    found = reduced(run)

    assert found.to_dict() == {"q": {"NCT2": 2.0, "NCT1": 1.0}}
    assert found.to_dict(passages=True) == {"q": {"NCT2:0": 2.0, "NCT1:2": 1.0}}


def test_ties_between_documents_follow_their_ids_not_their_passages() -> None:
    """The total order holds after MaxP: passages of one score whose documents stand the other way round."""
    run = Run.from_dict({"q": {"z": 1.0, "a": 1.0}})

    found = max_passage(run, ["z", "a"], ["doc1", "doc2"])

    assert [doc_id for doc_id, _ in found.ranking("q")] == ["doc2", "doc1"]


def test_repeated_documents_and_their_passages_are_one_ranking() -> None:
    """R26: NCT1:0, NCT1:2, NCT2:0 and NCT1, NCT1, NCT2 and a mixture of both become the same run."""
    index, scores = np.zeros(3, dtype=np.int64), np.array([3.0, 2.0, 1.0])
    keyed = [["NCT1:0", "NCT1:2", "NCT2:0"], ["NCT1", "NCT1", "NCT2"], ["NCT1:0", "NCT1", "NCT2"]]

    found = [reduced(Run.from_columns(["q"], index, ids, scores, repeats="best")).to_dict() for ids in keyed]

    assert found == [{"q": {"NCT1": 3.0, "NCT2": 1.0}}] * 3


def test_parents_may_come_in_chunks_or_be_missing() -> None:
    """Arrow columns in chunks work, and a passage without a document stands for itself."""
    run = Run.from_dict({"q": {"p1": 2.0, "p2": 1.0, "p3": 0.0}})
    passages = pa.chunked_array([["p1"], ["p2", "p3"]])
    parents = pa.chunked_array([["d"], ["d", None]])

    assert max_passage(run, passages, parents).to_dict() == {"q": {"d": 2.0, "p3": 0.0}}


def test_max_passage_does_not_depend_on_how_queries_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of (query, document) holds some queries at a time; the result is the same for any number of them."""
    random = np.random.default_rng(3)
    run = Run.from_dict({f"q{q}": {p: float(random.integers(3)) for p in PASSAGES} for q in range(9)})
    whole = reduced(run).to_dict()

    for entries in (1, 5, 9, 40):
        monkeypatch.setattr("crumb_tasks.aggregators._TABLE_ENTRIES", entries)
        assert reduced(run).to_dict() == whole


def test_groups_are_reduced_and_a_group_of_one_is_fine() -> None:
    """Minimum, mean and population deviation of each group; one member deviates by 0."""
    values, index = np.array([0.2, 0.9, 0.4, 0.6]), np.array([0, 1, 0, 0])

    assert group_minimum(values, index).tolist() == [0.2, 0.9]
    assert group_mean(values, index) == pytest.approx([0.4, 0.9])
    assert group_deviation(values, index) == pytest.approx([np.std([0.2, 0.4, 0.6]), 0.0])
    with pytest.raises(ValueError, match="without gaps"):
        group_minimum(values, np.array([0, 2, 0, 2]))


def test_means_are_those_of_the_textbook() -> None:
    """The geometric mean of RAR-b is the n-th root of the product, without shift or epsilon."""
    assert arithmetic_mean([0.2, 0.4]) == pytest.approx(0.3)
    assert geometric_mean([0.2, 0.8]) == pytest.approx(0.4)
    assert geometric_mean([0.5, 0.0]) == 0.0
    with pytest.raises(ValueError, match="negative"):
        geometric_mean([0.5, -0.1])


@dataclass(frozen=True)
class Mean:
    """A reduction that is no card."""

    members: tuple[object, ...]
    mean: Literal["arithmetic", "geometric"] = "arithmetic"
    name: str = ""


NESTED = Reduction(mean="geometric", members=("A", Reduction(name="TR", members=("B", "C")), Reduction(members=("D",))))


def test_means_nest() -> None:
    """RAR-b's five TempReason tasks are averaged first and enter the geometric mean once."""
    result = reduce_nested({"A": 0.2, "B": 0.3, "C": 0.5, "D": 1.0}, NESTED)

    assert result.value == pytest.approx((0.2 * 0.4 * 1.0) ** (1 / 3))
    assert result.value_by_group == {"TR": pytest.approx(0.4), "group 3": 1.0}
    assert result.value_by_member == {"A": 0.2, "B": 0.3, "C": 0.5, "D": 1.0}


def test_members_are_rounded_first() -> None:
    """Fresh values and the same values after MTEB stored them rounded give the same number to the last bit."""
    fresh = {"A": 0.123456499, "B": 0.3, "C": 0.5, "D": 0.7777777}
    stored = {name: round(value, 6) for name, value in fresh.items()}

    assert reduce_nested(fresh, NESTED).value == reduce_nested(stored, NESTED).value


def test_zero_makes_a_geometric_mean_zero_and_is_named() -> None:
    """RAR-b's formula has no rule for zero: the mean is 0, and the reader is told which member did it."""
    result = reduce_nested({"A": 0.0, "B": 0.0, "C": 0.5, "D": 0.5}, NESTED)

    assert result.value == 0.0
    assert result.zeros == ("A", "B")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"A": 0.1}, "1/4 members have a value; missing: 'B', 'C', 'D'"),
        ({"A": 0.1, "B": None, "C": 0.1, "D": 0.1}, "3/4 members have a value; missing: 'B'"),
        ({"A": 0.1, "B": math.nan, "C": 0.1, "D": 0.1}, "'B' is nan"),
        ({"A": 0.1, "B": math.inf, "C": 0.1, "D": 0.1}, "'B' is inf"),
        ({"A": -0.1, "B": 0.1, "C": 0.1, "D": 0.1}, "'A' is -0.1; a geometric mean takes no negative value"),
        ({"A": 10.0, "B": 0.1, "C": 0.1, "D": 0.1}, "mixed scales: 'A' is 10, a percentage"),
        ({"A": 0.1, "B": 0.1, "C": 0.1, "D": 0.1, "E": 0.1}, "'E' is no member of the aggregate"),
    ],
)
def test_an_aggregate_that_cannot_have_a_value_names_the_member(values: dict[str, float | None], said: str) -> None:
    """R38, R40: nothing is averaged over whatever happens to be there."""
    with pytest.raises(AggregateError) as caught:
        reduce_nested(values, NESTED)

    assert said in str(caught.value)


def test_percentages_alone_are_one_scale() -> None:
    """A table of the paper is in percent throughout, zeros included: that is no mixture."""
    assert reduce_nested({"A": 50.0, "B": 0.0}, Mean(("A", "B"))).value == 25.0
    assert reduce_nested({"A": 1.0, "B": 0.0}, Mean(("A", "B"))).value == 0.5
    with pytest.raises(AggregateError, match="mixed scales"):
        reduce_nested({"A": 50.0, "B": 1.0}, Mean(("A", "B")))


def test_splits_are_not_averaged_into_each_other() -> None:
    """R37: two members on two splits with four values have two geometric means."""
    value_by_member_by_split = {"test": {"A": 0.8, "B": 0.2}, "dev": {"A": 0.5, "B": 0.02}}
    reduction = Mean(("A", "B"), mean="geometric")

    values = {split: reduce_nested(values, reduction).value for split, values in value_by_member_by_split.items()}

    assert values == {"test": pytest.approx(0.4), "dev": pytest.approx(0.1)}


def test_arithmetic_means_take_negative_values() -> None:
    """p-MRR runs from -1 to 1."""
    assert reduce_nested({"A": -0.1, "B": 0.3}, Mean(("A", "B"))).value == pytest.approx(0.1)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=12))
def test_a_geometric_mean_lies_between_its_members_and_below_the_arithmetic(values: list[float]) -> None:
    """Minimum, geometric mean, arithmetic mean, maximum: in this order for any members."""
    names = [f"T{at}" for at in range(len(values))]
    members = dict(zip(names, values, strict=True))
    geometric = reduce_nested(members, Mean(tuple(names), mean="geometric"))
    arithmetic = reduce_nested(members, Mean(tuple(names)))

    rounded = list(geometric.value_by_member.values())
    assert min(rounded) - 1e-12 <= geometric.value <= arithmetic.value + 1e-12 <= max(rounded) + 1e-11
