"""Rankings by models of every kind: deep enough, over the candidates, and equal to sorting everything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mteb
import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from encoders import METADATA
from hypothesis import given, settings
from hypothesis import strategies as st
from mteb.timing import TimingStack
from mteb_models import QUIET, EncodesInside, OwnSearch, PairScorer, WordEncoder

from crumb_tasks import own_search
from crumb_tasks.errors import RunError, UsageError
from crumb_tasks.own_search import safe_depth
from crumb_tasks.ranking import rank
from crumb_tasks.request import QueryGroup, Request


def request(
    corpus: Mapping[str, str],
    queries: Mapping[str, str],
    *,
    depth: int = 3,
    parents: Sequence[str] | None = None,
    candidates: Mapping[str, Sequence[str]] | None = None,
    groups: Sequence[tuple[str | None, Sequence[int]]] | None = None,
) -> Request:
    """Return a request over small texts."""
    table = pa.table({"id": list(corpus), "title": [""] * len(corpus), "text": list(corpus.values())})
    made = [
        QueryGroup(METADATA.model_copy(update={"prompt": prompt and {"query": prompt}}), np.array(rows, dtype=np.int64))
        for prompt, rows in (groups or [(None, range(len(queries)))])
    ]
    return Request(
        corpus=Dataset(table),
        queries=Dataset.from_dict({"id": list(queries), "text": list(queries.values())}),
        groups=made,
        depth=depth,
        parents=None if parents is None else pa.array(parents),
        candidates=candidates,
        hf_split="test",
        hf_subset="default",
        encode_kwargs=QUIET,
        timer=TimingStack(),
    )


def sorted_everything(
    score: Callable[[str, str], float], query_id: str, parent_by_passage: Mapping[str, str], depth: int
) -> list[tuple[str, float]]:
    """Return the first documents by sorting all passages: the definition of MaxP."""
    best: dict[str, float] = defaultdict(lambda: -np.inf)
    for passage, parent in parent_by_passage.items():
        best[parent] = max(best[parent], score(query_id, passage))
    return sorted(best.items(), key=lambda item: (item[1], item[0]), reverse=True)[:depth]


def test_large_parent_does_not_hide_the_others() -> None:
    """A document whose 1,500 passages fill the top leaves room for the second and third best documents."""
    parents = {f"big:{at}": "big" for at in range(1500)} | {f"small{at}:0": f"small{at}" for at in range(40)}
    wanted = {passage: 1000.0 - at for at, passage in enumerate(parents)}
    model = OwnSearch(lambda _, passage: wanted[passage])

    ranking = rank(model, request(dict.fromkeys(parents, "x"), {"q": "x"}, depth=3, parents=list(parents.values())))

    assert ranking.run.ranking("q") == [("big", 1000.0), ("small0", -500.0), ("small1", -501.0)]
    assert ranking.run.to_dict(passages=True)["q"] == {"big:0": 1000.0, "small0:0": -500.0, "small1:0": -501.0}
    assert [depth for depth, _ in model.asked] == [12, 48, 192, 768, 1503]
    assert (ranking.n_unproven, ranking.searched) == (0, 1503)


def test_only_short_lists_are_deepened() -> None:
    """A query that already has its documents is not asked again."""
    parents = {f"big:{at}": "big" for at in range(50)} | {f"d{at}:0": f"d{at}" for at in range(20)}

    def score(query_id: str, passage: str) -> float:
        is_big = passage.startswith("big")
        return float(is_big if query_id == "hard" else not is_big) + (hash_of(passage) / 1000)

    model = OwnSearch(score)

    ranking = rank(
        model, request(dict.fromkeys(parents, "x"), {"easy": "", "hard": ""}, parents=list(parents.values()))
    )

    assert model.asked == [(12, ["easy", "hard"]), (48, ["hard"]), (53, ["hard"])]
    for query_id in ("easy", "hard"):
        assert ranking.run.ranking(query_id) == sorted_everything(score, query_id, parents, 3)


def hash_of(text: str) -> int:
    """Return a number below 1000 that is the same in every process."""
    return sum(ord(letter) * (at + 7) for at, letter in enumerate(text)) % 1000


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    scores=st.lists(st.integers(0, 9), min_size=144, max_size=144),
    depth=st.integers(1, 8),
    is_asked_once=st.booleans(),
)
def test_max_passage_equals_sorting_everything(
    sizes: list[int], scores: list[int], depth: int, *, is_asked_once: bool
) -> None:
    """Whatever the parents' sizes and however many ties: equal to brute force where it is said to be proven."""
    parents = {f"d{number:02}:{at}": f"d{number:02}" for number, size in enumerate(sizes) for at in range(size)}
    wanted = {passage: float(score) for passage, score in zip(parents, scores, strict=False)}

    def score(_: str, passage: str) -> float:
        return wanted[passage]

    model = (EncodesInside if is_asked_once else OwnSearch)(score)
    ranking = rank(model, request(dict.fromkeys(parents, "x"), {"q": "x"}, depth=depth, parents=list(parents.values())))

    expected = sorted_everything(score, "q", parents, depth)
    assert [value for _, value in ranking.run.ranking("q")] == [value for _, value in expected]
    if not ranking.n_unproven:
        assert ranking.run.ranking("q") == expected


