"""Aggregates and benchmarks: one value from exactly the members, or none and the reason."""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import mteb
import pytest
from mteb.benchmarks.benchmark import Benchmark
from mteb.cache import ResultCache
from mteb.results import BenchmarkResults, ModelResult, TaskResult
from mteb_models import QUIET, WordEncoder
from mteb_world import aggregate_card, task_card, write_collection

from crumb_tasks.aggregate_tasks import CardAggregate, aggregate_class, reduce_results
from crumb_tasks.aggregates import aggregate_value
from crumb_tasks.benchmarks import CardBenchmark, benchmark
from crumb_tasks.cards import AggregateCard, BenchmarkCard, iter_tasks, read_cards
from crumb_tasks.errors import AggregateError, CardError
from crumb_tasks.mteb_compat import refresh_task_registry
from crumb_tasks.tasks import CardTask, task_class

MEMBERS = {name: task_class(task_card(name)) for name in ("MemberA", "MemberB")}


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with the members' collections; `MemberB` is the harder one."""
    folder = tmp_path / "data"
    write_collection(folder / "test" / "membera")
    harder = {"test": {"q1": {"d5": 1}, "q2": {"d2": 1}}, "validation": {"v1": {"d1": 1, "d5": 1}}}
    write_collection(folder / "test" / "memberb", qrels=harder)
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(folder))
    return folder


@pytest.fixture(autouse=True, scope="module")
def registry() -> Iterator[None]:
    """The members in MTEB's registry, where its tables look them up, as long as this module runs."""
    module = sys.modules["mteb.get_tasks"]
    before = module.TASK_LIST
    refresh_task_registry(MEMBERS.values())
    yield
    module.TASK_LIST = before  # type: ignore[attr-defined]
    for name in MEMBERS:
        del module._TASKS_REGISTRY[name]


def make(card: AggregateCard | None = None, **changes: Any) -> CardAggregate:
    """Return an instance of the aggregate over both members."""
    return aggregate_class(card or aggregate_card("MemberA", "MemberB", **changes), MEMBERS)()


def result(task: Any, value: float | None, *, revision: str = "r1", **splits: float) -> TaskResult:
    """Return MTEB's result of a task, as it would be stored."""
    values = splits or {"test": value}
    entry = {"hf_subset": "default", "languages": ["eng-Latn"]}
    return TaskResult(
        dataset_revision=revision,
        task_name=task,
        mteb_version=mteb.__version__,
        scores={split: [{"ndcg_at_10": number, "main_score": number, **entry}] for split, number in values.items()},
        evaluation_time=1.0,
    )


def evaluate(task: Any, model: Any = None, **kwargs: Any) -> Any:
    """Evaluate with MTEB and return its result of the task."""
    arguments = {"cache": None, "encode_kwargs": dict(QUIET), "show_progress_bar": False} | kwargs
    return mteb.evaluate(model or WordEncoder(), task, **arguments).task_results[0]


def test_aggregate_is_the_mean_of_its_members() -> None:
    """MTEB runs the members and stores the card's mean of them, with what went in."""
    scores = evaluate(make()).scores["test"][0]

    members = {name: evaluate(made()).main_score for name, made in MEMBERS.items()}
    assert 0 < members["MemberB"] < members["MemberA"] == 1
    assert scores["main_score"] == scores["ndcg_at_10"] == pytest.approx(sum(members.values()) / 2, abs=1e-6)
    assert scores["members"] == pytest.approx(members, abs=1e-6)
    assert (scores["n_members"], scores["mean"], scores["measure"]) == (2, "arithmetic", "nDCG@10")


def test_fresh_and_cached_members_give_one_number(tmp_path: Path) -> None:
    """MTEB rounds what it stores; the aggregate rounds first, so it does not matter where a member comes from."""
    cache = ResultCache(tmp_path / "results")
    fresh = evaluate(make(), cache=cache).main_score
    next((tmp_path / "results").rglob("MiniMean.json")).unlink()

    model = WordEncoder()
    assert evaluate(make(), model, cache=cache).main_score == fresh
    assert model.calls == []


def test_aggregate_file_is_strict_json(tmp_path: Path) -> None:
    """MTEB writes a bare NaN for the emissions of an aggregate; ours is null, of cached members' times too."""
    evaluate(make(), cache=ResultCache(tmp_path / "results"))

    path = next((tmp_path / "results").rglob("MiniMean.json"))
    stored = json.loads(
        path.read_text(encoding="utf-8"), parse_constant=lambda name: pytest.fail(f"{name} in the file")
    )
    assert stored["kg_co2_emissions"] is None
    assert stored["evaluation_time"] > 0


