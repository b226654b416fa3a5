from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lecture_runs import bm25_scores

from crumb_tasks.cards import find_task
from crumb_tasks.checks import check_task
from crumb_tasks.cli._runs import query_texts
from crumb_tasks.errors import DataError, MissingDataError, SchemaError, UsageError
from crumb_tasks.exporting import export
from crumb_tasks.loaders import load_collection
from crumb_tasks.loaders.cmass import _decode
from crumb_tasks.report.queries import view_queries
from crumb_tasks.runs import Run

TASK = "ClimbMixProjectionReranking"
QUESTION = "Which heron nested where the tower fell?"
CANARY = "canary-of-a-test"


def obfuscate(text: str, canary: str = CANARY) -> str:
    """Return ``text`` as the release has it."""
    key = hashlib.sha256(canary.encode()).digest()
    return base64.b64encode(bytes(byte ^ key[at % 32] for at, byte in enumerate(text.encode()))).decode()


def write_release(root: Path, judged: dict[str, list[str]]) -> Path:
    """Write questions and judgements as they are published; each row has a canary of its own."""
    folder = root / "castorini/cmass/bcp"
    folder.mkdir(parents=True)
    queries = [
        {name: obfuscate(text, f"c{query}") for name, text in (("id", query), ("question", QUESTION), ("answer", "x"))}
        | {"canary": f"c{query}"}
        for query in judged
    ]
    qrels = [
        {
            "query_id": obfuscate(query, f"r{document}"),
            "iteration": "0",
            "doc_id": obfuscate(document, f"r{document}"),
            "relevance": 1,
            "canary": f"r{document}",
        }
        for query, documents in judged.items()
        for document in documents
    ]
    for name, rows in (("queries", queries), ("qrels", qrels)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return root


def write_shard(root: Path, number: int, texts: list[str], column: str = "text") -> Path:
    """Write a shard in several row groups."""
    path = root / "climbmix/documents" / f"shard_{number:05}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({column: texts}), path, row_group_size=3)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two questions with judged documents in two shards of ten rows."""
    write_release(tmp_path, {"25": ["shard_00003_4", "shard_00071_0"], "234": ["shard_00071_9"]})
    write_shard(tmp_path, 3, [f"third, row {row}" for row in range(10)])
    write_shard(tmp_path, 71, [f"heron, row {row}" for row in range(10)])
    return tmp_path


def test_a_known_value_is_decoded() -> None:
    """Worked by hand: the key's first bytes are SHA-256 of the canary, XORed over the text."""
    key = hashlib.sha256(b"k").digest()
    raw = bytes([key[0] ^ ord("h"), key[1] ^ ord("i")])

    assert _decode(base64.b64encode(raw).decode(), "k", "here") == "hi"


def test_the_pool_is_judged_documents_and_the_same_others(root: Path) -> None:
    """Texts come from the row that an id names, whichever row group it is in."""
    collection = load_collection(TASK, data_root=root)

    text_by_id = {row["id"]: row["text"] for row in collection.corpus.to_pylist()}
    relevant = [sorted(text_by_id[document] for document in found) for found in collection.graded.to_dict().values()]
    assert relevant == [["heron, row 0", "third, row 4"], ["heron, row 9"]]
    assert len(collection.corpus) == 20
    assert collection.candidates is not None
    assert [len(pool) for pool in collection.candidates.values()] == [19, 18]
    assert collection.notes == ("each query ranks its judged documents and 17 others",)
    again = load_collection(TASK, data_root=root)
    assert again.candidates == collection.candidates


def test_no_decoded_id_leaves_the_loader(root: Path) -> None:
    """Rankings are written with ids, and an id of the release beside another says what is relevant."""
    collection = load_collection(TASK, data_root=root)

    ids = {*collection.corpus.column("id").to_pylist(), *collection.queries.column("id").to_pylist()}
    assert not any("shard" in one or one in {"25", "234"} for one in ids)


def test_texts_are_neither_exported_nor_shown(root: Path, tmp_path: Path) -> None:
    """Not as a file, not beside a comparison, not in a report's single queries."""
    collection = load_collection(TASK, data_root=root)

    assert collection.queries.column("text").to_pylist() == [QUESTION, QUESTION]
    with pytest.raises(UsageError, match="stay in memory"):
        export(collection, find_task(TASK), "beir", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert query_texts(collection) == {}
    views = view_queries(find_task(TASK), collection, {"system": Run.from_dict(collection.graded.to_dict())}, 5)
    assert (views.n_queries, views.queries) == (2, ())


def test_documents_may_be_jsonl(root: Path) -> None:
    """Who fetches documents one by one brings them with their ids; the rest of the file is what is ranked beside."""
    for path in (root / "climbmix/documents").iterdir():
        path.unlink()
    names = ["shard_00003_4", "shard_00071_0", "shard_00071_9", "shard_00001_1"]
    rows = (json.dumps({"id": name, "text": f"text of {at}"}) + "\n" for at, name in enumerate(names))
    (root / "climbmix/documents/some.jsonl").write_text("".join(rows), encoding="utf-8")

    collection = load_collection(TASK, data_root=root)

    assert collection.candidates is not None
    assert [len(pool) for pool in collection.candidates.values()] == [3, 2]


def test_missing_documents_are_counted_and_not_named(root: Path) -> None:
    """The message would be the plain judgement."""
    (root / "climbmix/documents/shard_00003.parquet").unlink()

    with pytest.raises(DataError, match="1 of 3 judged documents are not in") as said:
        load_collection(TASK, data_root=root)
    assert "shard_00003_4" not in str(said.value)


def test_what_cannot_be_decoded_is_refused_without_showing_it(root: Path) -> None:
    """Neither in the message nor in the traceback's cause."""
    path = root / "castorini/cmass/bcp/qrels.jsonl"
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    path.write_text(json.dumps(row | {"canary": "another"}) + "\n", encoding="utf-8")

    with pytest.raises(DataError, match=r"qrels\.jsonl:1: a value cannot be decoded|a question that is not in") as said:
        load_collection(TASK, data_root=root)
    assert said.value.__suppress_context__ or said.value.__context__ is None


def test_other_files_are_refused_naming_what_was_found(root: Path) -> None:
    """Of shards the columns, of the release the fields; without documents one line says what to bring."""
    write_shard(root, 3, ["x"] * 10, column="content")
    with pytest.raises(SchemaError, match=r"shard_00003\.parquet: no column 'text'; found content"):
        load_collection(TASK, data_root=root)
    (root / "castorini/cmass/bcp/queries.jsonl").write_text('{"id": "x", "q": "y"}\n', encoding="utf-8")
    with pytest.raises(SchemaError, match=r"queries\.jsonl:1: .*found the fields id, q"):
        load_collection(TASK, data_root=root)
    (root / "climbmix").rename(root / "elsewhere")
    with pytest.raises(MissingDataError, match=r"karpathy/climbmix-400b-shuffle.*put them into DIR/climbmix"):
        load_collection(TASK, data_root=root)


def test_bm25_runs_end_to_end_and_validation_finds_nothing_but_counts(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recall over the pool; the count that differs is that this is no release of 57 questions."""
    scores = bm25_scores(TASK, root, monkeypatch)

    assert scores["main_score"] == scores["recall_at_100"]
    assert QUESTION not in json.dumps(scores)
    (report,) = check_task(TASK, data_root=root)
    assert {finding.check for finding in report.findings if finding.severity == "finding"} == {"counts"}
    assert QUESTION not in json.dumps(report.to_dict())