def test_model_that_encodes_inside_its_search_is_asked_once() -> None:
    """A second search would encode the corpus again, so the depth that always suffices is asked at once."""
    parents = {f"big:{at}": "big" for at in range(30)} | {f"d{at}:0": f"d{at}" for at in range(9)}
    model = EncodesInside(lambda _, passage: float(passage.startswith("big")))

    ranking = rank(model, request(dict.fromkeys(parents, "x"), {"q": "x"}, parents=list(parents.values())))

    assert [depth for depth, _ in model.asked] == [33]  # the two largest parents' 30 + 1 passages, one, one for ties
    assert (model.n_indexed, len(model.seen), len(ranking.run.ranking("q"))) == (1, 39, 3)


def test_tie_at_the_last_passage_is_counted() -> None:
    """Behind a list's end there may be a document with the N-th score and a higher id: the query is not proven."""
    parents = {f"d{at:02}:0": f"d{at:02}" for at in range(30)}
    ranking = rank(
        OwnSearch(lambda *_: 1.0), request(dict.fromkeys(parents, "x"), {"q": "x"}, parents=list(parents.values()))
    )
    assert ranking.n_unproven == 1

    whole = request(dict.fromkeys(parents, "x"), {"q": "x"}, depth=30, parents=list(parents.values()))
    assert rank(OwnSearch(lambda *_: 1.0), whole).n_unproven == 0


@pytest.mark.parametrize(
    ("sizes", "n_documents", "depth"), [([5, 1, 1], 1, 1), ([5, 3, 1], 2, 6), ([5, 3, 1], 3, 9), ([2, 2], 9, 4)]
)
def test_safe_depth_is_the_largest_parents_and_one(sizes: list[int], n_documents: int, depth: int) -> None:
    """The N-1 largest parents' passages plus one hold N parents, whichever they are; never more than there are."""
    parents = [f"d{number}" for number, size in enumerate(sizes) for _ in range(size)]

    assert safe_depth(pa.array(parents), n_documents) == depth


def test_calls_are_cut_by_what_they_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's dictionaries never hold more rows than the limit, and the run does not depend on it."""
    corpus = {f"d{at}": "x" for at in range(9)}
    queries = {f"q{at}": "x" for at in range(7)}
    whole = rank(OwnSearch(lambda q, d: hash_of(q + d)), request(corpus, queries))

    monkeypatch.setattr(own_search, "BATCH_ROWS", 6)
    model = OwnSearch(lambda q, d: hash_of(q + d))
    cut = rank(model, request(corpus, queries))

    assert [len(ids) for _, ids in model.asked] == [2, 2, 2, 1]
    assert cut.run.to_dict() == whole.run.to_dict()
    assert model.n_indexed == 1


