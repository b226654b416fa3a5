"""What MTEB's leaderboard and API are given: their files, and our benchmarks' tables made from them."""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mteb
import polars as pl
import pytest
from leaderboard_results import BM25, RANDOM, combine, store
from mteb.cache import ResultCache
from mteb.results import BenchmarkResults

from crumb_tasks import register
from crumb_tasks.benchmarks import CardBenchmark
from crumb_tasks.cli import main
from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.leaderboard import cache_root, prepare
from crumb_tasks.report import rank, read_results
from crumb_tasks.report.members import find_aggregate_of, tasks_of

register()
SAMPLE = tuple(task.metadata.name for task in mteb.get_benchmark("CRUMBSample").tasks)
RARB = tuple(task.metadata.name for task in mteb.get_benchmark("RAR-b (geometric)").tasks)
WITHOUT = {"instructions": "none"}


@pytest.fixture(autouse=True)
def _own_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the command tells MTEB's loggers ends with the test."""
    monkeypatch.setenv("TQDM_DISABLE", "1")
    handlers, level = logging.root.handlers[:], logging.getLogger("mteb").level
    with warnings.catch_warnings():
        yield
    logging.root.handlers[:] = handlers
    logging.getLogger("mteb").setLevel(level)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cache with complete results of two models, one of them under two conditions."""
    store(tmp_path, BM25, {task: 0.3 + at / 37 for at, task in enumerate(SAMPLE)})
    store(tmp_path, RANDOM, {task: 0.2 + at / 41 for at, task in enumerate(SAMPLE)})
    store(tmp_path, BM25, {task: 0.5 + at / 43 for at, task in enumerate(SAMPLE)}, WITHOUT)
    store(tmp_path, BM25, {"InstructIRSample": 0.4})
    store(tmp_path, BM25, {task: 0.1 + at / 29 for at, task in enumerate(RARB)})
    return tmp_path


def frames(root: Path) -> dict[str, pl.DataFrame]:
    """Return what MTEB's leaderboard reads, by its own reader."""
    read = BenchmarkResults.load_leaderboard_cache(ResultCache(root).leaderboard_parquet_path)
    assert isinstance(read, dict)
    return read


def rows(root: Path, benchmark: str) -> list[dict[str, Any]]:
    """Return a benchmark's summary as MTEB's leaderboard makes it."""
    table = mteb.get_benchmark(benchmark)._create_summary_table(frames(root)[benchmark]).df
    found: list[dict[str, Any]] = table.to_dicts()
    return found


def reported(root: Path, benchmark: str) -> dict[str, float | None]:
    """Return what `crumb-tasks report` says, by the row's name on the leaderboard."""
    results = read_results(root, tasks_of(find_aggregate_of(benchmark)))
    found = {}
    for row in rank(benchmark, results).rows:
        experiment = "-".join(f"{key}_{value}" for key, value in row.system.experiment)
        found[f"{row.system.model} ({experiment})" if experiment else row.system.model] = row.value
    return found


@pytest.mark.parametrize(
    ("benchmark", "column"),
    [
        ("CRUMBSample", "Mean (nDCG@10)"),
        ("InstructIRSample", "Mean (Robustness@10)"),
        ("RAR-b (geometric)", "Mean (Geometric)"),
    ],
)
def test_table_report_and_get_score_say_one_number(root: Path, benchmark: str, column: str) -> None:
    """For every model and condition, to six decimals and more."""
    prepare(root)
    results = ResultCache(root).load_results(
        tasks=mteb.get_benchmark(benchmark), include_remote=False, load_experiments="match_name"
    )

    table = {row["Model"]: row[column] for row in rows(root, benchmark)}
    scores = mteb.get_benchmark(benchmark).get_score(results)

    assert table == pytest.approx({name: entry[column.replace(" (", "(")] for name, entry in scores.items()}, abs=1e-9)
    assert table == pytest.approx(reported(root, benchmark), abs=1e-9)


def test_table_says_what_the_stored_aggregate_says(root: Path) -> None:
    """The JSON that `mteb run -t CRUMBSample` writes has the leaderboard's number."""
    stored = combine(root, "CRUMBSample", BM25)
    prepare(root)

    assert {row["Model"]: row["Mean (nDCG@10)"] for row in rows(root, "CRUMBSample")}[BM25] == pytest.approx(
        stored, abs=1e-9
    )


