from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from lecture_runs import bm25_scores

from crumb_tasks.cards import find_task
from crumb_tasks.checks import check_task
from crumb_tasks.errors import DataError, MissingDataError, SchemaError
from crumb_tasks.loaders import load_collection
from crumb_tasks.scoring import score

TOPICS = "castorini/anserini-tools/topics-and-qrels"
SGML = """<DOC>
<DOCNO> AP880101-0001 </DOCNO>
<HEAD>Airbus Subsidies &amp; Trade</HEAD>
<HEAD>Second Headline</HEAD>
<TEXT>
   Governments paid for <B>the</B> jet.
</TEXT>
</DOC>
<DOC>
<DOCNO> AP880101-0002 </DOCNO>
<TEXT>
</TEXT>
</DOC>
"""
TREC_TOPICS = """<top>
<head> Tipster Topic Description
<num> Number:  051
<dom> Domain:  International Economics
<title> Topic:  Airbus Subsidies
<desc> Description:

Document will discuss
government assistance.

<narr> Narrative:
A relevant document: names the aid.
</top>
<top>
<num> Number:  052
<title> Topic:  Jets
<desc> Description:
About jets.
<narr> Narrative:
Any jet.
</top>
"""
QRELS = "51 0 AP880101-0001 1\n51 0 AP880101-0002 0\n52 0 DOE1-01 1\n"


def write(root: Path, name: str, content: str | bytes) -> Path:
    """Write a file below a data root."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with two topics, and a licensed corpus of three documents in both formats."""
    write(tmp_path, f"{TOPICS}/topics.adhoc.51-100.txt", TREC_TOPICS)
    write(tmp_path, f"{TOPICS}/qrels.adhoc.51-100.txt", QRELS)
    write(tmp_path, "TIPSTER/documents/disk1/ap/ap880101", SGML)
    other = "<DOC><DOCNO>DOE1-01</DOCNO><TEXT>Jets of d\xe9bris.</TEXT></DOC>".encode("latin-1")
    write(tmp_path, "TIPSTER/documents/disk1/doe/doe1_001.gz", gzip.compress(other))
    write(tmp_path, "TIPSTER/documents/readme", "no document")
    return tmp_path


def test_sgml_becomes_title_and_text(root: Path) -> None:
    """Headlines are the title; tags, entities and line breaks are gone; Latin-1 and gzip are read; blank is counted."""
    collection = load_collection("TREC1AdHocTitle", data_root=root)

    assert collection.corpus.to_pylist() == [
        {
            "id": "AP880101-0001",
            "title": "Airbus Subsidies & Trade Second Headline",
            "text": "Governments paid for the jet.",
        },
        {"id": "AP880101-0002", "title": "", "text": "-"},
        {"id": "DOE1-01", "title": "", "text": "Jets of débris."},
    ]
    assert collection.n_empty_texts == 1
    assert collection.notes == ("1 files hold no document and were skipped: readme",)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("TREC1AdHocTitle", "Airbus Subsidies"),
        ("TREC1AdHocDescription", "Document will discuss government assistance."),
        ("TREC1AdHocNarrative", "A relevant document: names the aid."),
    ],
)
def test_each_part_of_a_topic_is_a_task(root: Path, task: str, text: str) -> None:
    """Topic 051 is query 51, as the qrels have it; its label is no part of the text, a colon in it is."""
    queries = load_collection(task, data_root=root).queries.to_pylist()

    assert queries[0] == {"id": "51", "text": text}
    assert [query["id"] for query in queries] == ["51", "52"]


