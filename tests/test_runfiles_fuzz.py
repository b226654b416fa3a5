"""Readers against damaged and random bytes: a run, or our own error with path and line; never anything else."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import run_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crumb_tasks.errors import RunFileError
from crumb_tasks.runfiles import FORMATS, compression, read_run, read_run_file, write_run
from crumb_tasks.runfiles.qrels import read_qrels
from crumb_tasks.runs import Run

BUDGET = settings(max_examples=150, deadline=5000, derandomize=True, suppress_health_check=list(HealthCheck))
"""Fixed: the same cases on every machine; more with ``--hypothesis-profile``, or a longer loop by hand."""
IDS = st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable() or text.isspace())
PLAIN_IDS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=12).filter(
    lambda text: not text.startswith(('{"', "{}", "{{", '["', "[]", "[{"))
)
"""Ids that TREC can hold; those that begin as JSON does are told from it only by ``--format``."""
SCORES = st.floats(allow_nan=False, allow_infinity=False)
RUNS = st.dictionaries(PLAIN_IDS, st.dictionaries(PLAIN_IDS, SCORES, min_size=1, max_size=6), min_size=1, max_size=4)
TOKENS = [
    *(
        b'{"query":',
        b'"items":[',
        b'"id":',
        b'"score":',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"\\",
        b"\n",
        b"\r\n",
        b"\t",
        b" ",
    ),
    *(
        b"q1",
        b"Q0",
        b"d1",
        b"1",
        b"0.5",
        b"nan",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"null",
        b"true",
        b"\\ud800",
        b"\\u0000",
        b"\xff",
        b"\0",
    ),
    *(
        b'"passage_id":',
        b'"mteb_model_meta":',
        b'"default":',
        b'"test":',
        b"query-id\tcorpus-id\tscore\n",
        b"PAR1",
        b"\x1f\x8b",
        b"\xef\xbb\xbf",
    ),
]


def refuses_or_reads(data: bytes, read: Callable[[Path], object]) -> None:
    """Read ``data``; whatever leaves must be a result or a `RunFileError` that says where."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(data)
        error = None
        try:
            read(path)
        except RunFileError as caught:
            error = caught
        if error is not None:
            assert error.path == path
            assert (
                error.line is None
                or 1 <= error.line <= data.count(b"\n") + 1
                or data[:4] in compression._ZSTD
                or data[:2] == b"\x1f\x8b"
            )
            assert "\n" not in str(error)


def damage(data: bytes, seed: int) -> bytes:
    """Cut, flip, repeat, swap or insert pieces of ``data``, a few times."""
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 4)):
        at, end = sorted(rng.randint(0, len(data)) for _ in range(2))
        end = min(end, at + rng.choice([0, 1, 4, 64]))
        piece = rng.choice([b"", rng.choice(TOKENS), rng.randbytes(rng.randint(1, 4)), data[at:end] * 2])
        data = data[:at] if rng.random() < 0.1 else data[:at] + piece + data[end:]
    return data


@BUDGET
@given(st.binary(max_size=300))
@pytest.mark.parametrize("kind", ["auto", *FORMATS])
def test_random_bytes(kind: str, data: bytes) -> None:
    """No bytes bring a reader down, whichever reader is forced on them."""
    refuses_or_reads(data, lambda path: read_run_file(path, kind))


@BUDGET
@given(st.lists(st.sampled_from(TOKENS), max_size=40).map(b"".join))
@pytest.mark.parametrize("kind", ["auto", *FORMATS])
def test_random_pieces_of_runs(kind: str, data: bytes) -> None:
    """Pieces that each reader looks for, in any order, bring none down."""
    refuses_or_reads(data, lambda path: read_run_file(path, kind))


@BUDGET
@given(RUNS, st.integers(0, 2**32))
@pytest.mark.parametrize("packing", run_bytes.COMPRESSIONS)
@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_runs(kind: str, packing: str, run: dict[str, dict[str, float]], seed: int) -> None:
    """A run damaged before or after it was compressed is read or refused."""
    pack = run_bytes.COMPRESSIONS[packing]
    data = run_bytes.FORMATS[kind](run)
    data = pack(damage(data, seed)) if seed % 2 else damage(pack(data), seed)

    refuses_or_reads(data, read_run_file)
    refuses_or_reads(data, lambda path: read_run_file(path, repeats="best"))


@BUDGET
@given(st.integers(0, 2**32))
def test_damaged_judgements(seed: int) -> None:
    """Judgements are read or refused."""
    forms = (b"q1 0 d1 1\nq2 0 d2 0\n", b"query-id\tcorpus-id\tscore\nq1\td1\t1\n", b'{"q1":{"d1":1,"d2":0}}')

    refuses_or_reads(damage(forms[seed % 3], seed), read_qrels)


@BUDGET
@given(RUNS)
@pytest.mark.parametrize("kind", FORMATS)
def test_any_run_is_written_and_read_back(kind: str, run: dict[str, dict[str, float]]) -> None:
    """Whatever ids and scores a run has, every format gives them back."""
    made = Run.from_dict(run)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        write_run(made, path, kind)

        assert read_run(path, kind).to_dict() == made.to_dict()
        assert read_run(path).to_dict() == made.to_dict()


@BUDGET
@given(st.dictionaries(IDS, st.dictionaries(IDS, SCORES, min_size=1, max_size=4), min_size=1, max_size=3))
def test_ids_with_spaces_and_signs_survive_where_they_can(run: dict[str, dict[str, float]]) -> None:
    """JSONL, JSON and Parquet hold every id that is no lone surrogate."""
    made = Run.from_dict(run)
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("jsonl", "json", "mteb", "parquet"):
            write_run(made, Path(folder) / "run", kind)

            assert read_run(Path(folder) / "run").to_dict() == made.to_dict()


@BUDGET
@given(RUNS, st.randoms(use_true_random=False))
def test_row_order_never_matters(run: dict[str, dict[str, float]], rng: random.Random) -> None:
    """A TREC file with its lines in any order is the same run, whatever ties."""
    lines = run_bytes.trec(run).splitlines(keepends=True)
    rng.shuffle(lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        path.write_bytes(b"".join(lines))
        found = read_run(path).to_dict()
    expected = Run.from_dict(run).to_dict()

    assert found == expected
    assert {query_id: list(docs) for query_id, docs in found.items()} == {q: list(docs) for q, docs in expected.items()}