def test_each_instruction_is_one_call() -> None:
    """MTEB's models take one prompt a call; the order of the queries stays."""
    model = OwnSearch(lambda q, d: hash_of(q + d))
    asked = request(
        {"d1": "x", "d2": "y"},
        {"a": "x", "b": "y", "c": "z"},
        groups=[("find", [0, 2]), (None, [1])],
    )

    ranking = rank(model, asked)

    assert [ids for _, ids in model.asked] == [["a", "c"], ["b"]]
    assert model.prompts == [{"query": "find"}, None]
    assert ranking.run.query_ids == ("a", "b", "c")


def test_bm25_is_asked_once_for_all_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that takes no instruction is not asked thousands of times because the data have thousands of them."""
    bm25 = mteb.get_model("mteb/baseline-bm25s")
    asked: list[list[str]] = []
    search = type(bm25).search

    def counted(self: Any, queries: Any, **kwargs: Any) -> Any:
        asked.append(list(queries["id"]))
        return search(self, queries, **kwargs)

    monkeypatch.setattr(type(bm25), "search", counted)
    ranking = rank(bm25, request({"d1": "fox", "d2": "dog"}, {"a": "fox", "b": "dog"}, groups=[("x", [1]), ("y", [0])]))

    assert asked == [["a", "b"]]
    assert [ranking.run.ranking(query)[0][0] for query in ("a", "b")] == ["d1", "d2"]


def test_candidates_are_sought_in_the_whole_corpus() -> None:
    """MTEB's BM25 filters after its top k: a candidate that ranks last is found all the same."""
    corpus = {f"d{at:03}": "fox" for at in range(300)} | {"last": "a long text without any of the words"}
    bm25 = mteb.get_model("mteb/baseline-bm25s")

    ranking = rank(bm25, request(corpus, {"q": "fox"}, depth=2, candidates={"q": ["last", "d005"]}))

    assert [doc_id for doc_id, _ in ranking.run.ranking("q")] == ["d005", "last"]
    assert (ranking.searched, ranking.n_unreturned_candidates) == (301, 0)


def test_candidate_that_is_not_returned_is_counted() -> None:
    """What a model leaves out, whether or not it knows of candidates, shows in the result."""
    model = OwnSearch(lambda _, doc_id: float(doc_id == "d1"), ignores_candidates=True)
    model.search = lambda queries, **_: {query_id: {"d1": 1.0, "d2": 0.5} for query_id in queries["id"]}  # type: ignore[method-assign]

    ranking = rank(model, request({"d1": "x", "d2": "y", "d3": "z"}, {"q": "x"}, candidates={"q": ["d3", "d1"]}))

    assert ranking.run.ranking("q") == [("d1", 1.0)]
    assert ranking.n_unreturned_candidates == 1


@pytest.mark.parametrize("make", [WordEncoder, PairScorer, lambda: OwnSearch(lambda q, d: hash_of(q + d))])
def test_candidates_that_the_corpus_lacks_are_counted(make: Callable[[], Any]) -> None:
    """An unknown candidate is no crash, a query without candidates is an empty ranking, a repeated one counts once."""
    candidates = {"q1": ["d1", "ghost", "d1"], "q2": [], "gone": ["d1"]}

    ranking = rank(make(), request({"d1": "fox", "d2": "dog"}, {"q1": "fox", "q2": "dog"}, candidates=candidates))

    assert {query_id: list(row) for query_id, row in ranking.run.to_dict().items()} == {"q1": ["d1"], "q2": []}
    assert (ranking.n_unknown_candidates, ranking.n_unreturned_candidates) == (1, 0)


def test_cross_encoder_reads_only_candidates() -> None:
    """Pairs are scored, nothing else is read; under MaxP a candidate document stands for all of its passages."""
    corpus = {"a:0": "red fox", "a:1": "dog", "b:0": "red fox dog", "c:0": "cat"}
    model = PairScorer()

    ranking = rank(
        model, request(corpus, {"q": "red fox"}, parents=["a", "a", "b", "c"], candidates={"q": ["a", "b:0"]})
    )

    assert sorted(model.pairs) == [("red fox", "dog"), ("red fox", "red fox"), ("red fox", "red fox dog")]
    assert ranking.run.ranking("q") == [("b", 2.0), ("a", 2.0)]


