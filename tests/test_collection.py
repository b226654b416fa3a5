from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tiny import Grades, collection, judgements

from crumb_tasks.collection import Qrels
from crumb_tasks.errors import DataError


def test_integral_floats_are_grades_and_fractions_are_refused() -> None:
    """R07: 1.0 and 2.0 pass; 0.5 is refused with query, document and value, unless the card cuts and counts it."""
    assert Qrels.from_dict({"q1": {"d1": 1.0, "d2": 2.0}}).to_dict() == {"q1": {"d1": 1, "d2": 2}}
    with pytest.raises(DataError, match=r"query 'q1', document 'd1': grade 0.5 is no integer.*truncate"):
        Qrels.from_dict({"q1": {"d1": 0.5}})

    cut = Qrels.from_dict({"q1": {"d1": 0.5, "d2": 1.7, "d3": -0.5, "d4": 1}}, labels="truncate")

    assert cut.to_dict() == {"q1": {"d1": 0, "d2": 1, "d3": 0, "d4": 1}}
    assert cut.n_truncated == 3


@pytest.mark.parametrize("labels", ["integral", "truncate"])
@pytest.mark.parametrize("grade", [float("nan"), float("inf"), float("-inf"), 1e300])
def test_what_has_no_integer_is_refused_either_way(grade: float, labels: str) -> None:
    """NaN and infinity cannot be cut to a grade, and nothing beyond 64 bits is one."""
    with pytest.raises(DataError, match="query 'q', document 'd'"):
        Qrels.from_dict({"q": {"d": grade}}, labels=labels)


def test_scalars_of_numpy_and_torch_are_grades() -> None:
    """R08: labels from a dataframe or a tensor need no conversion."""
    torch = pytest.importorskip("torch")

    qrels = Qrels.from_dict({"q": {"a": np.int64(1), "b": np.float32(2), "c": torch.tensor(3), "d": True}})

    assert qrels.to_dict() == {"q": {"a": 1, "b": 2, "c": 3, "d": 1}}


def test_a_grade_that_is_no_number_is_refused() -> None:
    """The message names the query and the document."""
    with pytest.raises(DataError, match="query 'q', document 'd': grade 'high' is no number"):
        Qrels.from_dict({"q": {"d": "high"}})


def test_equal_repeats_are_dropped_and_conflicts_refused() -> None:
    """R06: the same judgement twice is one; d1 as 1 and as 0 is an error naming both."""
    repeated = Qrels.from_columns(["q1"], np.zeros(3, dtype=np.int64), ["d1", "d2", "d1"], [1, 0, 1])

    assert (repeated.to_dict(), repeated.n_repeated) == ({"q1": {"d1": 1, "d2": 0}}, 1)
    with pytest.raises(DataError, match=r"query 'q1' judges document 'd1' twice, as 1 and as 0|as 0 and as 1"):
        Qrels.from_columns(["q1"], np.zeros(2, dtype=np.int64), ["d1", "d1"], [1, 0])


def test_a_query_id_twice_is_refused() -> None:
    """R24: two queries under one id would share their judgements."""
    with pytest.raises(DataError, match="query '1' stands there twice"):
        Qrels.from_dict({1: {"a": 1}, "1": {"b": 1}})


def test_an_unjudged_query_stays_known() -> None:
    """R05: an empty mapping is a query without judgements, not a query that vanishes."""
    qrels = Qrels.from_dict({"q1": {"d1": 1}, "q2": {}, "q3": {"d2": 1}})

    assert qrels.counts.tolist() == [1, 0, 1]
    assert qrels.to_dict() == {"q1": {"d1": 1}, "q2": {}, "q3": {"d2": 1}}


@given(judgements())
@settings(deadline=None)
def test_qrels_and_dictionaries_are_the_same(grades: Grades) -> None:
    """Columns lose nothing, whatever the ids."""
    assert Qrels.from_dict(grades).to_dict() == grades


@given(judgements())
@settings(deadline=None)
def test_select_gives_what_was_asked_for(grades: Grades) -> None:
    """Judgements come in the order asked for, also of queries that are not there."""
    qrels = Qrels.from_dict(grades)
    wanted = [*reversed(qrels.query_ids), "nobody"]

    assert qrels.select(wanted).to_dict() == {query_id: grades.get(query_id, {}) for query_id in wanted}
    assert list(qrels.select(wanted).to_dict()) == wanted
    assert qrels.select(qrels.query_ids) is qrels


def test_graded_labels_stand_in_for_a_missing_family() -> None:
    """A task without binary labels has one set of judgements for all measures."""
    one = collection({"q": {"a": 2}})
    two = collection({"q": {"a": 2}}, binary={"q": {"a": 0}})

    assert one.qrels_for("binary").to_dict() == {"q": {"a": 2}}
    assert two.qrels_for("binary").to_dict() == {"q": {"a": 0}}


def test_documents_are_parents_where_there_are_any() -> None:
    """With MaxP a ranking holds documents: five passages of two documents are two."""
    parents = pa.array(["d1", "d1", "d2", "d2", None])
    tiny = collection({"q": {"d1": 1}}, ["d1:0", "d1:1", "d2:0", "d2:1", "d3"], parents=parents)

    assert tiny.parent_ids is not None
    assert tiny.parent_ids.to_pylist() == ["d1", "d1", "d2", "d2", "d3"]
    assert tiny.n_documents == 3
    assert collection({"q": {"d1": 1}}).n_documents == 1
