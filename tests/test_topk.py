from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crumb_tasks.errors import RunError
from crumb_tasks.search.order import CorpusOrder
from crumb_tasks.search.topk import EMPTY, NaNScoreError, RunningTopK, best_of_pairs, pack, unpack
from crumb_tasks.search.topk_torch import RunningTopKTorch

TILE = (8, 8)
Scores = NDArray[np.float32]
Codes = NDArray[np.int32]
Rankings = list[list[tuple[int, float]]]
Search = tuple[Scores, Codes, int, Codes]


def rank_all(
    scores: Scores,
    ordinals: Codes,
    depth: int,
    *,
    parent_by_ordinal: Codes | None = None,
    back_end: str = "cpu",
    tile: tuple[int, int] = TILE,
) -> Rankings:
    """Feed ``scores`` (queries x documents) tile by tile; return (ordinal, score) lists."""
    n_queries, n_documents = scores.shape
    if back_end == "cpu":
        top = RunningTopK(n_queries, depth, tile=tile, parent_by_ordinal=parent_by_ordinal)
    else:
        top = RunningTopKTorch(n_queries, depth, device=torch.device("cpu"), parent_by_ordinal=parent_by_ordinal)
    for start in range(0, n_documents, tile[1]):
        for first in range(0, n_queries, tile[0]):
            padded = np.full(tile, 99, dtype=np.float32)  # padding must never win a place
            part = scores[first : first + tile[0], start : start + tile[1]]
            padded[: part.shape[0], : part.shape[1]] = part
            rows = padded[: part.shape[0]]
            top.add(first, rows if back_end == "cpu" else torch.from_numpy(rows), ordinals[start : start + tile[1]])
    ranked = top.ranked()
    found, of = unpack(ranked.keys)
    return [
        list(zip(of[start:end].tolist(), found[start:end].tolist(), strict=True))
        for start, end in zip(ranked.offsets, ranked.offsets[1:], strict=False)
    ]


def expected(scores: Scores, ordinals: Codes, depth: int, parent_by_ordinal: Codes | None = None) -> Rankings:
    """Return the same by sorting everything."""
    rankings = []
    for row in scores:
        keys = sorted(((float(score), int(at)) for score, at in zip(row, ordinals, strict=True)), reverse=True)
        if parent_by_ordinal is not None:
            first = {}
            for key in keys:
                first.setdefault(int(parent_by_ordinal[key[1]]), key)
            keys = sorted(first.values(), reverse=True)
        rankings.append([(at, score) for score, at in keys[:depth]])
    return rankings


