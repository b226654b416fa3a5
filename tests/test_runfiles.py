"""Run files: every format and compression is told by content; whatever is malformed is named with its line."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import run_bytes
from standin import ROOT, start

from crumb_tasks.errors import RunError, RunFileError, UsageError
from crumb_tasks.runfiles import FORMATS, compression, format_by_name, read_run, read_run_file, write_run
from crumb_tasks.runfiles.qrels import collection_of, read_qrels
from crumb_tasks.runs import Run

J = run_bytes.jsonl({"q1": {"d1": 0.9, "d2": 0.5}})
T = run_bytes.trec({"q1": {"d1": 0.9, "d2": 0.5}})
G = gzip.compress(T, mtime=0)
Z = run_bytes.zstd(T)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Return a function that writes bytes to a file whose name tells nothing."""

    def write(data: bytes, name: str = "x") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("packing", run_bytes.COMPRESSIONS)
def test_format_and_compression_are_told_by_content(write: Any, kind: str, packing: str) -> None:
    """R28: a file is what its bytes say, whatever its suffix."""
    data = run_bytes.COMPRESSIONS[packing](run_bytes.FORMATS[kind](run_bytes.SMALL))

    found = read_run_file(write(data, "run.wrong"))

    assert found.format == kind
    assert found.run.to_dict() == run_bytes.SMALL
    assert found.notes == ()


@pytest.mark.parametrize("kind", FORMATS)
def test_standard_input_is_read(kind: str) -> None:
    """A run may come through a pipe, compressed or not; ``-`` is its name."""
    code = "from crumb_tasks import read_run; print(read_run('-').to_dict())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=gzip.compress(run_bytes.FORMATS[kind](run_bytes.SMALL)),
        capture_output=True,
        cwd=ROOT,
        check=True,
    )

    assert done.stdout.decode().strip() == str(run_bytes.SMALL)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_what_is_written_is_read_back(tmp_path: Path, kind: str, suffix: str) -> None:
    """Every float and id survives, in the total order, in every format."""
    run = Run.from_dict({"q é": {"文書": 1 / 3, "Zoë": 1e-320, "d": -0.0}, "7": {"9" * 40: 1e300, "a": 1e300}})
    if kind == "trec":
        run = Run.from_dict({"q-é": {"文書": 1 / 3, "Zoë": 1e-320}, "7": {"9" * 40: 1e300, "a": 1e300}})
    path = tmp_path / f"run{suffix}"

    write_run(run, path, kind)

    assert read_run(path, kind).to_dict() == run.to_dict()
    assert list(read_run(path).to_dict()["7"]) == ["a", "9" * 40]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_winning_passages_are_kept_where_there_is_place(tmp_path: Path) -> None:
    """A re-ranker needs the passage that won; the id stays the document's, which CRUMB's evaluator expects."""
    run = Run.from_columns(["q"], np.array([0, 0]), ["NCT1", "NCT2"], [2.0, 1.0], passage_ids=["NCT1:3", "NCT2:0"])
    for name in ("run.jsonl", "run.parquet"):
        write_run(run, tmp_path / name)

        again = read_run(tmp_path / name)

        assert again.to_dict() == {"q": {"NCT1": 2.0, "NCT2": 1.0}}
        assert again.to_dict(passages=True) == {"q": {"NCT1:3": 2.0, "NCT2:0": 1.0}}


@pytest.mark.parametrize(
    ("data", "where"),
    [
        pytest.param(T.replace(b" ", b"\t"), "tabs", id="tabs"),
        pytest.param(T.replace(b" ", b" \t  "), "both", id="tabs and spaces"),
        pytest.param(T.replace(b"\n", b"\r\n"), "CRLF", id="CRLF"),
        pytest.param(T + b"\n  \n", "blank", id="trailing blank lines"),
        pytest.param(b"\n" + T, "blank", id="leading blank line"),
        pytest.param(b"\xef\xbb\xbf" + T, "BOM", id="BOM"),
        pytest.param(T.rstrip(b"\n"), "end", id="no line end"),
        pytest.param(J, "jsonl", id="JSONL"),
        pytest.param(b"\xef\xbb\xbf" + J.replace(b"\n", b"\r\n") + b"\r\n", "jsonl", id="JSONL with BOM, CRLF, blank"),
        pytest.param(b"\xef\xbb\xbf" + b' { "q1" :\r\n {"d1":0.9,\n"d2":5e-1}}\n\n', "json", id="spread JSON"),
    ],
)
def test_every_way_to_part_columns_and_lines_is_read(write: Any, data: bytes, where: str) -> None:
    """R28: tabs or spaces, CRLF, blank lines and a byte order mark change nothing."""
    assert read_run_file(write(data)).run.to_dict() == {"q1": {"d1": 0.9, "d2": 0.5}}, where


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"q1 Q0 d1 1 0.9\nq1 Q0 d2 2 0.5\n", "query Q0 document rank score"),
        (b"q1 Q0 d1 0.9\nq1 Q0 d2 0.5\n", "query Q0 document score"),
        (b"q1\td1\t1\t0.9\nq1\td2\t2\t0.5\n", "query document rank score"),
        (b"q1 d1 1 0.9 sys\nq1 d2 2 0.5 sys\n", "query document rank score tag"),
    ],
)
def test_fewer_columns_are_read_and_said(write: Any, data: bytes, words: str) -> None:
    """Four and five columns are read where their meaning is certain, and a note says how."""
    found = read_run_file(write(data))

    assert found.run.to_dict() == {"q1": {"d1": 0.9, "d2": 0.5}}
    assert found.notes == (f"{len(data.split(chr(10).encode())[0].split())} columns, read as: {words}",)


