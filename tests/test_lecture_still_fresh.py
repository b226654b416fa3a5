from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from test_lecture_freshstack import CORPUS, QUERIES, question, write

from crumb_tasks.cards import find_task
from crumb_tasks.cli import main
from crumb_tasks.errors import MissingDataError
from crumb_tasks.loaders import load_collection
from crumb_tasks.report.snapshots import change_of, kendall_tau

FIRST, SECOND = "StillFreshOct2024", "StillFreshOct2025"
MODELS = ["mteb/baseline-bm25s", "mteb/baseline-random-encoder"]


def both_snapshots(root: Path) -> Path:
    """Write three questions over 30 chunks, and a year later two of them over chunks that moved, and a new one."""
    write(root, [question(at, ([f"c{at}"], []), text="chain agent prompt") for at in range(3)], 30)
    later = [question(at, ([f"c{at + 5}"], []), text="chain agent prompt") for at in (0, 1, 7)]
    for place, rows in ((QUERIES, later), (CORPUS, pq.read_table(root / CORPUS).to_pylist())):
        target = root / place.replace("oct-2024", "oct-2025")
        target.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), target)
    return root


def test_both_snapshots_are_read_by_one_loader(tmp_path: Path) -> None:
    """The second is the user's, in FreshStack's layout; the queries are the same by their ids."""
    root = both_snapshots(tmp_path)

    first, second = (load_collection(name, data_root=root) for name in (FIRST, SECOND))

    assert set(first.graded.query_ids) & set(second.graded.query_ids) == {"70000000", "70000001"}
    assert first.graded.to_dict()["70000000"] != second.graded.to_dict()["70000000"]


def test_the_unreleased_snapshot_says_so(tmp_path: Path) -> None:
    """One line: unreleased, which schema, where to. It is in no listing that names nothing."""
    with pytest.raises(
        MissingDataError, match=r"unreleased; .*schema of freshstack/queries-oct-2024.*CRUMB_TASKS_DATA"
    ):
        load_collection(SECOND, data_root=tmp_path)
    assert not find_task(SECOND).public
    assert "unreleased" in " ".join(find_task(SECOND).facts).lower()


def test_changes_are_of_questions_that_both_judge() -> None:
    """The largest first, equal ones by id; a question that one snapshot lacks is counted and in no change."""
    change = change_of("R@50", {"a": 1.0, "b": 0.5, "c": 0.5, "gone": 1.0}, {"a": 0.0, "b": 0.75, "c": 0.5, "new": 0.3})

    assert [(moved.query_id, moved.difference) for moved in change.moved] == [("a", -1.0), ("b", 0.25)]
    assert (change.n_better, change.n_worse, change.n_equal) == (1, 1, 1)
    assert (change.n_only_first, change.n_only_second) == (1, 1)


def pairs_counted(values: list[tuple[float, float]]) -> float | None:
    """Return tau-b by its definition: concordant minus discordant pairs over the geometric mean of untied pairs."""
    signs = [
        (float((one[0] > other[0]) - (one[0] < other[0])), float((one[1] > other[1]) - (one[1] < other[1])))
        for at, one in enumerate(values)
        for other in values[:at]
    ]
    untied = [sum(sign[column] != 0 for sign in signs) for column in (0, 1)]
    if not untied[0] or not untied[1]:
        return None
    return sum(one * other for one, other in signs) / (untied[0] * untied[1]) ** 0.5


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4).map(float), st.integers(0, 4).map(float)), max_size=7))
def test_tau_is_that_of_its_definition(values: list[tuple[float, float]]) -> None:
    """Ties and all; none where nothing has an order."""
    expected = pairs_counted(values)

    assert kendall_tau(values) == (expected if expected is None else pytest.approx(expected))


def test_tau_leaves_out_systems_without_a_value() -> None:
    """Three systems of four have both values."""
    assert kendall_tau([(0.1, 0.2), (0.2, 0.3), (0.3, 0.1), (None, 0.9)]) == pytest.approx(-1 / 3)
    assert kendall_tau([(0.1, 0.2)]) is None
    assert stats.kendalltau([0.1, 0.2, 0.3], [0.2, 0.3, 0.1]).statistic == pytest.approx(-1 / 3)


def test_the_command_shows_measures_order_and_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two models evaluated on both, from the command line; a result on one snapshot only is named."""
    pytest.importorskip("mteb")
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(both_snapshots(tmp_path / "data")))
    results = tmp_path / "out"
    for model in MODELS:
        assert main(["run", model, "-t", FIRST, SECOND, "--output-folder", str(results)]) == 0
    capsys.readouterr()

    assert main(["snapshots", "--results", str(results), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert main(["snapshots", "--results", str(results)]) == 0
    text = capsys.readouterr().out

    assert {entry["model"] for entry in found["systems"]} == set(MODELS)
    assert set(found["tau"]) == {"alpha_nDCG@10", "Coverage@20", "R@50", "nDCG@10"}
    assert found["tau"]["R@50"] is None  # 30 chunks: both find everything
    for entry in found["systems"]:
        assert set(entry["values"]) == set(found["tau"])
        change = entry["change"]
        assert (change["n_only_first"], change["n_only_second"]) == (1, 1)
        assert change["n_better"] + change["n_worse"] + change["n_equal"] == 2
    assert "Kendall's tau by alpha_nDCG@10: " in text
    assert "1 only in the first snapshot, 1 only in the second" in text

    for path in results.rglob(f"{SECOND}.json"):
        if "random" in path.as_posix():
            path.unlink()
    shutil.rmtree(next(results.rglob("*random*")) / "crumb_tasks", ignore_errors=True)
    assert main(["snapshots", "--results", str(results)]) == 0
    assert "with a result on one of the two only: mteb/baseline-random-encoder" in capsys.readouterr().out


def test_without_results_on_both_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And two names of one task are no comparison."""
    assert main(["snapshots", "--results", str(tmp_path)]) == 1
    assert f"no system with a result on both {FIRST} and {SECOND}" in capsys.readouterr().err
    assert main(["snapshots", "--results", str(tmp_path), "--second", FIRST]) == 2
    assert "name two snapshots" in capsys.readouterr().err
