from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.loaders._rows import Field, read_rows, read_xlsx
from crumb_tasks.loaders._tables import Layout, read_corpus, read_queries, text_table
from crumb_tasks.sources import cache_dir

BEIR = Layout("_id", "text", title="title")
ID_AND_TEXT = (Field("id", is_id=True), Field("text", nullable=True))
KEPT = {"kept_from": 0}
"""Treat even a tiny file as one that is kept as memory-mapped Arrow."""


def jsonl(path: Path, *rows: object) -> Path:
    """Write ``rows`` as JSONL; bytes are written as they are."""
    path.write_bytes(b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows))
    return path


def rows_of(path: Path, *fields: Field) -> list[tuple[str, ...]]:
    """Return the values of all rows."""
    return [row for _, row in read_rows(path, fields or ID_AND_TEXT)]


def test_csv_ids_and_texts_are_never_guessed_at(tmp_path: Path) -> None:
    """`0012`, `NA` and `null` are texts (known problem R21)."""
    path = tmp_path / "corpus.csv"
    path.write_text("id,text\n0012,NA\n0013,null\n", encoding="utf-8")

    assert rows_of(path) == [("0012", "NA"), ("0013", "null")]


def test_csv_texts_may_hold_commas_quotes_and_lines(tmp_path: Path) -> None:
    """Quoted fields keep what is inside, and the next row's number counts the lines."""
    path = tmp_path / "corpus.csv"
    path.write_text('id,text\na,"one, ""two""\nthree"\nb,last\n', encoding="utf-8")

    assert list(read_rows(path, ID_AND_TEXT)) == [(2, ("a", 'one, "two"\nthree')), (4, ("b", "last"))]


def test_csv_fields_may_be_longer_than_the_default_limit(tmp_path: Path) -> None:
    """A document of more than 128 KiB is no error."""
    path = tmp_path / "corpus.csv"
    path.write_text(f"id,text\na,{'x' * 200_000}\n", encoding="utf-8")

    assert len(rows_of(path)[0][1]) == 200_000


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("id,text\na,b,c\n", r"corpus\.csv:2: expected 2 fields, found 3"),
        ('id,text\na,"never closed\n', r"corpus\.csv:2: broken CSV row"),
        ("id,body\na,b\n", r"corpus\.csv: no column 'text'; found the fields id, body"),
    ],
)
def test_broken_csv_names_line_and_columns(tmp_path: Path, content: str, problem: str) -> None:
    """`path:line: what is wrong`, or which columns there are."""
    path = tmp_path / "corpus.csv"
    path.write_text(content, encoding="utf-8")

    with pytest.raises(DataError, match=problem):
        rows_of(path)


def test_tsv_quotes_are_text(tmp_path: Path) -> None:
    """A field that begins with a quote and never closes it ends at its tab (known problem R29)."""
    path = tmp_path / "corpus.tsv"
    path.write_bytes('id\ttext\na\t"never closed\nb\tx\u2028y\x85z\x00 \r\n\n'.encode())

    assert rows_of(path) == [("a", '"never closed'), ("b", "x\u2028y\x85z\x00 ")]


def test_a_short_tsv_row_is_named(tmp_path: Path) -> None:
    """The message has the line."""
    path = tmp_path / "corpus.tsv"
    path.write_text("id\ttext\na\tb\nc\n", encoding="utf-8")

    with pytest.raises(DataError, match=r"corpus\.tsv:3: expected 2 fields, found 1"):
        rows_of(path)


