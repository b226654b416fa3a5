"""Tasks made from cards, evaluated by MTEB itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mteb
import pyarrow as pa
import pytest
from mteb.cache import ResultCache
from mteb.models import SentenceTransformerEncoderWrapper
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb_models import QUIET, OwnSearch, PairScorer, WordEncoder, meta, record, tiny_sentence_transformer
from mteb_world import CORPUS, QUERIES, task_card, write_collection

import crumb_tasks
from crumb_tasks.cards import iter_tasks
from crumb_tasks.errors import MissingDataError, UsageError
from crumb_tasks.mteb_metadata import metadata_of
from crumb_tasks.mteb_scores import emitted_keys
from crumb_tasks.runfiles import read_run
from crumb_tasks.scoring import score
from crumb_tasks.tasks import CardTask, task_class

Evaluate = Callable[..., Any]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with the collection of the card `task_card`, and caches inside the test's folder."""
    folder = tmp_path / "data"
    write_collection(folder / "test" / "mini")
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(folder))
    monkeypatch.setenv("CRUMB_TASKS_CACHE", str(tmp_path / "cache"))
    return folder


def evaluate(model: Any, task: CardTask, **kwargs: Any) -> Any:
    """Evaluate with MTEB and return its result of the task."""
    arguments = {"cache": None, "encode_kwargs": dict(QUIET), "show_progress_bar": False} | kwargs
    return mteb.evaluate(model, task, **arguments).task_results[0]


def scores_of(result: Any, split: str = "test") -> dict[str, Any]:
    """Return the only scores of a split."""
    (entry,) = result.scores[split]
    return dict(entry)


def test_scores_are_those_of_the_scorer() -> None:
    """A value in MTEB's result is the value that `crumb_tasks.score` gives for the same ranking."""
    task = task_class(task_card(measures=["AP", "P(rel=2)@5"]))()

    scores = scores_of(evaluate(WordEncoder(), task))

    perfect = {"q1": {"d1": 2.0, "d3": 1.0}, "q2": {"d2": 2.0, "d6": 1.0}, "q3": {"d4": 1.0}}
    expected = score(perfect, task.collection("test"), task.card, depth=task.card.depth)
    assert scores["ndcg_at_10"] == scores["main_score"] == expected.value("nDCG@10") == 1.0
    assert scores["map"] == 1.0
    assert scores["precision_rel2_at_5"] == pytest.approx((1 + 1 + 0) / 3 / 5)


def test_standard_keys_stay() -> None:
    """Pipelines that read MTEB's keys go on; ours stand beside them."""
    scores = scores_of(evaluate(WordEncoder(), task_class(task_card())()))

    for family in ("ndcg", "map", "recall", "precision", "mrr", "hit_rate"):
        assert {f"{family}_at_{k}" for k in (1, 3, 5, 10, 20, 100, 1000)} <= set(scores)
    for family in ("ndcg", "map", "recall", "precision", "mrr"):
        assert {f"nauc_{family}_at_10_{kind}" for kind in ("max", "std", "diff1")} <= set(scores)
    assert scores["accuracy"] == scores["recall_at_1"]
    assert scores["r_precision"] == 1.0
    own = {"n_queries": 3, "n_missing": 0, "n_omitted": 0, "depth": 1000, "revision": "r1", "sample": False}
    assert {key: scores[key] for key in own} == own
    assert scores["qrels"] == {"graded": "graded"}
    assert scores["crumb_tasks_version"] == crumb_tasks.__version__


def test_what_was_changed_on_loading_is_stored(root: Path) -> None:
    """Empty texts that became the placeholder, and fractional labels that were cut, stand in the result."""
    write_collection(
        root / "test" / "mini", corpus=CORPUS | {"d9": " "}, qrels={"test": {"q1": {"d1": 1.5, "d3": 0.5}}}
    )  # type: ignore[dict-item]

    scores = scores_of(evaluate(WordEncoder(), task_class(task_card(labels="truncate"))()))

    assert (scores["n_empty_texts"], scores["n_truncated_labels"]) == (1, 2)


