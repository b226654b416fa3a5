"""Costs in a report: beside the ranking, one front for each axis, nothing added up and nothing guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from crumb_tasks.cli._main import main
from crumb_tasks.cost import Cost, Quantity, known, unknown, write_cost
from crumb_tasks.report import RENDERERS, Ranking, rank, read_costs, read_results, tasks_of, with_costs
from crumb_tasks.report.costs import cost_of, fronts
from crumb_tasks.report.members import find_aggregate_of

NAME = "CRUMBSampleLegalQA"
AGGREGATE = "CRUMBSample"
HERE, THERE = {"processor": "A", "processors": 2, "threads": 2}, {"processor": "B", "processors": 4, "threads": 4}


def write(
    root: Path,
    model: str,
    value: float,
    costs: Mapping[str, Quantity] | None = None,
    *,
    machine: Mapping[str, Any] = HERE,
    task: str = NAME,
    **fields: Any,
) -> None:
    """Write a result of MTEB and, where ``costs`` are given, its cost beside it."""
    folder = root / f"me__{model}" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    scores = {"ndcg_at_10": value, "main_score": value, "hf_subset": "default", "languages": [], "n_queries": 17}
    content = {
        "dataset_revision": "sample",
        "task_name": task,
        "mteb_version": "2.26.24",
        "scores": {"test": [scores]},
        **fields,
    }
    (folder / f"{task}.json").write_text(json.dumps(content), encoding="utf-8")
    if costs is not None:
        write_cost(folder, task, {"default/test": Cost.of(costs, "not looked at", machine=machine)})


def ranked(root: Path, name: str = NAME) -> Ranking:
    """Return the ranking of ``name`` with costs."""
    results = read_results(root, set(tasks_of(find_aggregate_of(name))))
    ranking = rank(name, results)
    return with_costs(ranking, read_costs(root, results, ranking.split))


def fronts_by_axis(ranking: Ranking) -> dict[str, list[list[str]]]:
    """Return the models on each front by axis."""
    found: dict[str, list[list[str]]] = {}
    for front in fronts(ranking):
        found.setdefault(front.axis.key, []).append([system.model for system in front.systems])
    return found


def test_front_leaves_out_what_is_beaten(tmp_path: Path) -> None:
    """On the front stands what no other system beats in both quality and that cost; each axis has its own."""
    write(tmp_path, "small", 0.5, {"total_ms_p50": known(1), "index_bytes": known(900)})
    write(tmp_path, "slow", 0.4, {"total_ms_p50": known(5), "index_bytes": known(100)})
    write(tmp_path, "large", 0.8, {"total_ms_p50": known(9), "index_bytes": known(1000)})

    found = fronts_by_axis(ranked(tmp_path))

    assert found == {"latency": [["me/small", "me/large"]], "storage": [["me/slow", "me/small", "me/large"]]}


def test_equal_systems_share_the_front(tmp_path: Path) -> None:
    """Systems that are equal in quality and cost do not beat each other; one that costs more for the same is beaten."""
    for name in ("one", "other"):
        write(tmp_path, name, 0.5, {"index_bytes": known(900)})
    write(tmp_path, "dear", 0.5, {"index_bytes": known(901)})
    write(tmp_path, "poor", 0.4, {"index_bytes": known(900)})

    assert {axis: list(map(sorted, found)) for axis, found in fronts_by_axis(ranked(tmp_path)).items()} == {
        "storage": [["me/one", "me/other"]]
    }


def test_rates_are_costs_the_other_way_round(tmp_path: Path) -> None:
    """More documents a second are cheaper."""
    write(tmp_path, "fast", 0.5, {"documents_per_second": known(1000)})
    write(tmp_path, "slow", 0.5, {"documents_per_second": known(10)})

    assert fronts_by_axis(ranked(tmp_path)) == {"indexing": [["me/fast"]]}


def test_times_of_two_machines_share_no_front(tmp_path: Path) -> None:
    """Latency is compared on one machine; bytes are compared anywhere."""
    write(tmp_path, "here", 0.5, {"total_ms_p50": known(1), "index_bytes": known(1)})
    write(tmp_path, "there", 0.4, {"total_ms_p50": known(2), "index_bytes": known(2)}, machine=THERE)

    assert fronts_by_axis(ranked(tmp_path)) == {"latency": [["me/here"], ["me/there"]], "storage": [["me/here"]]}


def test_unknown_is_no_point_and_says_why(tmp_path: Path) -> None:
    """A system without a value is on no front; every form of the report holds null or the reason, never zero."""
    write(tmp_path, "a", 0.5, {"index_bytes": unknown("there is no index"), "parameters": known(3)})
    ranking = ranked(tmp_path)

    (row,) = json.loads(RENDERERS[".json"]([ranking], ()))["rankings"][0]["models"]
    index = row["cost"]["axes"]["storage"]["index_bytes"]
    assert (index["value"], index["reason"]) == (None, "there is no index")
    assert "storage" not in fronts_by_axis(ranking)
    assert "index: there is no index" in RENDERERS[".md"]([ranking], ())
    head, line = RENDERERS[".csv"]([ranking], ()).splitlines()
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert (cells["cost_index_bytes"], cells["cost_parameters"]) == ("", "3.0")


def test_who_lacks_a_value_is_named(tmp_path: Path) -> None:
    """Where one system has a value and another has none, the reason is the other's; few bytes are not shown as none."""
    lacking = unknown("no price was given")
    write(tmp_path, "paid", 0.5, {"money_per_1000_queries": known(2), "index_bytes": known(20_480)})
    write(tmp_path, "free", 0.4, {"money_per_1000_queries": lacking, "index_bytes": known(4e6)})

    text = RENDERERS[".md"]([ranked(tmp_path)], ())

    assert "money per 1000 queries (me/free): no price was given" in text
    assert "tokens per query" in text
    assert "tokens per query (" not in text
    assert "| 20.5 kB |" in text
    assert "| 4.0 MB |" in text