def test_real_topics_equal_an_independent_reading(shared_data: Path, root: Path) -> None:
    """All 50 topics; topic 51 has 1,348 judgements, 138 of them relevant."""
    folder = shared_data / "trec1"
    expected = json.loads((folder / "topics_051_100.json").read_text(encoding="utf-8"))
    qrels = (folder / "qrels.adhoc.51-100.txt").read_text(encoding="utf-8")
    for name in ("topics.adhoc.51-100.txt", "qrels.adhoc.51-100.txt"):
        write(root, f"{TOPICS}/{name}", (folder / name).read_bytes())
    judged = dict.fromkeys(line.split()[2] for line in qrels.splitlines())
    rows = ({"_id": document, "title": "", "text": document} for document in judged)
    for path in (root / "TIPSTER" / "documents").rglob("*"):
        path.unlink() if path.is_file() else None
    write(root, "TIPSTER/documents/corpus.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    for task, part in (("Title", "title"), ("Description", "desc"), ("Narrative", "narr")):
        collection = load_collection(f"TREC1AdHoc{task}", data_root=root)
        assert collection.queries.to_pylist() == [{"id": topic["_id"], "text": topic[part]} for topic in expected]
    grades = collection.graded.to_dict()
    assert (len(collection.graded.codes), int((collection.graded.grades > 0).sum())) == (89179, 16386)
    assert (len(grades["51"]), sum(grades["51"].values())) == (1348, 138)
    assert score(grades, collection, find_task("TREC1AdHocNarrative"), depth=1000).value("Rprec") == 1.0
    assert [report.n_findings for report in check_task("TREC1AdHocTitle", data_root=root, texts=False)] == [0]


def test_without_the_corpus_one_line_names_licence_and_place(tmp_path: Path) -> None:
    """It comes first: whoever lacks the licence need not fetch the topics."""
    with pytest.raises(
        MissingDataError, match=r"Linguistic Data Consortium licenses.*put them into DIR/TIPSTER"
    ) as said:
        load_collection("TREC1AdHocTitle", data_root=tmp_path)
    assert "\n" not in str(said.value)
    with pytest.raises(MissingDataError, match=r"ELRA licenses.*put them into DIR/CLEF06fr"):
        load_collection("CLEF06French", data_root=tmp_path)


def test_files_of_the_disks_are_refused_with_the_remedy(root: Path) -> None:
    """The disks are packed with compress(1)."""
    write(root, "TIPSTER/documents/disk1/ap/ap880102.Z", b"\x1f\x9d\x90abc")

    with pytest.raises(DataError, match=r"ap880102\.Z: packed with compress.*gzip -dr"):
        load_collection("TREC1AdHocTitle", data_root=root)


def test_another_schema_is_refused_naming_what_was_found(root: Path) -> None:
    """Tags of documents, parts of topics, fields of JSONL."""
    write(root, "TIPSTER/documents/disk2", "<DOC><DOCNO>X1</DOCNO><BODY>words</BODY></DOC>")
    with pytest.raises(SchemaError, match=r"no document has one of HEAD.*found the tags DOCNO, BODY"):
        load_collection("TREC1AdHocTitle", data_root=root)
    write(root, "TIPSTER/documents/disk2", "<DOC><ID>X1</ID><TEXT>words</TEXT></DOC>")
    with pytest.raises(SchemaError, match="document 1 has no <DOCNO>; found the tags ID, TEXT"):
        load_collection("TREC1AdHocTitle", data_root=root)
    (root / "TIPSTER/documents/disk2").unlink()
    write(root, f"{TOPICS}/topics.adhoc.51-100.txt", "<top>\n<num> Number: 51\n<desc> Description: x\n</top>\n")
    with pytest.raises(SchemaError, match="topic 1 has no <title>; found num, desc"):
        load_collection("TREC1AdHocTitle", data_root=root)


def test_an_id_in_two_files_is_refused(root: Path) -> None:
    """Which text would be meant cannot be known."""
    write(root, "TIPSTER/documents/again", SGML)

    with pytest.raises(DataError, match="'AP880101-0001' stands in two files"):
        load_collection("TREC1AdHocTitle", data_root=root)


@pytest.fixture
def beir_root(tmp_path: Path) -> Path:
    """BioASQ's public half in the repository's layout, and a corpus as BEIR makes it."""
    topics = gzip.compress(b"5e29\tWhat drives a cell?\n5e30\tWhere does it go?\n")
    write(tmp_path, f"{TOPICS}/topics.beir-v1.0.0-bioasq.test.tsv.gz", topics)
    write(tmp_path, f"{TOPICS}/qrels.beir-v1.0.0-bioasq.test.txt", "5e29 0 100 1\n5e30 0 200 1\n")
    rows = [
        {"_id": "100", "title": "Drive", "text": "A cell is driven."},
        {"_id": "200", "title": "", "text": "It goes."},
    ]
    write(tmp_path, "BEIR/bioasq/documents/corpus.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_the_beir_sets_read_lines_and_jsonl(beir_root: Path) -> None:
    """The same loader: tab-separated topics, TREC qrels, BEIR's corpus."""
    collection = load_collection("BEIRBioASQ", data_root=beir_root)

    assert collection.queries.to_pylist()[0] == {"id": "5e29", "text": "What drives a cell?"}
    assert collection.graded.to_dict() == {"5e29": {"100": 1}, "5e30": {"200": 1}}
    assert collection.corpus.column("title").to_pylist() == ["Drive", ""]


@pytest.mark.parametrize(("task", "key"), [("TREC1AdHocTitle", "map"), ("BEIRBioASQ", "ndcg_at_10")])
def test_bm25_runs_end_to_end(
    root: Path, beir_root: Path, monkeypatch: pytest.MonkeyPatch, task: str, key: str
) -> None:
    """On the user's corpus, by the task's name, with the card's main measure."""
    scores = bm25_scores(task, beir_root, monkeypatch)

    assert root == beir_root
    assert scores["main_score"] == scores[key] == 1.0
    assert "r_precision" in scores


def test_clef_reads_both_newspapers(tmp_path: Path) -> None:
    """Le Monde and ATS name their parts differently."""
    write(tmp_path, f"{TOPICS}/topics.clef06fr.mono.fr.txt", "301\tProduits Nestlé\n")
    write(tmp_path, f"{TOPICS}/qrels.clef06fr.txt", "301 0 LEMONDE94-1 1\n301 0 ATS.940101.0001 0\n")
    monde = "<DOC>\n<DOCNO>LEMONDE94-1</DOCNO>\n<TITLE>Nestlé</TITLE>\n<TEXT>Du café.</TEXT>\n</DOC>\n"
    write(tmp_path, "CLEF06fr/documents/lemonde94/le.sgml", monde.encode("latin-1"))
    ats = "<DOC>\n<DOCNO>ATS.940101.0001</DOCNO>\n<TI>Nouvel an</TI>\n<TX>Il neige.</TX>\n</DOC>\n"
    write(tmp_path, "CLEF06fr/documents/ats94/ats.sgml", ats)

    collection = load_collection("CLEF06French", data_root=tmp_path)

    assert collection.corpus.to_pylist() == [
        {"id": "ATS.940101.0001", "title": "Nouvel an", "text": "Il neige."},
        {"id": "LEMONDE94-1", "title": "Nestlé", "text": "Du café."},
    ]