def test_document_zero_is_no_column_of_zeros(write: Any) -> None:
    """With the document id 0 in column 2 nothing is mistaken for the constant of six-column runs."""
    assert read_run(write(b"q1 0 1 0.9\nq1 5 2 0.5\n")).to_dict() == {"q1": {"0": 0.9, "5": 0.5}}


def test_scores_decide_and_contradicting_ranks_are_counted(write: Any) -> None:
    """R02: the rank column is ignored, as in trec_eval, and one note names the number of queries."""
    data = b"q1 Q0 a 2 0.9 s\nq1 Q0 b 1 0.5 s\nq2 Q0 a 1 0.9 s\nq2 Q0 b 2 0.5 s\nq3 Q0 a 1 1 s\nq3 Q0 b 2 1 s\n"

    found = read_run_file(write(data))

    assert list(found.run.to_dict()["q1"]) == ["a", "b"]
    assert [note for note in found.notes if "ranks contradict" in note] == [
        "ranks contradict scores in 1 query; ranks are ignored, scores decide, as in trec_eval"
    ]


def test_contradicting_ranks_are_found_in_any_row_order(write: Any) -> None:
    """Rows need not stand by rank for a contradiction to be seen."""
    rows = [b"q1 Q0 a 1 0.5 s", b"q1 Q0 c 3 0.1 s", b"q1 Q0 b 2 0.9 s"]

    assert "ranks contradict scores in 1 query" in " ".join(read_run_file(write(b"\n".join(rows))).notes)


def test_ties_do_not_depend_on_the_order_of_lines(write: Any) -> None:
    """R01: equal scores go to the higher id, however the lines stand."""
    lines = run_bytes.trec({"q1": {"a": 1.0, "c": 1.0, "b": 1.0}, "q2": {"a": 1.0}}).splitlines(keepends=True)
    for seed in range(6):
        shuffled = random.Random(seed).sample(lines, len(lines))

        found = read_run(write(b"".join(shuffled))).to_dict()

        assert list(found["q1"]) == ["c", "b", "a"]


def test_numpy_and_torch_scalars_are_scores() -> None:
    """R08: whatever a pipeline holds as a number is one."""
    torch = pytest.importorskip("torch")
    values = [
        np.float32(0.5),
        np.float16(0.25),
        np.int64(1),
        torch.tensor(0.75),
        torch.tensor(2.0, dtype=torch.bfloat16),
    ]

    run = Run.from_dict({"q": {f"d{at}": value for at, value in enumerate(values)}})

    assert run.to_dict() == {"q": {"d4": 2.0, "d2": 1.0, "d3": 0.75, "d0": 0.5, "d1": 0.25}}


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (b'{"query":{"id":7},"items":[{"id":1,"score":2}]}\n', "ids are numbers; they are read as text (7 is '7')"),
        (
            b'{"query":{"id":"7"},"items":[{"id":1,"score":2}]}\n',
            "ids are numbers in some places and strings in others; they are read as text (7 is '7')",
        ),
        (
            run_bytes.parquet(qid=[7], docno=pa.array([1], pa.int32()), score=pa.array([2], pa.int64())),
            "column 'qid' holds integers; they are read as text (7 is '7')",
        ),
    ],
)
def test_number_ids_are_text_and_said(write: Any, data: bytes, note: str) -> None:
    """R23: an id that was a number in the file matches the judgements' text, and a mix is reported."""
    found = read_run_file(write(data))

    assert found.run.to_dict() == {"7": {"1": 2.0}}
    assert note in found.notes


def test_line_ends_inside_text_are_no_line_ends(write: Any) -> None:
    """R29: U+2028 and U+0085 in a text do not part a record, and an escaped NUL does no harm."""
    text = "a\u2028b\u0085c\\u0000"
    data = f'{{"query":{{"id":"q1","content":"{text}"}},"items":[{{"id":"d1","content":"\\"","score":1}}]}}\n'

    assert read_run(write(data.encode())).to_dict() == {"q1": {"d1": 1.0}}


def test_ids_are_compared_as_given(write: Any) -> None:
    """R30: no Unicode normalisation: the two spellings of one name stay two ids."""
    forms = {unicodedata.normalize(form, "Zoë") for form in ("NFC", "NFD")}
    for kind in FORMATS:
        data = run_bytes.FORMATS[kind]({"q": dict.fromkeys(sorted(forms), 1.0)})

        assert set(read_run(write(data)).to_dict()["q"]) == forms


def test_the_locale_changes_nothing(tmp_path: Path) -> None:
    """R30: under LC_ALL=C and without UTF-8 mode the same bytes are read and written."""
    for kind in FORMATS:
        (tmp_path / f"{kind}.in").write_bytes(run_bytes.FORMATS[kind]({"q": {"Zoë文": 1.0}}))
    code = (
        "from crumb_tasks.runfiles import *\n"
        "for kind in FORMATS:\n"
        "    write_run(read_run(f'{kind}.in'), f'{kind}.out', kind)\n"
        "    print(ascii(read_run(f'{kind}.out').to_dict()))"
    )

    done = start(sys.executable, "-c", code, cwd=tmp_path, LC_ALL="C", PYTHONUTF8="0", PYTHONPATH=str(ROOT))

    assert done.stdout.splitlines() == [ascii({"q": {"Zoë文": 1.0}})] * len(FORMATS), done.stderr
    for kind in ("trec", "jsonl", "json", "mteb"):
        assert "Zoë文".encode() in (tmp_path / f"{kind}.out").read_bytes()