def test_members_are_averaged_only_when_all_are_known(tmp_path: Path) -> None:
    """A mean over some members would compare systems on different work."""
    tasks = find_aggregate_of(AGGREGATE).task_names
    for number, task in enumerate(tasks):
        write(tmp_path, "all", 0.5, {"tokens_per_query": known(number)}, task=task)
        write(tmp_path, "some", 0.5, {"tokens_per_query": known(number)} if number else None, task=task)
    ranking = ranked(tmp_path, AGGREGATE)
    by_name = {system.model: cost_of(ranking, system, "tokens_per_query") for system in ranking.costs}

    assert by_name["me/all"].value == pytest.approx(3.5)
    assert by_name["me/some"].value is None
    assert by_name["me/some"].reason.startswith("7 of 8 members have it")


def test_phases_stand_in_for_what_was_not_measured(tmp_path: Path) -> None:
    """MTEB's own timing gives what it gives, and is called by its name."""
    phase = {"name": "Encoding corpus", "start": 1.0, "end": 5.0, "split": "test", "subset": "default"}
    write(tmp_path, "a", 0.5, evaluation_phases=[phase])

    text = RENDERERS[".md"]([ranked(tmp_path)], ())

    assert "MTEB's phases" in text
    assert "MTEB stores no times of single queries" in text


def test_cost_of_another_result_is_not_shown(tmp_path: Path) -> None:
    """A result that was computed again has no cost until that is measured again."""
    write(tmp_path, "a", 0.5, {"index_bytes": known(4)})
    write(tmp_path, "a", 0.6)

    assert ranked(tmp_path).costs == {}
    assert "## Cost" not in RENDERERS[".md"]([ranked(tmp_path)], ())


def test_page_has_costs(tmp_path: Path) -> None:
    """The page shows the table and a chart for each axis that is known."""
    pytest.importorskip("jinja2")
    write(tmp_path / "results", "a<b>", 0.5, {"index_bytes": known(4e6), "total_ms_p50": known(2)})
    page = tmp_path / "report.html"

    code = main(["report", "--results", str(tmp_path / "results"), "--benchmark", NAME, "-o", str(page)])

    assert code == 0
    text = page.read_text(encoding="utf-8")
    assert "<h3>Cost</h3>" in text
    assert "4.0 MB" in text
    assert "Quality against storage and memory" in text
    assert "Quality against query latency and throughput" in text
    assert "Quality against infrastructure" not in text
    assert "a<b>" not in text


def test_no_cost_is_a_point_as_well(tmp_path: Path) -> None:
    """BM25 has no parameter: a known zero is drawn and stands on the front."""
    pytest.importorskip("jinja2")
    write(tmp_path / "results", "words", 0.5, {"parameters": known(0)})
    write(tmp_path / "results", "vectors", 0.6, {"parameters": known(2e7)})
    page = tmp_path / "report.html"

    assert main(["report", "--results", str(tmp_path / "results"), "--benchmark", NAME, "-o", str(page)]) == 0

    assert "parameters of the model, logarithmic" not in page.read_text(encoding="utf-8")
    assert fronts_by_axis(ranked(tmp_path / "results")) == {"infrastructure": [["me/words", "me/vectors"]]}
