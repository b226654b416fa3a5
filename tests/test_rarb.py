"""RAR-b's aggregate: the paper's numbers follow from the paper's tables, and from MTEB's results."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from crumb_tasks.aggregates import aggregate_value, refusal
from crumb_tasks.aggregators import geometric_mean
from crumb_tasks.cards import AggregateCard, Card, card_folder, find_aggregate, read_card
from crumb_tasks.errors import AggregateError, CardError
from crumb_tasks.report import Ranking, find_aggregate_of, instruction_gain, rank, read_results, tasks_of

COLUMNS = (
    *("AlphaNLI", "HellaSwag", "PIQA", "SIQA", "Quail", "ARCChallenge", "WinoGrande", "TempReason", "SpartQA"),
    *("RARbMath", "RARbCode"),
)
SETTINGS = ("without instruction", "with instruction")
HALF_UNIT = 0.0005
MPNET = "all-mpnet-base-v2"
BENCHMARK = "RAR-b (geometric)"
BROKEN_WINOGRANDE = "770abbd7f77affc005f9734996e795925cbc0f65"


def aggregate(name: str = "RARb") -> AggregateCard:
    """Return one of the card's aggregates."""
    card = find_aggregate(name)
    assert card is not None
    return card


@cache
def card() -> Card:
    """Return the card."""
    return read_card(card_folder() / "rarb.toml")


@cache
def published(measure: str) -> Mapping[tuple[str, str], Mapping[str, float]]:
    """Return for each system and setting the published values by task."""
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for value in card().published:
        if value.measure == measure:
            rows.setdefault((value.system, value.setting), {})[value.task] = value.value
    return rows


ROWS = sorted(published("nDCG@10"))
FITTING = [row for row in ROWS if row[0] != MPNET]
"""Those whose mean follows from the row; the two of mpnet are pinned by a test of their own."""
all_rows = pytest.mark.parametrize("row", ROWS, ids=", ".join)
fitting_rows = pytest.mark.parametrize("row", FITTING, ids=", ".join)


def members(row: tuple[str, str]) -> dict[str, float]:
    """Return the published values of the aggregate's fifteen tasks."""
    return {name: published("nDCG@10")[row][name] for name in aggregate().task_names}


def bounds(values: Mapping[str, float]) -> tuple[float, float]:
    """Return between which means the eleven unrounded numbers can have had."""
    low, high = (geometric_mean([values[name] + step for name in COLUMNS]) for step in (-HALF_UNIT, HALF_UNIT))
    return low - HALF_UNIT, high + HALF_UNIT


def test_thirty_four_rows_are_published() -> None:
    """Seventeen systems, each without and with instruction, on all tables."""
    assert (len(ROWS), len(FITTING)) == (34, 32)
    assert {setting for _, setting in ROWS} == set(SETTINGS)
    assert sorted(published("R@10")) == ROWS
    assert len(published("accuracy")) == 44


@fitting_rows
def test_published_mean_follows_from_the_published_row(row: tuple[str, str]) -> None:
    """The geometric mean of the eleven published numbers is the published one, as far as rounding allows."""
    values = published("nDCG@10")[row]
    low, high = bounds(values)

    assert low <= values["RARb"] <= high
    assert geometric_mean([values[name] for name in COLUMNS]) == pytest.approx(values["RARb"], abs=0.002)


@fitting_rows
def test_aggregate_of_fifteen_tasks_is_the_published_mean(row: tuple[str, str]) -> None:
    """The card's two levels, fed with the paper's two tables, give the paper's number."""
    assert aggregate_value(aggregate(), members(row)).value == pytest.approx(
        published("nDCG@10")[row]["RARb"], abs=0.002
    )


@pytest.mark.parametrize(
    ("setting", "says", "recomputed", "highest"),
    [(SETTINGS[0], 0.108, 0.1038, 0.1065), (SETTINGS[1], 0.077, 0.0749, 0.0759)],
)
def test_rows_of_mpnet_are_what_they_are(setting: str, says: float, recomputed: float, highest: float) -> None:
    """The paper's means of all-mpnet-base-v2 are above what its rows allow; the card says so and by how much."""
    values = published("nDCG@10")[MPNET, setting]
    unrounded = bounds(values)[1] - HALF_UNIT

    assert values["RARb"] == says
    assert geometric_mean([values[name] for name in COLUMNS]) == pytest.approx(recomputed, abs=5e-5)
    assert unrounded == pytest.approx(highest, abs=5e-5)
    assert values["RARb"] - HALF_UNIT > unrounded
    assert any(MPNET in fact and f"{recomputed:.4f}" in fact for fact in aggregate().facts)


@all_rows
def test_published_recall_follows_by_the_same_reduction(row: tuple[str, str]) -> None:
    """All 34 means of Recall@10 lie inside what rounding allows, mpnet's too."""
    values = published("R@10")[row]
    low, high = bounds(values)

    assert low <= values["RARb"] <= high