@st.composite
def searches(draw: st.DrawFn) -> Search:
    """Generate scores with few or many ties, ordinals, a depth and parents by ordinal."""
    n_queries = draw(st.integers(1, 19))
    n_documents = draw(st.integers(1, 70))
    n_values = draw(st.sampled_from([1, 2, 5, 1000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = (rng.integers(0, n_values, (n_queries, n_documents)) - n_values // 2).astype(np.float32)
    ordinals = rng.permutation(n_documents).astype(np.int32)
    parents = np.sort(rng.integers(0, draw(st.integers(1, n_documents)), n_documents)).astype(np.int32)
    return scores, ordinals, draw(st.integers(1, 80)), parents


@pytest.mark.parametrize("back_end", ["cpu", "accelerator"])
@settings(deadline=None, max_examples=150)
@given(search=searches())
def test_the_running_threshold_gives_what_sorting_everything_gives(back_end: str, search: Search) -> None:
    """Ties, tails and any depth: the best of each query, in the total order."""
    scores, ordinals, depth, _ = search
    depth = min(depth, scores.shape[1])

    assert rank_all(scores, ordinals, depth, back_end=back_end) == expected(scores, ordinals, depth)


@pytest.mark.parametrize("back_end", ["cpu", "accelerator"])
@settings(deadline=None, max_examples=150)
@given(search=searches())
def test_max_passage_in_the_same_pass_is_exact(back_end: str, search: Search) -> None:
    """Each document stands once, by its best passage, wherever its passages are."""
    scores, ordinals, depth, parents = search
    depth = min(depth, int(parents[-1]) + 1)

    found = rank_all(scores, ordinals, depth, parent_by_ordinal=parents, back_end=back_end)

    assert found == expected(scores, ordinals, depth, parents)


@settings(deadline=None)
@given(search=searches())
def test_scores_of_pairs_are_ranked_like_tiles(search: Search) -> None:
    """Candidates and full search give one ranking when the candidates are all documents."""
    scores, ordinals, depth, parents = search
    owners = np.repeat(np.arange(len(scores)), scores.shape[1])
    keys = np.concatenate([pack(row, ordinals) for row in scores])
    mixed = np.random.default_rng(0).permutation(len(keys))

    for parent_by_ordinal in (None, parents):
        ranked = best_of_pairs(
            owners[mixed], keys[mixed], n_queries=len(scores), depth=depth, parent_by_ordinal=parent_by_ordinal
        )
        found, of = unpack(ranked.keys)
        rankings = [
            list(zip(of[start:end].tolist(), found[start:end].tolist(), strict=True))
            for start, end in zip(ranked.offsets, ranked.offsets[1:], strict=False)
        ]
        assert rankings == expected(scores, ordinals, depth, parent_by_ordinal)


@given(
    st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=20),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
)
def test_keys_compare_like_score_then_ordinal(values: list[float], one: int, other: int) -> None:
    """Packing keeps every float's order, infinities too, and loses nothing; both zeros are one number."""
    scores = np.asarray(values, dtype=np.float32)
    keys = pack(scores, np.full(len(scores), one, dtype=np.int32))
    again, ordinals = unpack(keys)

    assert (again == scores).all()
    assert (ordinals == one).all()
    assert ((keys[:-1] < keys[1:]) == (scores[:-1] < scores[1:])).all()
    assert (keys > EMPTY).all()
    equal = pack(np.array([0.0, -0.0], dtype=np.float32), np.array([one, other], dtype=np.int32))
    assert (equal[0] < equal[1]) == (one < other)


@pytest.mark.parametrize("back_end", ["cpu", "accelerator"])
def test_a_nan_score_is_refused_however_late_it_comes(back_end: str) -> None:
    """NaN is below nothing, so no threshold hides it."""
    scores = np.linspace(9, 1, 40, dtype=np.float32)[np.newaxis].repeat(3, axis=0)
    scores[2, 37] = np.nan

    with pytest.raises(NaNScoreError) as caught:
        rank_all(scores, np.arange(40, dtype=np.int32), 2, back_end=back_end)

    assert (caught.value.query, caught.value.ordinal) == (2, 37)


def test_a_constant_scorer_keeps_the_highest_ids() -> None:
    """Where every score passes every threshold the ids alone decide, in bounded memory."""
    ordinals = np.random.default_rng(1).permutation(500).astype(np.int32)

    found = rank_all(np.zeros((3, 500), dtype=np.float32), ordinals, 10)

    assert found == [[(at, 0.0) for at in range(499, 489, -1)]] * 3


ids_of_any_length = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
short_ids = st.integers(0, 10**7).map(lambda number: f"doc{number}")
nul_ids = st.text(alphabet="a\0", max_size=9)


@settings(deadline=None)
@given(st.one_of(*(st.lists(ids, unique=True, max_size=60) for ids in (ids_of_any_length, short_ids, nul_ids))))
def test_ordinals_are_ranks_by_code_point(ids: list[str]) -> None:
    """The integer sort of short ids and Arrow's sort of any agree with Python's order of strings."""
    order = CorpusOrder.of(pa.array(ids, pa.string()), None)

    assert [ids[row] for row in order.row_by_ordinal] == sorted(ids)
    assert [order.id_of(int(at)) for at in order.ordinals] == ids


def test_ordinals_do_not_depend_on_chunks_and_offsets() -> None:
    """Corpora come in record batches and slices."""
    ids = [f"p{number}" for number in np.random.default_rng(0).permutation(50)]
    whole = CorpusOrder.of(pa.array(ids), None)
    pieces = pa.chunked_array(
        [pa.array(["x", *ids[:20]])[1:], pa.array(ids[20:]).cast(pa.large_string())[:].cast("string")]
    )

    assert (CorpusOrder.of(pieces, None).ordinals == whole.ordinals).all()
    assert (CorpusOrder.of(pa.array(["zz", *ids])[1:], None).ordinals == whole.ordinals).all()


def test_passages_are_ordered_by_parent_then_id() -> None:
    """Among equal scores the document's id decides, then the passage's, whatever the passages are called."""
    order = CorpusOrder.of(pa.array(["z", "a", "m", "b"]), pa.array(["doc1", "doc2", "doc1", "doc2"]))

    assert [order.id_of(at) for at in range(4)] == ["m", "z", "a", "b"]
    assert order.parent_by_ordinal.tolist() == [0, 0, 1, 1]
    rows, owner = order.rows_of_parents(np.array([1, 0]))
    assert (rows.tolist(), owner.tolist()) == ([1, 3, 2, 0], [0, 0, 1, 1])


@pytest.mark.parametrize("ids", [["b", "a", "b"], ["a", "a"], ["long-enough-to-differ-late-1", "x", "x"]])
def test_an_id_that_stands_twice_is_named(ids: list[str]) -> None:
    """Two documents with one id would share a place in every ranking."""
    with pytest.raises(RunError, match=rf"id '{ids[-1]}' stands there twice"):
        CorpusOrder.of(pa.array(ids), None)


def test_parents_must_be_aligned() -> None:
    """A column of another length belongs to another corpus."""
    with pytest.raises(RunError, match="2 ids but 1 parents"):
        CorpusOrder.of(pa.array(["a", "b"]), pa.array(["p"]))