def test_cross_encoder_without_candidates_is_one_line() -> None:
    """The message says what is missing and the command that has it."""
    with pytest.raises(UsageError, match=r"needs candidates; .* --rerank RUN") as caught:
        rank(PairScorer(), request({"d1": "x"}, {"q": "x"}))
    assert "\n" not in str(caught.value)


def test_late_interaction_encodes_only_candidates() -> None:
    """A model that encodes inside its search gets no document that no query may rank."""
    model = EncodesInside(lambda q, d: hash_of(q + d))

    rank(model, request({"d1": "one", "d2": "two", "d3": "three"}, {"q": "x"}, candidates={"q": ["d3", "d1"]}))

    assert model.seen == ["one", "three"]


def test_nan_is_refused_naming_the_query() -> None:
    """A ranking needs numbers, from whatever model."""
    with pytest.raises(RunError, match="q2"):
        rank(OwnSearch(lambda q, _: float("nan") if q == "q2" else 1.0), request({"d1": "x"}, {"q1": "x", "q2": "x"}))


def test_something_else_than_a_model_is_one_line() -> None:
    """The message names what was given."""
    with pytest.raises(UsageError, match="dict is no model that MTEB can run"):
        rank({}, request({"d1": "x"}, {"q": "x"}))


def test_real_bm25_under_max_passage_equals_its_full_ranking() -> None:
    """With real BM25 the deepened search gives what reducing its ranking of the whole corpus gives."""
    words = [
        "fox",
        "dog",
        "cat",
        "bird",
        "fish",
        "tree",
        "leaf",
        "root",
        "stone",
        "river",
        "cloud",
        "rain",
        "wind",
        "storm",
        "light",
        "dark",
    ]
    rng = np.random.default_rng(1)
    parents = {f"d{number:02}:{at}": f"d{number:02}" for number in range(30) for at in range(int(rng.integers(1, 25)))}
    corpus = {passage: " ".join(rng.choice(words, size=int(rng.integers(3, 12)))) for passage in parents}
    queries = {f"q{at}": " ".join(rng.choice(words, size=2)) for at in range(6)}
    shallow = request(corpus, queries, depth=5, parents=list(parents.values()))
    everything = request(corpus, queries, depth=len(corpus))

    ranking = rank(mteb.get_model("mteb/baseline-bm25s"), shallow)
    score = rank(mteb.get_model("mteb/baseline-bm25s"), everything).run.to_dict()

    for query_id in queries:
        expected = sorted_everything(lambda q, passage: score[q][passage], query_id, parents, 5)
        found = ranking.run.ranking(query_id)
        assert [value for _, value in found] == [value for _, value in expected]
        assert len({doc_id for doc_id, _ in found}) == 5


def test_corpus_without_tokens_gives_empty_rankings(caplog: pytest.LogCaptureFixture) -> None:
    """BM25 on a corpus of stopwords finds nothing, and says so instead of raising."""
    ranking = rank(mteb.get_model("mteb/baseline-bm25s"), request({"d1": "the", "d2": "of and"}, {"q": "the"}))

    assert ranking.run.ranking("q") == []
    assert "finds no token in the corpus" in caplog.text


@pytest.mark.parametrize("query", ["zzz", "the", ""])
def test_query_without_known_tokens_is_ranked_by_id(query: str) -> None:
    """All documents tie at 0, so they stand in the total order; depth above the corpus size is the corpus size."""
    ranking = rank(mteb.get_model("mteb/baseline-bm25s"), request({"d1": "fox", "d2": "dog"}, {"q": query}, depth=1000))

    assert ranking.run.ranking("q") == [("d2", 0.0), ("d1", 0.0)]


def test_no_queries_is_an_empty_run() -> None:
    """Nothing asked, nothing ranked."""
    assert len(rank(WordEncoder(), request({"d1": "x"}, {})).run) == 0
