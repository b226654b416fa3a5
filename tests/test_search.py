from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from encoders import METADATA, QUIET, SpellingEncoder, brute_force, corpus_of, queries_of
from hypothesis import given, settings
from hypothesis import strategies as st
from mteb.models import SearchEncoderWrapper
from mteb.timing import TimingStack

from crumb_tasks.errors import RunError
from crumb_tasks.runs import Run
from crumb_tasks.search import encoder, grid, search_encoder
from crumb_tasks.search.topk_torch import RunningTopKTorch

SEARCH = {"task_metadata": METADATA, "hf_split": "test", "hf_subset": "default", "encode_kwargs": QUIET}


@pytest.fixture
def small_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the grid so small that a small corpus has many blocks, tiles and tails."""
    monkeypatch.setattr(grid, "BLOCK", 64)
    monkeypatch.setattr("crumb_tasks.search.candidates.BLOCK", 64)
    monkeypatch.setitem(grid.TILE_BY_DEVICE, "cpu", (8, 16))


def rankings(run: Run) -> list[list[tuple[str, float, str]]]:
    """Return for each query ``(document, score, passage)``; the passage is the document itself without MaxP."""
    documents = run.documents.decode(run.codes).to_pylist()
    passages = documents
    if run.passages is not None and run.passage_codes is not None:
        passages = run.passages.decode(run.passage_codes).to_pylist()
    rows = list(zip(documents, run.scores.tolist(), passages, strict=True))
    return [rows[start:end] for start, end in zip(run.offsets, run.offsets[1:], strict=False)]


def integers(rng: np.random.Generator, rows: int, columns: int, spread: int) -> Any:
    """Return vectors whose products are exact in float32, with the more ties the smaller ``spread`` is."""
    return rng.integers(-spread, spread + 1, (rows, columns)).astype(np.float64)


@st.composite
def collections(draw: st.DrawFn) -> dict[str, Any]:
    """Generate a corpus of several blocks and a tail, with duplicates and uneven parents."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_documents = draw(st.integers(1, 200))
    documents = integers(rng, n_documents, 4, draw(st.sampled_from([1, 3, 50])))
    if n_documents > 2:  # duplicates, also of the last rows, which stand in padded tiles
        documents[-1] = documents[0]
        documents[rng.integers(0, n_documents, n_documents // 3)] = documents[n_documents // 2]
    parent = rng.zipf(1.5, n_documents) % draw(st.integers(1, n_documents))
    return {
        "documents": documents,
        "doc_ids": [f"d{number}" for number in rng.permutation(n_documents)],
        "queries": integers(rng, draw(st.integers(1, 20)), 4, 2),
        "parents": [f"p{number}" for number in parent],
        "depth": draw(st.sampled_from([1, 7, 40, 1000])),
    }


@pytest.mark.usefixtures("small_grid")
@pytest.mark.parametrize("device", ["one thread", "four threads", "accelerator"])
@pytest.mark.parametrize("with_parents", [False, True])
@settings(deadline=None, max_examples=40)
@given(generated=collections())
def test_the_search_equals_float64_brute_force(device: str, *, with_parents: bool, generated: dict[str, Any]) -> None:
    """Ties, duplicates in tails, uneven parents, any depth: documents, scores and winning passages, in order."""
    parents = generated["parents"] if with_parents else None
    query_ids = [f"q{number}" for number in range(len(generated["queries"]))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 4 if device == "four threads" else 1)
        if device == "accelerator":
            patch.setattr(
                encoder,
                "RunningTopK",
                lambda n, depth, *, tile, parent_by_ordinal: OnDevice(n, depth, parent_by_ordinal, tile),
            )
        run = search_encoder(
            SpellingEncoder(),
            corpus=corpus_of(generated["documents"], generated["doc_ids"]),
            queries=queries_of(generated["queries"], query_ids),
            depth=generated["depth"],
            parents=None if parents is None else pa.array(parents),
            **SEARCH,
        )

    scores = generated["queries"] @ generated["documents"].T
    assert run.query_ids == tuple(query_ids)
    assert rankings(run) == brute_force(scores, generated["doc_ids"], generated["depth"], parents)


class OnDevice(RunningTopKTorch):
    """The accelerator's running top k, fed from the CPU."""

    def __init__(self, n_queries: int, depth: int, parent_by_ordinal: Any, _tile: Any) -> None:
        super().__init__(n_queries, depth, device=torch.device("cpu"), parent_by_ordinal=parent_by_ordinal)

    def add(self, first_query: int, scores: Any, ordinals: Any) -> None:
        """Take a tile of the CPU's."""
        super().add(first_query, torch.as_tensor(scores), ordinals)


def test_a_parent_whose_passages_fill_the_top_takes_one_place() -> None:
    """1,500 passages of one document stand before all others; no fixed depth of passages would see the second."""
    rng = np.random.default_rng(0)
    large = np.column_stack([np.full(1500, 9.0), rng.integers(0, 3, 1500)])
    small = np.column_stack([rng.integers(0, 5, 900), rng.integers(0, 3, 900)])
    documents = np.concatenate([large, small]).astype(np.float64)
    parents = ["large"] * 1500 + [f"doc{number // 3}" for number in range(600)] + [f"single{n}" for n in range(300)]
    shuffle = rng.permutation(2400)
    documents, parents = documents[shuffle], [parents[at] for at in shuffle]
    doc_ids = [f"passage{number}" for number in range(2400)]
    queries = np.array([[1.0, 0.0], [1.0, 1.0]])

    run = search_encoder(
        SpellingEncoder(),
        corpus=corpus_of(documents, doc_ids),
        queries=queries_of(queries, ["q1", "q2"]),
        depth=100,
        parents=pa.array(parents),
        **SEARCH,
    )

    assert rankings(run) == brute_force(queries @ documents.T, doc_ids, 100, parents)
    assert all(len({document for document, _, _ in ranking}) == 100 for ranking in rankings(run))


@pytest.fixture(params=[1, 2])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("similarity", ["dot", "cosine", "euclidean"])
def test_a_query_alone_is_ranked_as_among_others(similarity: str) -> None:
    """The same bits, for vectors where the shape of a product would show in the last one."""
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(1500, 50)).round(4)
    documents[1499] = documents[5]  # an equal document in the padded tail
    queries = rng.normal(size=(600, 50)).round(4)
    corpus, ids = (
        corpus_of(documents, [f"d{number}" for number in range(1500)]),
        [f"q{number}" for number in range(600)],
    )
    model = SpellingEncoder(similarity)
    whole = search_encoder(model, corpus=corpus, queries=queries_of(queries, ids), depth=1500, **SEARCH)

    for at in (0, 311, 599):
        one = queries_of(queries[at : at + 1], ids[at : at + 1])
        alone = search_encoder(model, corpus=corpus, queries=one, depth=1500, **SEARCH)
        assert alone.ranking(ids[at]) == whole.ranking(ids[at])
    for query_id in ids[:50]:
        score_by_doc = dict(whole.ranking(query_id))
        assert score_by_doc["d5"] == score_by_doc["d1499"]


@pytest.mark.parametrize("similarity", ["dot", "cosine", "euclidean", "capped"])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_any_similarity_is_the_models_own(similarity: str, *, as_tensor: bool) -> None:
    """Scores are those of the model's ``similarity``, whether it is computed as a product or by the model."""
    rng = np.random.default_rng(1)
    documents, queries = integers(rng, 90, 6, 3) + 0.5, integers(rng, 11, 6, 3) + 0.25
    model = SpellingEncoder(similarity, as_tensor=as_tensor)
    doc_ids, query_ids = [f"d{n}" for n in range(90)], [f"q{n}" for n in range(11)]

    run = search_encoder(
        model, corpus=corpus_of(documents, doc_ids), queries=queries_of(queries, query_ids), depth=90, **SEARCH
    )

    expected = model.similarity(queries, documents).double().numpy()
    for at, query_id in enumerate(query_ids):
        score_by_doc = dict(run.ranking(query_id))
        assert [score_by_doc[doc_id] for doc_id in doc_ids] == pytest.approx(expected[at].tolist(), abs=2e-6)


@pytest.mark.parametrize("similarity", ["dot", "cosine", "euclidean"])
def test_scores_are_those_of_mtebs_own_search(similarity: str) -> None:
    """MTEB's wrapper and this search retrieve the same documents with the same scores."""
    rng = np.random.default_rng(2)
    corpus = corpus_of(rng.normal(size=(400, 16)).round(3), [f"d{number}" for number in range(400)])
    queries = queries_of(rng.normal(size=(9, 16)).round(3), [f"q{number}" for number in range(9)])
    model = SpellingEncoder(similarity)
    theirs = SearchEncoderWrapper(model, corpus_chunk_size=150)
    told = {key: SEARCH[key] for key in ("task_metadata", "hf_split", "hf_subset", "encode_kwargs")}
    theirs.index(corpus, **told)
    expected = theirs.search(queries, top_k=50, **told)

    run = search_encoder(model, corpus=corpus, queries=queries, depth=50, **SEARCH)

    for query_id, score_by_doc in run.to_dict().items():
        assert score_by_doc == pytest.approx(expected[query_id], abs=1e-5)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_multiplied_in_single(similarity: str, dtype: torch.dtype) -> None:
    """Neither the rounding of a sample nor vectors of zeros decide how embeddings are compared."""

    class Half(SpellingEncoder):
        def encode(self, inputs: Any, **told: Any) -> Any:
            return torch.as_tensor(super().encode(inputs, **told)).to(dtype)

    rng = np.random.default_rng(5)
    documents, queries = integers(rng, 90, 6, 9), integers(rng, 5, 6, 9)
    documents[3] = 0
    doc_ids, query_ids = [f"d{n}" for n in range(90)], [f"q{n}" for n in range(5)]
    corpus, asked = corpus_of(documents, doc_ids), queries_of(queries, query_ids)

    run = search_encoder(Half(similarity), corpus=corpus, queries=asked, depth=90, **SEARCH)
    alone = search_encoder(Half(similarity), corpus=corpus, queries=asked.select([2]), depth=90, **SEARCH)

    assert rankings(alone) == rankings(run)[2:3]
    scores = dict(run.ranking("q2"))
    expected = SpellingEncoder("dot").similarity(queries, documents).double().numpy()[2]
    if similarity == "cosine":
        lengths = np.linalg.norm(documents, axis=1) * np.linalg.norm(queries[2])
        expected = expected / np.maximum(lengths, 1e-12)
    assert [scores[doc_id] for doc_id in doc_ids] == pytest.approx(expected.tolist(), abs=2e-6)


class TokenEncoder(SpellingEncoder):
    """A late-interaction encoder: a list of token matrices, compared by the sum of the best products."""

    def encode(self, inputs: Any, **told: Any) -> Any:
        """Return one or two tokens per text."""
        dense = super().encode(inputs, **told)
        return [torch.from_numpy(row).reshape(-1, 2)[: 1 + at % 2] for at, row in enumerate(dense)]

    def similarity(self, left: Any, right: Any) -> torch.Tensor:
        """Return the scores of all pairs."""
        return torch.tensor([[float((one @ other.T).amax(dim=1).sum()) for other in right] for one in left])


class SparseEncoder(SpellingEncoder):
    """An encoder of sparse vectors."""

    def encode(self, inputs: Any, **told: Any) -> Any:
        """Return a sparse tensor."""
        return torch.from_numpy(super().encode(inputs, **told)).to_sparse()

    def similarity(self, left: Any, right: Any) -> torch.Tensor:
        """Return the scores of all pairs."""
        return torch.sparse.mm(left, right.to_dense().T).to_dense()


@pytest.mark.usefixtures("small_grid")
@pytest.mark.parametrize("kind", [TokenEncoder, SparseEncoder])
@pytest.mark.parametrize("grouped", [False, True])
def test_vectors_of_any_shape_are_ranked_by_the_models_similarity(
    kind: type[SpellingEncoder], *, grouped: bool
) -> None:
    """Sparse and multi-vector embeddings cannot be padded, yet are searched block by block."""
    rng = np.random.default_rng(3)
    documents, queries = integers(rng, 150, 4, 3), integers(rng, 10, 4, 3)
    doc_ids, query_ids = [f"d{n}" for n in range(150)], [f"q{n}" for n in range(10)]
    groups = [(np.arange(1, 10, 2), METADATA), (np.arange(0, 10, 2), METADATA)] if grouped else None

    run = search_encoder(
        kind(),
        corpus=corpus_of(documents, doc_ids),
        queries=queries_of(queries, query_ids),
        query_groups=groups,
        depth=20,
        **SEARCH,
    )

    if kind is SparseEncoder:
        assert rankings(run) == brute_force(queries @ documents.T, doc_ids, 20)
    else:
        assert all(len(ranking) == 20 for ranking in rankings(run))
        assert all(scores == sorted(scores, reverse=True) for scores in ([s for _, s, _ in r] for r in rankings(run)))


@pytest.mark.usefixtures("small_grid")
@settings(deadline=None, max_examples=40)
@given(generated=collections(), seed=st.integers(0, 1000))
def test_candidates_are_ranked_as_in_the_full_search(generated: dict[str, Any], seed: int) -> None:
    """Equal to brute force over each query's list, repeated candidates counted once; only they are encoded."""
    rng = np.random.default_rng(seed)
    doc_ids: Sequence[str] = generated["doc_ids"]
    query_ids = [f"q{number}" for number in range(len(generated["queries"]))]
    candidates = {
        query_id: [str(one) for one in rng.choice(doc_ids, rng.integers(0, 30))] for query_id in query_ids[1:]
    }
    model = SpellingEncoder()

    run = search_encoder(
        model,
        corpus=corpus_of(generated["documents"], doc_ids),
        queries=queries_of(generated["queries"], query_ids),
        depth=generated["depth"],
        candidates=candidates,
        **SEARCH,
    )

    scores = generated["queries"] @ generated["documents"].T
    for at, query_id in enumerate(query_ids):
        members = sorted({doc_ids.index(one) for one in candidates.get(query_id, [])})
        expected = brute_force(scores[at : at + 1, members], [doc_ids[one] for one in members], generated["depth"])
        assert rankings(run)[at] == expected[0]
    wanted = {one for some in candidates.values() for one in some}
    assert sum(count for kind, _, count in model.calls if kind == "document") == len(wanted)


@pytest.mark.usefixtures("small_grid")
@pytest.mark.parametrize("n_with", [1, 8, 9])
def test_the_last_queries_may_have_no_candidates(n_with: int) -> None:
    """A first stage that lacks all queries of the last tiles leaves them empty and the others right."""
    rng = np.random.default_rng(4)
    documents, queries = integers(rng, 100, 4, 3), integers(rng, 30, 4, 3)
    doc_ids, query_ids = [f"d{n}" for n in range(100)], [f"q{n}" for n in range(30)]
    candidates = {query_id: doc_ids[at::2] for at, query_id in enumerate(query_ids[:n_with])}

    run = search_encoder(
        SpellingEncoder(),
        corpus=corpus_of(documents, doc_ids),
        queries=queries_of(queries, query_ids),
        depth=5,
        candidates=candidates,
        **SEARCH,
    )

    for at in range(n_with):
        expected = brute_force(queries[at : at + 1] @ documents[at::2].T, doc_ids[at::2], 5)
        assert rankings(run)[at] == expected[0]
    assert run.depths[n_with:].sum() == 0


def test_a_parent_among_candidates_stands_for_its_passages() -> None:
    """With MaxP a list of documents ranks documents, each by its best passage; a passage stands for itself."""
    documents = np.array([[1.0], [5.0], [3.0], [4.0], [9.0]])
    run = search_encoder(
        SpellingEncoder(),
        corpus=corpus_of(documents, ["a1", "a2", "b1", "b2", "c1"]),
        queries=queries_of([[1.0], [1.0]], ["q1", "q2"]),
        depth=10,
        parents=pa.array(["A", "A", "B", "B", "C"]),
        candidates={"q1": ["A", "B"], "q2": ["b1", "a1", "C"]},
        **SEARCH,
    )

    assert rankings(run) == [
        [("A", 5.0, "a2"), ("B", 4.0, "b2")],
        [("C", 9.0, "c1"), ("B", 3.0, "b1"), ("A", 1.0, "a1")],
    ]


def test_a_candidate_that_the_corpus_lacks_is_named() -> None:
    """A dangling id would silently lower recall."""
    with pytest.raises(RunError, match="query 'q1': candidate 'zz' is not in the corpus"):
        search_encoder(
            SpellingEncoder(),
            corpus=corpus_of([[1.0]], ["a"]),
            queries=queries_of([[1.0]], ["q1"]),
            depth=1,
            candidates={"q1": ["a", "zz"]},
            **SEARCH,
        )


@pytest.mark.parametrize("n_queries", [0, 1])
@pytest.mark.parametrize("n_documents", [0, 1, 3])
@pytest.mark.parametrize("depth", [0, 1, 1000])
@pytest.mark.parametrize("with_parents", [False, True])
def test_nothing_is_too_small(n_queries: int, n_documents: int, depth: int, *, with_parents: bool) -> None:
    """No queries, no documents, no depth, or a depth beyond the corpus: a ranking of what there is."""
    documents = np.ones((n_documents, 2))
    doc_ids = [f"d{number}" for number in range(n_documents)]
    parents = pa.array([f"p{number // 2}" for number in range(n_documents)], pa.string()) if with_parents else None

    run = search_encoder(
        SpellingEncoder(),
        corpus=corpus_of(documents, doc_ids),
        queries=queries_of(np.ones((n_queries, 2)), [f"q{number}" for number in range(n_queries)]),
        depth=depth,
        parents=parents,
        **SEARCH,
    )

    n_ranked = len(set(parents.to_pylist())) if parents is not None else n_documents
    assert run.depths.tolist() == [min(depth, n_ranked)] * n_queries


@pytest.mark.parametrize("candidates", [None, {"q0": ["d1", "d70"], "q1": ["d70"]}])
@pytest.mark.usefixtures("small_grid")
def test_a_document_with_a_nan_embedding_is_named(candidates: Any) -> None:
    """What a model makes of an empty text must not vanish from every ranking."""
    documents = np.ones((90, 2))
    documents[70] = np.nan
    with pytest.raises(RunError, match="document 'd70': its embedding holds NaN"):
        search_encoder(
            SpellingEncoder(),
            corpus=corpus_of(documents, [f"d{number}" for number in range(90)]),
            queries=queries_of(np.ones((2, 2)), ["q0", "q1"]),
            depth=5,
            candidates=candidates,
            **SEARCH,
        )


def test_a_query_with_a_nan_embedding_is_named() -> None:
    """Before anything is searched."""
    with pytest.raises(RunError, match="query 'q1': its embedding holds NaN"):
        search_encoder(
            SpellingEncoder(),
            corpus=corpus_of(np.ones((3, 2)), ["a", "b", "c"]),
            queries=queries_of([[1.0, 1.0], [np.nan, 1.0]], ["q0", "q1"]),
            depth=5,
            **SEARCH,
        )


def test_a_similarity_that_is_nan_names_query_and_document() -> None:
    """An infinite embedding holds no NaN, yet has no score."""
    with pytest.raises(RunError, match="query 'q0', document 'b': the model's similarity is NaN"):
        search_encoder(
            SpellingEncoder(),
            corpus=corpus_of([[1.0], [np.inf]], ["a", "b"]),
            queries=queries_of([[0.0]], ["q0"]),
            depth=5,
            **SEARCH,
        )


def test_a_model_that_loses_a_text_is_refused() -> None:
    """Embeddings that are not aligned with their texts would rank the wrong documents."""

    class Forgetful(SpellingEncoder):
        def encode(self, inputs: Any, **told: Any) -> Any:
            """Return all but the last vector."""
            return super().encode(inputs, **told)[:-1]

    with pytest.raises(RunError, match="returned 1 embeddings for 2 texts"):
        search_encoder(
            Forgetful(),
            corpus=corpus_of([[1.0]], ["a"]),
            queries=queries_of([[1.0], [2.0]], ["q0", "q1"]),
            depth=1,
            **SEARCH,
        )


def test_each_group_of_queries_is_encoded_with_its_own_prompt() -> None:
    """Several instructions in one split: one call of ``encode`` per group, and the queries' order is kept."""
    model = SpellingEncoder()
    with_prompt = [METADATA.model_copy(update={"prompt": {"query": text}}) for text in ("find", "refute")]

    run = search_encoder(
        model,
        corpus=corpus_of([[1.0, 0.0], [0.0, 1.0]], ["x", "y"]),
        queries=queries_of([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]], ["q0", "q1", "q2"]),
        query_groups=[
            (np.array([2, 1]), with_prompt[0]),
            (np.array([0]), with_prompt[1]),
            (np.array([], int), METADATA),
        ],
        depth=1,
        **SEARCH,
    )

    assert model.calls == [("query", "find", 2), ("query", "refute", 1), ("document", None, 2)]
    assert run.to_dict() == {"q0": {"x": 1.0}, "q1": {"y": 1.0}, "q2": {"x": 2.0}}