def test_conditions_are_rows_with_a_name_and_a_rank_of_their_own(root: Path) -> None:
    """In the summary and in the table of tasks; MTEB gives them all the Borda rank of their model."""
    prepare(root)
    benchmark = mteb.get_benchmark("CRUMBSample")

    summary = rows(root, "CRUMBSample")
    tasks = benchmark._create_per_task_table(frames(root)["CRUMBSample"]).to_dicts()

    named = f"{BM25} (instructions_none)"
    assert [(row["Rank"], row["Model"], row["Rank (Borda)"]) for row in summary] == [
        (1, named, 1),
        (2, BM25, 2),
        (3, RANDOM, 3),
    ]
    assert {row["Model"]: row[SAMPLE[0]] for row in tasks} == pytest.approx({named: 0.5, BM25: 0.3, RANDOM: 0.2})


@pytest.mark.parametrize("benchmark", ["CRUMBSample", "RAR-b (geometric)", "RAR-b", "MTEB(Multilingual, v2)"])
def test_no_table_has_a_column_that_mteb_stops_at(root: Path, benchmark: str) -> None:
    """MTEB's leaderboard rounds every column it does not know, and stops at a text; its own benchmarks' included."""
    prepare(root)
    table = mteb.get_benchmark(benchmark)._create_summary_table(frames(root)[benchmark])

    texts = {name for name, kind in table.df.schema.items() if kind == pl.String}
    assert texts <= {"Model", "Release Date", "No results"}


def test_member_that_nobody_ran_is_missing(tmp_path: Path) -> None:
    """MTEB would average over the tasks that are there; with the files there is no mean, nor a rank before others."""
    store(tmp_path, BM25, {SAMPLE[0]: 0.9})
    prepare(tmp_path)

    (row,) = rows(tmp_path, "CRUMBSample")
    assert (row["Mean (nDCG@10)"], row["Mean (Task)"]) == (None, None)


def test_leaderboard_opens_without_a_result_of_its_first_benchmark(tmp_path: Path) -> None:
    """MTEB's leaderboard stops when it has no row of `MTEB(Multilingual, v2)`; one without score is there."""
    store(tmp_path, BM25, {"InstructIRSample": 0.4})
    prepare(tmp_path)

    first = frames(tmp_path)["MTEB(Multilingual, v2)"]
    assert first["task_name"].n_unique() == len(mteb.get_benchmark("MTEB(Multilingual, v2)").tasks)
    assert first["score"].null_count() == len(first)
    assert mteb.get_benchmark("MTEB(Multilingual, v2)")._create_summary_table(first).is_empty


def test_what_was_prepared_is_told(root: Path) -> None:
    """Rows by benchmark of this package; MTEB's own are counted apart."""
    prepared = prepare(root)

    assert prepared.folder == root / "leaderboard"
    assert prepared.rows_by_benchmark["CRUMBSample"] == 3
    assert prepared.rows_by_benchmark["RAR-b (geometric)"] == 1
    assert "RAR-b" in prepared.others
    assert prepared.left_out == ()


def _break(folder: Path) -> None:
    (folder / f"{SAMPLE[0]}.json").write_text('{"task_name": "x', encoding="utf-8")


def _forget_condition(folder: Path) -> None:
    (folder / "experiments" / "instructions_none" / "model_meta.json").unlink()


def _unknown_model(folder: Path) -> None:
    _rename(folder, "nobody/knows")


def _rename(folder: Path, name: str) -> None:
    meta = json.loads((folder / "model_meta.json").read_text(encoding="utf-8"))
    (folder / "model_meta.json").write_text(json.dumps(meta | {"name": name}), encoding="utf-8")


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (_break, f"{SAMPLE[0]}.json: it cannot be read ("),
        (_forget_condition, "no model_meta.json says under which condition it was made"),
        (
            _unknown_model,
            "nobody/knows: not in MTEB's registry of models, so its leaderboard shows none of its 24 results",
        ),
    ],
)
def test_what_cannot_be_shown_is_named(root: Path, harm: Callable[[Path], None], line: str) -> None:
    """A file that is broken or says too little costs itself; the others are shown."""
    harm(next((root / "results" / BM25.replace("/", "__")).iterdir()))

    prepared = prepare(root)

    assert any(line in entry for entry in prepared.left_out), prepared.left_out
    assert any(row["Model"] == RANDOM for row in rows(root, "CRUMBSample"))