def test_abstention_values_are_those_of_mteb() -> None:
    """Where it has a number, nAUC is what MTEB computes from the same ranking; where all are alike it is null."""
    from mteb._evaluators.retrieval_metrics import evaluate_abstention

    model = OwnSearch(lambda query, doc: {"q1d1": 3.0, "q1d3": 2.0, "q2d4": 9.0, "q3d4": 1.0}.get(query + doc, 0.0))
    task = task_class(task_card())()
    scores = scores_of(evaluate(model, task))
    task.load_data()
    run = {query: {doc: model.score(query, doc) for doc in CORPUS} for query in ("q1", "q2", "q3")}
    per_query = score(run, task.collection("test"), task.card, ["nDCG@10"]).per_query["nDCG@10"]
    theirs = evaluate_abstention(run, {"NDCG@10": list(per_query)})

    for kind in ("max", "std", "diff1"):
        assert scores[f"nauc_ndcg_at_10_{kind}"] == pytest.approx(theirs[f"nAUC_NDCG@10_{kind}"])
    assert scores["nauc_recall_at_1000_max"] is None


def test_result_files_are_strict_json(tmp_path: Path) -> None:
    """Where MTEB writes NaN, which other parsers refuse, there is null."""
    evaluate(WordEncoder(), task_class(task_card())(), cache=ResultCache(tmp_path / "results"))

    (path,) = (tmp_path / "results").rglob("Mini.json")
    stored = json.loads(
        path.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(f"{name} in the file")
    )
    assert stored["scores"]["test"][0]["main_score"] == 1.0


@pytest.mark.parametrize("card", list(iter_tasks()), ids=lambda card: card.name)
def test_every_card_has_a_main_score_that_is_emitted(card: Any) -> None:
    """MTEB knows the card's terms, and its main score is among the keys of its results."""
    metadata = metadata_of(card)

    assert metadata.main_score in emitted_keys(card)
    assert metadata.name == card.name
    assert metadata.type == ("Retrieval" if card.kind == "retrieval" else "Reranking")


def test_metadata_come_from_the_card() -> None:
    """Visibility, origin and derivation reach MTEB; derived tasks keep their zero-shot marks true."""
    metadata = metadata_of(
        task_card(
            adapted_from=["HellaSwag"], public=False, license="mit", domains=["Web"], date=["2020-01-01", "2021-01-01"]
        )
    )

    assert (metadata.adapted_from, metadata.is_public, metadata.license) == (["HellaSwag"], False, "mit")
    assert (metadata.dataset, metadata.domains) == ({"path": "test/mini", "revision": "r1"}, ["Web"])


def test_corpus_is_handed_on_without_a_copy() -> None:
    """MTEB's dataset reads the very memory of the collection, which may be a file as large as it likes."""
    task = task_class(task_card())()
    task.load_data()

    def addresses(column: pa.ChunkedArray) -> list[int]:
        return [buffer.address for chunk in column.chunks for buffer in chunk.buffers() if buffer is not None]

    handed = task.dataset["default"]["test"]["corpus"].data.column("text")
    assert addresses(handed) == addresses(task.collection("test").corpus.column("text"))


def test_splits_on_request() -> None:
    """`test` by default, `validation` when it is named, both in one file when both are."""
    assert set(evaluate(WordEncoder(), task_class(task_card())()).scores) == {"test"}

    validation = evaluate(WordEncoder(), task_class(task_card())().filter_eval_splits(["validation"]))
    assert {split: len(entries) for split, entries in validation.scores.items()} == {"validation": 1}
    assert scores_of(validation, "validation")["n_queries"] == 1

    both = evaluate(WordEncoder(), task_class(task_card())().filter_eval_splits(["test", "validation"]))
    assert set(both.scores) == {"test", "validation"}


def test_split_that_was_not_loaded_is_loaded() -> None:
    """Asking a loaded task for its other split works."""
    task = task_class(task_card())()
    task.load_data()

    assert task.evaluate(WordEncoder(), "validation", encode_kwargs=dict(QUIET))["default"]["n_queries"] == 1


@pytest.mark.parametrize("split", ["train", "dev", "Test"])
def test_unknown_split_is_one_line(split: str) -> None:
    """The message names the task and the splits it has."""
    with pytest.raises(UsageError, match="Mini") as caught:
        task_class(task_card())().filter_eval_splits([split]).load_data()
    assert "\n" not in str(caught.value)


PROMPTS = {"q1": "Find the animals.", "q2": "Find the numbers.", "q3": "", "v1": "Find the weather."}