def test_an_empty_ranking_is_kept(write: Any) -> None:
    """A query that a system answered with nothing is not a query that it was never asked."""
    for data in (b'{"query":{"id":"q1"},"items":[]}\n', b'{"q1": {}}'):
        assert read_run(write(data)).to_dict() == {"q1": {}}


def test_infinite_scores_order_documents(write: Any, tmp_path: Path) -> None:
    """What Python's json writes for a masked document is read; strict JSON cannot be written with it."""
    run = read_run(write(b'{"query":{"id":"q1"},"items":[{"id":"a","score":-Infinity},{"id":"b","score":1}]}\n'))

    assert run.to_dict() == {"q1": {"b": 1.0, "a": -np.inf}}
    with pytest.raises(RunError, match="JSON cannot hold the infinite score of 'a'"):
        write_run(run, tmp_path / "y.jsonl")
    assert not (tmp_path / "y.jsonl").exists()
    write_run(run, tmp_path / "y.trec")
    assert read_run(tmp_path / "y.trec").to_dict() == run.to_dict()


@pytest.mark.parametrize(
    "data",
    [
        b"q Q0 d 1 .2 s\nq Q0 e 2 .9 s\nq Q0 d 3 .5 s\n",
        b'{"query":{"id":"q"},"items":[{"id":"d","score":0.2},{"id":"e","score":0.9},{"id":"d","score":0.5}]}\n',
        b'{"q":{"d":0.2,"e":0.9,"d":0.5}}',
    ],
)
def test_repeats_keep_their_best_score_when_passages_share_an_id(write: Any, data: bytes) -> None:
    """R06, R26: with MaxP a document may come once for each of its passages."""
    found = read_run_file(write(data), repeats="best")

    assert found.run.to_dict() == {"q": {"e": 0.9, "d": 0.5}}
    assert "1 repeated documents dropped; each kept its best score" in found.notes


def test_a_query_in_two_places_is_joined_and_said(write: Any) -> None:
    """Nothing is lost silently when a run was written in parts."""
    data = (
        b'{"query":{"id":"q1"},"items":[{"id":"a","score":1}]}\n{"query":{"id":"q2"},"items":[]}\n'
        b'{"query":{"id":"q1"},"items":[{"id":"b","score":2}]}\n'
    )

    found = read_run_file(write(data))

    assert found.run.to_dict() == {"q1": {"b": 2.0, "a": 1.0}, "q2": {}}
    assert found.notes == ("queries stand in more than one place and were joined; again there: 'q1' (line 3)",)


@pytest.mark.parametrize("between", [b"", b"\n"])
def test_two_records_of_one_query_in_a_row_are_said_as_well(write: Any, between: bytes) -> None:
    """Standing next to each other makes them no less two."""
    line = b'{"query":{"id":"q1"},"items":[{"id":"%b","score":1}]}\n'

    found = read_run_file(write(line % b"a" + between + line % b"b"))

    assert found.run.to_dict() == {"q1": {"b": 1.0, "a": 1.0}}
    assert [note for note in found.notes if f"again there: 'q1' (line {3 if between else 2})" in note]


def test_trec_queries_in_several_places_are_said(write: Any) -> None:
    """Rows sorted by rank, or a second run behind the first: joined, with how it can be seen."""
    data = b"".join(b"q%d Q0 d%d 1 %f s\n" % (query, rank, 1 / rank) for rank in (1, 2, 3) for query in range(4))

    found = read_run_file(write(data))

    assert found.run.depth == 3
    places = "'q0' (line 5), 'q1' (line 6), 'q2' (line 7) …"
    assert f"queries stand in more than one place and were joined; again there: {places}" in found.notes


def test_rows_that_go_on_in_the_next_block_stand_in_one_place(write: Any) -> None:
    """A query longer than what is read at once is no query in two places."""
    rows = b"".join(b"q Q0 document%d %d %d s\n" % (at, at + 1, 99999 - at) for at in range(30_000))

    assert len(rows) > 2**19
    assert read_run_file(write(rows)).notes == ()


DOUBLED = {
    "a score in a line": (
        b'{"query":{"id":"q1"},"items":[{"id":"a","score":1},{"id":"b","score":2,"score":3}]}',
        "query 'q1': the key 'score' stands twice in item 2; keep one",
    ),
    "an id in a line": (
        b'{"query":{"id":"q1"},"items":[{"id":"a","id":"b","score":1}]}',
        "query 'q1': the key 'id' stands twice in item 1",
    ),
    "a passage in a line": (
        b'{"query":{"id":"q1"},"items":[{"id":"a","passage_id":"p","passage_id":"r","score":1}]}',
        "query 'q1': the key 'passage_id' stands twice in item 1",
    ),
    "a score beside the word passage_id": (
        b'{"query":{"id":"q1","content":"passage_id"},"items":[{"id":"a","score":1,"score":2}]}',
        "query 'q1': the key 'score' stands twice in item 1",
    ),
    "a query": (
        b'{"query":{"id":"q1"},"items":[{"id":"a","score":1}],"query":{"id":"q2"}}',
        "query 'q2': the key 'query' stands twice in the line",
    ),
    "items without any at last": (
        b'{"query":{"id":"q1"},"items":[{"id":"a","score":1}],"items":[]}',
        "query 'q1': the key 'items' stands twice in the line",
    ),
    "the id of a query": (
        b'{"query":{"id":"q1","id":"q2"},"items":[{"id":"a","score":1}]}',
        "query 'q2': the key 'id' stands twice in its 'query'",
    ),
    "the items of a line": (
        b'{"query":{"id":"q1"},"items":[{"id":"a","score":1}],"items":[]}',
        "query 'q1': the key 'items' stands twice in the line",
    ),
    "a query of a nested run": (b'{"q1":{"a":1},"q2":{"a":1},"q1":{"b":1}}', "the key 'q1' stands twice; keep one"),
    "a query in the next place": (b'{"q1":{"a":1},\n"q1":{"b":1}}', "the key 'q1' stands twice \\(first on line 1\\)"),
    "a split": (
        b'{"default":{"test":{"q1":{"a":1}},"test":{"q2":{"a":1}}}}',
        "the key 'test' of 'default' stands twice",
    ),
    "a document": (b'{"q1":{"a":1,"a":2}}', "document 'a' appears twice for query 'q1'"),
}


