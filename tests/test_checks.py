from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from beir_folder import CORPUS, QRELS, QUERIES, beir_card, write_beir
from generate_crumb import Shape, read_rows, write_rows, write_task

from crumb_tasks.cards import TaskCard, find_task
from crumb_tasks.checks import Report, check_collection, check_task
from crumb_tasks.errors import UsageError
from crumb_tasks.loaders import load_collection
from crumb_tasks.loaders._finding import Finding


def seen(reports: list[Report], check: str, severity: str = "finding") -> list[Finding]:
    """Return what was reported of one kind."""
    return [
        entry for report in reports for entry in report.findings if (entry.check, entry.severity) == (check, severity)
    ]


def check(root: Path, task: TaskCard | str | None = None) -> list[Report]:
    """Check a task, by default the tiny BEIR folder."""
    return list(check_task(task or beir_card(), data_root=root))


def test_sound_data_have_no_findings(tmp_path: Path) -> None:
    """Notes only: counts and grades."""
    write_beir(tmp_path)

    (report,) = check(tmp_path)

    assert report.n_findings == 0
    assert seen([report], "counts", "note")[0].message == "2 queries, 3 qrels, 3 documents"
    assert seen([report], "grades", "note")[0].examples == ("0: 1", "1: 1", "2: 1")


def test_data_that_do_not_load_are_a_finding(tmp_path: Path) -> None:
    """The loader's own line, and the other splits are still checked."""
    write_beir(tmp_path)
    card = beir_card(splits={"validation": "dev", "test": "test"})

    reports = check(tmp_path, card)

    assert [report.split for report in reports] == ["validation", "test"]
    assert "qrels/dev.tsv" in seen(reports[:1], "load")[0].message
    assert reports[1].n_findings == 0


def test_what_a_loader_inspects_is_seen_of_data_that_do_not_load(tmp_path: Path) -> None:
    """A query id twice stops the load, and not what is said about instructions, flags, labels and parents."""
    folder = write_task(tmp_path, "clinical_trial", Shape(use_max_p=True))
    queries = read_rows(folder / "eval" / "query_labels.jsonl")
    queries[0] |= {"instruction": None, "query_id": queries[1]["query_id"]}
    write_rows(folder / "eval" / "query_labels.jsonl", queries)

    reports = list(check_task("CRUMBClinicalTrial", ["test"], data_root=tmp_path))

    assert len(seen(reports, "load")) == 1
    assert [entry.message for entry in seen(reports, "instructions")] == ["1 queries have no instruction"]
    assert {entry.check for entry in reports[0].findings} >= {"use_max_p", "labels", "parents"}
    (folder / "passage_corpus.jsonl").unlink()
    assert [entry.check for entry in next(check_task("CRUMBClinicalTrial", data_root=tmp_path)).findings] == ["load"]


def test_an_inspection_that_breaks_off_keeps_what_it_found(tmp_path: Path) -> None:
    """Its own line is added where the load did not say the same."""
    folder = write_task(tmp_path, "clinical_trial", Shape(use_max_p=True))
    (folder / "full_document_corpus.jsonl").write_text("[]\n", encoding="utf-8")

    reports = list(check_task("CRUMBClinicalTrial", ["test"], data_root=tmp_path))

    assert "full_document_corpus.jsonl" in seen(reports, "inspect")[0].message
    assert seen(reports, "instructions", "note")
    assert not seen(reports, "load")


def test_a_corpus_without_documents_is_said_so(tmp_path: Path) -> None:
    """Not that its judgements name nothing."""
    write_beir(tmp_path, corpus=())
    folder = write_task(tmp_path, "clinical_trial", Shape(use_max_p=True))
    (folder / "passage_corpus.jsonl").write_text("", encoding="utf-8")

    assert "holds no documents" in seen(check(tmp_path), "load")[0].message
    crumb = next(check_task("CRUMBClinicalTrial", ["test"], data_root=tmp_path))
    assert f"{folder / 'passage_corpus.jsonl'}: the file holds no documents" in seen([crumb], "load")[0].message


def test_an_unknown_split_is_misuse() -> None:
    """Not a finding about the data."""
    with pytest.raises(UsageError, match="has no split 'tset'"):
        list(check_task(beir_card(), ["tset"]))