@all_rows
def test_time_column_is_the_mean_of_five(row: tuple[str, str]) -> None:
    """TempReason enters as the mean of L1, L2 and L3 Pure and Fact; the Context tasks are left out."""
    values = aggregate_value(aggregate(), members(row)).value_by_group

    assert values["TempReason"] == pytest.approx(published("nDCG@10")[row]["TempReason"], abs=0.0011)


@pytest.mark.parametrize("name", ["RARbMCR", "RARbMCR6"])
def test_published_multiple_choice_means_follow(name: str) -> None:
    """Both means of all 44 rows follow from the published accuracies."""
    for values in published("accuracy").values():
        recomputed = aggregate_value(aggregate(name), {task: values[task] for task in aggregate(name).task_names})
        assert recomputed.value == pytest.approx(values[name], abs=8e-5)


@pytest.mark.parametrize(
    ("file", "measure", "names"),
    [
        ("full_ndcg10.csv", "nDCG@10", {"TR": "TempReason", "GeoMean_published": "RARb", "aNLI": "AlphaNLI"}),
        ("full_recall10.csv", "R@10", {"Math": "RARbMath", "WinoG": "WinoGrande", "ARC-C": "ARCChallenge"}),
        ("tempreason_ndcg10.csv", "nDCG@10", {"TR1": "TempReasonL1", "TR3-context": "TempReasonL3Context"}),
        ("mcr_accuracy.csv", "accuracy", {"GeoMean": "RARbMCR", "GeoMean-6": "RARbMCR6", "cSTS-H": "RARbMCRCSTSHard"}),
    ],
)
def test_card_holds_the_papers_tables(shared_data: Path, file: str, measure: str, names: Mapping[str, str]) -> None:
    """The card's numbers are those of the transcribed tables."""
    with (shared_data / "rarb" / "paper_tables" / file).open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            system = line["model"].replace("OpenAI-ada-2", "OpenAI-ada-002")
            values = published(measure)[system, SETTINGS[line["instruction"] == "w/"]]
            scale = 100 if measure == "accuracy" else 1
            assert {column: values[task] for column, task in names.items()} == pytest.approx(
                {column: float(line[column]) / scale for column in names}
            )


@pytest.fixture(scope="module")
def ranking(shared_data: Path) -> Ranking:
    """The ranking of MTEB's real results of 40 models."""
    return rank(BENCHMARK, read_results(shared_data / "mteb_results", tasks_of(find_aggregate_of(BENCHMARK))))


@pytest.mark.parametrize(
    ("model", "says", "found"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", 0.131, 0.1307),
        ("BAAI/bge-small-en-v1.5", 0.093, 0.0932),
        ("BAAI/bge-base-en-v1.5", 0.097, 0.0974),
        ("BAAI/bge-large-en-v1.5", 0.112, 0.1120),
        ("Cohere/Cohere-embed-english-v3.0", 0.166, 0.1662),
        ("GritLM/GritLM-7B", 0.290, 0.2908),
        ("intfloat/e5-mistral-7b-instruct", 0.236, 0.2352),
    ],
)
def test_real_results_give_the_papers_mean(ranking: Ranking, model: str, says: float, found: float) -> None:
    """From MTEB's result files alone, G agrees with the paper within 0.001, each model in MTEB's own setting."""
    (row,) = (row for row in ranking.rows if row.system.model == model)

    assert row.published is not None
    assert row.published.value == says
    assert row.value == pytest.approx(found, abs=5e-5)
    assert row.value == pytest.approx(says, abs=0.001)


def test_real_results_of_mpnet_give_less_than_published(ranking: Ranking) -> None:
    """0.1046 from MTEB's results, where the paper has 0.108."""
    (row,) = (row for row in ranking.rows if row.system.model == f"sentence-transformers/{MPNET}")

    assert row.published is not None
    assert (row.value, row.published.value) == (pytest.approx(0.1046, abs=5e-5), 0.108)


def test_only_models_of_both_stand_beside_a_published_value(ranking: Ranking) -> None:
    """Nothing but those eight of the forty models is in the paper in MTEB's setting."""
    assert sum(row.published is not None for row in ranking.rows) == 8


def test_the_choice_of_mean_changes_the_ranking(ranking: Ranking) -> None:
    """Of 780 pairs of real models, MTEB's arithmetic mean orders 28 the other way round, the old leaderboard's 33."""
    compared = {comparison.name: comparison for comparison in ranking.comparisons}

    assert len(ranking.rows) == 40
    assert {comparison.n_pairs for comparison in compared.values()} == {780}
    assert (compared["arithmetic_mean_17"].n_flipped, compared["arithmetic_mean_15"].n_flipped) == (28, 33)


def test_zero_gives_zero_and_is_named(ranking: Ranking) -> None:
    """A model with broken runs has G = 0, no floor and nothing left out; the zeros are named."""
    row = ranking.rows[-1]

    assert row.system.model == "jinaai/jina-embeddings-v2-base-en"
    assert row.value == 0
    assert row.zeros == ("AlphaNLI", "HellaSwag", "PIQA", "Quail", "ARCChallenge", "RARbCode")


