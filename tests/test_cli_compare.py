"""``crumb-tasks compare``: differences, their uncertainty, and the queries behind them."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import run_bytes
from sample_runs import MAXP, PLAIN, passage_run, sample

from crumb_tasks import cli

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs ``crumb-tasks compare`` and returns exit code, stdout, stderr."""

    def run(*argv: object) -> tuple[int, str, str]:
        code = cli.main(["compare", *(str(argument) for argument in argv)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Three runs on one task, each better than the one before, in different formats."""
    paths = [tmp_path / name for name in ("weak.trec", "middle.jsonl", "strong.parquet")]
    for at, (path, kind) in enumerate(zip(paths, ("trec", "jsonl", "parquet"), strict=True)):
        path.write_bytes(run_bytes.FORMATS[kind](passage_run(PLAIN, seed=at, lift=0.125 + 0.25 * at)))
    return paths


def test_two_runs_are_compared(command: Command, runs: list[Path]) -> None:
    """Means, difference, interval and p are those of the values per query; the moved queries come with their texts."""
    code, out, _ = command(runs[0], runs[2], "--task", PLAIN, "--measure", "nDCG@10", "--json")

    found = json.loads(out)
    assert code == 0
    assert found["difference"] == pytest.approx(found["mean_second"] - found["mean_first"])
    assert found["low"] < found["difference"] < found["high"]
    assert found["p_holm"] == found["p_value"] < 0.05
    assert found["n_wins"] + found["n_losses"] + found["n_ties"] == found["n_queries"] == len(sample(PLAIN).graded)
    sizes = [abs(moved["difference"]) for moved in found["moved"]]
    assert sizes == sorted(sizes, reverse=True)
    texts = dict(zip(*(sample(PLAIN).queries[name].to_pylist() for name in ("id", "text")), strict=True))
    assert {moved["query_id"]: moved["text"] for moved in found["moved"]}.items() <= texts.items()
    assert len(found["moved"]) == min(10, found["n_wins"] + found["n_losses"])


def test_several_runs_are_corrected_after_holm(command: Command, runs: list[Path]) -> None:
    """All pairs are compared, and no corrected p is below its own."""
    code, out, _ = command(*runs, "--task", PLAIN, "--csv")

    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [(Path(row["first"]).stem, Path(row["second"]).stem) for row in rows] == [
        ("weak", "middle"),
        ("weak", "strong"),
        ("middle", "strong"),
    ]
    assert all(float(row["p_holm"]) >= float(row["p_value"]) for row in rows)
    assert max(float(row["p_holm"]) for row in rows) > min(float(row["p_value"]) for row in rows)


def test_text_names_ten_queries_with_their_texts(command: Command, runs: list[Path]) -> None:
    """A person sees what the queries ask for."""
    code, out, _ = command(runs[0], runs[1], "--task", PLAIN, "--most-moved", "2")

    assert code == 0
    assert out.startswith(f"{PLAIN} (test), nDCG@10, {len(sample(PLAIN).graded)} judged queries")
    block = out.partition("queries that moved most")[2]
    assert sum(" to " in line and "(" in line for line in block.splitlines()[1:]) == 2


def test_the_same_input_gives_the_same_output(command: Command, runs: list[Path], tmp_path: Path) -> None:
    """Resampling is seeded and the plot carries no date."""
    pytest.importorskip("matplotlib")
    outputs = []
    for at in range(2):
        plot = tmp_path / f"wins{at}.svg"
        code, out, _ = command(*runs, "--task", PLAIN, "--plot", plot)
        assert code == 0
        outputs.append((out, plot.read_bytes()))

    assert outputs[0] == outputs[1]
    svg = outputs[0][1].decode()
    assert svg.count("difference of nDCG@10") == 3
    assert "better" in svg


def test_equal_runs_do_not_differ(command: Command, runs: list[Path], tmp_path: Path) -> None:
    """No query is named as moved."""
    copy = tmp_path / "copy"
    copy.write_bytes(runs[0].read_bytes())

    _, out, _ = command(runs[0], copy, "--task", PLAIN)

    assert f"{runs[0]} and {copy} do not differ on any query" in out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["{0}", "--task", PLAIN], "at least two different run files"),
        (["{0}", "{0}", "--task", PLAIN], "at least two different run files"),
        (["{0}", "{1}", "--task", PLAIN, "--measure", "nDGC@10"], "did you mean 'nDCG'"),
        (["{0}", "{1}", "--task", PLAIN, "--plot", "wins.doc"], "ends in no format of figures; use .svg, .pdf, .png"),
        (["{0}", "{1}", "--task", PLAIN, "--most-moved", "-1"], "-1 is negative"),
        (["{0}", "{1}", "--task", MAXP], "no query of the run is judged"),
    ],
)
def test_misuse_is_one_line(command: Command, runs: list[Path], argv: list[str], words: str) -> None:
    """One line and exit code 2."""
    code, out, err = command(*(argument.format(*runs) for argument in argv))

    assert (code, out) == (2, "")
    assert words in err.splitlines()[-1]


def test_without_matplotlib_the_extra_is_named(
    command: Command, runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plot needs the extra; the line says how to get it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    code, _, err = command(runs[0], runs[1], "--task", PLAIN, "--plot", "wins.svg")

    assert code == 2
    assert "pip install 'crumb-tasks[plot]'" in err
