from __future__ import annotations

import pytest
from pydantic import ValidationError

from crumb_tasks.cards import TaskCard, find_aggregate, find_benchmark, find_task, iter_tasks, read_cards
from crumb_tasks.loaders import loader_of
from crumb_tasks.loaders._options import read_options

TASKS = list(iter_tasks())


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_each_card_fits_its_loader(task: TaskCard) -> None:
    """Options are those that the loader knows, and every split has files."""
    loader = loader_of(task)

    read_options(task, loader.Options)
    for split in task.splits:
        assert loader.files(task, split)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_each_card_says_what_a_person_needs(task: TaskCard) -> None:
    """The need, what counts as relevant and the time of the texts are never left out."""
    assert task.need
    assert task.relevant
    assert task.description
    assert task.date


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_source_that_is_fetched_is_pinned(task: TaskCard) -> None:
    """A whole commit, so that nothing has to be discovered and nothing moves (known problem R52)."""
    if (task.source.hub or task.source.github) and not task.source.user:
        assert len(str(task.source.revision)) == 40


def test_a_recall_aggregate_differs_in_its_measure_only() -> None:
    """Both of CRUMB's headline numbers exist as results, over the same members."""
    for name in ("CRUMB", "CRUMBFullDocument", "CRUMBSample"):
        ranking, recall = find_aggregate(name), find_aggregate(f"{name}Recall100")
        assert ranking is not None
        assert recall is not None
        assert ranking.reduction == recall.reduction
        assert (ranking.measure, recall.measure) == ("nDCG@10", "R@100")


@pytest.mark.parametrize("name", ["CRUMB", "CRUMBFullDocument", "CRUMBSample"])
def test_a_benchmark_ranks_by_its_aggregate(name: str) -> None:
    """`mteb run -b CRUMB` and `mteb run -t CRUMB` are about the same number."""
    benchmark = find_benchmark(name)

    assert benchmark is not None
    assert benchmark.aggregate == name


def test_the_headline_numbers_are_the_papers() -> None:
    """Best average nDCG@10 and R@100, from the abstract; what only a summary says is marked as such."""
    card = next(card for card in read_cards() if card.name == "crumb")
    from_abstract = {(value.task, value.measure): value.value for value in card.published if "abstract" in value.source}

    assert from_abstract == {("CRUMB", "nDCG@10"): 0.346, ("CRUMBRecall100", "R@100"): 0.587}
    assert not any(value.verified for value in card.published if "summary" in value.source)


def test_the_sample_stands_beside_no_published_number() -> None:
    """It says sample wherever it shows, is hidden from listings, and shares no number with CRUMB."""
    card = next(card for card in read_cards() if card.name == "crumb_sample")

    assert card.published == ()
    for task in card.tasks:
        assert "ample" in task.name
        assert "ample" in task.title
        assert "ample" in task.description
        assert not task.public


def test_max_passage_is_of_the_three_tasks_without_passage_labels() -> None:
    """clinical_trial, set_operation_entity_retrieval, tip_of_the_tongue, and only at passage level."""
    names = {task.name for task in TASKS if task.max_passage and task.benchmark == "crumb"}

    assert names == {"CRUMBClinicalTrial", "CRUMBSetOperationEntityRetrieval", "CRUMBTipOfTheTongue"}


def test_only_papers_have_binary_labels() -> None:
    """As in the benchmark's evaluator, and never for full documents."""
    assert {task.name for task in TASKS if "binary" in task.qrels and task.benchmark == "crumb"} == {
        "CRUMBPaperRetrieval"
    }


def test_crumb_shows_the_nine_measures_of_its_evaluator() -> None:
    """Of crumb_eval's defaults, MRR is RR in ir_measures' notation."""
    task = find_task("CRUMBLegalQA")

    assert {task.main_measure, *task.measures} == {
        *("nDCG@10", "nDCG@5", "P@10", "P@5", "R@10", "R@100", "R@1000"),
        *("RR", "RR@10"),
    }


def test_a_card_is_frozen() -> None:
    """What was read is what everybody sees."""
    with pytest.raises(ValidationError):
        find_task("CRUMBLegalQA").depth = 5