@pytest.mark.parametrize(("broken", "complaint"), [({}, "missing: 'Quail'"), ({"Quail": math.nan}, "missing: 'Quail'")])
def test_missing_member_is_named(broken: dict[str, float], complaint: str) -> None:
    """There is no mean over the members that happen to be there."""
    values = {name: 0.5 for name in aggregate().task_names if name != "Quail"}

    with pytest.raises(AggregateError, match=complaint):
        aggregate_value(aggregate(), values | broken)


def test_mixed_scales_are_refused() -> None:
    """A percentage among fractions would pass for a very good result."""
    values = dict.fromkeys(aggregate().task_names, 0.5) | {"PIQA": 25.3}

    with pytest.raises(AggregateError, match=r"'PIQA' is 25\.3, a percentage"):
        aggregate_value(aggregate(), values)


def test_broken_winogrande_is_refused_and_both_right_revisions_enter() -> None:
    """The upload that mteb 2.0 read is another dataset; the old and the new repository hold the right one."""
    reason = refusal(aggregate(), "WinoGrande", BROKEN_WINOGRANDE)

    assert reason is not None
    assert "another dataset" in reason
    assert refusal(aggregate(), "WinoGrande", "f74c094f321077cf909ddfb8bccc1b5912a4ac28") is None
    assert refusal(aggregate(), "WinoGrande", "4dec9c5666e9f84702ac614363db6d96a68bc6de") is None


def test_instruction_gain_is_that_of_the_paper() -> None:
    """The mean of log2(x_with + 1) - log2(x_without + 1) over the paper's eleven numbers (GritLM, by hand)."""
    without, with_instruction = (published("nDCG@10")["GritLM", setting] for setting in SETTINGS)
    gain, n_tasks = instruction_gain(with_instruction, without, aggregate().reduction)

    by_hand = [math.log2(with_instruction[name] + 1) - math.log2(without[name] + 1) for name in COLUMNS]
    assert n_tasks == 11
    assert gain == pytest.approx(sum(by_hand) / 11, abs=2e-4)  # TempReason is rounded in the main table


def test_mteb_runs_and_ranks_it(shared_data: Path) -> None:
    """MTEB's aggregate task, its benchmark and our report give one number, from MTEB's own task classes."""
    import mteb
    from mteb.cache import ResultCache

    name = "sentence-transformers/all-MiniLM-L6-v2"
    task = mteb.get_task("RARb")
    assert [type(member) for member in task.tasks] == [type(mteb.get_task(member)) for member in aggregate().task_names]

    ranked = rank(BENCHMARK, read_results(shared_data / "mteb_results", tasks_of(aggregate())))
    ours = {row.system.model: row.value for row in ranked.rows}
    results = ResultCache(shared_data / "mteb_results").load_results(
        models=[name], tasks=task.tasks, include_remote=False, validate_and_filter=False
    )
    combined = task.combine_task_results(results.model_results[0].task_results)
    scores = mteb.get_benchmark(BENCHMARK).get_score(results)

    assert combined.scores["test"][0]["main_score"] == pytest.approx(ours[name], abs=1e-6)
    assert scores[name]["Mean(Geometric)"] == pytest.approx(ours[name], abs=1e-6)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("tasks = ['A']\nrows = { S = [0.1, 0.2] }", "the row of 'S' has 2 values for 1 columns"),
        ("tasks = ['A']\nrows = { S = [0.1] }\nmodels = { T = 'x/t' }", "models names 'T', which has no row"),
        ("tasks = ['B']\nrows = { S = [0.1] }", "published names 'B', which this card lacks"),
        ("tasks = ['A']\nrows = { S = [0.1] }\nsettings = 'x'", "did you mean 'setting'"),
    ],
)
def test_published_table_with_a_mistake_is_refused(tmp_path: Path, table: str, complaint: str) -> None:
    """A table that does not fit its columns, or names what the card lacks, says so."""
    with pytest.raises(CardError, match=complaint):
        read_card(_card_with(tmp_path, table))


def test_published_table_becomes_published_values(tmp_path: Path) -> None:
    """Percentages become fractions, empty cells nothing, and only named systems get MTEB's name."""
    table = "scale = 100\ntasks = ['A', 'Mean']\nrows = { S = [49.61, nan], T = [50, 0] }\nmodels = { S = 'x/s' }"
    found = read_card(_card_with(tmp_path, table)).published

    assert [(value.system, value.task, value.value, value.model) for value in found] == [
        ("S", "A", 0.4961, "x/s"),
        ("T", "A", 0.5, ""),
        ("T", "Mean", 0.0, ""),
    ]


def _card_with(folder: Path, table: str) -> Path:
    path = folder / "tables.toml"
    path.write_text(
        "name = 'tables'\ntitle = 'T'\ndescription = 'D'\n"
        "[[aggregates]]\nname = 'Mean'\ndescription = 'M'\nreduction = { members = ['A'] }\n"
        f"[[published_tables]]\nsource = 'Table 1'\nmeasure = 'nDCG@10'\n{table}\n",
        encoding="utf-8",
    )
    return path
