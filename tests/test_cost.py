from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sentence_transformers import SentenceTransformer
from tiny_models import write_cross_encoder, write_static_model

from crumb_tasks import register
from crumb_tasks.cli._costs import load_of
from crumb_tasks.cli._main import main
from crumb_tasks.cost import (
    AXES,
    QUANTITIES,
    Cost,
    Price,
    Quantity,
    cost_path,
    from_phases,
    known,
    read_cost,
    unknown,
    write_cost,
)
from crumb_tasks.cost.meter import Meter, Tally
from crumb_tasks.errors import UsageError
from crumb_tasks.running.asking import Asked, spread_rows
from crumb_tasks.running.costs import CostMeter, CostSettings

register()
TASK = "CRUMBSampleLegalQA"


def run(*arguments: str | Path) -> int:
    """Run ``crumb-tasks run``."""
    return main(["run", *map(str, arguments)])


def cost_of(world: Path, *, task: str = TASK, below: str = "") -> Cost:
    """Return the one cost of a task in the cache."""
    found = [
        path
        for path in (world / "cache").rglob(f"{task}.cost.json")
        if ("experiments" in path.parts) is bool(below) and below in str(path)
    ]
    assert len(found) == 1, found
    (cost,) = read_cost(found[0].parent.parent, task).values()
    return cost


def _keys(content: Any) -> Iterator[str]:
    """Yield all keys of a JSON document."""
    if isinstance(content, dict):
        yield from content
    for inner in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from _keys(inner)


def some_cost(**values: Quantity) -> Cost:
    """Return a cost of which only ``values`` are known."""
    return Cost.of(values, "not looked at")


def test_unknown_is_never_zero() -> None:
    """A quantity has a value or says why it has none; a file keeps both, and a zero is a zero that was measured."""
    with pytest.raises(ValueError, match="either a value or a reason"):
        Quantity(None)
    with pytest.raises(ValueError, match="no finite number"):
        Quantity(float("nan"))
    cost = some_cost(reranker_calls_per_query=known(0), index_bytes=unknown("there is no index"))

    again = Cost.from_dict(json.loads(json.dumps(cost.to_dict(), allow_nan=False)))

    assert again == cost
    assert again["reranker_calls_per_query"].value == 0
    assert (again["index_bytes"].value, again["index_bytes"].reason) == (None, "there is no index")
    assert again["tokens_per_query"].reason == "not looked at"


def test_every_quantity_is_there() -> None:
    """A cost cannot leave out what it does not know, nor bring what no axis has."""
    assert {kind.axis for kind in QUANTITIES.values()} == {axis.key for axis in AXES}
    assert all(QUANTITIES[axis.headline].axis == axis.key for axis in AXES)
    with pytest.raises(ValueError, match="index_bytes"):
        Cost({key: known(1) for key in QUANTITIES if key != "index_bytes"})


def test_axes_keep_recurring_costs_apart() -> None:
    """Five axes, of which two are paid with every query; the file says so and holds no sum over them."""
    content = some_cost(index_bytes=known(5)).to_dict()

    assert [axis["paid"] for axis in content["axes"].values()].count("every query") == 2
    assert len(content["axes"]) == 5
    assert "reading" in content
    assert not [key for key in (*content, *QUANTITIES) if "sum" in key or "score" in key]


def test_cost_is_of_the_very_result(tmp_path: Path) -> None:
    """A cost that was measured with another result than the one that lies there is not read."""
    (tmp_path / "T.json").write_text("{}", encoding="utf-8")
    write_cost(tmp_path, "T", {"default/test": some_cost(index_bytes=known(5))})

    assert read_cost(tmp_path, "T")["default/test"]["index_bytes"].value == 5
    (tmp_path / "T.json").write_text('{"other": 1}', encoding="utf-8")
    assert read_cost(tmp_path, "T") == {}


def test_broken_cost_is_no_cost(tmp_path: Path) -> None:
    """A file that cannot be read does not stop who only looks for it."""
    (tmp_path / "T.json").write_text("{}", encoding="utf-8")
    cost_path(tmp_path, "T").parent.mkdir()
    for broken in ("", "[]", '{"format": 1}'):
        cost_path(tmp_path, "T").write_text(broken, encoding="utf-8")

        assert read_cost(tmp_path, "T") == {}


