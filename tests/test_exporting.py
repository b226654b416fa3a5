from __future__ import annotations

from pathlib import Path

import ir_measures
import pytest
from beir_folder import CORPUS, QRELS, beir_card, write_beir
from generate_crumb import Shape, write_task

from crumb_tasks import cli
from crumb_tasks.cards import find_task
from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.exporting import export
from crumb_tasks.loaders import load_collection


def test_trec_files_are_what_other_tools_read(tmp_path: Path) -> None:
    """ir_measures reads the judgements; topics are one line each, documents carry title and text."""
    queries = [{"_id": "q1", "text": "first\tpart\u2028and second"}, {"_id": "q2", "text": "second"}]
    write_beir(tmp_path, queries=queries)
    card = beir_card()

    export(load_collection(card, data_root=tmp_path), card, "trec", tmp_path / "out")

    qrels = {
        (row.query_id, row.doc_id): row.relevance
        for row in ir_measures.read_trec_qrels(str(tmp_path / "out" / "qrels.txt"))
    }
    assert qrels == {(query_id, doc_id): grade for query_id, doc_id, grade in QRELS}
    topics = (tmp_path / "out" / "topics.tsv").read_text(encoding="utf-8")
    assert topics == "q1\tfirst part and second\nq2\tsecond\n"
    corpus = (tmp_path / "out" / "corpus" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    assert corpus[:2] == ['{"id":"d1","contents":"One\\na"}', '{"id":"d2","contents":"b"}']


@pytest.mark.parametrize("space", [" ", "\t", "\u00a0", "\u2028", "\x1f"])
def test_ids_with_white_space_are_refused_by_trec(tmp_path: Path, space: str) -> None:
    """Whatever str.split() splits at would shift the columns; BEIR's JSONL holds them."""
    corpus = [*CORPUS, {"_id": f"a{space}b", "text": "x"}]
    write_beir(tmp_path, corpus=corpus)
    card = beir_card()
    collection = load_collection(card, data_root=tmp_path)

    with pytest.raises(DataError, match="has white space, which TREC's files cannot hold; use --format beir"):
        export(collection, card, "trec", tmp_path / "out")
    assert export(collection, card, "beir", tmp_path / "out")


def test_a_beir_folder_comes_back_as_the_same_collection(tmp_path: Path) -> None:
    """Written, read again: corpus, queries, judgements, candidates."""
    write_beir(tmp_path, candidates={"q1": ["d2", "d1"], "q2": ["d3"]})
    card = beir_card(options={"candidates": "top_ranked.jsonl"})
    before = load_collection(card, data_root=tmp_path)

    export(before, card, "beir", tmp_path / "again" / "tiny")
    after = load_collection(card, data_root=tmp_path / "again")

    assert after.corpus.equals(before.corpus)
    assert after.queries.equals(before.queries)
    assert after.graded.to_dict() == before.graded.to_dict()
    assert after.candidates == before.candidates


@pytest.mark.parametrize("kind", ["trec", "beir"])
def test_passages_come_with_their_documents(tmp_path: Path, kind: str) -> None:
    """MaxP needs the way from a passage to the document that is judged."""
    write_task(tmp_path, "clinical_trial", Shape(use_max_p=True))
    card = find_task("CRUMBClinicalTrial")

    export(load_collection(card, data_root=tmp_path), card, kind, tmp_path / "out")

    pairs = (tmp_path / "out" / "parents.tsv").read_text(encoding="utf-8").splitlines() if kind == "trec" else []
    rows = (tmp_path / "out" / "corpus.jsonl").read_text(encoding="utf-8") if kind == "beir" else ""
    assert ("DOC0000000:0\tDOC0000000" in pairs) == (kind == "trec")
    assert ('"parent_id":"DOC0000000"' in rows) == (kind == "beir")


def test_a_max_passage_task_comes_back_through_beir(tmp_path: Path) -> None:
    """Instructions and parents included, with the loader's options for them."""
    write_task(tmp_path, "clinical_trial", Shape(use_max_p=True))
    card = find_task("CRUMBClinicalTrial")
    before = load_collection(card, data_root=tmp_path)

    export(before, card, "beir", tmp_path / "again" / "tiny")
    options = {"prompt_field": "prompt", "parent_field": "parent_id"}
    after = load_collection(beir_card(options=options, max_passage=True), data_root=tmp_path / "again")

    assert after.queries.equals(before.queries)
    assert after.parents.to_pylist() == before.parents.to_pylist()
    assert after.graded.to_dict() == before.graded.to_dict()


def test_binary_labels_have_a_file_of_their_own(tmp_path: Path) -> None:
    """Recall and nDCG of papers need different judgements."""
    write_task(tmp_path, "scientific_paper", Shape(chunked=False, binary=True))
    card = find_task("CRUMBPaperRetrieval")

    written = export(load_collection(card, data_root=tmp_path), card, "trec", tmp_path / "out")

    assert {"qrels.txt", "qrels.binary.txt"} <= {path.name for path in written}


def test_a_query_that_is_excluded_from_its_ranking_is_named(upstream_root: Path, tmp_path: Path) -> None:
    """Other tools do not know the card's exclude_self."""
    card = find_task("AnaloBenchT2S1FullBank")

    export(load_collection(card, data_root=upstream_root), card, "trec", tmp_path)

    assert (tmp_path / "exclusions.tsv").read_text(encoding="utf-8").splitlines()[0] == "s0\ts0"


def test_an_unknown_format_is_misuse(tmp_path: Path) -> None:
    """The message has the formats."""
    write_beir(tmp_path)

    with pytest.raises(UsageError, match="unknown export format 'csv'; there are trec and beir"):
        export(load_collection(beir_card(), data_root=tmp_path), beir_card(), "csv", tmp_path)


def test_an_aggregate_is_called_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the members that can be exported, instead of a task that does not exist."""
    assert cli.main(["export", "CRUMB", "--format", "beir", "--output", str(tmp_path / "out")]) == 2

    told = capsys.readouterr().err
    assert "CRUMB is an aggregate and has no data of its own; export one of its members: CRUMBClinicalTrial, " in told
    assert told.count("\n") == 1
