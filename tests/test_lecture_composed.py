"""MTEB's own tasks composed: the measure that the original reports, columns that are never averaged, slices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mteb
import pytest
from mteb.benchmarks.benchmark import CustomGrouping
from mteb.results import BenchmarkResults, ModelResult, TaskResult

import crumb_tasks
from crumb_tasks.aggregate_tasks import CardAggregate, aggregate_class, reduce_results, scoped
from crumb_tasks.benchmarks import ColumnsBenchmark, benchmark
from crumb_tasks.cards import BenchmarkCard, Scope, find_aggregate, read_cards
from crumb_tasks.errors import AggregateError, CardError
from crumb_tasks.runfiles.qrels import read_qrels

BM25, RANDOM = "mteb/baseline-bm25s", "mteb/baseline-random-encoder"
MEASURES = {
    "MSMARCOPassage": "mrr_at_10",
    "FollowIRPMRR": "p-MRR",
    "MFollowIRPMRR": "p-MRR",
    "BRIGHTDomains": "ndcg_at_10",
    "BRIGHTLongDocuments": "recall_at_1",
    "OBLIQBench": "ndcg_at_10",
    "BrowseCompPlusEvidence": "ndcg_at_10",
    "BrowseCompPlusEvidenceRecall1000": "recall_at_1000",
    "BrowseCompPlusGold": "ndcg_at_10",
    "CrossLingualRetrieval": "ndcg_at_10",
    "BEIR19": "ndcg_at_10",
}


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    crumb_tasks.register()


def aggregate(name: str) -> CardAggregate:
    """Return an aggregate from MTEB's registry."""
    task = mteb.get_task(name)
    assert isinstance(task, CardAggregate)
    return task


def result(name: str, split: str, by_subset: Mapping[str, Mapping[str, Any]]) -> TaskResult:
    """Return MTEB's result of one of its tasks; the main score is that of its metadata."""
    metadata = mteb.get_task(name).metadata
    entries = [
        {"main_score": values.get(metadata.main_score, 0.0), **values, "hf_subset": subset, "languages": ["eng-Latn"]}
        for subset, values in by_subset.items()
    ]
    return TaskResult(
        dataset_revision=metadata.revision,
        task_name=name,
        mteb_version=mteb.__version__,
        scores={split: entries},
        evaluation_time=1.0,
    )


def value_of(name: str, *results: TaskResult) -> float:
    """Return what an aggregate makes of its members' results."""
    task = aggregate(name)
    return reduce_results(task.card, task.tasks, results, task.card.splits[0]).value


@pytest.mark.parametrize(("name", "key"), MEASURES.items())
def test_the_measure_is_the_originals(name: str, key: str) -> None:
    """The main score under which MTEB stores and shows the composition."""
    assert aggregate(name).metadata.main_score == key


def test_ms_marco_reports_mrr_from_mtebs_result() -> None:
    """Nothing is evaluated again: the value stands in MTEB's own result, on the development queries."""
    stored = result("MSMARCO", "dev", {"default": {"ndcg_at_10": 0.43, "mrr_at_10": 0.36}})

    assert value_of("MSMARCOPassage", stored) == 0.36


def follow_ir(p_mrr: float, quality: float) -> list[TaskResult]:
    """Return results of FollowIR's three sets; what stands at the top mixes both kinds of queries."""
    return [
        result(
            f"{name}InstructionRetrieval",
            "test",
            {
                "default": {
                    "p-MRR": p_mrr,
                    "map_at_1000": 0.9,
                    "ndcg_at_5": 0.9,
                    "og": {"map_at_1000": quality, "ndcg_at_5": quality + 0.3},
                }
            },
        )
        for name in ("Core17", "News21", "Robust04")
    ]


def test_p_mrr_stands_beside_quality() -> None:
    """Quality is MAP@1000 twice and nDCG@5 once, of the original instructions only; p-MRR may be negative."""
    results = follow_ir(-0.05, 0.2)

    assert value_of("FollowIRPMRR", *results) == pytest.approx(-0.05)
    assert value_of("FollowIRQuality", *results) == pytest.approx((0.2 + 0.5 + 0.2) / 3)


