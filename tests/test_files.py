"""Files are written whole or not at all, and what a user points at stays what it is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import IO

import pytest
from sample_runs import PLAIN, passage_run

from crumb_tasks.errors import UsageError
from crumb_tasks.files import output, written_whole
from crumb_tasks.runfiles import read_run, read_run_file, write_run
from crumb_tasks.runs import Run

RUN = Run.from_dict({"q": {"d1": 2.0, "d2": 1.0}})


def crumb_tasks(*argv: object, to: IO[bytes] | int = subprocess.PIPE) -> subprocess.CompletedProcess[bytes]:
    """Run the real command."""
    command = [sys.executable, "-m", "crumb_tasks", *map(str, argv)]
    return subprocess.run(command, stdout=to, stderr=subprocess.PIPE, check=False)


def _write_and_fail(file: IO[bytes]) -> None:
    file.write(b"new")
    raise RuntimeError


def test_nothing_is_written_half(tmp_path: Path) -> None:
    """A failure while writing leaves the old file and no rubbish."""
    path = tmp_path / "file.txt"
    path.write_text("old", encoding="utf-8")

    with pytest.raises(RuntimeError), written_whole(path) as file:
        _write_and_fail(file)

    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["file.txt"]
    assert path.read_text(encoding="utf-8") == "old"


def test_a_symlink_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    """Also a link to a file that is not there yet, in a folder that is not there yet."""
    (tmp_path / "target.trec").write_text("old", encoding="utf-8")
    for link, target in (("link.trec", "target.trec"), ("new.trec", "folder/other.trec")):
        (tmp_path / link).symlink_to(target)

        write_run(RUN, tmp_path / link)

        assert (tmp_path / link).is_symlink()
        assert not (tmp_path / target).is_symlink()
        assert read_run(tmp_path / target).to_dict() == RUN.to_dict()
    assert {path.name for path in tmp_path.rglob("*")} == {
        "target.trec",
        "link.trec",
        "new.trec",
        "folder",
        "other.trec",
    }


def test_a_symlink_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    """It stays what it is."""
    (tmp_path / "a.trec").symlink_to("b.trec")
    (tmp_path / "b.trec").symlink_to("a.trec")

    with pytest.raises(UsageError, match=r"cannot write .*Too many levels of symbolic links"):
        write_run(RUN, tmp_path / "a.trec")
    assert (tmp_path / "a.trec").is_symlink()


def test_a_replaced_file_hands_on_its_permissions(tmp_path: Path) -> None:
    """What was private stays private."""
    path = tmp_path / "out.trec"
    path.touch(mode=0o600)

    write_run(RUN, path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["out.trec", "out.jsonl.gz", "out.parquet"])
def test_a_pipe_is_written_through(tmp_path: Path, name: str) -> None:
    """A named pipe gets the bytes, whole, in every format, and is a pipe afterwards."""
    pipe = tmp_path / name
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()

    write_run(RUN, pipe)

    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    (tmp_path / "copy").write_bytes(received[0])
    assert read_run(tmp_path / "copy").to_dict() == RUN.to_dict()


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    """Writing to the null device is fine; a device without room is one line."""
    write_run(RUN, os.devnull, "trec")

    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    with pytest.raises(UsageError, match=r"cannot write '/dev/full' \(No space left on device\)"):
        write_run(RUN, "/dev/full", "trec")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    """One line, and nothing is left beside it or in it."""
    (tmp_path / "out.trec").mkdir()

    with pytest.raises(UsageError, match=r"out\.trec', which is a folder; name a file"):
        write_run(RUN, tmp_path / "out.trec")
    with pytest.raises(UsageError, match="cannot write"), output(tmp_path / "out.trec" / ".." / ".." / tmp_path.name):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["out.trec"]


def test_what_the_block_reads_may_fail_as_it_does(tmp_path: Path) -> None:
    """An error of another file is no complaint about the output."""
    with pytest.raises(FileNotFoundError), output(tmp_path / "out"):
        (tmp_path / "missing").read_bytes()

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["-", "/dev/stdout"])
@pytest.mark.parametrize("redirected", [False, True])
def test_standard_output_is_an_output(tmp_path: Path, target: str, *, redirected: bool) -> None:
    """``-`` and /dev/stdout, into a pipe and appended to a file, for every command that writes."""
    run = tmp_path / "x.trec"
    write_run(Run.from_dict(passage_run(PLAIN)), run)
    for argv in (
        ["convert", run, target, "--to", "jsonl"],
        ["score", run, "--task", PLAIN, "--csv", "-o", target],
    ):
        kept = tmp_path / "kept"
        kept.write_bytes(b"before\n")
        with kept.open("ab") as file:
            done = crumb_tasks(*argv, to=file if redirected else subprocess.PIPE)

        assert done.returncode == 0, done.stderr
        written = kept.read_bytes().removeprefix(b"before\n") if redirected else done.stdout
        assert kept.read_bytes().startswith(b"before\n")
        expected = b'{"query"' if argv[0] == "convert" else b"run,task,split"
        assert written.startswith(expected)
        assert done.stdout == (None if redirected else written)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["score", "{run}", "--task", PLAIN, "-o", "{folder}"], "which is a folder; name a file"),
        (["score", "{run}", "--task", PLAIN, "-o", "{run}/x"], "cannot write"),
        (["compare", "{run}", "{folder}/y", "--task", PLAIN, "-o", "{folder}"], "which is a folder; name a file"),
        (["convert", "{run}", "{folder}", "--to", "trec"], "which is a folder; name a file"),
        (["convert", "{run}", "-"], "tells no format; name one with --to"),
    ],
)
def test_an_output_that_cannot_be_written_is_misuse(tmp_path: Path, argv: Sequence[str], words: str) -> None:
    """One line and exit code 2, whatever the command."""
    run = tmp_path / "x.trec"
    write_run(Run.from_dict(passage_run(PLAIN)), run)

    done = crumb_tasks(*(part.format(run=run, folder=tmp_path) for part in argv))

    assert done.returncode == 2, done.stderr
    assert words in done.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["x.trec"]
    assert read_run_file(run).format == "trec"