def read_texts(tmp_path: Path, kind: str, card: Any, prompts: dict[str, str] | None) -> list[str]:
    """Evaluate a real sentence-transformers model of ``kind`` and return every string that reached its tokenizer."""
    write_collection(tmp_path / "data" / card.source.hub, prompts=prompts)
    texts = [*CORPUS.values(), *QUERIES.values(), *PROMPTS.values(), "query: passage: Instruct: Query:"]
    if kind == "instruct":
        tiny_sentence_transformer(texts).save(str(tmp_path / "model"))
        template = "Instruct: {instruction}\nQuery: "
        wrapper: Any = InstructSentenceTransformerModel(
            str(tmp_path / "model"),
            "1",
            instruction_template=template,
            apply_instruction_to_passages=False,
            device="cpu",
        )
        wrapper.mteb_model_meta = meta("instruct")
    else:
        own = {"query": "query: ", "document": "passage: "} if kind == "prompt-dictionary" else None
        wrapper = SentenceTransformerEncoderWrapper(tiny_sentence_transformer(texts, own))
    recorder = record(wrapper.model)
    evaluate(wrapper, task_class(card)())
    return recorder.texts


@pytest.mark.parametrize(
    ("kind", "query", "document"),
    [
        ("plain", "{text}", "{text}"),
        ("prompt-dictionary", "query: {text}", "passage: {text}"),
        ("instruct", "Instruct: Find what helps.\nQuery: {text}", "{text}"),
    ],
)
def test_prompt_of_the_card_reaches_models_that_take_one(tmp_path: Path, kind: str, query: str, document: str) -> None:
    """Each query is read once with its model's own format and never glued to an instruction; documents get none."""
    card = task_card(prompt={"query": "Find what helps."})

    texts = read_texts(tmp_path, kind, card, None)

    expected = [query.format(text=QUERIES[key]) for key in ("q1", "q2", "q3")]
    assert sorted(texts) == sorted(expected + [document.format(text=text) for text in CORPUS.values()])


@pytest.mark.parametrize("kind", ["plain", "prompt-dictionary", "instruct"])
def test_several_instructions_in_one_split(tmp_path: Path, kind: str) -> None:
    """Every query has its own instruction from the data; one without stays bare instead of getting MTEB's sentence."""
    card = task_card("Instructed", prompt={"from_data": True}, options={"prompt_field": "instruction"})

    texts = read_texts(tmp_path, kind, card, PROMPTS)

    own = {"plain": "{text}", "prompt-dictionary": "query: {text}"}
    bare = {"plain": "", "prompt-dictionary": "passage: ", "instruct": ""}[kind]
    expected = [
        own.get(kind, f"Instruct: {PROMPTS[key]}\nQuery: {{text}}" if PROMPTS[key] else "{text}").format(
            text=QUERIES[key]
        )
        for key in ("q1", "q2", "q3")
    ]
    assert sorted(texts) == sorted(expected + [bare + text for text in CORPUS.values()])


def test_instruction_of_the_data_is_in_the_instance_only(root: Path) -> None:
    """One instruction for the whole split shows in the task's metadata, and no other instance sees it."""
    write_collection(root / "test" / "mini", prompts=dict.fromkeys(QUERIES, "Find it."))
    made = task_class(task_card(prompt={"from_data": True}, options={"prompt_field": "instruction"}))
    task = made()
    model = WordEncoder()

    evaluate(model, task, cache=None)
    task.load_data()

    assert [(kind, prompt) for kind, prompt, _ in model.calls] == [
        ("query", {"query": "Find it."}),
        ("document", {"query": "Find it."}),
    ]
    assert task.metadata.prompt == {"query": "Find it."}
    assert made.metadata.prompt is made().metadata.prompt is None
    task.unload_data()
    assert task.metadata.prompt is None


def test_document_prompt_only_where_the_benchmark_has_one() -> None:
    """Query and document prompts are separate."""
    model = WordEncoder()
    evaluate(model, task_class(task_card(prompt={"query": "Q", "document": "D"}))())

    assert {prompt["document"] for _, prompt, _ in model.calls} == {"D"}


def test_bm25_sees_queries_without_instructions() -> None:
    """BM25 ranks by the query's own words, whatever the instruction says."""
    card = task_card(prompt={"query": "yeast yeast yeast sugar"})
    bm25 = mteb.get_model("mteb/baseline-bm25s")

    assert evaluate(bm25, task_class(card)()).main_score == evaluate(bm25, task_class(task_card())()).main_score == 1.0


