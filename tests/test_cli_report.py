"""``crumb-tasks report`` through the command line, on MTEB's real results and on folders with nothing to rank."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from pathlib import Path

import pytest
from standin import ROOT, start

from crumb_tasks import cli

BENCHMARK = "RAR-b (geometric)"


def test_ranks_real_results(shared_data: Path, tmp_path: Path) -> None:
    """The README's command: forty models, their members, the paper's value, and how many pairs another mean flips."""
    results = shared_data / "mteb_results"
    for suffix in (".json", ".csv", ".md"):
        output = tmp_path / f"rarb{suffix}"
        assert cli.main(["report", "--benchmark", BENCHMARK, "--results", str(results), "-o", str(output)]) == 0

    (ranking,) = json.loads((tmp_path / "rarb.json").read_text(encoding="utf-8"))["rankings"]
    table = list(csv.DictReader(io.StringIO((tmp_path / "rarb.csv").read_text(encoding="utf-8"))))
    page = (tmp_path / "rarb.md").read_text(encoding="utf-8")

    assert [row["model"] for row in table] == [row["model"] for row in ranking["models"]]
    assert [float(row["geometric_mean"]) for row in table] == [row["geometric_mean"] for row in ranking["models"]]
    assert len(table) == 40
    assert "| 24 | sentence-transformers/all-MiniLM-L6-v2 | native | 0.1307 | 0.1310 | 0.2099 | 0.1864 | 23 |" in page
    assert "arithmetic_mean_17 orders 28 of the 780 pairs of 40 models the other way round." in page


def test_all_benchmarks_with_results_are_ranked_by_default(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a name whatever has results is ranked, as Markdown on standard output."""
    assert cli.main(["report", "--results", str(shared_data / "mteb_results")]) == 0

    page = capsys.readouterr().out
    assert [line for line in page.split("\n") if line.startswith("# ")] == ["# RAR-b (geometric)"]


def test_one_model_folder_is_enough(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any folder with result files below it will do."""
    (folder,) = (shared_data / "mteb_results" / "results" / "sentence-transformers__all-MiniLM-L6-v2").iterdir()

    assert cli.main(["report", "--benchmark", "RARb", "--results", str(folder)]) == 0
    assert "| 1 | sentence-transformers/all-MiniLM-L6-v2 | native | 0.1307 |" in capsys.readouterr().out


def test_what_was_left_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Broken files stand on standard error with their reason; of many the first ten and how many more."""
    for number in range(12):
        folder = tmp_path / f"org__m{number:02}" / "rev"
        folder.mkdir(parents=True)
        (folder / "HellaSwag.json").write_text("", encoding="utf-8")

    assert cli.main(["report", "--benchmark", BENCHMARK, "--results", str(tmp_path)]) == 1

    lines = capsys.readouterr().err.split("\n")
    assert lines[0] == "left out: org__m00/rev/HellaSwag.json: it is empty"
    assert lines[10] == "left out: 2 more, which the report lists"
    assert "holds no readable result of RAR-b (geometric)" in lines[11]
    argv = ["report", "--benchmark", BENCHMARK, "--results", str(tmp_path), "-o", str(tmp_path / "x.csv")]
    assert cli.main(argv) == 1
    assert capsys.readouterr().err.count("it is empty") == 12  # CSV has no place for them


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--results", "nowhere"], "nowhere: no such folder"),
        (["--results", ".", "-o", "report.xls"], "report.xls: cannot tell the form from the name"),
        (
            ["--results", ".", "--benchmark", "RAR-b geometric"],
            "no benchmark or aggregate 'RAR-b geometric'; did you mean",
        ),
        (["--results", ".", "--benchmark", BENCHMARK, "--split", "dev"], "RARb has no split 'dev'; it has: test"),
        ([], "required: --results"),
    ],
)
def test_misuse_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    """What cannot be done is said in one line, with exit code 2, and nothing is written."""
    monkeypatch.chdir(tmp_path)

    assert cli.main(["report", *arguments]) == 2
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_needs_neither_mteb_nor_torch(shared_data: Path, tmp_path: Path) -> None:
    """Results are plain files: no model library is imported to rank them, even where the terminal knows only ASCII."""
    command = (
        "import sys\nfrom crumb_tasks import cli\n"
        f"code = cli.main(['report', '--results', {str(shared_data / 'mteb_results')!r}])\n"
        "print(code, sorted({'mteb', 'torch', 'datasets'} & set(sys.modules)))"
    )
    ran = start(sys.executable, "-c", command, cwd=tmp_path, PYTHONPATH=str(ROOT), LC_ALL="C", PYTHONUTF8="0")

    assert ran.stderr == ""
    assert ran.stdout.rstrip().split("\n")[-1] == "0 []"


@pytest.mark.slow
def test_gain_of_two_conditions_of_crumb_tasks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two conditions in one cache are two rows, and the gain is that of their members' files."""
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path))
    for setting in ("none", "prepended"):
        ran = ["run", "mteb/baseline-bm25s", "-t", "CRUMBSample", "--instructions", setting]
        assert cli.main(ran) == 0
    capsys.readouterr()
    output = tmp_path / "report.json"
    assert cli.main(["report", "--results", str(tmp_path), "-o", str(output)]) == 0

    (ranking,) = json.loads(output.read_text(encoding="utf-8"))["rankings"]
    members = {row["condition"]: row["members"] for row in ranking["models"]}
    without, with_it = members["instructions none"], members["instructions prepended"]
    by_hand = [math.log2(with_it[task] + 1) - math.log2(without[task] + 1) for task in without]
    (gain,) = ranking["instruction_gains"]
    assert (gain["with"], gain["without"]) == ("instructions prepended", "instructions none")
    assert gain["gain"] == pytest.approx(sum(by_hand) / 8, abs=1e-6)
    assert capsys.readouterr().err == ""