def test_p_mrr_is_averaged_with_nothing_else() -> None:
    """In no benchmark is there a mean over, or a group with, p-MRR and another measure."""
    for card in (card for file in read_cards() for card in file.benchmarks):
        made = mteb.get_benchmark(card.name)
        keys = {task.metadata.name: task.metadata.main_score for task in made.tasks}
        if "p-MRR" not in keys.values():
            continue
        assert isinstance(made, ColumnsBenchmark)
        groupings = [entry for entry in made.aggregations if isinstance(entry, CustomGrouping)]
        assert len(groupings) == len(made.aggregations), f"{card.name} has a mean over all"
        for group in (group for grouping in groupings for group in grouping.groups):
            assert len({keys[task.metadata.name] for task in group.tasks}) == 1


def test_a_member_is_the_mean_of_its_subsets_and_missing_while_one_is() -> None:
    """Three languages make mFollowIR; two of them are no value."""
    rows = {lang: {"p-MRR": value} for lang, value in (("fas", 0.1), ("rus", 0.2), ("zho", 0.6))}
    cross = {f"eng-{lang}": values for lang, values in rows.items()}
    whole = (result("mFollowIR", "test", rows), result("mFollowIRCrossLingual", "test", cross))

    assert value_of("MFollowIRPMRR", *whole) == pytest.approx(0.3)
    del rows["zho"]
    with pytest.raises(AggregateError, match="missing: 'mFollowIR'"):
        value_of("MFollowIRPMRR", result("mFollowIR", "test", rows), whole[1])
    with pytest.raises(AggregateError, match=r"'mFollowIR' does not have og\.ndcg_at_20"):
        value_of("MFollowIRQuality", *whole)


def test_label_sets_are_not_averaged() -> None:
    """BrowseComp-Plus: evidence and gold are two values of one result."""
    rows = {
        "gold_only": {"ndcg_at_10": 0.1, "recall_at_1000": 0.5},
        "gold_and_evidence": {"ndcg_at_10": 0.3, "recall_at_1000": 0.7},
    }
    stored = result("BrowseCompPlusRetrieval", "test", rows)

    found = {name: value_of(name, stored) for name in MEASURES if name.startswith("BrowseComp")}
    assert found == {
        "BrowseCompPlusEvidence": 0.3,
        "BrowseCompPlusEvidenceRecall1000": 0.7,
        "BrowseCompPlusGold": 0.1,
    }


def test_the_cards_numbers_are_those_of_the_judgements(shared_data: Path) -> None:
    """830 questions; the lecture's question 234 has five documents of evidence, of which one holds the answer."""
    folder = shared_data / "browsecomp_plus_qrels"
    evidence, gold = (read_qrels(folder / f"qrel_{name}.txt") for name in ("evidence", "golds"))
    (facts,) = (card.facts for card in read_cards() if card.name == "browsecomp_plus")

    assert (len(evidence.codes), len(gold.codes)) == (5064, 2407)
    for qrels in (evidence, gold):
        assert len(qrels) == 830
        assert f"{len(qrels.codes) / 830:.2f}" in facts[0]
    assert set(evidence.to_dict()["234"]) == {"20653", "30191", "3827", "5120", "67220"}
    assert set(gold.to_dict()["234"]) == {"30191"}


def test_only_subsets_of_two_languages_are_cross_lingual() -> None:
    """Monolingual ones are in the result and do not count, nor does another split."""
    members = {task.metadata.name: task for task in aggregate("CrossLingualRetrieval").tasks}

    assert {name: len(task.hf_subsets) for name, task in members.items()} == {
        "BelebeleRetrieval": 254,
        "MLQARetrieval": 42,
        "XPQARetrieval": 24,
    }
    assert members["MLQARetrieval"].eval_splits == ["test"]
    results = []
    for name, task in members.items():
        rows = {subset: {"ndcg_at_10": 0.0} for subset in task.metadata.hf_subsets}
        rows |= {subset: {"ndcg_at_10": 0.5} for subset in task.hf_subsets}
        results.append(result(name, "test", rows))
    assert value_of("CrossLingualRetrieval", *results) == pytest.approx(0.5)