PASSAGES = {"a:0": "fox", "a:1": "dog", "b:0": "integers", "b:1": "factor integers", "c:0": "bread", "c:1": "yeast"}
MAX_PASSAGE = {"max_passage": True, "options": {"parent_field": "parent"}}


def write_passages(root: Path) -> None:
    """Write a collection whose judgements are of documents and whose corpus is of passages."""
    write_collection(
        root / "test" / "mini",
        corpus=PASSAGES,
        parents={passage: passage[0] for passage in PASSAGES},
        qrels={"test": {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1}}},
    )


@pytest.mark.parametrize("make", [WordEncoder, lambda: mteb.get_model("mteb/baseline-bm25s")])
def test_prediction_files_hold_passages(root: Path, tmp_path: Path, make: Callable[[], Any]) -> None:
    """Each document's best passage is stored, so that the file can be re-ranked, and re-scores to the same value."""
    write_passages(root)
    task = task_class(task_card(**MAX_PASSAGE))()

    live = scores_of(evaluate(make(), task, prediction_folder=tmp_path / "predictions"))

    path = tmp_path / "predictions" / "Mini_predictions.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert set(stored) == {"mteb_model_meta", "default"}
    assert next(iter(stored["default"]["test"]["q2"])) == "b:1"
    assert set(stored["default"]["test"]["q1"]) <= set(PASSAGES)
    again = score(read_run(path), task.collection("test"), task.card, ["nDCG@10", "AP", "RR"])
    assert [again.value(name) for name in ("nDCG@10", "AP", "RR")] == [
        live[key] for key in ("ndcg_at_10", "map_at_1000", "mrr_at_1000")
    ]


def test_prediction_file_belongs_to_one_model(tmp_path: Path) -> None:
    """Splits of one model gather in a file; another model's rankings replace it instead of taking its name."""
    task = task_class(task_card())()
    for split in ("test", "validation"):
        task.evaluate(WordEncoder(), split, encode_kwargs=dict(QUIET), prediction_folder=tmp_path)
    stored = json.loads((tmp_path / "Mini_predictions.json").read_text(encoding="utf-8"))
    assert set(stored["default"]) == {"test", "validation"}

    task.evaluate(WordEncoder("other"), "test", encode_kwargs=dict(QUIET), prediction_folder=tmp_path)
    stored = json.loads((tmp_path / "Mini_predictions.json").read_text(encoding="utf-8"))
    assert stored["mteb_model_meta"]["model_name"] == "tests/other"
    assert set(stored["default"]) == {"test"}

    experiment = WordEncoder("other")
    experiment.mteb_model_meta = meta("other", experiment_kwargs={"prompt": "none"})
    task.evaluate(experiment, "validation", encode_kwargs=dict(QUIET), prediction_folder=tmp_path)
    stored = json.loads((tmp_path / "Mini_predictions.json").read_text(encoding="utf-8"))
    assert stored["mteb_model_meta"]["experiment"] == "prompt_none"
    assert set(stored["default"]) == {"validation"}


@pytest.mark.parametrize("text", ["{", "[]", "\udcff", '{"mteb_model_meta": {}, "default": []}'])
def test_broken_prediction_file_is_written_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    """A file cut short, no object, no UTF-8: a line in the log, and the evaluation keeps its rankings."""
    path = tmp_path / "Mini_predictions.json"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")

    task_class(task_card())().evaluate(WordEncoder(), "test", encode_kwargs=dict(QUIET), prediction_folder=tmp_path)

    assert set(json.loads(path.read_text(encoding="utf-8"))["default"]) == {"test"}
    assert len([line for line in caplog.messages if line.startswith(str(path))]) == 1


@pytest.mark.parametrize("is_passages", [False, True])
def test_predictions_are_re_ranked(root: Path, tmp_path: Path, *, is_passages: bool) -> None:
    """MTEB's `convert_to_reranking` works: a cross-encoder sees the first stage's passages, and only the asked ones."""
    if is_passages:
        write_passages(root)
    card = task_card(**MAX_PASSAGE) if is_passages else task_card()
    evaluate(mteb.get_model("mteb/baseline-bm25s"), task_class(card)(), prediction_folder=tmp_path)

    model = PairScorer()
    scores = scores_of(evaluate(model, task_class(card)().convert_to_reranking(tmp_path, top_k=2)))

    assert len(model.pairs) == 6
    assert scores["ndcg_at_10"] == 1.0
    assert (scores["depth"], scores["recall_at_3"]) == (2, None)
    assert scores["previous_results_model_meta"]["model_name"] == "mteb/baseline-bm25s"


