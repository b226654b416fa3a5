from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mteb
import pytest
from mteb.abstasks.aggregated_task import AbsTaskAggregate
from mteb.benchmarks.benchmark import CustomGrouping
from mteb.results import BenchmarkResults, ModelResult, TaskResult

import crumb_tasks
from crumb_tasks.benchmarks import BESIDE, GROUPS, ColumnsBenchmark
from crumb_tasks.cards import find_aggregate, iter_tasks, read_cards
from crumb_tasks.cli import main

NEEDS = (
    "connect facts", "satisfy the instruction", "find the explanation", "share the relation", "cover the set",
    "keep conditions across languages", "recover context", "find a capability", "resolve clues", "inspire research",
    "stay fresh",
)  # fmt: skip
BM25, RANDOM = "mteb/baseline-bm25s", "mteb/baseline-random-encoder"


@pytest.fixture(scope="module")
def suite() -> ColumnsBenchmark:
    """The suite, from MTEB's own registry."""
    crumb_tasks.register()
    made = mteb.get_benchmark("Needs")
    assert isinstance(made, ColumnsBenchmark)
    return made


def columns(suite: ColumnsBenchmark, name: str) -> dict[str, list[Any]]:
    """Return the groups of one of the suite's groupings."""
    (found,) = (entry for entry in suite.aggregations if isinstance(entry, CustomGrouping) and entry.name == name)
    return {group.label: list(group.tasks) for group in found.groups}


def leaves(task: Any) -> Iterator[Any]:
    """Yield the tasks that hold data."""
    if isinstance(task, AbsTaskAggregate):
        for member in task.tasks:
            yield from leaves(member)
    else:
        yield task


def model_result(model: str, values: dict[str, float]) -> ModelResult:
    """Return a model's results on members of the suite, as MTEB stores them."""
    entry = {"hf_subset": "default", "languages": ["eng-Latn"]}
    found = [
        TaskResult(
            dataset_revision=mteb.get_task(name).metadata.revision,
            task_name=name,
            mteb_version=mteb.__version__,
            scores={mteb.get_task(name).eval_splits[0]: [{"main_score": value, **entry}]},
            evaluation_time=1.0,
        )
        for name, value in values.items()
    ]
    meta = mteb.get_model_meta(model)
    return ModelResult(model_name=model, model_revision=meta.revision, task_results=found, model_meta=meta)


def test_there_is_one_column_for_each_need(suite: ColumnsBenchmark) -> None:
    """Eleven, in the lecture's order, each saying its measure."""
    labels = list(columns(suite, GROUPS))

    assert [label.rpartition(" (")[0] for label in labels] == list(NEEDS)
    assert len(suite.aggregations) == 2, "no mean over columns of different scales"


def test_a_column_is_one_measure_and_says_which(suite: ColumnsBenchmark) -> None:
    """What MTEB averages in a column are main scores of one key; p-MRR stands in no column with another."""
    for label, tasks in columns(suite, GROUPS).items():
        assert len({task.metadata.main_score for task in tasks}) == 1
        named = label.rpartition("(")[2].removesuffix(")")
        aggregate = find_aggregate(tasks[0].metadata.name)
        card = next((task for task in iter_tasks() if task.name == tasks[0].metadata.name), None)
        measured = aggregate.measured if aggregate is not None else card.main_measure if card is not None else ""
        assert measured == named


def test_quality_stands_beside_p_mrr(suite: ColumnsBenchmark) -> None:
    """Each p-MRR has its quality, in a grouping of its own."""
    with_p_mrr = [label for label, (task, *_) in columns(suite, GROUPS).items() if task.metadata.main_score == "p-MRR"]

    assert len(with_p_mrr) == len(columns(suite, BESIDE)) == 2


