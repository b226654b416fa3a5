"""Run files that are whole in form and doubtful in content: what is said about them, and what is not guessed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import run_bytes
from standin import ROOT, start

from crumb_tasks.errors import RunError, RunFileError, UsageError
from crumb_tasks.runfiles import compression, read_run, read_run_file, write_run
from crumb_tasks.runfiles.qrels import read_qrels
from crumb_tasks.runs import Run


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Return a function that writes bytes to a file whose name tells nothing."""

    def write(data: bytes) -> Path:
        path = tmp_path / "x"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("kind", ["trec", "jsonl", "json", "mteb"])
@pytest.mark.parametrize("lead", [b"\n" * 400_000, b"\xef\xbb\xbf" + b" \r\n" * 200_000])
@pytest.mark.parametrize("pack", [bytes, run_bytes.zstd])
def test_a_long_blank_lead_is_no_empty_file(write: Any, kind: str, lead: bytes, pack: Any) -> None:
    """What tells the format may stand behind more blanks than are looked at first."""
    path = write(pack(lead + run_bytes.FORMATS[kind](run_bytes.SMALL)))

    found = read_run_file(path)

    assert (found.format, found.run.to_dict()) == (kind, run_bytes.SMALL)


def test_lines_are_counted_behind_a_blank_lead(write: Any) -> None:
    """The line of an error is that of an editor."""
    with pytest.raises(RunFileError, match=r"x:400002: expected 6 columns"):
        read_run(write(b"\n" * 400_000 + b"q Q0 d 1 1 s\nq d\n"))
    assert read_qrels(write(b"\n" * 400_000 + b"q 0 d 1\n")).to_dict() == {"q": {"d": 1}}


def test_blanks_without_end_are_refused(write: Any) -> None:
    """A file of nothing else is empty, and a bomb of blanks stops."""
    with pytest.raises(RunFileError, match="the file is empty"):
        read_run(write(b"\n" * 400_000))
    with pytest.raises(RunFileError, match="the first 64 MiB are blank"):
        read_run(write(run_bytes.zstd(b" " * (compression.LINE_LIMIT + 2**20))))


def test_integers_beyond_the_precision_of_floats_are_scores(write: Any) -> None:
    """float64 rounds them in Parquet as it does in TREC and JSON."""
    scores = [2**62 + 1, -(2**60) - 1]
    path = write(run_bytes.parquet(query_id=["q", "q"], doc_id=["a", "b"], score=scores))

    assert read_run(path).to_dict() == {"q": {"a": float(2**62), "b": -float(2**60)}}


def test_a_large_page_is_refused_before_it_is_unpacked(write: Any) -> None:
    """One id of 300 MB packs into some kilobytes; the file's own figures tell its size."""
    table = pa.table({"query_id": ["q"], "doc_id": ["x" * (300 * 2**20)], "score": [1.0]})
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd", write_statistics=False)
    path = write(buffer.getvalue().to_pybytes())
    assert path.stat().st_size < 200_000
    code = (
        "import resource, sys; from crumb_tasks.runfiles import read_run\n"
        "from crumb_tasks.errors import RunFileError\n"
        "import pyarrow.parquet\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: read_run(sys.argv[1])\n"
        "except RunFileError as error: print(error)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )

    done = start(sys.executable, "-c", code, str(path), cwd=ROOT)

    words, growth = done.stdout.strip().split("\n")
    assert "decoded data passed 256 MiB" in words
    assert int(growth) < 100


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"q1 0 123 1 9.5\n", "column 2 is '0', which may be an iteration or a document"),
        (b"q1 0 123 1 9.5\nq1 0 124 2 9.1\n", "column 2 is '0', which may be an iteration or a document"),
        (b"q1 0 123 9.5\nq2 0 124 9.5\n", "column 2 is '0', which may be an iteration or a document"),
        (b"q1 x d123 1 s\n", "column 3 holds something that is no rank"),
        (b"q1 Q0 d1 1 0,95 s\n", "the score '0,95' is no number; write its decimal sign as a point"),
        (b"q1 Q0 d1 1 0.9 s\nq1 Q0 d2 2 0,95 s\n", "x:2: the score '0,95' is no number; write its decimal sign"),
        (b"qid Q0 doc rank score tag\n", r"the score 'score' is no number; is this a header\? remove the line$"),
        (b"q1 Q0 d1 1 -- s\n", "the score '--' is no number$"),
    ],
)
def test_what_is_unclear_is_refused_with_the_right_advice(write: Any, data: bytes, words: str) -> None:
    """An iteration is no document, a decimal comma no header."""
    with pytest.raises(RunFileError, match=words):
        read_run(write(data))