def _refused_winogrande() -> tuple[str, str]:
    (refused,) = [entry for entry in find_aggregate_of("RARb").refused if entry.task == "WinoGrande"]
    return refused.revision, refused.reason


@pytest.mark.parametrize(
    ("benchmark", "task", "revision", "reason"),
    [
        ("RAR-b", "WinoGrande", *_refused_winogrande()),
        ("CRUMBSample", SAMPLE[0], "old", "is on revision old but the task now reads"),
    ],
)
def test_results_on_other_data_are_left_out(
    tmp_path: Path, benchmark: str, task: str, revision: str, reason: str
) -> None:
    """As the report and `get_score` do: on data that a card refuses, or on others than the task reads now."""
    store(tmp_path, BM25, {task: 0.9}, revision=revision)
    store(tmp_path, RANDOM, {task: 0.1})

    prepared = prepare(tmp_path)

    assert [reason in line for line in prepared.left_out] == [True]
    assert frames(tmp_path)[benchmark].drop_nulls("score")["model_name"].to_list() == [RANDOM]


def test_model_that_mteb_has_renamed_is_shown_under_its_name_of_today(tmp_path: Path) -> None:
    """MTEB's own tables drop results under an old name."""
    _rename(store(tmp_path, BM25, {"InstructIRSample": 0.4}), "voyageai/voyage-3.5")

    assert prepare(tmp_path).left_out == ()
    assert [row["Model"] for row in rows(tmp_path, "InstructIRSample")] == ["mongodb/voyage-3.5"]


def test_files_appear_whole_or_not_at_all(root: Path) -> None:
    """When nothing can be shown any more, the files of before stay, and nothing lies beside them."""
    prepare(root)
    before = {path.name: path.read_bytes() for path in (root / "leaderboard").iterdir()}
    for path in (root / "results").rglob("*.json"):
        path.write_text("", encoding="utf-8")

    with pytest.raises(DataError, match="none of the results can be shown"):
        prepare(root)
    assert {path.name: path.read_bytes() for path in (root / "leaderboard").iterdir()} == before


def test_prepared_again_is_todays_results(root: Path) -> None:
    """Our own files are replaced."""
    prepare(root)
    store(root, RANDOM, {"InstructIRSample": 0.9})
    prepare(root)

    assert [row["Model"] for row in rows(root, "InstructIRSample")] == [RANDOM, BM25]


def test_other_files_in_the_folder_stay(root: Path) -> None:
    """Whatever lies beside what was written for MTEB's API, a table of the user's own included, is left alone."""
    own = root / "leaderboard" / "notes.parquet"
    prepare(root)
    own.write_bytes(b"mine")

    written = {path.name for path in prepare(root).folder.iterdir()}

    assert own.read_bytes() == b"mine"
    assert written >= {"notes.parquet", "benchmark_results.parquet"}


def test_file_that_mteb_wrote_stays(root: Path) -> None:
    """It may hold everybody's results, which took long to fetch."""
    target = ResultCache(root).leaderboard_parquet_path
    target.parent.mkdir()
    pl.DataFrame({"model_name": ["x"], "task_name": ["NFCorpus"]}).write_parquet(target)
    before = target.read_bytes()

    with pytest.raises(DataError, match=r"benchmark_results\.parquet was written by MTEB; move it away"):
        prepare(root)
    assert target.read_bytes() == before


def test_folder_of_results_is_its_cache(root: Path) -> None:
    """Both what was named to `mteb run` and the folder `results` in it will do."""
    assert cache_root(root) == root
    assert cache_root(root / "results") == root


def test_folder_without_results_is_an_error(tmp_path: Path) -> None:
    """One line each: there is no such folder, or nothing of MTEB's in it."""
    with pytest.raises(UsageError, match=r"nowhere: no such folder"):
        cache_root(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"holds no results of MTEB; they lie in .*MODEL"):
        cache_root(tmp_path)


