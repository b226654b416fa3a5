"""Ids in ascending order, with and without integers."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from crumb_tasks.id_order import ascending_rows

IDS = st.one_of(
    st.lists(st.integers(0, 10**7).map(lambda number: f"doc{number}")),
    st.lists(st.text(max_size=9)),
    st.lists(st.text("\x00a\x7fé\U0001f600", max_size=12)),
)


@given(ids=IDS, skipped=st.integers(0, 2))
@example(ids=["a", "a\x00", "a\x00\x00", ""], skipped=0)
@example(ids=["same prefix, long tail: 123456789", "same prefix, long tail: 023456789"], skipped=0)
def test_order_is_that_of_the_bytes(ids: list[str], skipped: int) -> None:
    """Rows come in the order of their UTF-8 bytes, from a slice too; distinct is said only of distinct ids."""
    column = pa.array(ids, type=pa.string()).slice(skipped)
    own = ids[skipped:]

    rows, are_distinct = ascending_rows(column)

    assert [own[row].encode() for row in rows] == sorted(one.encode() for one in own)
    assert sorted(rows.tolist()) == list(range(len(own)))
    assert not are_distinct or len(set(own)) == len(own)