@pytest.mark.parametrize(("verified", "severity"), [(True, "finding"), (False, "note")])
def test_counts_are_compared_with_the_card(tmp_path: Path, *, verified: bool, severity: str) -> None:
    """What only a secondary source says is a note."""
    write_beir(tmp_path)
    card = beir_card(expected={"test": {"documents": 5, "queries": 2, "verified": verified}})

    (entry,) = [entry for entry in seen(check(tmp_path, card), "counts", severity) if "expected" in entry.message]

    assert entry.message.startswith("3 documents, expected 5")


def test_dangling_ids_are_counted_and_their_twins_named(tmp_path: Path) -> None:
    """`Zoë` composed and decomposed look the same and are not (known problem R30)."""
    corpus = [*CORPUS, {"_id": "Zo\u00eb", "text": "x"}]
    write_beir(tmp_path, corpus=corpus, qrels=[*QRELS, ("q1", "Zoe\u0308", 1)])

    (entry,) = seen(check(tmp_path, beir_card(dangling={"documents": 1})), "dangling")

    assert entry.count == 1
    assert "is another spelling of 'Zo\u00eb'" in entry.message


@pytest.mark.parametrize(
    ("lost", "explanation"),
    [
        ("doc0000001", "is another spelling of 'DOC0000001'"),
        ("DOC0000001:0", "a passage is judged where documents are"),
    ],
)
def test_twins_under_max_passage_are_documents(tmp_path: Path, lost: str, explanation: str) -> None:
    """Judgements name parents there; a passage's id in their place is called what it is."""
    folder = write_task(tmp_path, "clinical_trial", Shape(use_max_p=True))
    queries = read_rows(folder / "eval" / "query_labels.jsonl")
    queries[0] |= {"full_document_qrels": [{"id": lost, "label": 1}]}
    write_rows(folder / "eval" / "query_labels.jsonl", queries)
    card = find_task("CRUMBClinicalTrial")
    card = card.model_copy(update={"dangling": card.dangling.model_copy(update={"documents": 1})})

    found = check_collection(card, load_collection(card, data_root=tmp_path))

    (message,) = [entry.message for entry in found if entry.check == "dangling"]
    assert f"'{lost}' is " in message
    assert message.endswith(explanation)


def test_ids_that_differ_in_spelling_only_are_found(tmp_path: Path) -> None:
    """Case, white space, Unicode composition."""
    corpus = [*CORPUS, {"_id": "D1", "text": "x"}, {"_id": " d2", "text": "y"}]
    write_beir(tmp_path, corpus=corpus)

    (entry,) = seen(check(tmp_path), "ids")

    assert entry.count == 2
    assert entry.message.startswith("2 groups of documents")


def test_one_text_of_which_one_is_judged_is_found(tmp_path: Path) -> None:
    """Two equal documents, one relevant: listed, and nothing is merged (R25)."""
    write_beir(tmp_path, corpus=[*CORPUS, {"_id": "d4", "title": "One", "text": "a"}])

    reports = check(tmp_path)

    assert seen(reports, "texts", "note")[0].message == "2 documents in 1 groups have the same text"
    assert seen(reports, "texts")[0].examples == ("q1", "d1", "d4")
    assert load_collection(beir_card(), data_root=tmp_path).graded.to_dict()["q1"] == {"d1": 1}


def test_one_text_judged_alike_is_no_finding(tmp_path: Path) -> None:
    """Nor is the same text under another title the same document."""
    corpus = [*CORPUS, {"_id": "d4", "title": "One", "text": "a"}, {"_id": "d5", "title": "Two", "text": "a"}]
    write_beir(tmp_path, corpus=corpus, qrels=[*QRELS, ("q1", "d4", 1)])

    reports = check(tmp_path)

    assert seen(reports, "texts", "note")[0].count == 1
    assert seen(reports, "texts") == []


def test_an_empty_relevant_document_is_found(tmp_path: Path) -> None:
    """An empty document is a note, an empty relevant one a ceiling on the score (R21)."""
    write_beir(tmp_path, corpus=[{"_id": "d1", "text": ""}, {"_id": "d2", "text": "b"}, {"_id": "d3", "text": " "}])

    reports = check(tmp_path)

    assert seen(reports, "empty", "note")[0].count == 2
    assert seen(reports, "empty")[0].examples == ("d1",)