@pytest.mark.parametrize("name", DOUBLED)
def test_a_key_that_stands_twice_is_refused(write: Any, name: str) -> None:
    """A JSON decoder keeps the last of them and loses the other without a word; here query and key are named."""
    data, words = DOUBLED[name]

    with pytest.raises(RunFileError, match=words):
        read_run(write(data + b"\n"))


def test_what_is_skipped_may_hold_any_keys(write: Any) -> None:
    """Fields that are not read are not judged: metadata with an id, a score and a key that stands twice."""
    line = (
        b'{"query":{"id":"q1","metadata":{"id":1,"id":2}},"items":'
        b'[{"id":"a","metadata":{"id":"x","score":7,"score":8,"items":[],"query":{}},"score":1}]}\n'
    )

    assert read_run(write(line)).to_dict() == {"q1": {"a": 1.0}}


def test_a_last_query_cut_short_is_said(write: Any) -> None:
    """A TREC file cut between two lines is whole in form; only the depth tells."""
    rows = {f"q{q}": {f"d{d}": 1 - d / 100 for d in range(10)} for q in range(5)}
    rows["q4"] = dict(list(rows["q4"].items())[:3])

    notes = read_run_file(write(run_bytes.trec(rows))).notes

    assert notes == ("the last query 'q4' has 3 documents where all 4 others have 10: was the file cut?",)


def test_one_of_two_systems_can_be_chosen(write: Any) -> None:
    """Two systems in one file are refused by name, and either can be asked for."""
    path = write(run_bytes.trec({"q": {"a": 1.0}}, "one") + run_bytes.trec({"q": {"a": 2.0, "b": 1.0}}, "two"))

    with pytest.raises(
        RunFileError, match=r":2: two systems in one file: tag 'two' begins here, lines from 1 have 'one'"
    ):
        read_run(path)
    assert read_run_file(path, tag="two").run.to_dict() == {"q": {"a": 2.0, "b": 1.0}}
    with pytest.raises(RunFileError, match="no row has the tag 'three'; the file has 'one', 'two'"):
        read_run_file(path, tag="three")


def test_the_split_of_predictions_is_chosen(write: Any) -> None:
    """MTEB writes all splits of a task into one file; which one is meant is never guessed."""
    splits = {"test": {"q": {"d": 1.0}}, "validation": {"v": {"d": 2.0}}}
    path = write(json.dumps({"mteb_model_meta": {"model_name": "m"}, "default": splits}).encode())

    found = read_run_file(path, split="validation")

    assert (found.run.to_dict(), found.split, found.system) == ({"v": {"d": 2.0}}, "validation", "m")
    with pytest.raises(
        RunFileError, match="predictions of 'test' of 'default' and 'validation' of 'default'; choose with"
    ):
        read_run_file(path)
    with pytest.raises(
        RunFileError, match="lack split 'dev'; they have 'test' of 'default', 'validation' of 'default'"
    ):
        read_run_file(path, split="dev")


def test_forced_format_wins(write: Any) -> None:
    """--format reads as told, and says what is wrong with that."""
    with pytest.raises(RunFileError, match="JSON is no TREC run"):
        read_run(write(J), "trec")
    with pytest.raises(RunFileError, match="'q1' stands 1 level deep"):
        read_run(write(b'{"q1":{"d":1}}'), "mteb")
    with pytest.raises(UsageError, match=r"no run format 'json_lines'.*did you mean 'jsonl'"):
        read_run(write(J), "json_lines")