def _phase(name: str, start: float, end: float, split: str = "test") -> dict[str, Any]:
    return {"name": name, "start": start, "end": end, "split": split, "subset": "default"}


def test_phases_of_mteb_tell_what_they_tell() -> None:
    """Encoding apart gives its time; encoding and search in one phase give none; percentiles are never known."""
    scores = {"test": [{"hf_subset": "default", "n_queries": 10}]}
    apart = from_phases(
        {"evaluation_phases": [_phase("Encoding corpus", 1, 3), _phase("Encoding queries", 3, 5)], "scores": scores},
        "test",
    )
    merged = from_phases({"evaluation_phases": [_phase("Searching corpus", 1, 3)], "scores": scores}, "test")

    assert apart is not None
    assert merged is not None
    assert apart["encoding_seconds"].value == 2
    assert apart["batch_encode_queries_per_second"].value == 5
    assert "together" in merged["encoding_seconds"].reason
    assert merged["total_ms_p50"].reason == "MTEB stores no times of single queries"
    assert from_phases({"evaluation_phases": [_phase("Encoding corpus", 1, 3)]}, "validation") is None


def test_money_needs_a_price() -> None:
    """Without a price there is no money; by the hour it follows from throughput, by the token from tokens."""
    values = {
        **dict.fromkeys(QUANTITIES, unknown("-")),
        "batch_queries_per_second": known(100),
        "encoding_seconds": known(1800),
        "tokens_per_query": known(20),
    }
    counted = {**values, "tokens_per_second": known(4e6 / 1800)}

    assert Price().money(counted)["money_encoding"].value is None
    by_hour = Price(per_hour=3.6).money(values)
    assert by_hour["money_per_1000_queries"].value == pytest.approx(0.01)
    assert by_hour["money_encoding"].value == pytest.approx(1.8)
    by_token = Price(per_million_tokens=0.5).money(counted)
    assert by_token["money_per_1000_queries"].value == pytest.approx(0.01)
    assert by_token["money_encoding"].value == pytest.approx(2.0)
    assert Price(per_million_tokens=0.5).money(values)["money_encoding"].reason == "-"
    with pytest.raises(UsageError, match="give one of them"):
        Price(1.0, 1.0)


def test_percentiles_need_queries() -> None:
    """Seventeen queries tell a median, and no 95th or 99th percentile."""
    asked = Asked(17, {"total": [at / 1000 for at in range(1, 18)]}, missing={"rerank": "nothing is re-ranked"})

    found = asked.quantities()

    assert found["total_ms_p50"].value == pytest.approx(9)
    assert "17 single queries" in found["total_ms_p99"].reason
    assert found["rerank_ms_p50"].reason == "nothing is re-ranked"


def test_queries_are_spread() -> None:
    """Timed queries are distinct and from the whole task."""
    assert spread_rows(10, 3).tolist() == [0, 4, 9]
    assert spread_rows(3, 10).tolist() == [0, 1, 2]


def test_tokens_are_those_that_the_model_reads(tmp_path: Path) -> None:
    """The meter counts what arrives at the model's first module: one token a letter here, prompts included."""
    model = SentenceTransformer(str(write_static_model(tmp_path / "model", prompts={"query": "abc "})), device="cpu")
    meter = Meter()

    with meter.attached(model), meter.call("query", 2):
        model.encode(["hello", "cat"], prompt_name="query")
    model.encode(["not counted"])

    assert meter.of("query").texts == 2
    assert meter.of("query").tokens == len(re.sub(" ", "", "abc hello" + "abc cat"))
    assert meter.counts_tokens