def test_grades_that_break_sums_are_found(tmp_path: Path) -> None:
    """Negative and repeated ones; queries with nothing relevant, or nothing judged, are notes (R05)."""
    queries = [*QUERIES, {"_id": "q3", "text": "third"}]
    write_beir(tmp_path, queries=queries, qrels=[*QRELS, ("q1", "d1", 1), ("q2", "d1", -1), ("q3", "d3", 0)])

    reports = check(tmp_path)

    messages = [entry.message for entry in seen(reports, "grades")]
    assert messages == ["graded: 1 judgements stand there more than once", "graded: 1 grades are negative"]
    assert "graded: 1 queries have judgements but nothing relevant" in [
        entry.message for entry in seen(reports, "grades", "note")
    ]


def test_candidates_are_compared_with_the_judgements(tmp_path: Path) -> None:
    """One twice, a query without any, a query whose candidates hold nothing relevant (known problem R54)."""
    write_beir(tmp_path, candidates={"q1": ["d2", "d2"]})

    reports = check(tmp_path, beir_card(options={"candidates": "top_ranked.jsonl"}))

    assert [entry.examples for entry in seen(reports, "candidates")] == [("q1",), ("q2",)]
    assert "2 queries have nothing relevant" in seen(reports, "candidates", "note")[1].message


def test_no_candidates_at_all_are_a_finding(tmp_path: Path) -> None:
    """An empty file of candidates has no smallest length."""
    write_beir(tmp_path, candidates={})
    card = beir_card(options={"candidates": "top_ranked.jsonl"})
    collection = replace(load_collection(beir_card(), data_root=tmp_path), candidates={})

    found = [entry for entry in check_collection(card, collection) if entry.check == "candidates"]

    assert [entry.message for entry in found] == [
        "no query has candidates",
        "2 judged queries have no candidates",
        "2 queries have nothing relevant among their candidates",
    ]


def test_empty_queries_are_found(tmp_path: Path) -> None:
    """A text of white space, and an id that is none."""
    folder = write_task(tmp_path, "legal_qa")
    queries = read_rows(folder / "eval" / "query_labels.jsonl")
    queries[0] |= {"query_content": " "}
    queries[1] |= {"query_id": ""}
    write_rows(folder / "eval" / "query_labels.jsonl", queries)

    reports = list(check_task("CRUMBLegalQA", ["test"], data_root=tmp_path))

    assert seen(reports, "empty")[0].message == "1 queries have an empty text; '-' is sent in its place"
    assert seen(reports, "empty")[0].examples == ("100",)
    assert [entry.message for entry in seen(reports, "ids")] == ["1 queries have an empty id"]


def test_queries_that_two_splits_share_are_found(tmp_path: Path) -> None:
    """By id and by text: validation must not be a look at the test."""
    write_beir(tmp_path)
    write_beir(tmp_path, split="dev", qrels=QRELS[:1])

    reports = check(tmp_path, beir_card(splits={"test": "test", "validation": "dev"}))

    assert [entry.message for entry in seen(reports, "splits")] == [
        "1 queries of test stand in validation as well, by their id",
        "1 queries of test stand in validation as well, by their text",
    ]
    assert reports[-1].split == ""


def test_one_text_under_two_query_ids_is_noted(tmp_path: Path) -> None:
    """They stay two queries (R24)."""
    write_beir(tmp_path, queries=[{"_id": "q1", "text": "same"}, {"_id": "q2", "text": "same"}])

    assert seen(check(tmp_path), "queries", "note")[0].examples == ("q1", "q2")


def test_crumb_is_asked_what_could_not_be_looked_up(tmp_path: Path) -> None:
    """Instructions, labels of every column, use_max_p, parents: the open questions of the card, answered in notes."""
    write_task(tmp_path, "clinical_trial", Shape(use_max_p=True))

    reports = check(tmp_path, "CRUMBClinicalTrial")

    notes = "\n".join(entry.message for report in reports for entry in report.findings if entry.severity == "note")
    for part in (
        "2 instructions",
        "use_max_p is True: 6",
        "passage_qrels: 1: ",
        "full_document_qrels: 1: 12",
        "passage_binary_qrels: no judgements",
        "document_id 'DOC0000000:0', parent_id 'DOC0000000'",
        "6 queries, expected 113 by a secondary source",
    ):
        assert part in notes
    assert sum(report.n_findings for report in reports) == 0


