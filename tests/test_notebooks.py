"""The notebooks: stripped in git, run from a fresh kernel, and each ends with a plot."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import nbformat
import pytest
from standin import ROOT

from crumb_tasks.report import find_aggregate_of, read_results, tasks_of

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TABLE = FOLDER / "data" / "rarb_mteb_results.csv"
by_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
SECONDS = 120


def test_the_four_are_there() -> None:
    """One runs a model, one compares runs, one is about means, one adds a benchmark."""
    assert [path.stem[0] for path in NOTEBOOKS] == ["1", "2", "3", "4"]


@by_notebook
def test_outputs_are_stripped(path: Path) -> None:
    """Git holds what people wrote, not what a machine printed."""
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]

    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert code[-1].source.endswith("plt.show()")
    assert book.cells[0].source.startswith("# ")
    assert set(book.metadata) <= {"kernelspec", "language_info"}


def test_small_table_is_that_of_the_results(shared_data: Path) -> None:
    """The table in the repository holds the values of the result files that its source names, all of them."""
    tasks = tasks_of(find_aggregate_of("RARb"))
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    read = read_results(shared_data / "mteb_results", tasks).by_system
    known = {
        (system.model, system.revision): [by_task[task].values_by_split["test"]["ndcg_at_10"] for task in tasks]
        for system, by_task in read.items()
    }

    assert list(rows[0]) == ["model", "revision", *tasks]
    assert {(row["model"], row["revision"]): [float(row[task]) for task in tasks] for row in rows} == known
    assert "CC0 1.0" in (FOLDER / "3_which_mean.ipynb").read_text(encoding="utf-8")


def run(path: Path) -> nbformat.NotebookNode:
    """Execute a notebook from a fresh kernel and return it; a cell that fails raises."""
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    client = NotebookClient(book, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}})
    client.execute()
    return book


def printed(book: nbformat.NotebookNode) -> str:
    """Return what the cells of a notebook printed."""
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    return "".join(output.text for output in outputs if output.output_type == "stream")


@pytest.mark.slow
@by_notebook
def test_runs_from_a_fresh_kernel(path: Path) -> None:
    """Every cell runs, in under two minutes, nothing is complained about, and a plot stands at the end."""
    start = time.monotonic()
    book = run(path)

    assert time.monotonic() - start < SECONDS
    assert any("image/png" in output.get("data", {}) for output in book.cells[-1].outputs)
    assert not [
        output.text for cell in book.cells for output in cell.get("outputs", ()) if output.get("name") == "stderr"
    ]


@pytest.mark.slow
def test_means_are_the_same_from_the_small_table(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the result files the notebook reads its own table and finds the same."""
    found = {}
    for folder in (shared_data, tmp_path):
        monkeypatch.setenv("CRUMB_TASKS_SHARED", str(folder))
        found[folder] = printed(run(FOLDER / "3_which_mean.ipynb")).partition("\n")

    assert found[shared_data][0].endswith("from result files")
    assert found[tmp_path][0].endswith("from the small table")
    assert found[tmp_path][2] == found[shared_data][2]
    assert "arithmetic_mean_17 orders 28 of 780 pairs the other way round" in found[tmp_path][2]