def test_only_public_members_enter(suite: ColumnsBenchmark) -> None:
    """Nothing licensed, gated, unreleased, sampled, or brought by the user, at any depth."""
    members = [leaf for task in suite.tasks for leaf in leaves(task)]

    assert len(members) > 40
    assert [leaf.metadata.name for leaf in members if not leaf.metadata.is_public] == []
    kept_out = {task.name for task in iter_tasks() if not task.public}
    assert {"TREC1AdHocTitle", "ResearchBenchInspiration", "ClimbMixProjectionReranking"} <= kept_out
    assert not kept_out & {leaf.metadata.name for leaf in members}


def test_every_need_of_the_cards_of_this_package_is_said(suite: ColumnsBenchmark) -> None:
    """Members that are ours say the need of their column, or the aggregate that stands for it does."""
    for label, tasks in columns(suite, GROUPS).items():
        need = label.rpartition(" (")[0].split()[-1].rstrip("s")
        cards = {task.name: task.need for task in iter_tasks()}
        cards |= {entry.name: entry.need for card in read_cards() for entry in card.aggregates}
        assert need[:4] in " ".join(cards[task.metadata.name] for task in tasks).casefold()


def test_an_incomplete_need_has_no_value_and_spoils_no_other(suite: ColumnsBenchmark) -> None:
    """In MTEB's table and in get_score alike."""
    whole = {task.metadata.name: 0.5 for task in suite.tasks}
    partly = {name: value for name, value in whole.items() if name != "NeedConnectFacts"} | {"FollowIRPMRR": -0.1}
    results = BenchmarkResults(model_results=[model_result(BM25, partly), model_result(RANDOM, whole)])

    scores = suite.get_score(results)
    table = suite._create_summary_table(results._to_results_df(suite.tasks)).df.to_dicts()

    assert scores[BM25]["connect facts (all_recall@10)"] is None
    assert scores[BM25]["satisfy the instruction (p-MRR)"] == pytest.approx(-0.1)
    assert sum(value is None for value in scores[BM25].values()) == 1
    assert set(scores[RANDOM].values()) == {0.5}
    for row in table:
        shown = {name.partition("::")[2]: value for name, value in row.items() if name.startswith("__cg__")}
        assert shown == pytest.approx(scores[row["Model"]])
        assert not any(name.startswith("Mean") for name in row)


LECTURE = {
    "TREC-1": "trec1", "CLEF": "clef06fr", "MS MARCO": "msmarco", "SciDocs": "scidocs", "SPECTER": "specter",
    "BEIR": "beir_licensed", "MuSiQue": "musique", "FollowIR": "followir", "BRIGHT": "bright",
    "AnaloBench": "analobench", "MultiHop-RAG": "multihop_rag", "MMTEB": "mmteb", "Gemini Embedding": "cross_lingual",
    "mFollowIR": "mfollowir", "CRUMB": "crumb", "OBLIQ-Bench": "obliq", "ConTEB": "conteb",
    "BrowseComp-Plus": "browsecomp_plus", "ClimbMix projection": "climbmix", "ToolRet": "toolret", "MIR": "mir",
    "ResearchBench": "researchbench", "MOOSE-Chem": "moose_chem", "RATIO": "ratio", "CREATE": "create",
    "FreshStack": "freshstack", "Still Fresh?": "still_fresh",
}  # fmt: skip
"""What the lecture names, but for Big-ANN, which is about efficiency → the card."""


def test_every_benchmark_of_the_lecture_is_listed_with_its_need(capsys: pytest.CaptureFixture[str]) -> None:
    """One row at least for each card, and no need left out."""
    assert main(["list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    card_by_name = {card.name: card for card in read_cards()}

    for benchmark, name in LECTURE.items():
        card = card_by_name[name]
        entries = [*card.tasks, *card.aggregates]
        names = [entry.name for entry in entries] or [entry.name for entry in card.benchmarks] or [card.name]
        needs = [entry.need for entry in entries] or [card.need]
        assert all(needs), benchmark
        for shown, need in zip(names, needs, strict=False):
            (row,) = [line for line in listed if line.startswith(f"{shown} ")]
            assert " ".join(need.split()[:2]) in row