@pytest.mark.parametrize(
    "data", [b"q1 d1 1 9.5 s\nq1 d2 2 9.1 s\n", b"q1 7 1 9.5 s\nq1 8 2 9.1 s\n", b"q1 7 1 9\nq1 8 2 8\n"]
)
def test_five_and_four_columns_are_read_where_they_are_clear(write: Any, data: bytes) -> None:
    """Numbers as document ids are fine when they differ."""
    assert read_run(write(data)).depth == 2


@pytest.mark.parametrize("rank", [b"1.0", b"first", b"99999999999"])
def test_ranks_that_are_no_whole_numbers_are_said(write: Any, rank: bytes) -> None:
    """The comparison of ranks with scores does not stop silently."""
    found = read_run_file(write(b"q1 Q0 a 1 3 s\nq1 Q0 b %b 2 s\nq1 Q0 c x 1 s\n" % rank))

    shown = rank.decode()
    assert found.notes == (f"the rank '{shown}' (line 2) is no whole number, so ranks were not compared with scores",)


@pytest.mark.parametrize(
    ("data", "is_said"),
    [
        (b"q Q0 a 0.95\nq Q0 b 0.9", True),
        (b"q Q0 a 1 0.95\nq Q0 b 2 0.9", True),
        (b"q Q0 a 1 0.95\nq Q0 b 2 0.9\n", False),
        (b"q Q0 a 1 0.95 s\nq Q0 b 2 0.9 s", False),
    ],
)
def test_a_file_may_end_within_a_score(write: Any, data: bytes, *, is_said: bool) -> None:
    """Where the score stands last, nothing but the line end shows that all of it is there."""
    notes = read_run_file(write(data)).notes

    assert (
        any("the last line has no line end: was the file cut in the middle of its score?" in x for x in notes)
        == is_said
    )


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((10, 4), "the last query 'q1' has 4 documents where the other has 10: was the file cut?"),
        ((10, 10, 1), "the last query 'q2' has 1 document where all 2 others have 10: was the file cut?"),
        ((3, 2), ""),
        ((10, 10), ""),
        ((10,), ""),
    ],
)
def test_two_queries_are_enough_to_see_a_cut(write: Any, counts: tuple[int, ...], words: str) -> None:
    """A depth of ten or more looks chosen; less may be all that was found."""
    run = {f"q{at}": {f"d{d}": float(-d) for d in range(count)} for at, count in enumerate(counts)}

    assert read_run_file(write(run_bytes.trec(run))).notes == ((words,) if words else ())


def test_infinite_scores_are_said(write: Any) -> None:
    """They order documents as trec_eval has it, and a number beyond the range of floats becomes one."""
    found = read_run_file(write(b"q1 Q0 a 1 1e999 s\nq1 Q0 b 2 9 s\nq2 Q0 c 1 -inf s\n"))

    words = "2 scores are infinite (first in query 'q1'): they order documents, and tie with each other"
    assert words in found.notes


def test_a_tag_chooses_in_trec_only(write: Any) -> None:
    """An option that has no meaning for a format is not taken silently."""
    found = read_run_file(write(run_bytes.jsonl(run_bytes.SMALL)), tag="sys")

    assert "--tag chooses a system of a TREC file; this one is jsonl, and all of it was read" in found.notes


@pytest.mark.parametrize(
    ("magic", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"ARROW1\0\0", "an Arrow IPC file"),
        (b"\x93NUMPY\x01\0", "a NumPy array"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
    ],
)
def test_other_binary_files_are_called_by_name(write: Any, magic: bytes, words: str) -> None:
    """Not every file that holds NUL bytes is a broken text."""
    with pytest.raises(RunFileError, match=f"the file is {words}"):
        read_run(write(magic + b"\0" * 99))