def test_splits_on_request_keep_what_a_scope_says() -> None:
    """MS MARCO is judged on its development queries whatever split the other sets are asked for."""
    task = aggregate("BEIR19").filter_eval_splits(["test"])

    splits = {member.metadata.name: member.eval_splits for member in task.tasks}
    assert splits["MSMARCO"] == ["dev"]
    assert splits["SciFact"] == ["test"]
    assert len(splits) == 19


def test_a_scope_that_a_task_lacks_is_an_error() -> None:
    """When it is made, naming the task."""
    with pytest.raises(CardError, match="MSMARCO has no chinese"):
        scoped(mteb.get_task("MSMARCO"), Scope(subsets=("chinese",)))
    with pytest.raises(CardError, match="MSMARCO has no cross-lingual"):
        scoped(mteb.get_task("MSMARCO"), Scope(subsets="cross-lingual"))
    with pytest.raises(CardError, match="MSMARCO has no eval"):
        scoped(mteb.get_task("MSMARCO"), Scope(split="eval"))


def test_the_slice_is_mtebs() -> None:
    """Its retrieval tasks, with its splits and subsets, and nothing else."""
    whole, part = (mteb.get_benchmark(f"MTEB(Multilingual, v2){suffix}") for suffix in ("", " retrieval"))

    expected = [task for task in whole.tasks if task.metadata.type == "Retrieval"]
    assert len(expected) == 18
    assert [(task.metadata.name, task.eval_splits) for task in part.tasks] == [
        (task.metadata.name, task.eval_splits) for task in expected
    ]
    card = BenchmarkCard(name="S", description="A slice.", slice_of="MTEB(Gone)", types=("Retrieval",))
    with pytest.raises(CardError, match=r"slice of 'MTEB\(Gone\)', which this MTEB does not have"):
        benchmark(card, None, {}, {})


def combined(model: str, results: list[TaskResult], *names: str) -> ModelResult:
    """Return a model's results on the aggregates ``names`` as MTEB stores them."""
    found = []
    for name in names:
        task = aggregate(name)
        mine = [entry for entry in results if entry.task_name in task.card.task_names]
        found.append(task.combine_task_results(mine))
    meta = mteb.get_model_meta(model)
    return ModelResult(model_name=model, model_revision=meta.revision, task_results=found, model_meta=meta)


def test_columns_have_no_mean_and_a_value_each() -> None:
    """MTEB's table has the columns and no Mean; a model without quality keeps its p-MRR."""
    made = mteb.get_benchmark("FollowIR (p-MRR and quality)")
    results = BenchmarkResults(
        model_results=[
            combined(BM25, follow_ir(-0.05, 0.2), "FollowIRPMRR", "FollowIRQuality"),
            combined(RANDOM, follow_ir(0.01, 0.0), "FollowIRPMRR"),
        ]
    )

    rows = {row["Model"]: row for row in made._create_summary_table(results._to_results_df(made.tasks)).df.to_dicts()}
    scores = made.get_score(results)

    assert not any(name.startswith("Mean") for name in rows[BM25])
    assert rows[BM25]["__cg__Groups::p-MRR"] == pytest.approx(-0.05)
    assert rows[BM25]["__cg__Beside::quality"] == pytest.approx(0.3)
    assert rows[RANDOM]["__cg__Beside::quality"] is None
    assert scores[BM25] == pytest.approx({"p-MRR": -0.05, "quality": 0.3})
    assert scores[RANDOM] == {"p-MRR": pytest.approx(0.01), "quality": None}
    with pytest.raises(AggregateError, match="baseline-random-encoder has no value for quality"):
        made.get_score(results, raise_error=True)


def test_a_revision_says_what_counts() -> None:
    """A result of other subsets, or by another key, is no result of this aggregate."""
    card = find_aggregate("BrowseCompPlusEvidence")
    assert card is not None
    classes = {"BrowseCompPlusRetrieval": type(mteb.get_task("BrowseCompPlusRetrieval"))}
    other = card.model_copy(update={"scopes": {"BrowseCompPlusRetrieval": Scope(subsets=("gold_only",))}})

    assert aggregate_class(card, classes).metadata.revision != aggregate_class(other, classes).metadata.revision