def test_predictions_of_another_split_are_one_line(tmp_path: Path) -> None:
    """The message says which rankings are missing and how to write them."""
    evaluate(WordEncoder(), task_class(task_card())(), prediction_folder=tmp_path)
    task = task_class(task_card())().filter_eval_splits(["validation"])

    with pytest.raises(UsageError, match=r"no rankings of Mini \(validation\); .* --eval-splits") as caught:
        task.convert_to_reranking(tmp_path)
    assert "\n" not in str(caught.value)


def test_re_ranking_keeps_the_denominator(root: Path) -> None:
    """A query without candidates, or without a relevant one, counts 0: the mean is over the collection's queries."""
    write_collection(root / "test" / "mini", candidates={"q1": ["d1", "d2"], "q2": ["d1"]})
    card = task_card(kind="reranking", options={"candidates": "top_ranked.jsonl"})

    for model in (PairScorer(), WordEncoder(), OwnSearch(lambda _, doc: float(doc == "d1"))):
        scores = scores_of(evaluate(model, task_class(card)()))
        assert (scores["n_queries"], scores["n_missing"], scores["hit_rate_at_1"]) == (3, 1, pytest.approx(1 / 3))


def test_multiple_choice_shares_credit_among_ties(root: Path) -> None:
    """A model that cannot tell the options apart gets chance, not the accuracy of whatever stands first."""
    write_collection(
        root / "test" / "mini", candidates={query: ["d1", "d2", "d4", "d5"] for query in ("q1", "q2", "q3")}
    )
    card = task_card(kind="choice", options={"candidates": "top_ranked.jsonl"}, relevant_from=2)

    scores = scores_of(evaluate(OwnSearch(lambda *_: 1.0), task_class(card)()))

    assert scores["accuracy"] == pytest.approx((1 / 4 + 1 / 4 + 0) / 3)


def test_own_documents_are_taken_out_before_the_cutoff(root: Path) -> None:
    """With `exclude_self` a ranking is one deeper, so that N documents are left."""
    same = {f"q{at}": text for at, text in enumerate(CORPUS.values(), 1)}
    qrels = {"test": {"q1": {"q3": 1}, "q2": {"q6": 1}}}
    write_collection(root / "test" / "mini", corpus=same, queries=same, qrels=qrels)
    model = OwnSearch(lambda query, doc: float(query == doc))

    scores = scores_of(evaluate(model, task_class(task_card(exclude_self=True, depth=2))()))

    assert model.asked[0][0] == 3
    assert (scores["depth"], scores["recall_at_5"]) == (2, None)


def test_shallow_ranking_has_no_deep_recall() -> None:
    """R@5 of rankings that hold two of six documents would be R@2 under another name."""
    scores = scores_of(evaluate(WordEncoder(), task_class(task_card(depth=2))()))

    assert (scores["recall_at_1"], scores["recall_at_5"]) == (pytest.approx((1 / 2 + 1 / 2 + 1) / 3), None)
    assert any("R@5" in note for note in scores["notes"])
    assert math.isfinite(scores["main_score"])


def test_only_missing_splits_are_evaluated(tmp_path: Path) -> None:
    """A second run evaluates what the first did not; `always` evaluates all again."""
    cache = ResultCache(tmp_path / "results")
    model = WordEncoder()
    evaluate(model, task_class(task_card())(), cache=cache)
    assert model.texts("query") == [QUERIES[key] for key in ("q1", "q2", "q3")]

    both = task_class(task_card())().filter_eval_splits(["test", "validation"])
    merged = evaluate(model, both, cache=cache)
    assert model.texts("query")[3:] == [QUERIES["v1"]]
    assert set(merged.scores) == {"test", "validation"}

    evaluate(model, task_class(task_card())(), cache=cache, overwrite_strategy="always")
    assert len(model.texts("query")) == 7


