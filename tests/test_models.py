"""Instruction conditions: the exact strings that reach a model, for each benchmark's way with instructions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mteb
import pytest
from datasets import Dataset
from mteb.models import CrossEncoderWrapper, ModelMeta, SentenceTransformerEncoderWrapper
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from tiny_models import recording_transformer, write_cross_encoder, write_static_model

from crumb_tasks import register
from crumb_tasks.errors import UsageError
from crumb_tasks.local_models import LocalModel, model_meta
from crumb_tasks.models import Instructions, LazyModel, LoadOptions, conditioned
from crumb_tasks.models.loading import find_meta, parse_prompts
from crumb_tasks.running.condition import Condition
from crumb_tasks.running.plan import Unit
from crumb_tasks.running.preparing import Preparation

register()
TEMPLATE = r"Instruct: {instruction}\nQuery: {query}"
KINDS = ("plain", "dictionary", "template")
CONDITIONS = ("native", "none", "prepended", TEMPLATE)


@pytest.fixture
def static_folder(tmp_path: Path) -> Path:
    """A directory with a tiny model."""
    return write_static_model(tmp_path / "static")


@pytest.fixture
def make_model(static_folder: Path) -> Callable[[str], tuple[Any, list[str]]]:
    """Make a model of one kind, and the list of texts that reach its tokenizer."""

    def make(kind: str) -> tuple[Any, list[str]]:
        if kind == "plain":
            transformer, texts = recording_transformer()
            return SentenceTransformerEncoderWrapper(transformer), texts
        if kind == "dictionary":
            prompts = {
                "query": "query: ",
                "document": "passage: ",
                "CRUMBSampleLegalQA-query": "legal: ",
                "PIQA": "piqa: ",
            }
            transformer, texts = recording_transformer(prompts)
            return SentenceTransformerEncoderWrapper(transformer), texts
        transformer, texts = recording_transformer()
        wrapper: Any = InstructSentenceTransformerModel(
            str(static_folder), None, instruction_template="Instruct: {instruction}\nQuery: "
        )
        wrapper.model = transformer
        wrapper.mteb_model_meta = ModelMeta.create_empty({"name": "test/template", "revision": "1"})
        return wrapper, texts

    return make


def sent(model: Any, texts: list[str], task: Any, condition: str) -> tuple[set[str], set[str]]:
    """Return the texts of queries and of documents that reach a model under a condition."""
    wrapped = conditioned(model, Instructions.parse(condition))
    task.load_data()  # MTEB unloads what it has loaded itself
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mteb.evaluate(wrapped, task, cache=None, show_progress_bar=False)
    part = next(iter(task.dataset["default"].values()))
    n_queries = len(part["queries"])
    return set(texts[:n_queries]), set(texts[n_queries:])


def small_task(name: str, instruction_column: list[str] | None = None) -> Any:
    """Return MTEB's task ``name`` with two queries and two documents in place of its data."""
    task = mteb.get_task(name)
    queries: dict[str, Any] = {"id": ["q1", "q2"], "text": ["boil an egg", "tie a knot"]}
    if instruction_column:
        queries["instruction"] = instruction_column
    task.dataset = {
        "default": {
            "test": {
                "corpus": Dataset.from_dict({"id": ["d1", "d2"], "title": ["", ""], "text": ["hot water", "a rope"]}),
                "queries": Dataset.from_dict(queries),
                "relevant_docs": {"q1": {"d1": 1}, "q2": {"d2": 1}},
                "top_ranked": None,
            }
        }
    }
    task.data_loaded = True
    return task


PIQA = "Given the following goal, retrieve a possible solution."


