"""Dictionaries under nothing but judgements are scored without a Run of their documents, to the same values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import RunError
from crumb_tasks.measures import parse_measure
from crumb_tasks.runs import Run
from crumb_tasks.scoring import CRUMB_MEASURES, MTEB_MEASURES, dictionaries, score
from crumb_tasks.scoring.matching import Rules

MEASURES = (
    *CRUMB_MEASURES,
    "AP",
    "Rprec",
    "Judged@10",
    "Success@1",
    "all_recall@5",
    "nDCG@10",
    "nDCG(dcg='exp-log2')@10",
)
DOCUMENTS = ("a", "b", "c", "d", "aé", "é", "é", "B", "")


def judged(qrels: Mapping[str, Mapping[str, int]], **fields: Any) -> Collection:
    """Return a collection that has judgements and nothing else."""
    nothing = pa.table({"id": pa.array([], type=pa.string())})
    graded = {"graded": Qrels.from_dict(qrels)}
    return Collection(name="t", split="test", corpus=nothing, queries=nothing, qrels=graded, **fields)


SCORES = st.sampled_from([0.0, -0.0, 1.0, 2.5, -1.0, float("inf"), float("-inf"), 3, np.float32(2.5)])
RUNS = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "other"]), st.dictionaries(st.sampled_from(DOCUMENTS), SCORES), min_size=1
)
GRADES = st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(-1, 3), min_size=1)


@given(run=RUNS, qrels=st.fixed_dictionaries({"q1": GRADES}, optional={"q2": GRADES, "q3": GRADES}))
def test_values_are_those_of_a_run(run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]]) -> None:
    """Ties by id, missing queries, infinite and mixed numbers: every value, note and count is that of the same Run."""
    collection = judged(qrels)
    if not set(run) & set(qrels):
        with pytest.raises(RunError):
            score(run, collection)
        return

    found, expected = (
        score(run, collection, measures=MEASURES),
        score(Run.from_dict(run), collection, measures=MEASURES),
    )

    assert dictionaries.lengths(run) is not None
    assert (found.summary, found.notes, found.coverage) == (expected.summary, expected.notes, expected.coverage)
    for name, values in expected.per_query.items():
        assert np.array_equal(found.per_query[name], values), name


@pytest.mark.parametrize(
    "run",
    [
        {"q": {1: 1.0}},
        {1: {"d": 1.0}},
        {"q": {"d": True}},
        {"q": {"d": "1"}},
        {"q": {"d": None}},
        {"q": {"d": float("nan")}},
        {"q": {"d": 10**20}},
        {"q": ["d"]},
    ],
)
def test_what_is_not_plain_is_read_or_refused_as_a_run(run: Any) -> None:
    """Ids that are no strings and scores that are no numbers have one place where they are dealt with."""
    assert dictionaries.lengths(run) is None


def test_whatever_looks_further_needs_a_run() -> None:
    """A corpus, candidates, exclusions, groups, options and foreign measures all look at more than judged places."""
    ours = [parse_measure(name) for name in MTEB_MEASURES]
    plain = judged({"q": {"d": 1}})
    assert dictionaries.suffice(plain, Rules(), ours)
    for collection in (
        judged({"q": {"d": 1}}, candidates={"q": ["d"]}),
        judged({"q": {"d": 1}}, exclusions={"q": frozenset({"q"})}),
        judged({"q": {"d": 1}}, groups={"q": "g"}),
    ):
        assert not dictionaries.suffice(collection, Rules(), ours)
    assert not dictionaries.suffice(plain, Rules(exclude_self=True), ours)
    assert not dictionaries.suffice(plain, Rules(), [parse_measure("RBP(p=0.8)@10")])