def test_splits_reach_the_members() -> None:
    """`--eval-splits validation` evaluates every member on validation, and no other instance notices."""
    made = aggregate_class(aggregate_card("MemberA", "MemberB", splits=["test", "validation"]), MEMBERS)
    asked = made().filter_eval_splits(["validation"])

    found = evaluate(asked)

    assert set(found.scores) == {"validation"}
    assert [task.eval_splits for task in asked.tasks] == [["validation"], ["validation"]]
    assert [task.eval_splits for task in made().tasks] == [["test"], ["test"]]
    assert made().metadata.eval_splits == ["test"]
    assert asked.filter_eval_splits(None).metadata.eval_splits == ["test"]


def test_splits_are_not_averaged_into_each_other() -> None:
    """Two members with two splits each, four different scores: two different means."""
    aggregate = make(splits=["test", "dev"]).filter_eval_splits(["test", "dev"])

    combined = aggregate.combine_task_results(
        [result("MemberA", None, test=0.9, dev=0.4), result("MemberB", None, test=0.7, dev=0.6)]
    )

    assert {split: entries[0]["main_score"] for split, entries in combined.scores.items()} == pytest.approx(
        {"test": 0.8, "dev": 0.5}
    )


def test_missing_member_stores_no_score(tmp_path: Path, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No number, one line that names the member, and the next run computes it: a stored null would stay for ever."""
    cache = ResultCache(tmp_path / "results")
    broken = root / "test" / "memberb" / "corpus.jsonl"
    text = broken.read_text(encoding="utf-8")
    broken.unlink()

    results = mteb.evaluate(
        WordEncoder(), make(), cache=cache, raise_error=False, encode_kwargs=dict(QUIET), show_progress_bar=False
    )
    assert results.task_results[0].scores == {}
    assert [error.task_name for error in results.exceptions or []] == ["MemberB"]
    assert "MiniMean has no value" in caplog.text
    assert "'MemberB'" in caplog.text

    broken.write_text(text, encoding="utf-8")
    model = WordEncoder()
    assert evaluate(make(), model, cache=cache).main_score == pytest.approx(0.9, abs=0.2)
    assert len(model.texts("document")) == 6  # the member that was there is not evaluated again


def test_missing_split_of_a_member_is_a_missing_member(caplog: pytest.LogCaptureFixture) -> None:
    """Where one member lacks a split, that split has no value; the other one has."""
    aggregate = make(splits=["test", "dev"]).filter_eval_splits(["test", "dev"])

    combined = aggregate.combine_task_results([result("MemberA", None, test=0.9, dev=0.4), result("MemberB", 0.7)])

    assert set(combined.scores) == {"test"}
    assert "split dev" in caplog.text


def test_doubled_and_foreign_results_are_refused() -> None:
    """A, A, B is not 2/3 of A; a result of another task is a mistake of the caller."""
    a, b, c = (result(name, 0.5) for name in ("MemberA", "MemberB", "MemberC"))

    with pytest.raises(AggregateError, match="two results of 'MemberA'"):
        make().combine_task_results([a, a, b])
    with pytest.raises(AggregateError, match="'MemberC' is no member"):
        make().combine_task_results([a, b, c])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"MemberA": 0.5}, "missing: 'MemberB'"),
        ({"MemberA": 0.5, "MemberB": None}, "missing: 'MemberB'"),
        ({"MemberA": math.nan, "MemberB": 0.5}, "missing: 'MemberA'"),
        ({"MemberA": 0.5, "MemberB": 54.3}, "'MemberB' is 54.3, a percentage"),
        ({"MemberA": 0.5, "MemberB": math.inf}, "'MemberB' is inf"),
        ({"MemberA": 0.5, "MemberB": 0.1, "Other": 0.1}, "'Other' is no member"),
    ],
)
def test_value_is_refused_rather_than_guessed(values: Mapping[str, float | None], reason: str) -> None:
    """Missing, NaN, another scale, a stranger: no value, and the message names the aggregate and the member."""
    with pytest.raises(AggregateError, match=f"MiniMean has no value.*{reason}"):
        aggregate_value(aggregate_card("MemberA", "MemberB"), values)


def test_nested_means() -> None:
    """Groups have a mean each, arithmetic or geometric, and the top reduces the groups; a zero makes a product zero."""
    group = {"name": "pair", "mean": "geometric", "members": ("MemberA", "MemberB")}
    card = aggregate_card(group, "MemberC", reduction={"mean": "arithmetic", "members": (group, "MemberC")})

    reduced = aggregate_value(card, {"MemberA": 0.9, "MemberB": 0.4, "MemberC": 0.2})
    assert reduced.value == pytest.approx((0.6 + 0.2) / 2)
    assert reduced.value_by_group == pytest.approx({"pair": 0.6})
    assert aggregate_value(card, {"MemberA": 0.9, "MemberB": 0, "MemberC": 0.2}).value == pytest.approx(0.1)


def test_stale_and_refused_results_do_not_enter(caplog: pytest.LogCaptureFixture) -> None:
    """A member's result on other data than the task reads now, or on data known to be wrong, gives no value."""
    stale = [result("MemberA", 0.5), result("MemberB", 0.5, revision="r0")]
    assert make().task_results_to_scores(stale) == {}
    assert "'MemberB' is on revision r0 but the task now reads r1" in caplog.text
    assert "--overwrite-strategy always" in caplog.text

    refused = [{"task": "MemberA", "revision": "r1", "reason": "its qrels were shuffled"}]
    with pytest.raises(AggregateError, match="its qrels were shuffled"):
        reduce_results(make(refused=refused).card, [], [result("MemberA", 0.5), result("MemberB", 0.5)], "test")


def test_revision_changes_with_the_members() -> None:
    """An aggregate's revision says which data and which reduction it stands for."""
    renewed = MEMBERS | {"MemberB": task_class(task_card("MemberB", source={"hub": "test/memberb", "revision": "r2"}))}
    card = aggregate_card("MemberA", "MemberB")

    one, other = aggregate_class(card, MEMBERS).metadata.revision, aggregate_class(card, renewed).metadata.revision
    assert one == make().metadata.revision
    assert one != other != make(measure="nDCG@5").metadata.revision != one


def test_measure_that_a_member_does_not_report_is_found_when_made() -> None:
    """A group score that stays empty for months is an error at once, naming the members without the measure."""
    with pytest.raises(CardError, match=r"reduces nDCG@7, which MemberA, MemberB does not report"):
        make(measure="nDCG@7")
    members = MEMBERS | {"MemberB": task_class(task_card("MemberB", measures=["nDCG@7"]))}
    with pytest.raises(CardError, match=r"nDCG@7, which MemberA does not report"):
        aggregate_class(aggregate_card("MemberA", "MemberB", measure="nDCG@7"), members)


def test_unknown_member_is_found_when_made() -> None:
    """The message suggests the near name, MTEB's tasks included."""
    with pytest.raises(CardError, match=r"names the task 'MemberC', .* 'MemberB'"):
        aggregate_class(aggregate_card("MemberA", "MemberC"), MEMBERS)


def test_other_measure_than_the_main_score() -> None:
    """An aggregate reduces its own measure, whatever the members' main scores are; a result without it is named."""
    aggregate = make(measure="R@100")

    scores = evaluate(aggregate).scores["test"][0]
    assert scores["main_score"] == scores["recall_at_100"] == 1.0
    with pytest.raises(AggregateError, match="'MemberA' does not have recall_at_100"):
        reduce_results(aggregate.card, [], [result("MemberA", 0.5), result("MemberB", 0.5)], "test")


def test_members_may_be_tasks_of_mteb() -> None:
    """Such an aggregate takes MTEB's own classes and their standard keys."""
    classes = {task.metadata.name: task for task in mteb.get_tasks.__globals__["TASK_LIST"]}
    aggregate = aggregate_class(
        aggregate_card(reduction={"mean": "geometric", "members": ("HellaSwag", "WinoGrande")}), classes
    )()

    scores = aggregate.task_results_to_scores([result("HellaSwag", 0.9, revision="x"), result("WinoGrande", 0.4)])

    assert {type(task).__module__.split(".")[0] for task in aggregate.tasks} == {"mteb"}
    assert scores["test"]["default"]["main_score"] == pytest.approx(0.6)


def test_loading_an_aggregate_loads_its_members() -> None:
    """MTEB's own method would look for the aggregate's placeholder path on the Hub."""
    aggregate = make()
    aggregate.load_data()
    assert [task.data_loaded for task in aggregate.tasks] == [True, True]
    aggregate.unload_data()
    assert [task.data_loaded for task in aggregate.tasks] == [False, False]


BENCH = BenchmarkCard(name="MiniBench", description="Two tasks.", aggregate="MiniMean", column="Mean (nDCG@10)")
BM25, RANDOM = "mteb/baseline-bm25s", "mteb/baseline-random-encoder"


def bench(**changes: Any) -> CardBenchmark:
    """Return the benchmark over both members, ranked by their geometric mean."""
    reduction = {"mean": "geometric", "members": ("MemberA", "MemberB")}
    made = benchmark(BENCH.model_copy(update=changes), aggregate_card(reduction=reduction), MEMBERS)
    assert isinstance(made, CardBenchmark)
    return made


def results_of(
    values: Sequence[tuple[str, Mapping[str, float]]], experiments: Sequence[Mapping[str, Any] | None] = ()
) -> BenchmarkResults:
    """Return MTEB's results of models, some of them as experiments."""
    models = []
    for at, (name, members) in enumerate(values):
        kwargs = experiments[at] if at < len(experiments) else None
        meta = mteb.get_model_meta(name).model_copy(update={"experiment_kwargs": kwargs})
        found = [result(member, value) for member, value in members.items()]
        models.append(
            ModelResult(
                model_name=name,
                model_revision=meta.revision,
                task_results=found,
                model_meta=meta,
                experiment_name=meta.experiment_name,
            )
        )
    return BenchmarkResults(model_results=models)


def table_of(results: BenchmarkResults, made: Benchmark | None = None) -> list[dict[str, Any]]:
    """Return the rows of MTEB's summary table."""
    made = made or bench()
    rows: list[dict[str, Any]] = made._create_summary_table(results._to_results_df(made.tasks)).df.to_dicts()
    return rows


def test_table_is_ranked_by_the_aggregate() -> None:
    """The geometric mean decides, not the arithmetic one, and stands in its own column with the names MTEB needs."""
    rows = table_of(results_of([(BM25, {"MemberA": 1.0, "MemberB": 0.1}), (RANDOM, {"MemberA": 0.5, "MemberB": 0.5})]))

    assert [(row["Rank"], row["Model"]) for row in rows] == [(1, RANDOM), (2, BM25)]
    assert [row["Mean (nDCG@10)"] for row in rows] == pytest.approx([0.5, math.sqrt(0.1)])
    assert [row["Mean (Task)"] for row in rows] == pytest.approx([0.5, 0.55])
    assert list(rows[0])[:2] == ["Rank", "Model"]
    assert "Rank (Borda)" in rows[0]
    assert "_experiment_id" not in rows[0]  # MTEB's styler would round its strings


def test_incomplete_model_has_no_value_and_comes_last() -> None:
    """Evaluated on the easiest task only, a model has no overall score and stands below all that have one."""
    rows = table_of(results_of([(BM25, {"MemberA": 1.0}), (RANDOM, {"MemberA": 0.1, "MemberB": 0.1})]))

    assert [(row["Model"], row["Mean (nDCG@10)"]) for row in rows] == [(RANDOM, pytest.approx(0.1)), (BM25, None)]
    assert [row["Rank"] for row in rows] == [1, 2]


def test_experiments_are_rows_of_their_own() -> None:
    """A model with and without instructions is two rows and two scores, never one or their mean."""
    results = results_of(
        [(BM25, {"MemberA": 0.2, "MemberB": 0.2}), (BM25, {"MemberA": 0.4, "MemberB": 0.4})], [None, {"prompt": "none"}]
    )

    rows = table_of(results)
    assert [(row["_experiment_id"], row["Mean (nDCG@10)"]) for row in rows] == [
        ("prompt_none", pytest.approx(0.4)),
        ("", pytest.approx(0.2)),
    ]
    scores = bench().get_score(results)
    assert {name: entry["Mean(nDCG@10)"] for name, entry in scores.items()} == pytest.approx(
        {BM25: 0.2, f"{BM25} (prompt_none)": 0.4}
    )


def test_scores_agree_with_table_and_aggregate() -> None:
    """`Benchmark.get_score`, the table and the aggregate task say one number and one rank."""
    values = {"MemberA": 0.812345678, "MemberB": 0.3}
    results = results_of([(BM25, values), (RANDOM, {"MemberA": 0.1, "MemberB": 0.1})])
    made = bench()

    scores = made.get_score(results)
    (row, _) = table_of(results)
    task = aggregate_class(made.aggregate, MEMBERS)()  # type: ignore[arg-type]
    stored = task.task_results_to_scores([result(name, value) for name, value in values.items()])

    assert scores[BM25]["Mean(nDCG@10)"] == row["Mean (nDCG@10)"] == stored["test"]["default"]["main_score"]
    assert (scores[BM25]["Rank"], scores[RANDOM]["Rank"]) == (1, 2)
    assert scores[BM25]["Mean(Task)"] == pytest.approx((0.812346 + 0.3) / 2)


def test_score_of_an_incomplete_model(caplog: pytest.LogCaptureFixture) -> None:
    """None and a line that names the member, or an error where one was asked for."""
    results = results_of([(BM25, {"MemberA": 1.0})])

    assert bench().get_score(results) == {BM25: {"Mean(nDCG@10)": None, "Rank": None}}
    assert "missing: 'MemberB'" in caplog.text
    with pytest.raises(AggregateError, match="MemberB"):
        bench().get_score(results, raise_error=True)


def test_member_with_several_subsets_is_their_mean() -> None:
    """In the table as in `get_score`; while a subset is missing, both have no value."""
    classes: dict[str, Any] = {task.metadata.name: task for task in mteb.get_tasks.__globals__["TASK_LIST"]}
    card = aggregate_card("MLQARetrieval", splits=["test"])
    made = benchmark(BENCH, card, classes)
    subsets = list(made.tasks[0].hf_subsets)

    def scored(values: Mapping[str, float]) -> BenchmarkResults:
        entries = [
            {"hf_subset": name, "languages": ["eng-Latn"], "main_score": value, "ndcg_at_10": value}
            for name, value in values.items()
        ]
        of_task = TaskResult(
            task_name="MLQARetrieval",
            dataset_revision=made.tasks[0].metadata.revision,
            mteb_version="2.26.0",
            evaluation_time=0.0,
            scores={"test": entries},
        )
        model = ModelResult(model_name=BM25, model_revision="0_3_0", task_results=[of_task])
        return BenchmarkResults(model_results=[model])

    values = {name: at / 100 for at, name in enumerate(subsets)}
    complete, partial = scored(values), scored({name: values[name] for name in subsets[1:]})

    assert len(subsets) > 1
    (row,) = table_of(complete, made)
    assert row["Mean (nDCG@10)"] == made.get_score(complete)[BM25]["Mean(nDCG@10)"]
    assert row["Mean (nDCG@10)"] == pytest.approx(sum(values.values()) / len(values))
    assert [row["Mean (nDCG@10)"] for row in table_of(partial, made)] == [None]
    assert made.get_score(partial)[BM25]["Mean(nDCG@10)"] is None


def test_table_that_changed_its_shape_is_mtebs_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be added is left out with one line; the leaderboard goes on."""
    results = results_of([(BM25, {"MemberA": 0.2, "MemberB": 0.2})])
    theirs = table_of(results, Benchmark("MiniBench", bench().tasks, aggregations=bench().aggregations))
    monkeypatch.setattr(CardBenchmark, "_value_of_scores", lambda *_: {}["Model"])

    with caplog.at_level(logging.WARNING):
        assert table_of(results) == theirs
    assert "MiniBench: MTEB's own table, without Mean (nDCG@10) (KeyError: 'Model')" in caplog.text


def test_empty_results_are_an_empty_table() -> None:
    """Without any result MTEB's sentinel passes through."""
    made = bench()
    assert made._create_summary_table(results_of([])._to_results_df(made.tasks)).is_empty


def test_benchmark_ranks_only_by_main_scores() -> None:
    """MTEB's tables hold nothing else, so another measure is an error when the benchmark is made."""
    with pytest.raises(CardError, match=r"ranks by R@100, not the main score of MemberA, MemberB"):
        benchmark(BENCH, aggregate_card("MemberA", "MemberB", measure="R@100"), MEMBERS)


def test_groups_become_columns() -> None:
    """Named groups of members are MTEB's own grouping, one mean each."""
    rows = table_of(
        results_of([(BM25, {"MemberA": 0.9, "MemberB": 0.4})]),
        bench(groups={"Easy": ("MemberA",), "Hard": ("MemberB",)}),
    )

    assert {name: value for name, value in rows[0].items() if "Easy" in name or "Hard" in name} == pytest.approx(
        {"__cg__Groups::Easy": 0.9, "__cg__Groups::Hard": 0.4}
    )


@pytest.mark.parametrize(
    "card", [entry for card in read_cards() for entry in card.aggregates], ids=lambda card: card.name
)
def test_every_aggregate_card_can_be_made(card: AggregateCard) -> None:
    """Members exist and report the measure, MTEB's included."""
    classes: dict[str, Any] = {task.metadata.name: task for task in mteb.get_tasks.__globals__["TASK_LIST"]}
    own = {task.name: task_class(task) for task in iter_tasks()}

    made = aggregate_class(card, classes | own)

    assert made.metadata.name == card.name
    assert [task.metadata.name for task in made().tasks] == list(card.task_names)
    assert all(isinstance(task, CardTask) for task in made().tasks if task.metadata.name in own)
