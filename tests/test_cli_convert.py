"""``crumb-tasks convert``: any format to any other, nothing lost without a word."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import run_bytes

from crumb_tasks import cli
from crumb_tasks.runfiles import read_run, read_run_file

Command = Callable[..., tuple[int, str, str]]
NAMES = {"trec": "r.trec", "jsonl": "r.jsonl", "json": "r.json", "mteb": "T_predictions.json", "parquet": "r.parquet"}


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs ``crumb-tasks convert`` and returns exit code, stdout, stderr."""

    def run(*argv: object) -> tuple[int, str, str]:
        code = cli.main(["convert", *(str(argument) for argument in argv)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize(("source", "target"), list(product(run_bytes.FORMATS, NAMES)))
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_every_format_becomes_every_other(
    command: Command, tmp_path: Path, source: str, target: str, suffix: str
) -> None:
    """The run is the same; the new name tells format and compression."""
    (tmp_path / "in").write_bytes(run_bytes.FORMATS[source](run_bytes.SMALL))
    path = tmp_path / f"{NAMES[target]}{suffix}"

    code, out, err = command(tmp_path / "in", path)

    assert (code, out) == (0, "")
    assert f"2 queries, 3 documents, {source} to {target}" in err
    assert (read_run_file(path).format, read_run(path).to_dict()) == (target, run_bytes.SMALL)
    if suffix:
        assert path.read_bytes().startswith({".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}[suffix])


def test_the_system_s_name_is_kept(command: Command, tmp_path: Path) -> None:
    """A TREC tag becomes MTEB's model name and the other way round."""
    (tmp_path / "in").write_bytes(run_bytes.mteb(run_bytes.SMALL))

    command(tmp_path / "in", tmp_path / "x.trec")
    command(tmp_path / "x.trec", tmp_path / "y_predictions.json", "--split", "validation")

    found = read_run_file(tmp_path / "y_predictions.json")
    assert (found.system, found.split) == ("org/model", "validation")


def test_what_gets_lost_is_said(command: Command, tmp_path: Path) -> None:
    """The system's name and the depth of the search have no place in every format."""
    meta = {"model_name": "my model", "revision": None, "depth": 1000}
    (tmp_path / "in").write_text(json.dumps({"mteb_model_meta": meta, "default": {"test": run_bytes.SMALL}}), "utf-8")

    for name in ("x.jsonl", "x.json", "x.parquet"):
        kind = name.partition(".")[2]
        assert f"the system's name 'my model' has no place in {kind}" in command(tmp_path / "in", tmp_path / name)[2]
    _, _, err = command(tmp_path / "in", tmp_path / "x.trec")
    assert "the system's name 'my model' is written as 'my_model'" in err
    assert "that the search went 1000 documents deep has no place in trec; score with --depth 1000" in err
    assert "no place" not in command(tmp_path / "in", tmp_path / "x_predictions.json")[2]
    for name in ("x_predictions.json", "x.parquet"):
        assert read_run_file(tmp_path / name).depth == 1000


def test_trec_refuses_whitespace_and_points_to_jsonl(command: Command, tmp_path: Path) -> None:
    """R28: an id with whitespace would be read back as two columns."""
    (tmp_path / "in").write_bytes(run_bytes.jsonl({"q": {"a b": 1.0}}))

    code, _, err = command(tmp_path / "in", tmp_path / "out.trec")

    assert code == 2
    assert "TREC cannot hold the document id 'a b', which has whitespace; write JSONL instead" in err
    assert not (tmp_path / "out.trec").exists()


def test_what_has_no_place_is_said(command: Command, tmp_path: Path) -> None:
    """Empty rankings and winning passages do not vanish without a word."""
    line = (
        b'{"query":{"id":"q1"},"items":[{"id":"d","score":1,"passage_id":"d:2"}]}\n{"query":{"id":"q2"},"items":[]}\n'
    )
    (tmp_path / "in").write_bytes(line)

    code, _, err = command(tmp_path / "in", tmp_path / "out.trec")

    assert code == 0
    assert "1 empty rankings have no place in trec; scoring counts them as before" in err
    assert "winning passages have no place in trec; jsonl and parquet keep them" in err
    command(tmp_path / "in", tmp_path / "out.parquet")
    assert read_run(tmp_path / "out.parquet").to_dict(passages=True) == {"q1": {"d:2": 1.0}}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["in", "out.xyz"], "tells no format; name one with --to"),
        (["in", "out", "--to", "csv"], "invalid choice: 'csv'"),
        (["none", "out.trec"], "no such file"),
        (["in", "in/out.trec"], "cannot write"),
    ],
)
def test_misuse_is_one_line(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], words: str
) -> None:
    """One line and exit code 2."""
    monkeypatch.chdir(tmp_path)
    Path("in").write_bytes(run_bytes.trec(run_bytes.SMALL))

    code, out, err = command(*argv)

    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1