def test_run_measures(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every quantity has a value or a reason; MTEB's own file is as without; the table names what is not known."""
    model = write_static_model(world / "tiny")
    assert run(model, "-t", TASK, "--cost", "--cost-queries", "20") == 0
    out = capsys.readouterr().out
    cost = cost_of(world)

    for key in ("total_ms_p50", "encode_ms_p50", "search_ms_p50", "tokens_per_query", "documents_per_second"):
        assert (cost[key].value or 0) > 0, key
    assert cost["encoder_calls_per_query"].value == 1
    assert cost["reranker_calls_per_query"].value == 0
    assert cost["bytes_per_vector"].value == 16 * 4
    assert cost["index_bytes"].value == 160 * 16 * 4
    assert cost["money_per_1000_queries"].value is None
    assert all(quantity.reason for quantity in cost.values.values() if quantity.value is None)
    assert cost.machine["processors"] >= 1
    (result,) = (path for path in (world / "cache").rglob(f"{TASK}.json") if path.parent.name != "crumb_tasks")
    assert not [key for key in _keys(json.loads(result.read_text(encoding="utf-8"))) if "cost" in key or "_ms_" in key]
    assert "not known:" in out
    assert "no pairs are scored" in out


def test_cached_result_without_cost_is_measured_once(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--cost evaluates a cached result again when it has no cost, and not when it has one."""
    model = write_static_model(world / "tiny")
    run(model, "-t", TASK)
    capsys.readouterr()

    assert run(model, "-t", TASK, "--cost", "--cost-queries", "2") == 0
    assert "its cost was not measured (test)" in capsys.readouterr().err
    assert run(model, "-t", TASK, "--cost", "--cost-queries", "2") == 0
    captured = capsys.readouterr()
    assert "0 of 1 tasks to evaluate" in captured.err
    assert "query latency and throughput" in captured.out


def test_price_is_applied_to_a_cost_that_is_there(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A price that is named later, or another one, needs no second evaluation; the record keeps it."""
    model = write_static_model(world / "tiny")
    run(model, "-t", TASK, "--cost", "--cost-queries", "2")
    measured = cost_of(world)
    assert "no price was given" in capsys.readouterr().out

    for price in (3.6, 7.2):
        assert run(model, "-t", TASK, "--cost", "--price-per-hour", price) == 0
        captured = capsys.readouterr()
        assert "0 of 1 tasks to evaluate" in captured.err
        assert "no price was given" not in captured.out
        cost, rate = cost_of(world), measured["batch_queries_per_second"].value
        assert rate is not None
        assert cost["money_per_1000_queries"].value == pytest.approx(price / 3.6 / rate)
        assert cost.how == {**measured.how, "price_per_hour": price}
        assert cost["total_ms_p50"] == measured["total_ms_p50"]
    assert run(model, "-t", TASK, "--cost", "--price-per-million-tokens", "1") == 0
    assert cost_of(world).how == {**measured.how, "price_per_million_tokens": 1}


def test_more_queries_are_measured_again(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cost of two queries is none of ten; one of all queries is one of a thousand."""
    model = write_static_model(world / "tiny")
    run(model, "-t", TASK, "--cost", "--cost-queries", "2")
    capsys.readouterr()

    run(model, "-t", TASK, "--cost", "--cost-queries", "1000")
    assert "measured with fewer than 1000 single queries" in capsys.readouterr().err
    assert cost_of(world).how["single_queries"] == 17
    run(model, "-t", TASK, "--cost", "--cost-queries", "1001")
    assert "0 of 1 tasks to evaluate" in capsys.readouterr().err


def test_answers_share_the_energy() -> None:
    """Each single query and each query of a batch is one answer, whatever the number of parts that were timed."""
    asked = Asked(3, {"total": [1.0] * 3, "encode": [1.0] * 3}, {"total": [(2, 1.0)], "encode": [(2, 1.0)]})

    assert asked.n_answers == 5
    assert Asked(0).n_answers == 0


def test_unknown_load_is_no_zero() -> None:
    """A system that tells no load has none in the table."""
    assert load_of({"load": None}) == "load not known"
    assert load_of({"load": 0.0}) == "load 0.0"


def test_splits_that_are_evaluated_together_share_no_cost(world: Path) -> None:
    """What was spent on two splits at once is not told of each: encoding and energy are unknown for both."""
    model = write_static_model(world / "tiny")
    assert run(model, "-t", TASK, "--eval-splits", "validation", "test", "--cost", "--cost-queries", "2") == 0

    (path,) = (world / "cache").rglob(f"{TASK}.cost.json")
    costs = read_cost(path.parent.parent, TASK)

    assert sorted(costs) == ["default/test", "default/validation"]
    for cost in costs.values():
        for key in ("encoding_seconds", "documents_per_second", "energy_wh_evaluation"):
            assert cost[key].reason == "several splits or subsets were evaluated together"
        assert (cost["total_ms_p50"].value or 0) > 0


def test_energy_is_measured_beside_another_tracker(world: Path) -> None:
    """With codecarbon, a run neither fails nor goes without energy where another tracker runs, or one was killed."""
    codecarbon = pytest.importorskip("codecarbon", reason="codecarbon is not installed")
    model = write_static_model(world / "tiny")
    other = codecarbon.OfflineEmissionsTracker(
        country_iso_code="USA", save_to_file=False, log_level="error", allow_multiple_runs=False
    )
    other.start()
    try:
        assert run(model, "-t", TASK, "--cost", "--cost-queries", "2") == 0
    finally:
        other.stop()

    cost = cost_of(world)
    for key in ("energy_wh_evaluation", "energy_wh_per_1000_queries"):
        assert cost[key].value is not None, cost[key].reason


def test_what_was_done_in_part_has_no_time() -> None:
    """Encoding of some documents is not that of the corpus, and storing a corpus is no building of an index."""
    costs = CostMeter(CostSettings())
    costs._meter.tallies |= {"document": Tally(4, 1.0, 40), "index": Tally(10, 0.001)}

    some = costs._indexing(object(), Asked(1, vectors=(10, 2)), is_only_part=True)
    every = costs._indexing(object(), Asked(1, vectors=(4, 2)), is_only_part=True)
    late = costs._indexing(SimpleNamespace(task_corpus=None), Asked(1), is_only_part=True)

    assert some["encoding_seconds"].reason == "4 of 10 documents were encoded; --embeddings had the others"
    assert (every["encoding_seconds"].value, every["documents_per_second"].value) == (1, 4)
    assert every["index_seconds"].value == 0.001
    assert late["index_seconds"].reason == "the model builds no index before it searches"


def test_embeddings_on_disk_are_said(world: Path) -> None:
    """Where no document is encoded, the speed of encoding is not known, and the search is timed all the same."""
    model, store = write_static_model(world / "tiny"), world / "embeddings"
    run(model, "-t", TASK, "--embeddings", store)

    run(model, "-t", TASK, "--embeddings", store, "--cost", "--cost-queries", "2")

    cost = cost_of(world)
    assert "--embeddings" in cost["documents_per_second"].reason
    assert (cost["search_ms_p50"].value or 0) > 0


def test_reranking_counts_pairs(world: Path) -> None:
    """A cross-encoder's cost is its pairs: as many as the depth, no encoder call, no index."""
    first, cross = write_static_model(world / "tiny"), write_cross_encoder(world / "cross")
    run(first, "-t", TASK, "--name", "me/tiny")

    code = run(cross, "-t", TASK, "--rerank", "me/tiny", "--depth", "5", "--cost", "--cost-queries", "3")

    assert code == 0
    cost = cost_of(world, below="rerank")
    assert cost["reranker_calls_per_query"].value == 5
    assert cost["encoder_calls_per_query"].value == 0
    assert (cost["rerank_ms_p50"].value or 0) > 0
    assert (cost["tokens_per_query"].value or 0) > 0
    assert "no index" in cost["index_bytes"].reason


def test_cost_options_need_cost(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that would have no effect is refused."""
    model = write_static_model(world / "tiny")

    assert run(model, "-t", TASK, "--price-per-hour", "2") == 2
    assert "belongs to --cost" in capsys.readouterr().err
    assert run(model, "-t", TASK, "--cost", "--cost-queries", "0") == 2


def test_candidates_of_an_encoder_are_encoded_once(world: Path) -> None:
    """An encoder that re-ranks reads the query alone: vectors of the candidates are there, as an index has them."""
    first = write_static_model(world / "tiny")
    run(first, "-t", TASK, "--name", "me/tiny")

    assert run(first, "-t", TASK, "--name", "me/tiny", "--rerank", "me/tiny", "--depth", "5", "--cost") == 0

    cost = cost_of(world, below="rerank")
    assert cost["encoder_calls_per_query"].value == 1
    assert (cost["search_ms_p50"].value or 0) > 0
    assert cost["rerank_ms_p50"].value is None
    assert "candidates" in cost.how["search"]