@pytest.mark.parametrize(
    ("kind", "condition", "query", "document"),
    [
        ("plain", "native", "boil an egg", "hot water"),
        ("plain", "none", "boil an egg", "hot water"),
        ("plain", "prepended", f"{PIQA} boil an egg", "hot water"),
        ("plain", TEMPLATE, f"Instruct: {PIQA}\nQuery: boil an egg", "hot water"),
        ("dictionary", "native", "piqa: boil an egg", "piqa: hot water"),
        ("dictionary", "none", "query: boil an egg", "passage: hot water"),
        ("dictionary", "prepended", f"query: {PIQA} boil an egg", "passage: hot water"),
        ("dictionary", TEMPLATE, f"Instruct: {PIQA}\nQuery: boil an egg", "passage: hot water"),
        ("template", "native", f"Instruct: {PIQA}\nQuery: boil an egg", "hot water"),
        ("template", "none", "Instruct: \nQuery: boil an egg", "hot water"),
        ("template", "prepended", f"{PIQA} boil an egg", "hot water"),
        ("template", TEMPLATE, f"Instruct: {PIQA}\nQuery: boil an egg", "hot water"),
    ],
)
def test_one_instruction_for_all_queries(make_model: Any, kind: str, condition: str, query: str, document: str) -> None:
    """RAR-b's tasks are MTEB's and have one instruction each; the strings are those of RAR-b's own evaluation."""
    queries, documents = sent(*make_model(kind), small_task("PIQA"), condition)

    assert (query in queries, document in documents) == (True, True), (queries, documents)
    assert len(queries) == len(documents) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_each_query_with_its_own_instruction(make_model: Any, kind: str, condition: str) -> None:
    """CRUMB's instructions stand in the data, one for each query, and none of them reaches a document."""
    task = mteb.get_task("CRUMBSampleLegalQA")
    own = {"native": "legal: ", "none": "query: ", "prepended": "query: "}.get(condition, "")
    prefix = own if kind == "dictionary" else ""

    queries, documents = sent(*make_model(kind), task, condition)

    table = task.collection().queries
    pairs = list(zip(table.column("prompt").to_pylist(), table.column("text").to_pylist(), strict=True))
    filled = {f"Instruct: {instruction}\nQuery: {text}" for instruction, text in pairs}
    if condition == TEMPLATE or (kind == "template" and condition == "native"):
        expected = filled
    elif condition == "prepended":
        expected = {f"{prefix}{instruction} {text}" for instruction, text in pairs}
    elif kind == "template":
        expected = {f"Instruct: \nQuery: {text}" for _, text in pairs}
    else:
        expected = {f"{prefix}{text}" for _, text in pairs}
    assert queries == expected
    corpus = task.collection().corpus
    titled = zip(corpus.column("title").to_pylist(), corpus.column("text").to_pylist(), strict=True)
    passage = "passage: " if kind == "dictionary" else ""
    assert documents == {f"{passage}{f'{title} {text}'.strip()}" for title, text in titled}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_text_that_holds_its_instruction_is_taken_apart(make_model: Any, kind: str, condition: str) -> None:
    """InstructIR's official text is ``instruction [SEP] query``; conditions get the two apart, `native` the whole."""
    task = mteb.get_task("InstructIRSample")
    whole = set(task.collection().queries.column("text").to_pylist())
    pairs = [tuple(text.split(" [SEP] ")) for text in whole]
    Preparation(Condition(Instructions.parse(condition))).prepare(Unit(task, {}))

    queries, _ = sent(*make_model(kind), task, condition)

    prefix = "query: " if kind == "dictionary" else ""
    default = "Instruct: Retrieve text based on user query.\nQuery: "  # MTEB's own, for instruction models
    expected = {
        "native": {f"{default if kind == 'template' else prefix}{text}" for text in whole},
        "none": {
            f"{'Instruct: ' + chr(10) + 'Query: ' if kind == 'template' else prefix}{query}" for _, query in pairs
        },
        "prepended": {f"{prefix}{instruction} {query}" for instruction, query in pairs},
        TEMPLATE: {f"Instruct: {instruction}\nQuery: {query}" for instruction, query in pairs},
    }
    assert queries == expected[condition]


@pytest.mark.parametrize("kind", KINDS)
def test_default_sentence_of_mteb_reaches_nobody(make_model: Any, kind: str) -> None:
    """A task without an instruction has none under 'none'; MTEB would put its default sentence in the place of ''."""
    task = small_task("SciFact")
    assert not task.metadata.prompt or "query" in task.metadata.prompt

    queries, documents = sent(*make_model(kind), task, "none")

    assert not any("Retrieve" in text or "Given" in text for text in queries | documents)


def test_text_of_query_and_instruction_is_left_to_mteb(make_model: Any) -> None:
    """Where MTEB itself puts the instruction into a query's text (InstructIR), every condition has it once."""
    task = small_task("InstructIR", ["I cook.", "I sail."])

    queries, _ = sent(*make_model("plain"), task, "none")

    assert queries == {"boil an egg I cook.", "tie a knot I sail."}


def test_native_is_mteb(make_model: Any) -> None:
    """The wrapper that counts documents changes no score."""
    task = mteb.get_task("CRUMBSampleLegalQA")
    plain, _ = make_model("dictionary")
    wrapped, _ = make_model("dictionary")

    expected = mteb.evaluate(plain, task, cache=None, show_progress_bar=False).task_results[0].scores
    found = mteb.evaluate(conditioned(wrapped, Instructions()), task, cache=None, show_progress_bar=False)

    assert found.task_results[0].scores == expected


def test_cross_encoder_gets_the_condition_in_its_pairs(tmp_path: Path) -> None:
    """A re-ranker reads the instruction where a condition says so."""
    # By path: MTEB 2.26.0 cannot describe a loaded model of newer transformers
    wrapper = CrossEncoderWrapper(write_cross_encoder(tmp_path / "cross").as_posix(), device="cpu")
    inner = wrapper.model
    pairs: list[tuple[str, str]] = []
    predict = inner.predict
    inner.predict = lambda sentences, **kwargs: (pairs.extend(sentences), predict(sentences, **kwargs))[1]
    task = small_task("PIQA")
    task.dataset["default"]["test"]["top_ranked"] = {"q1": ["d2", "d1"], "q2": ["d1"]}

    mteb.evaluate(
        conditioned(wrapper, Instructions.parse("prepended")),
        task,
        cache=None,
        show_progress_bar=False,
    )

    assert sorted(pairs) == sorted(
        [(f"{PIQA} boil an egg", "a rope"), (f"{PIQA} boil an egg", "hot water"), (f"{PIQA} tie a knot", "hot water")]
    )