def test_groups_must_hold_every_query_once() -> None:
    """A query in no group, or in two, is a mistake of the caller."""
    with pytest.raises(ValueError, match="every query exactly once"):
        search_encoder(
            SpellingEncoder(),
            corpus=corpus_of([[1.0]], ["x"]),
            queries=queries_of([[1.0], [1.0]], ["q0", "q1"]),
            query_groups=[(np.array([0, 0]), METADATA)],
            depth=1,
            **SEARCH,
        )


def test_phases_and_pace_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The timer has MTEB's phases, the log the documents per second."""
    timer = TimingStack()
    with caplog.at_level("INFO", logger="crumb_tasks.search.encoding"):
        search_encoder(
            SpellingEncoder(),
            corpus=corpus_of([[1.0]], ["x"]),
            queries=queries_of([[1.0]], ["q0"]),
            depth=1,
            timer=timer,
            **SEARCH,
        )

    assert [phase["name"] for phase in timer.phases] == ["Encoding queries", "Searching corpus"]
    assert {(phase["split"], phase["subset"]) for phase in timer.phases} == {("test", "default")}
    assert "1 documents in" in caplog.text
    assert "documents/s" in caplog.text


def test_the_corpus_may_be_a_selection() -> None:
    """A dataset with an index table (``select``, ``filter``, ``shuffle``) is read in its own order."""
    documents = np.arange(10.0).reshape(-1, 1)
    corpus = corpus_of(documents, [f"d{number}" for number in range(10)]).select([7, 2, 5])

    run = search_encoder(SpellingEncoder(), corpus=corpus, queries=queries_of([[1.0]], ["q"]), depth=5, **SEARCH)

    assert run.ranking("q") == [("d7", 7.0), ("d5", 5.0), ("d2", 2.0)]