def test_crumb_findings(tmp_path: Path) -> None:
    """A flag against the card, fractional labels, no judgement, no instruction, a lost parent, an orphan."""
    folder = write_task(tmp_path, "clinical_trial", Shape(use_max_p=True))
    queries = read_rows(folder / "eval" / "query_labels.jsonl")
    queries[0] |= {"use_max_p": False, "instruction": None}
    queries[1] |= {"full_document_qrels": [{"id": "DOC0000001", "label": 0.5}]}
    queries[2] |= {"full_document_qrels": []}
    write_rows(folder / "eval" / "query_labels.jsonl", queries)
    passages = read_rows(folder / "passage_corpus.jsonl")
    passages[0] |= {"parent_id": "lost"}
    passages[-1] |= {"parent_id": None}
    write_rows(folder / "passage_corpus.jsonl", passages)

    reports = [report for report in check(tmp_path, "CRUMBClinicalTrial") if report.split == "test"]

    assert [entry.message for entry in seen(reports, "use_max_p")] == [
        "use_max_p of 1 queries differs from the card's max_passage = True"
    ]
    assert "full_document_qrels: 1 labels are fractional and are cut to integers" in [
        entry.message for entry in seen(reports, "labels")
    ]
    assert "full_document_qrels: 1 of 6 queries have no judgement" in [
        entry.message for entry in seen(reports, "labels")
    ]
    assert [entry.message for entry in seen(reports, "instructions")] == ["1 queries have no instruction"]
    parents = [entry.message for entry in seen(reports, "parents")]
    assert "1 passages have no parent_id and stand for themselves" in parents
    assert any("parents are not in the full-document corpus" in message for message in parents)


def test_a_single_corpus_task_with_parents_is_found(tmp_path: Path) -> None:
    """code, papers and theorems were not cut, so no passage may have a document, nor a document a judgement."""
    folder = write_task(tmp_path, "theorem_retrieval", Shape(chunked=False))
    passages = read_rows(folder / "passage_corpus.jsonl")
    passages[0] |= {"parent_id": "DOC"}
    write_rows(folder / "passage_corpus.jsonl", passages)
    queries = read_rows(folder / "eval" / "query_labels.jsonl")
    queries[0] |= {"full_document_qrels": [{"id": "DOC", "label": 1}]}
    write_rows(folder / "eval" / "query_labels.jsonl", queries)

    reports = check(tmp_path, "CRUMBTheoremRetrieval")

    assert "1 passages have a parent_id, though documents were not cut" in [
        entry.message for entry in seen(reports, "parents")
    ]
    assert "full_document_qrels: 1 judgements, though the task has one corpus only" in [
        entry.message for entry in seen(reports, "labels")
    ]


@pytest.mark.parametrize("task", ["AnaloBenchT2S10", "AnaloBenchT2S1FullBank", "MOOSEChem1000"])
def test_the_real_data_have_no_findings(upstream_root: Path, task: str) -> None:
    """Counts strict, nothing dangling, nothing twice."""
    if task.startswith("MOOSE"):
        pytest.importorskip("openpyxl", reason="needs the extra xlsx")

    assert [
        entry.message for report in check(upstream_root, task) for entry in report.findings if entry.severity != "note"
    ] == []


def test_a_report_is_json(tmp_path: Path) -> None:
    """For `--json`; checking imports neither torch nor mteb, so it runs before anyone owns a GPU."""
    write_beir(tmp_path)
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[2]); from beir_folder import beir_card\n"
        "from crumb_tasks.checks import check_task\n"
        "print(json.dumps([r.to_dict() for r in check_task(beir_card(), data_root=sys.argv[1])], allow_nan=False))\n"
        "assert not {'torch', 'mteb', 'datasets'} & set(sys.modules), 'heavy imports'"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=Path(__file__).parent.parent,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["task"] == "Tiny"
