"""The command `crumb-tasks build`: from raw files to a collection that the other commands know."""

from __future__ import annotations

from pathlib import Path

import pytest

from crumb_tasks import cli, load_collection
from crumb_tasks.builders import build, buildable_tasks, find_buildable
from crumb_tasks.cards import TaskCard
from crumb_tasks.loaders._manifest import read_manifest


@pytest.fixture
def raw(shared_data: Path) -> Path:
    """The real raw folders."""
    return shared_data / "nci"


def run(*arguments: object) -> int:
    """Run `crumb-tasks build`."""
    return cli.main(["build", *map(str, arguments)])


def test_a_build_is_found_by_its_task(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It lands where the card says, and validate reads it there; what is wrong with it is said."""
    code = run("TriviaQANCI", "--from", raw / "triviaqa_raw", "--to", tmp_path)
    said = capsys.readouterr().out
    validated = cli.main(["validate", "TriviaQANCI", "--data", str(tmp_path)])
    report = capsys.readouterr().out

    assert code == 0
    assert str(tmp_path / "nci" / "TriviaQANCI") in said
    assert "triviaqa-nci, version 1" in said
    assert "crumb-tasks validate TriviaQANCI" in said
    assert validated == 1
    assert "2 queries, expected 7984" in report


def test_without_mistakes_it_is_another_task(raw: Path, tmp_path: Path) -> None:
    """--fixed builds under another name and another recipe, beside the first."""
    for flags in ((), ("--fixed",)):
        assert run("NQ320k", "--from", raw / "natural_questions_raw", "--to", tmp_path, *flags) == 0

    assert read_manifest(tmp_path / "nci" / "NQ320k" / "manifest.json").recipe == "nq320k-nci"
    assert read_manifest(tmp_path / "nci" / "NQ320kFixed" / "manifest.json").recipe == "nq320k-nci-fixed"
    fixed = load_collection("NQ320kFixed", data_root=tmp_path)
    assert fixed.corpus["text"][1].as_py().startswith("The Mother ( How I Met Your Mother ) Tracy McConnell")
    assert find_buildable("NQ320kFixed", is_fixed=True) == find_buildable("NQ320k", is_fixed=True)


def test_a_finished_build_is_left_alone(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same command again says so and writes nothing."""
    arguments = ("NQ320k", "--from", raw / "natural_questions_raw", "--to", tmp_path)
    run(*arguments)
    written = (tmp_path / "nci" / "NQ320k" / "corpus.parquet").stat().st_mtime_ns
    capsys.readouterr()

    assert run(*arguments) == 0
    assert "was there already" in capsys.readouterr().out
    assert (tmp_path / "nci" / "NQ320k" / "corpus.parquet").stat().st_mtime_ns == written


def test_another_build_is_not_overwritten(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever lies where the build would go stays."""
    run("NQ320k", "--fixed", "--from", raw / "natural_questions_raw", "--to", tmp_path)
    (tmp_path / "nci" / "NQ320kFixed").rename(tmp_path / "nci" / "NQ320k")
    capsys.readouterr()

    assert run("NQ320k", "--from", raw / "natural_questions_raw", "--to", tmp_path) == 2
    assert "holds a build by the recipe 'nq320k-nci-fixed'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("NQ32k", "--from", "."), "no builder for 'NQ32k'; did you mean"),
        (("InstructIROfficial", "--from", "."), "there is one for NQ320k, NQ320kFixed, TriviaQANCI, TriviaQANCIFixed"),
        (("NQ320k", "--from", "nowhere"), "there is no folder nowhere"),
        (("NQ320k",), "--from"),
    ],
)
def test_misuse_is_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the remedy, and exit code 2."""
    assert run(*arguments, "--to", tmp_path) == 2
    lines = capsys.readouterr().err.splitlines()

    assert len(lines) == 1
    assert message in lines[0]


@pytest.mark.parametrize("task", buildable_tasks().values(), ids=lambda task: task.name)
def test_each_buildable_card_says_how(task: TaskCard, tmp_path: Path) -> None:
    """The message about missing data holds the command that builds them."""
    name = task.name.removesuffix("Fixed")

    assert f"crumb-tasks build {name}" in str(task.source.user)
    with pytest.raises(Exception, match="there is no folder"):
        build(task, tmp_path / "nowhere", tmp_path)