def test_cached_result_needs_neither_model_nor_data(root: Path, tmp_path: Path) -> None:
    """With everything stored MTEB loads no model and our task reads no file."""
    cache = ResultCache(tmp_path / "results")
    evaluate(WordEncoder(), task_class(task_card())(), cache=cache)
    (root / "test" / "mini" / "corpus.jsonl").unlink()

    def refuse(*_: Any, **__: Any) -> Any:
        pytest.fail("the model was loaded")

    result = evaluate(meta("words", loader=refuse), task_class(task_card())(), cache=cache)

    assert result.main_score == 1.0


def test_changed_data_under_an_old_name_are_reused_by_mteb(tmp_path: Path) -> None:
    """MTEB keys on model and task name alone and does not see a new revision: new data get a new name."""
    cache = ResultCache(tmp_path / "results")
    evaluate(WordEncoder(), task_class(task_card())(), cache=cache)
    renewed = task_card(source={"hub": "test/mini", "revision": "r2"})

    model = WordEncoder()
    assert evaluate(model, task_class(renewed)(), cache=cache).dataset_revision == "r1"
    assert model.calls == []
    assert evaluate(model, task_class(renewed)(), cache=cache, overwrite_strategy="always").dataset_revision == "r2"


def test_phases_are_timed() -> None:
    """Loading, searching and scoring show in MTEB's timing, for encoders and for models with their own search."""
    encoder = evaluate(WordEncoder(), task_class(task_card())())
    own = evaluate(mteb.get_model("mteb/baseline-bm25s"), task_class(task_card())())

    assert [phase["name"] for phase in encoder.evaluation_phases] == [
        "Data loading",
        "Encoding queries",
        "Searching corpus",
        "Scoring",
    ]
    assert [phase["name"] for phase in own.evaluation_phases] == [
        "Data loading",
        "Encoding corpus",
        "Encoding queries",
        "Scoring",
    ]
    assert all(phase["end"] >= phase["start"] >= 0 for phase in encoder.evaluation_phases)


@pytest.mark.parametrize("is_passages", [False, True])
def test_descriptive_statistics_stay_out_of_mtebs_folder(root: Path, tmp_path: Path, *, is_passages: bool) -> None:
    """They are computed by MTEB's code, kept in our cache folder, and read back as `n_samples`."""
    if is_passages:
        write_passages(root)
    task = task_class(task_card(**(MAX_PASSAGE if is_passages else {})))()
    assert task.metadata.n_samples is None

    statistics = task.calculate_descriptive_statistics()

    assert task.metadata.descriptive_stat_path == tmp_path / "cache" / "descriptive_stats" / "Mini.json"
    assert task.metadata.n_samples == {"test": 9}
    assert statistics["test"]["num_documents"] == 6
    assert not list(Path(mteb.__file__).parent.glob("descriptive_stats/**/Mini.json"))
    assert task.calculate_descriptive_statistics(overwrite_results=True) == statistics


def test_empty_texts_and_strange_ids_pass_through_mteb(root: Path) -> None:
    """Ids with blanks, colons, slashes, digits only, and empty texts: every model kind ranks them."""
    corpus = {"0012": "fox", "12": "", "a b": "dog", "x:y/z|w": "  \n", "Zoë": "bread"}
    queries = {"1": "fox", "q 2": "dog", "ñ": "bread"}
    qrels = {"test": {"1": {"0012": 1}, "q 2": {"a b": 1}, "ñ": {"Zoë": 1}}}
    write_collection(root / "test" / "mini", corpus=corpus, queries=queries, qrels=qrels)

    for model in (WordEncoder(), mteb.get_model("mteb/baseline-bm25s")):
        assert evaluate(model, task_class(task_card())()).main_score == 1.0


def test_missing_data_are_one_line(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without files and without a network: repository, revision and a command, in one line, from `mteb.evaluate`."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (root / "test" / "mini").rename(root / "elsewhere")

    with pytest.raises(MissingDataError, match="test/mini") as caught:
        evaluate(WordEncoder(), task_class(task_card())())
    assert "r1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_collection_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading, evaluating and asking for the collection read the files once."""
    import crumb_tasks.loaders

    loaded: list[str] = []
    load = crumb_tasks.loaders.load_collection

    def counted(card: Any, split: str) -> Any:
        loaded.append(split)
        return load(card, split)

    monkeypatch.setattr(crumb_tasks.loaders, "load_collection", counted)
    task = task_class(task_card())()
    task.load_data()
    evaluate(WordEncoder(), task)
    task.collection("test")

    assert loaded == ["test"]