def test_bm25_searches_for_the_text_of_the_condition() -> None:
    """A model with its own search gets the condition's queries; natively it never sees an instruction."""
    task = mteb.get_task("CRUMBSampleLegalQA")
    counts: dict[str, int] = {}
    scores = {}
    for condition in ("native", "none", "prepended"):
        model = mteb.get_model("mteb/baseline-bm25s")
        wrapped = conditioned(model, Instructions.parse(condition), lambda kind, n: counts.update({kind: n}))
        results = mteb.evaluate(wrapped, task, cache=None, show_progress_bar=False).task_results[0].scores
        scores[condition] = results["test"][0]["main_score"]

    assert scores["native"] == scores["none"] != scores["prepended"]
    assert counts == {"document": 160, "query": 17}


def test_no_model_is_refused() -> None:
    """Something that can neither encode nor score nor search is named."""
    with pytest.raises(UsageError, match="object is no model that MTEB can run"):
        conditioned(object(), Instructions())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("natve", "did you mean 'native'"),
        ("Instruct: {instruction}", "template with {query}"),
        ("{task}: {query}", "the template has '{task}'"),
        ("{{instruction}} {query}", "the template has '{{instruction}}'"),
        ("{ instruction } {query}", "the template has '{ instruction }'"),
        ("{instruction!r} {query}", "the template has '{instruction!r}'"),
    ],
)
def test_odd_settings_are_refused(text: str, complaint: str) -> None:
    """A misspelt setting is no template."""
    with pytest.raises(UsageError, match=complaint.replace("{", r"\{")):
        Instructions.parse(text)


def test_template_is_filled_in_once() -> None:
    """Braces in a query or an instruction are text."""
    setting = Instructions.parse("{instruction}|{query}")

    assert setting.text("use {query}", "what is {instruction}?") == "use {query}|what is {instruction}?"
    assert setting.token != Instructions.parse("{instruction} | {query}").token


def test_prompts_are_read_by_key() -> None:
    """A prefix without a key is the queries'; an equals sign of its own stays in it."""
    assert parse_prompts(["query=query: ", "document=p=q: "]) == {"query": "query: ", "document": "p=q: "}
    assert parse_prompts(["a=b: "]) == {"query": "a=b: "}
    with pytest.raises(UsageError, match="'query' twice"):
        parse_prompts(["x", "query=y"])


def lazy(folder: Path, options: LoadOptions, **local: Any) -> LazyModel:
    """Return the model in ``folder``, not loaded yet."""
    model = LocalModel(str(folder), "sentence-transformers", "1", **local)
    return LazyModel(model_meta("local/test", model), options, Instructions(), options.experiment)


def test_nothing_is_loaded_until_it_is_needed(tmp_path: Path) -> None:
    """A model whose results are all cached costs no memory; its directory may even be gone."""
    model = lazy(tmp_path / "gone", LoadOptions())

    assert (model.meta.name, model.is_loaded) == ("local/test", False)
    with pytest.raises(UsageError, match="is gone"):
        model.load()


def test_model_is_loaded_once(static_folder: Path) -> None:
    """All tasks of a run share one model."""
    model = lazy(static_folder, LoadOptions())

    assert model.load() is model.load()


def test_options_reach_the_model_and_its_experiment(static_folder: Path) -> None:
    """What changes results is part of the experiment, and the experiment never reaches the constructor."""
    options = LoadOptions(dtype="float16", prompts={"query": "q: "})
    model = lazy(static_folder, options)

    loaded = model.load()

    assert next(loaded.model.parameters()).dtype.itemsize == 2
    assert loaded.model_prompts["query"] == "q: "
    assert loaded.mteb_model_meta.experiment_kwargs == model.meta.experiment_kwargs == options.experiment
    assert options.experiment != replace(options, prompts={"query": "Q: "}).experiment


def test_length_limit_is_set_or_refused(tmp_path: Path, static_folder: Path) -> None:
    """A limit that a model does not have is no limit."""
    cross = write_cross_encoder(tmp_path / "cross")
    local = LocalModel(str(cross), "cross-encoder", "1")
    model = LazyModel(model_meta("local/cross", local), LoadOptions(max_seq_length=8), Instructions(), {})

    assert model.load().model.max_length == 8
    with pytest.raises(UsageError, match="no length limit"):
        lazy(static_folder, LoadOptions(max_seq_length=8)).load()


def test_unknown_model_is_named_with_near_ones() -> None:
    """A misspelt name is neither downloaded nor guessed."""
    with pytest.raises(UsageError, match="did you mean"):
        find_meta("all-MiniLM-L6-v3", None)
    assert find_meta("sentence-transformers/all-MiniLM-L6-v2", "abc").revision == "abc"