def test_jsonl_records_end_at_line_feeds_only(tmp_path: Path) -> None:
    """U+2028, U+0085 and NUL inside a text survive; BOM, CRLF and blank lines are no rows (R29)."""
    text = "a\u2028b\x85c\x00d"
    path = jsonl(
        tmp_path / "corpus.jsonl",
        b"\xef\xbb\xbf" + json.dumps({"id": "1", "text": text}, ensure_ascii=False).encode() + b"\r\n",
        b"\n",
        {"id": "2", "text": "e"},
    )

    assert list(read_rows(path, ID_AND_TEXT)) == [(1, ("1", text)), (3, ("2", "e"))]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_jsonl(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Whatever Unicode a text holds, raw or escaped, it comes back as it was."""
    path = tmp_path_factory.mktemp("any") / "corpus.jsonl"
    jsonl(path, {"id": "escaped", "text": text}, json.dumps({"id": "raw", "text": text}, ensure_ascii=False).encode())

    assert rows_of(path) == [("escaped", text), ("raw", text)]


def test_gzip_is_told_by_content(tmp_path: Path) -> None:
    """Not by the suffix (R28)."""
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(gzip.compress(b'{"id": "1", "text": "a"}\n'))

    assert rows_of(path) == [("1", "a")]


@pytest.mark.parametrize(
    ("line", "error", "problem"),
    [
        (b'{"id": "1", "body": "x"}\n', SchemaError, r"corpus\.jsonl:2: .*`text`.*found the fields id, body"),
        (b'{"id": "1", "text": 5}\n', SchemaError, r"corpus\.jsonl:2: .*\$\.text.*found the fields id, text"),
        (b'{"id": 1.5, "text": "x"}\n', SchemaError, r"corpus\.jsonl:2: "),
        (b'{"id": "1", "text": \n', DataError, r"corpus\.jsonl:2: not a JSON object"),
        (b'{"id": "1", "text": "\xff"}\n', DataError, r"corpus\.jsonl:2: "),
    ],
)
def test_broken_jsonl_names_line_and_fields(tmp_path: Path, line: bytes, error: type[DataError], problem: str) -> None:
    """`path:line:` and the fields that were found."""
    path = jsonl(tmp_path / "corpus.jsonl", {"id": "0", "text": "fine"}, line)

    with pytest.raises(error, match=problem):
        rows_of(path)


def test_integer_ids_become_text(tmp_path: Path) -> None:
    """In JSON and in Parquet, huge ones included (R23)."""
    path = jsonl(tmp_path / "corpus.jsonl", {"id": 7, "text": "a"}, {"id": 10**19, "text": "b"})
    table = pa.table({"id": pa.array([7, 8], pa.int64()), "text": ["a", None]})
    pq.write_table(table, tmp_path / "corpus.parquet")

    assert rows_of(path) == [("7", "a"), (str(10**19), "b")]
    assert rows_of(tmp_path / "corpus.parquet") == [("7", "a"), ("8", "")]


def test_a_parquet_column_of_another_type_is_named(tmp_path: Path) -> None:
    """Ids that are floating point numbers are no ids."""
    pq.write_table(pa.table({"id": [0.5], "text": ["a"]}), tmp_path / "corpus.parquet")

    with pytest.raises(SchemaError, match=r"column 'id' is double, not text"):
        rows_of(tmp_path / "corpus.parquet")


def test_a_json_list_of_objects_is_read(tmp_path: Path) -> None:
    """The same fields, in one list."""
    path = tmp_path / "corpus.json"
    path.write_text('[{"id": 1, "text": "a"}, {"id": "2", "text": null}]', encoding="utf-8")

    assert rows_of(path) == [("1", "a"), ("2", "")]


def test_a_sheet_is_read_as_text(tmp_path: Path) -> None:
    """Empty cells are empty strings; a missing sheet or column is named."""
    openpyxl = pytest.importorskip("openpyxl", reason="needs the extra xlsx")
    book = openpyxl.Workbook()
    book.active.title = "Papers"
    for row in (("No", "Title"), ("0", "A"), (1, None), (None, None)):
        book.active.append(row)
    book.save(tmp_path / "book.xlsx")

    assert list(read_xlsx(tmp_path / "book.xlsx", "Papers", ("Title", "No"))) == [(2, ("A", "0")), (3, ("", "1"))]
    with pytest.raises(SchemaError, match="no sheet 'Other'; found Papers"):
        list(read_xlsx(tmp_path / "book.xlsx", "Other", ("No",)))
    with pytest.raises(SchemaError, match="no column 'Year'; found the fields No, Title"):
        list(read_xlsx(tmp_path / "book.xlsx", "Papers", ("Year",)))


@pytest.mark.parametrize("options", [{}, KEPT], ids=["read", "kept"])
def test_titles_and_texts_are_never_null(tmp_path: Path, options: dict[str, int]) -> None:
    """Absent, null and empty titles are "", a document of title only keeps it, `None` is never a word (R21, R22)."""
    path = jsonl(
        tmp_path / "corpus.jsonl",
        {"_id": "absent", "text": "a"},
        {"_id": "null", "title": None, "text": "b"},
        {"_id": "only", "title": "Title", "text": ""},
        {"_id": "nothing", "title": "", "text": "  \n"},
        {"_id": "no text", "title": None, "text": None},
    )

    corpus = read_corpus(path, BEIR, empty_text="-", **options)

    assert corpus.table.to_pydict() == {
        "id": ["absent", "null", "only", "nothing", "no text"],
        "title": ["", "", "Title", "", ""],
        "text": ["a", "b", "", "-", "-"],
    }
    assert corpus.n_empty == 2
    assert not any(field.nullable for field in corpus.table.schema)


@pytest.mark.parametrize("options", [{}, KEPT], ids=["read", "kept"])
@pytest.mark.parametrize(("other", "texts"), [("a", "the same text"), ("b", "different texts")])
def test_an_id_twice_is_refused_with_both_lines(
    tmp_path: Path, options: dict[str, int], other: str, texts: str
) -> None:
    """Whether the texts agree or not (R06, R24); nothing is kept of such a file."""
    path = jsonl(
        tmp_path / "corpus.jsonl", {"_id": "d1", "text": "a"}, {"_id": "d2", "text": "x"}, {"_id": "d1", "text": other}
    )

    with pytest.raises(DataError, match=rf"the id 'd1' stands in lines 1 and 3, with {texts}"):
        read_corpus(path, BEIR, empty_text="-", **options)
    assert not list(cache_dir().rglob("*.arrow"))


def test_an_empty_id_is_refused(tmp_path: Path) -> None:
    """It could not be told from a missing one."""
    path = jsonl(tmp_path / "corpus.jsonl", {"_id": "", "text": "a"})

    with pytest.raises(DataError, match=r"corpus\.jsonl:1: the id is empty"):
        read_corpus(path, BEIR, empty_text="-")


def test_the_same_text_under_two_ids_stays_two_queries(tmp_path: Path) -> None:
    """Nothing is keyed by text (R24)."""
    path = jsonl(tmp_path / "queries.jsonl", {"_id": "1", "text": "same"}, {"_id": "2", "text": "same"})

    queries = read_queries(path, Layout("_id", "text"), empty_text="-")

    assert queries.table.to_pydict() == {"id": ["1", "2"], "text": ["same", "same"]}


def test_rows_in_memory_follow_the_same_rules() -> None:
    """Placeholder, counting and repeated ids, for loaders that build their columns themselves."""
    table = text_table({"id": ["a", "b"], "text": [" ", "x"]}, empty_text="-", where="here")

    assert (table.table["text"].to_pylist(), table.n_empty) == (["-", "x"], 1)
    with pytest.raises(DataError, match="here: the id 'a' stands in rows 1 and 2, with different texts"):
        text_table({"id": ["a", "a"], "text": ["x", "y"]}, empty_text="-", where="here")


def test_a_kept_corpus_is_mapped_and_not_read_again(tmp_path: Path) -> None:
    """The second load takes the Arrow file: the source may even have become unreadable in between."""
    path = jsonl(tmp_path / "corpus.jsonl", *({"_id": f"d{index}", "text": "x" * 100} for index in range(20_000)))
    before = pa.total_allocated_bytes()
    first = read_corpus(path, BEIR, empty_text="-", kept_from=0)
    state = path.stat()
    path.write_bytes(b"?" * state.st_size)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))

    again = read_corpus(path, BEIR, empty_text="-", kept_from=0)

    assert again.table.equals(first.table)
    assert again.table.column("text").num_chunks > 1
    assert pa.total_allocated_bytes() - before < 200_000  # 2 MB of text lie in the mapped file


def test_a_changed_source_is_read_again(tmp_path: Path) -> None:
    """The kept file is named after the source's size and time, and the old one goes."""
    path = jsonl(tmp_path / "corpus.jsonl", {"_id": "a", "text": "old"})
    read_corpus(path, BEIR, empty_text="-", kept_from=0)
    jsonl(path, {"_id": "a", "text": "newer"})

    assert read_corpus(path, BEIR, empty_text="-", kept_from=0).table["text"].to_pylist() == ["newer"]
    assert len(list(cache_dir().rglob("*.arrow"))) == 1


def test_an_interrupted_reading_keeps_nothing(tmp_path: Path) -> None:
    """A broken last line leaves neither a cache file nor a temporary one."""
    path = jsonl(tmp_path / "corpus.jsonl", {"_id": "a", "text": "x"}, b'{"_id": \n')

    with pytest.raises(DataError):
        read_corpus(path, BEIR, empty_text="-", kept_from=0)
    assert not [entry for entry in cache_dir().rglob("*") if entry.is_file()]


def test_a_kept_corpus_becomes_a_dataset(tmp_path: Path) -> None:
    """MTEB batches it: `datasets.Dataset` takes the mapped table as it is."""
    path = jsonl(tmp_path / "corpus.jsonl", {"_id": "a", "text": "x"}, {"_id": "b", "title": "T", "text": "y"})

    dataset = datasets.Dataset(read_corpus(path, BEIR, empty_text="-", kept_from=0).table)

    assert dataset[1] == {"id": "b", "title": "T", "text": "y"}


def test_passages_without_parent_stand_for_themselves(tmp_path: Path) -> None:
    """`parent_id: null` means itself, and is counted."""
    path = jsonl(
        tmp_path / "corpus.jsonl", {"id": "p:0", "text": "x", "up": "p"}, {"id": "alone", "text": "y", "up": None}
    )

    corpus = read_corpus(path, Layout("id", "text", parent="up"), empty_text="-")

    assert corpus.table["parent"].to_pylist() == ["p", "alone"]
    assert corpus.n_orphans == 1


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full or read-only home is the user's to solve: the message says with what."""
    path = jsonl(tmp_path / "corpus.jsonl", {"_id": "a", "text": "x"})
    (tmp_path / "a file").touch()
    monkeypatch.setenv("CRUMB_TASKS_CACHE", str(tmp_path / "a file"))

    with pytest.raises(DataError, match="let CRUMB_TASKS_CACHE name a roomy folder"):
        read_corpus(path, BEIR, empty_text="-", kept_from=0)