@pytest.mark.parametrize("name", ["x.trec.bz2", "x.json.xz", "x.parquet.zip"])
def test_a_compression_that_is_not_written_is_refused(tmp_path: Path, name: str) -> None:
    """A file is what its name says, also where the format is named."""
    for kind in ("auto", "trec"):
        with pytest.raises(UsageError, match=r"files are not compressed as \.\w+; name it \.gz or \.zst"):
            write_run(Run.from_dict(run_bytes.SMALL), tmp_path / name, kind)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "data",
    [
        b"q Q0 d 1 nan s\n".replace(b"q", b"q" * 9999),
        b'{"query":{"id":"' + b"q" * 9999 + b'"},"items":[{"id":"a"}]}\n',
        b'{"' + b"q" * 9999 + b'":[1]}',
        b"q Q0 d 1 1 s\nq Q0 e 1 1 " + b"t" * 9999 + b"\n",
        b"q Q0 d 1 " + b"x" * 9999 + b" s\n",
    ],
)
def test_a_message_is_short_whatever_the_ids(write: Any, data: bytes) -> None:
    """Names of many thousand characters are shown by their beginning."""
    with pytest.raises(RunFileError) as caught:
        read_run(write(data))

    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("first", [0, 1])
def test_scores_that_count_up_as_ranks_do_are_said(write: Any, first: int) -> None:
    """A column of ranks in the place of scores turns every ranking upside down; the reader asks."""
    ranks = {query: {f"d{at}": float(at + first) for at in range(4)} for query in ("q1", "q2")}
    asked = "are they ranks?"

    assert any(asked in note for note in read_run_file(write(json.dumps(ranks).encode())).notes)
    swapped = "".join(f"q1 Q0 d{at} {9 - at} {at + first} s\n" for at in range(4)).encode()
    assert any(asked in note for note in read_run_file(write(swapped)).notes)
    for other in ({**ranks, "q3": {"a": 2.0, "b": 1.0}}, {"q1": {"a": 1.0, "b": 2.0}}):
        assert not any(asked in note for note in read_run_file(write(json.dumps(other).encode())).notes)


@pytest.mark.parametrize("name", ["a\u00a0b", "a\u2028", "\x1cz", "BZhang", "\u200b"])
@pytest.mark.parametrize("form", ["trec", "jsonl", "json", "mteb", "parquet"])
def test_ids_that_only_look_odd_survive_every_format(tmp_path: Path, name: str, form: Any) -> None:
    """Only ASCII whitespace parts columns, and an id that begins as bzip2's files do is no bzip2 file."""
    run = Run.from_dict({name: {name: 1.5, "other": 0.1}})
    write_run(run, tmp_path / "run", form)

    assert read_run_file(tmp_path / "run").run.to_dict() == run.to_dict()


def test_byte_order_mark_that_trec_would_lose_is_refused(tmp_path: Path) -> None:
    """At the beginning of a file it is no part of the first id, so the query would come back under two names."""
    run = Run.from_dict({"\ufeffq": {"a": 2.0, "b": 1.0}})
    with pytest.raises(RunError, match=r"TREC cannot hold the query id '\\ufeffq' first"):
        write_run(run, tmp_path / "run.trec")
    write_run(run, tmp_path / "run.jsonl")

    assert read_run_file(tmp_path / "run.jsonl").run.to_dict() == run.to_dict()


def test_ids_in_string_views_are_read(tmp_path: Path) -> None:
    """Arrow's newer type of text is text."""
    columns = {"query_id": pa.array(["q", "q"], pa.string_view()), "doc_id": pa.array(["a", "b"], pa.string_view())}
    pq.write_table(pa.table({**columns, "score": [2.0, 1.0]}), tmp_path / "run.parquet")

    assert read_run_file(tmp_path / "run.parquet").run.to_dict() == {"q": {"a": 2.0, "b": 1.0}}