def test_prepare_only_says_how_to_start_mtebs_own_commands(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines can be pasted: no network, this machine only, and this cache."""
    assert main(["leaderboard", str(root), "--prepare-only"]) == 0

    out = capsys.readouterr().out
    assert "CRUMBSample (3 rows)" in out
    assert f"HF_HUB_OFFLINE=1 CRUMB_TASKS_MENU=all mteb leaderboard --cache-path {root} --host 127.0.0.1" in out


@pytest.mark.parametrize(
    ("folder", "code", "complaint"),
    [("nowhere", 2, "nowhere: no such folder"), (".", 1, "holds no results of MTEB")],
)
def test_command_without_results_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, code: int, complaint: str
) -> None:
    """It names the folder, and starts nothing."""
    assert main(["leaderboard", str(tmp_path / folder)]) == code

    err = capsys.readouterr().err
    assert complaint in err
    assert len(err.splitlines()) == 1


def test_port_that_is_none_is_one_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said before anything is read or written."""
    assert main(["leaderboard", str(root), "--port", "70000"]) == 2

    assert capsys.readouterr().err == "crumb-tasks: --port 70000 is no port; ports are 1 to 65535\n"


def test_missing_extra_is_one_line_with_the_pip_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MTEB's leaderboard needs gradio, which MTEB does not bring by itself."""
    try:
        import gradio
    except ImportError:
        assert main(["leaderboard", str(root)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "pip install 'crumb-tasks[leaderboard]'" in line
        assert not (root / "leaderboard").exists()
    else:
        pytest.skip(f"gradio {gradio.__version__} is installed")


@pytest.mark.parametrize(
    ("benchmark", "column"),
    [
        ("CRUMB", "Mean (nDCG@10)"),
        ("InstructIR (official)", "Mean (Robustness@10)"),
        ("RAR-b (geometric)", "Mean (Geometric)"),
        ("RAR-b (multiple choice)", "Mean (Geometric)"),
        ("FreshStack (official)", "Mean (alpha-nDCG@10)"),
        ("MS MARCO (MRR@10)", "Mean (MRR@10)"),
        ("OBLIQ-Bench", "Mean (nDCG@10)"),
        ("Cross-lingual retrieval", "Mean (nDCG@10)"),
    ],
)
def test_column_says_what_ranks(tmp_path: Path, benchmark: str, column: str) -> None:
    """The heading is the measure of the paper, whether several tasks are reduced or one is all there is."""
    made = mteb.get_benchmark(benchmark)
    store(tmp_path, BM25, {task.metadata.name: 0.25 for task in made.tasks})
    prepare(tmp_path)

    (row,) = rows(tmp_path, benchmark)
    assert isinstance(made, CardBenchmark)
    assert {name: value for name, value in row.items() if name.startswith("Mean")} == pytest.approx(
        {column: 0.25, "Mean (Task)": 0.25}
    )
    assert row["Rank (Borda)"] == row["Rank"] == 1


def test_several_revisions_of_a_model_are_named(tmp_path: Path) -> None:
    """MTEB's tables have one row for them; the command says of which models results may be left out."""
    folder = store(tmp_path, BM25, {"CRUMBSampleLegalQA": 0.5})
    store(tmp_path, RANDOM, {"CRUMBSampleLegalQA": 0.1})
    meta = json.loads((folder / "model_meta.json").read_text(encoding="utf-8"))
    other = shutil.copytree(folder, folder.with_name("older"))
    (other / "model_meta.json").write_text(json.dumps({**meta, "revision": "older"}), encoding="utf-8")

    left_out = prepare(tmp_path).left_out
    assert [line.partition(", of which")[0] for line in left_out] == [f"{BM25}: results of 2 revisions (0_3_0, older)"]


def test_a_cache_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    """Others' caches can be read and not written; the message names the folder and what to do."""
    store(tmp_path, BM25, {"CRUMBSampleLegalQA": 0.5})
    (tmp_path / "leaderboard").write_text("no folder", encoding="utf-8")

    with pytest.raises(UsageError, match=r"cannot write to .*leaderboard \(.*\); copy .* to where you may write"):
        prepare(tmp_path)
