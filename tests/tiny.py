"""Tiny collections, and generated runs and judgements, for the tests of the ground floor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels

Grades = Mapping[str, Mapping[str, int]]
RunDict = dict[str, dict[str, float]]


def corpus(documents: Iterable[str]) -> pa.Table:
    """Return a corpus with these ids."""
    ids = list(documents)
    return pa.table({"id": pa.array(ids, pa.string()), "title": [""] * len(ids), "text": [f"text of {x}" for x in ids]})


def collection(
    graded: Grades,
    documents: Iterable[str] = (),
    *,
    binary: Grades | None = None,
    queries: Iterable[str] = (),
    **fields: Any,
) -> Collection:
    """Return a collection; its corpus holds ``documents`` or else whatever is judged."""
    qrels = {"graded": Qrels.from_dict(graded)}
    if binary is not None:
        qrels["binary"] = Qrels.from_dict(binary)
    judged = dict.fromkeys(doc_id for grade_by_doc in graded.values() for doc_id in grade_by_doc)
    query_ids = list(queries) or list(graded)
    return Collection(
        name="Tiny",
        split="test",
        corpus=corpus(documents or judged),
        queries=pa.table({"id": pa.array(query_ids, pa.string()), "text": [f"about {x}" for x in query_ids]}),
        qrels=qrels,
        **fields,
    )


def card(**fields: Any) -> TaskCard:
    """Return a task's card with these fields."""
    known: dict[str, Any] = {
        "name": "Tiny",
        "description": "Tiny.",
        "loader": "beir",
        "source": {"path": "tiny", "user": "nobody's"},
    }
    return TaskCard.model_validate(known | fields)


IDS = st.sampled_from([*"abcdefgh", "d10", "d9", "Zoë", "文書", "10", "9" * 40, "NCT1:0", "a b"])
"""Document ids whose order as text is not that as numbers, and that hold whatever ids hold."""
SCORES = st.integers(-3, 3).map(lambda step: step / 2)
"""Few values, all exact in float32, so that ties are the rule."""
GRADES = st.integers(-2, 4)
QUERY_IDS = st.sampled_from(["q1", "q2", "q3", "7", "é"])


def judgements() -> st.SearchStrategy[dict[str, dict[str, int]]]:
    """Generate judgements of up to five queries, negative ones among them, each query with one at least."""
    return st.dictionaries(QUERY_IDS, st.dictionaries(IDS, GRADES, min_size=1), min_size=1)


def rankings() -> st.SearchStrategy[RunDict]:
    """Generate runs; some queries may have no document or be unknown to the judgements."""
    return st.dictionaries(QUERY_IDS, st.dictionaries(IDS, SCORES, max_size=12))