MALFORMED: dict[str, tuple[bytes, int | None, str]] = {
    "empty": (b"", 1, "the file is empty"),
    "blank": (b"\n \n", 1, "the file is empty"),
    "UTF-16": (T.decode().encode("utf-16"), 1, "UTF-16; convert it"),
    "five of six columns": (T + b"q1 Q0 d3 3 0.1\nq1 Q0 d4 4 .1 t\n", 3, "expected 6 columns, found 5"),
    "id with a space": (
        T + b"q1 Q0 d 3 3 0.1 t\n",
        3,
        "expected 6 columns, found 7; an id with whitespace needs JSONL",
    ),
    "cut in a line": (T + b"q1 Q0 d3 3 0.", 3, "the file was cut in this line"),
    "cut in the tag": (T + b"q1 Q0 d3 3 0.1 sy", 3, "the file was cut in this line: tag 'sy'"),
    "two systems": (T + b"q1 Q0 d3 1 .5 other\n", 3, "two systems in one file: tag 'other'"),
    "NaN": (T + b"q1 Q0 d3 1 nan sys\n", 3, "query 'q1': the score of document 'd3' is NaN"),
    "score in words": (T + b"q1 Q0 d3 1 high sys\n", 3, "the score 'high' is no number"),
    "score with underscore": (T + b"q1 Q0 d3 1 1_0 sys\n", 3, "the score '1_0' is no number"),
    "header": (b"qid Q0 docid rank score tag\n" + T, 1, "the score 'score' is no number; is this a header?"),
    "document twice": (
        T + b"\nq2 Q0 d1 1 .4 sys\nq1 Q0 d1 3 .2 sys\n",
        5,
        "'d1' appears twice for query 'q1' (first on line 1)",
    ),
    "Latin-1": (T + b"q1 Q0 Zo\xeb 3 .2 sys\n", 3, "document id 'Zo\\xeb' is not UTF-8; convert the file: iconv"),
    "NUL": (b"q1 Q0 d\x001 3 .2 sys\n", 1, "NUL bytes"),
    "NUL far inside": (
        T * 0 + b"".join(b"q%d Q0 d 1 1 s\n" % n for n in range(9999)) + b"q Q0 d\0 1 1 s\n",
        10000,
        "NUL bytes",
    ),
    "NUL beyond the first look": (b"q Q0 d1 1 1 s\n" * 40000 + b"q Q0 d\0 1 1 s\n", 40001, "NUL byte"),
    "bare CR": (T.replace(b"\n", b"\r"), 1, "line ends are bare CR"),
    "three columns": (b"q1 d1 1\n", 1, "3 columns hold no score"),
    "CSV": (b"q1,d1,1,0.5\n", 1, "comma-separated values are not read"),
    "four columns without ranks": (b"q1 d1 x 0.5\n", 1, "what the 4 columns mean is unclear"),
    "four columns of two kinds": (b"q1 Q0 d1 0.5\nq1 d2 2 0.3\n", 2, "column 2 is 'd2' here and not on other lines"),
    "prose": (b"hello world\n", 1, "expected 6 columns (query Q0 document rank score tag), found 2"),
    "JSONL cut": (J + J.replace(b"q1", b"q2")[:60], 2, "ends in the middle of query 'q2': the file was cut"),
    "JSONL broken": (J + b'{"query":{"id":"q2"},"items":[,]}\n', 2, "no JSON (Expecting value"),
    "JSONL other keys": (b'{"qid":"q1","docs":[]}\n' + J, 1, "the line has the keys 'qid', 'docs'; expected"),
    "JSONL without score": (b'{"query":{"id":"q1"},"items":[{"id":"d1"}]}\n', 1, "document 'd1' has no score"),
    "JSONL null score": (
        b'{"query":{"id":"q1"},"items":[{"id":"d1","score":null}]}\n',
        1,
        "document 'd1' has no score",
    ),
    "JSONL text score": (b'{"query":{"id":"q1"},"items":[{"id":"d1","score":"0.5"}]}\n', 1, "is a JSON string '0.5'"),
    "JSONL NaN": (b'{"query":{"id":"q1"},"items":[{"id":"d1","score":NaN}]}\n', 1, "score of document 'd1' is NaN"),
    "JSONL huge score": (
        b'{"query":{"id":"q1"},"items":[{"id":"d","score":1' + b"0" * 400 + b"}]}\n",
        1,
        "range of a float",
    ),
    "JSONL id true": (
        b'{"query":{"id":"q1"},"items":[{"id":true,"score":1}]}\n',
        1,
        "item 1: the id is a JSON true or false",
    ),
    "JSONL id 7.0": (b'{"query":{"id":7.0},"items":[]}\n', 1, "the id is a JSON number; write it as a string"),
    "JSONL empty id": (b'{"query":{"id":""},"items":[]}\n', 1, "an id is empty"),
    "JSONL half a surrogate": (
        b'{"query":{"id":"q"},"items":[{"id":"\\ud800","score":1}]}\n',
        1,
        "half a surrogate pair",
    ),
    "JSONL Latin-1": (J + b'{"query":{"id":"Zo\xeb"},"items":[]}\n', 2, "byte 19 of the line is not UTF-8"),
    "JSONL twice in a line": (J.replace(b"d2", b"d1"), 1, "document 'd1' appears twice for query 'q1'; keep one"),
    "JSONL twice in two": (J + J, 2, "document 'd1' appears twice for query 'q1' (first on line 1)"),
    "JSONL item no object": (b'{"query":{"id":"q1"},"items":["d1"]}\n', 1, "item 1 is no object with an 'id'"),
    "JSONL items no list": (b'{"query":{"id":"q1"},"items":{"d1":1}}\n', 1, "'items' is a JSON object, no list"),
    "JSONL line no object": (J + b"[1]\n", 2, "a line holds a JSON list"),
    "JSONL pretty": (
        b'{\n "query": {"id": "q1"},\n "items": []}\n',
        1,
        "a record spans several lines; write one JSON object a line: jq -c .",
    ),
    "JSONL deep": (b'{"query":{"id":"q1"},"items":' + b"[" * 200000 + b"\n", 1, "nested too deeply"),
    "JSONL some passages": (
        J.replace(b'"score": 0.5', b'"score": 0.5, "passage_id": "p"'),
        1,
        "only some documents have a passage_id",
    ),
    "JSON list": (b'[{"query":1}]', 1, "the file is a JSON list"),
    "JSON cut": (
        b'{"q1":{"d1":0.5,"d2":0.4},\n"q2":{"d1":0.',
        2,
        "the JSON ends in the middle of 'q2': the file was cut",
    ),
    "JSON document twice": (b'{"q1":{"d1":0.5,"d1":0.4}}', 1, "document 'd1' appears twice for query 'q1'"),
    "JSON NaN": (b'{"q1":{"d1":NaN}}', 1, "query 'q1': the score of document 'd1' is NaN"),
    "JSON null": (b'{"q1":{"d1":null}}', 1, "document 'd1' has no score"),
    "JSON text score": (b'{"q1":{"d1":"1"}}', 1, "is a JSON string '1'; write a number"),
    "JSON list of documents": (b'{"q1":["d1"]}', 1, "'q1' holds a list, which has no scores"),
    "JSON one level": (b'{"d1":0.5}', 1, "'d1' holds no object"),
    "JSON two levels": (b'{"run":{"q1":{"d1":0.5}}}', 1, "'q1' stands 2 levels deep"),
    "JSON mixed levels": (b'{"q1":{"d1":0.5},"q2":{"a":{"d1":1}}}', 1, "where queries of a nested run stand 1 deep"),
    "JSON six levels": (b'{"a":{"b":{"c":{"d":{"e":{"f":1}}}}}}', 1, "nested too deeply at 'd'"),
    "JSON object as score": (b'{"q1":{"d1":1,"d2":{"x":1}}}', 1, "'q1' holds an object where a score should stand"),
    "JSON two values": (b'{"q1":{"d1":0.5}}\n{"q2":{"d1":0.5}}', 2, "more follows after the JSON value"),
    "JSON trailing comma": (b'{"q1":{"d1":0.5,}}', 1, "query 'q1': no JSON"),
    "JSON bare key": (b'{q1:{"d1":1}}', 1, "expected a key in double quotes (byte 2)"),
    "JSON without colon": (b'{"q1" {"d1":1}}', 1, "expected a colon (byte 7)"),
    "JSON bad escape": (b'{"q1":{"d1":1},"q\\x":{"d1":1}}', 1, "is no text"),
    "JSON empty id": (b'{"q1":{"":1}}', 1, "an id is empty"),
    "JSON empty": (b"{}", 1, "the file holds no query"),
    "JSON Latin-1": (b'{"q1":{"Zo\xeb":1}}', 1, "query 'q1': an id is not UTF-8"),
    "JSON half a surrogate": (b'{"q1":{"\\udc00":1}}', 1, "half a surrogate pair"),
    "predictions that are lists": (b'{"mteb_model_meta":{},"default":{"test":[1,2]}}', 1, "'default' holds a list"),
    "gzip cut": (G[:-9], None, "the gzip data end in the middle: the file was cut"),
    "gzip damaged": (G[:15] + b"\0\0\0" + G[18:], None, "the gzip data are damaged"),
    "gzip and more": (G + b"junk!", None, "the gzip data are damaged"),
    "zstd cut": (Z[:-3], None, "the zstd data end in the middle: the file was cut"),
    "zstd damaged": (Z[:8] + b"\xff\xff\xff" + Z[11:], None, "the zstd data are damaged"),
    "compressed twice": (gzip.compress(G), None, "compressed twice"),
    "bzip2": (b"BZh91AY&SY", None, "bzip2 data are not read; decompress the file"),
    "zip": (b"PK\x03\x04....", None, "zip data are not read"),
    "pickle": (b"\x80\x04\x95", None, "the file is a pickle"),
    "Parquet without documents": (
        run_bytes.parquet(query_id=["q"], score=[1.0]),
        None,
        "no column for the document: expected doc_id",
    ),
    "Parquet with two queries": (
        run_bytes.parquet(query_id=["q"], qid=["q"], doc_id=["d"], score=[1.0]),
        None,
        "columns query_id and qid could both be the query",
    ),
    "Parquet null": (
        run_bytes.parquet(query_id=["q", "q"], doc_id=["d", None], score=[1.0, 2.0]),
        None,
        "row 2: column 'doc_id' is null",
    ),
    "Parquet empty id": (
        run_bytes.parquet(query_id=["q"], doc_id=[""], score=[1.0]),
        None,
        "row 1: column 'doc_id' is empty",
    ),
    "Parquet text score": (run_bytes.parquet(query_id=["q"], doc_id=["d"], score=["1"]), None, "scores are numbers"),
    "Parquet float id": (
        run_bytes.parquet(query_id=["q"], doc_id=[1.5], score=[1.0]),
        None,
        "ids are strings or integers",
    ),
    "Parquet twice": (
        run_bytes.parquet(query_id=["q", "q"], doc_id=["d", "d"], score=[1.0, 2.0]),
        None,
        "'d' appears twice for query 'q'",
    ),
    "Parquet NaN": (
        run_bytes.parquet(query_id=["q"], doc_id=["d"], score=[np.nan]),
        None,
        "score of document 'd' is NaN",
    ),
    "Parquet Latin-1": (
        run_bytes.parquet({"q": {"Zoe": 1.0}}).replace(b"Zoe", b"Zo\xeb"),
        None,
        "damaged Parquet file (Invalid UTF8",
    ),
    "Parquet cut": (run_bytes.parquet({"q": {"d": 1.0}})[:-20], None, "damaged Parquet file"),
}
"""Name → bytes, the line that the error names, words of the message."""


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_are_refused_with_their_line(write: Any, name: str) -> None:
    """A malformed file is one line: path, line, offender, remedy; exit code 2."""
    data, line, words = MALFORMED[name]
    path = write(data)

    with pytest.raises(RunFileError) as caught:
        read_run(path)

    assert words in str(caught.value)
    assert (caught.value.path, caught.value.line, caught.value.exit_code) == (path, line, 2)
    assert str(caught.value).startswith(f"{path}: " if line is None else f"{path}:{line}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
@pytest.mark.parametrize("line", [60, 900])
def test_errors_in_compressed_files_name_the_line(write: Any, packing: str, line: int) -> None:
    """Line numbers count decompressed lines, however the pieces fall."""
    lines = [f"q{at} Q0 {'d' * 1000} 1 1.0 s\n" for at in range(1000)]
    lines[line - 1] = "broken\n"

    with pytest.raises(RunFileError) as caught:
        read_run(write(run_bytes.COMPRESSIONS[packing]("".join(lines).encode())))

    assert caught.value.line == line


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    """A wrong path is no traceback."""
    with pytest.raises(RunFileError, match="no such file"):
        read_run(tmp_path / "none")
    with pytest.raises(RunFileError, match="cannot be read"):
        read_run(tmp_path)


def test_pieces_of_a_file_may_end_anywhere(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many bytes a read brings, the run is the same."""
    run = {f"q{q}": {f'd\\{d}"é': d / 7 for d in range(20)} for q in range(7)}
    expected = Run.from_dict(run).to_dict()
    for kind in ("jsonl", "json", "mteb"):
        path = write(run_bytes.FORMATS[kind](run))
        for size in (1, 2, 3, 7, 64, 1000):
            monkeypatch.setattr(compression, "_BLOCK", size)
            monkeypatch.setattr(compression, "PEEK_BYTES", 64)

            assert read_run(path).to_dict() == expected


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    """A failed write leaves the old file and no other."""
    path = tmp_path / "run.trec"
    write_run(Run.from_dict({"q": {"d": 1.0}}), path)
    before = path.read_bytes()

    with pytest.raises(RunError, match="TREC cannot hold the document id 'a b', which has whitespace; write JSONL"):
        write_run(Run.from_dict({"q": {"a b": 1.0}}), path)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_names_of_written_files_tell_the_format() -> None:
    """The suffix before a compression's decides; a name without one is refused."""
    names = {
        "a.trec.gz": "trec",
        "a.run": "trec",
        "b.jsonl.zst": "jsonl",
        "T_predictions.json": "mteb",
        "c.json": "json",
    }

    assert {name: format_by_name(name) for name in names} == names
    with pytest.raises(UsageError, match="tells no format; name one with --to trec"):
        format_by_name("run.xyz")


def test_the_checksum_is_that_of_the_file(write: Any) -> None:
    """R47: what was scored can be told from the result."""
    import hashlib

    for kind in FORMATS:
        for pack in run_bytes.COMPRESSIONS.values():
            data = pack(run_bytes.FORMATS[kind](run_bytes.SMALL))

            assert read_run_file(write(data)).sha256 == hashlib.sha256(data).hexdigest()


BOMBS = {
    "one endless line": (b"q1 Q0 d0 1 0.5 t\n", b"a" * 2**20, "longer than 64 MiB"),
    "endless rows": (b"", b"q1 Q0 d1 1 0.5 t\n" * 2**16, "passed 32 MiB and 200 times"),
    "an endless object": (b'{"q":{', b'"d":1,' * 2**17, "longer than 64 MiB"),
    "endless space": (b'{"q":{"d":1}', b" " * 2**20, "passed 256 MiB and 200 times"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_decompression_bomb_stops(write: Any, name: str) -> None:
    """A few kilobytes that unfold to a gigabyte are refused at the stated limit, within bounded memory."""
    start_of_file, piece, words = BOMBS[name]
    path = write(b"")
    with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as file:
        file.write(start_of_file)
        for _ in range(2**30 // len(piece)):
            file.write(piece)
    code = (
        "import resource, sys; from crumb_tasks.runfiles import compression, read_run\n"
        "from crumb_tasks.errors import RunFileError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))\n"
        "compression.FREE_BYTES = int(sys.argv[2]) * 2**20\n"
        "try: read_run(sys.argv[1])\n"
        "except RunFileError as error: print(error)\n"
    )
    limit = "32" if "32 MiB" in words else f"{compression.FREE_BYTES // 2**20}"

    done = start(sys.executable, "-c", code, str(path), limit, cwd=ROOT)

    assert words in done.stdout, done.stderr[-500:]


@pytest.mark.parametrize("kind", ["dictionary", "string"])
def test_a_text_of_many_parquet_rows_is_measured_before_it_is_written_out(write: Any, kind: str) -> None:
    """A few kilobytes of dictionary and codes that unfold to 1.7 GB are refused within bounded memory."""
    doc_ids = pa.array(["x" * 25_000] * 70_000).dictionary_encode()
    table = pa.table({"query_id": ["q"] * 70_000, "doc_id": doc_ids, "score": np.zeros(70_000)})
    buffer = pa.BufferOutputStream()
    with pq.ParquetWriter(buffer, table.schema, compression="zstd", store_schema=kind == "dictionary") as writer:
        writer.write_table(table)
    path = write(buffer.getvalue().to_pybytes())
    code = (
        "import resource, sys; from crumb_tasks.runfiles import read_run\n"
        "from crumb_tasks.errors import RunFileError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "try: read_run(sys.argv[1])\n"
        "except RunFileError as error: print(error)\n"
    )

    done = start(sys.executable, "-c", code, str(path), cwd=ROOT)

    assert path.stat().st_size < 20_000
    assert "decoded data passed 256 MiB" in done.stdout, done.stderr[-500:]


def test_long_ids_are_shortened_in_messages(write: Any) -> None:
    """A message stays a line that can be read."""
    with pytest.raises(RunFileError, match="appears twice") as caught:
        read_run(write(run_bytes.parquet(query_id=["q" * 9999] * 2, doc_id=["d" * 9999] * 2, score=[1.0, 2.0])))

    assert len(str(caught.value)) < 1000


def test_memory_stays_within_400_megabytes(tmp_path: Path) -> None:
    """R49: 2,000 queries x 1,000 documents are read and scored under a 400 MB limit on address space."""
    rng = random.Random(0)
    path = tmp_path / "run.jsonl"
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for query in range(2000):
            items = [{"id": f"d{d}", "score": 1 - at / 1000} for at, d in enumerate(rng.sample(range(100_000), 1000))]
            file.write(json.dumps({"query": {"id": f"q{query}"}, "items": items}) + "\n")
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (400_000_000, 400_000_000))
import pyarrow as pa
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.runfiles import read_run
from crumb_tasks.scoring import score
run = read_run(sys.argv[1])
judged = {f"q{q}": {f"d{q * 7919 % 100_000}": 1, f"d{(q * 7919 + 13) % 100_000}": 2} for q in range(2000)}
qrels = Qrels.from_dict(judged)
ids = pa.array([f"d{d}" for d in range(100_000)])
blank = pa.array([""] * len(ids))
corpus = pa.table({"id": ids, "title": blank, "text": blank})
collection = Collection("Big", "test", corpus, pa.table({"id": pa.array(qrels.query_ids)}), {"graded": qrels})
print(score(run, collection).coverage.n_missing, {"mteb", "torch", "datasets", "scipy"} & set(sys.modules))
"""
    # one thread, one arena, malloc: address space that is only reserved would count as used
    frugal = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}

    done = start(sys.executable, "-c", code, str(path), cwd=ROOT, **frugal)

    assert done.stdout.strip() == "0 set()", done.stderr[-800:]


@pytest.mark.parametrize(
    "data",
    [
        b"q1 0 d1 1\nq1 0 d2 0\nq2 0 d1 2\nq1 0 d1 1\n",
        b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td1\t2\nq1\td1\t1.0\n",
        b"score\tqid\tdocno\textra\r\n1\tq1\td1\tx y\r\n0\tq1\td2\t\r\n2\tq2\td1\tx\r\n1\tq1\td1\t\r\n",
        b'{"q1":{"d1":1,"d2":0,"d1":1},"q2":{"d1":2.0}}',
    ],
)
def test_judgements_are_read_in_every_form(write: Any, data: bytes) -> None:
    """TREC qrels, tab-separated with a header and JSON give the same judgements; equal repeats are counted."""
    qrels = read_qrels(write(gzip.compress(data)))

    assert qrels.to_dict() == {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": 2}}
    assert qrels.n_repeated == 1
    assert collection_of(write(data)).notes[0].startswith("1 judgements stand in")


BAD_QRELS = {
    "empty": (b"", 1, "the file is empty"),
    "conflict": (b"q1 0 d1 1\nq1 0 d1 0\n", 2, "judges document 'd1' twice, as 1 (line 1) and as 0"),
    "fraction": (b"q1 0 d1 0.5\n", 1, "grade '0.5' is no integer"),
    "no number": (b"q1 0 d1 yes\n", 1, "grade 'yes' is no integer"),
    "NaN": (b"q1 0 d1 nan\n", 1, "grade 'nan' is no integer"),
    "infinite": (b"q1 0 d1 inf\n", 1, "grade 'inf' is no integer"),
    "columns": (b"q1 0 d1 1\nq1 0 d 1 1\n", 2, "expected 4 columns, found 5"),
    "no header": (b"q1\td1\t1\n", 1, "found 3 columns and no header"),
    "half a header": (b"query-id\tdocument\tscore\n", 1, "does not name one column for document"),
    "Latin-1": (b"q1 0 Zo\xeb 1\n", 1, "not UTF-8"),
    "JSON": (b'{"q1":{"d1":1},\n"q2":}', 2, "no JSON"),
    "JSON flat": (b'{"q1":1}', 1, "holds no object"),
    "JSON true": (b'{"q1":{"d1":true}}', None, "grade True is no integer"),
    "JSON deep": (b'{"q1":' * 100_000, 1, "no JSON that holds judgements"),
    "comma-separated": (b"query-id,corpus-id,score\nq1,d1,1\n", 1, "comma-separated values are not read"),
    "JSON list": (b'[{"q1":{"d1":1}}]', 1, "the file is a JSON list"),
    "bare CR": (b"q1 0 d1 1\rq2 0 d1 1\r", 1, "line ends are bare CR"),
    "beyond": (b"q1 0 d1 99999999999999999999\n", 1, "is no integer between"),
    "JSON query twice": (b'{"q1":{"d1":1},"q1":{"d2":1}}', 1, "the key 'q1' stands twice"),
    "header alone": (b"query-id\tcorpus-id\tscore\n", 2, "holds no judgement"),
}


@pytest.mark.parametrize("name", BAD_QRELS)
def test_malformed_judgements_are_refused_with_their_line(write: Any, name: str) -> None:
    """Judgements are read as strictly as runs."""
    data, line, words = BAD_QRELS[name]

    with pytest.raises(RunFileError) as caught:
        read_qrels(write(data))

    assert words in str(caught.value)
    assert line is None or caught.value.line == line


def test_no_descriptor_is_left_open(write: Any) -> None:
    """A reader that refuses a file closes it."""
    paths = [write(data, f"x{at}") for at, (data, _, _) in enumerate(MALFORMED.values())]
    before = len([*Path("/proc/self/fd").iterdir()]) if Path("/proc/self/fd").is_dir() else pytest.skip("no /proc here")
    for path in paths:
        with pytest.raises(RunFileError):
            read_run(path)

    assert len([*Path("/proc/self/fd").iterdir()]) == before
