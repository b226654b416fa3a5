from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from generate_crumb import REPOSITORY, Shape, read_rows, write_rows, write_task

from crumb_tasks.cards import TaskCard, find_aggregate, find_task, iter_tasks
from crumb_tasks.errors import CardError, DataError, MissingDataError, SchemaError, UsageError
from crumb_tasks.loaders import load_collection, loader_of
from crumb_tasks.sources import open_source

MAX_PASSAGE = Shape(use_max_p=True)
PAPERS = Shape(chunked=False, binary=True)


def crumb_tasks_of(card: str) -> list[TaskCard]:
    """Return the tasks of one card."""
    return [task for task in iter_tasks() if task.benchmark == card]


def change(path: Path, **fields: object) -> None:
    """Set fields of the first row of a JSONL file."""
    rows = read_rows(path)
    rows[0] |= fields
    write_rows(path, rows)


@pytest.mark.parametrize("split", ["test", "validation"])
@pytest.mark.parametrize("task", crumb_tasks_of("crumb"), ids=lambda task: task.name)
def test_each_task_loads_from_the_upstream_layout(tmp_path: Path, task: TaskCard, split: str) -> None:
    """Thirteen tasks, two splits, from nothing but the upstream files; the data root holds no file they do not read."""
    options = dict(task.options)
    chunked = bool(options.get("chunked"))
    shape = Shape(chunked=chunked, use_max_p=task.max_passage, binary="binary" in task.qrels)
    write_task(tmp_path, str(options["folder"]), shape)
    needed = set(loader_of(task).files(task, split))
    for path in (tmp_path / REPOSITORY).rglob("*.jsonl"):
        if path.relative_to(tmp_path / REPOSITORY).as_posix() not in needed:
            path.unlink()

    collection = load_collection(task, split, data_root=tmp_path)

    assert len(collection.queries) == (6 if split == "test" else 2)
    assert collection.queries.column_names == ["id", "text", "prompt"]
    assert collection.corpus.column_names == ["id", "title", "text"]
    assert (collection.parents is not None) == task.max_passage
    assert set(collection.qrels) == {"graded", *task.qrels}
    assert all(count > 0 for count in collection.graded.counts)


def test_papers_stand_in_a_folder_of_another_name() -> None:
    """Upstream's split is paper_retrieval, its folder scientific_paper."""
    task = find_task("CRUMBPaperRetrieval")

    assert loader_of(task).files(task, "test") == (
        "scientific_paper/eval/query_labels.jsonl",
        "scientific_paper/passage_corpus.jsonl",
    )


def test_passages_of_max_passage_tasks_are_judged_by_their_documents(tmp_path: Path) -> None:
    """Parents come from parent_id, the judgements from full_document_qrels."""
    write_task(tmp_path, "clinical_trial", MAX_PASSAGE)

    collection = load_collection("CRUMBClinicalTrial", data_root=tmp_path)

    ids, parents = collection.corpus["id"].to_pylist(), collection.parents.to_pylist()
    assert [passage.rpartition(":")[0] for passage in ids] == parents
    assert set(collection.graded.to_dict()["100"]) == {"DOC0000000", "DOC0000001"}
    assert set(collection.graded.documents.ids.to_pylist()) <= set(parents)


def test_parents_are_never_read_out_of_ids(tmp_path: Path) -> None:
    """An id with a colon whose parent_id says otherwise; null stands for the passage itself."""
    folder = write_task(tmp_path, "clinical_trial", MAX_PASSAGE)
    rows = read_rows(folder / "passage_corpus.jsonl")
    rows.append({"document_id": "a:b:1", "document_content": "x", "parent_id": "a:b", "metadata": "{}"})
    rows.append({"document_id": "whole:thing", "document_content": "y", "parent_id": None, "metadata": "{}"})
    write_rows(folder / "passage_corpus.jsonl", rows)

    parents = load_collection("CRUMBClinicalTrial", data_root=tmp_path).parents

    assert parents.to_pylist()[-2:] == ["a:b", "whole:thing"]


def test_what_upstream_leaves_null_is_shown_and_contradicts_nothing(tmp_path: Path) -> None:
    """A parent_id of null is printed as null, not as what stands for it; a use_max_p of null is no other flag."""
    folder = write_task(tmp_path, "clinical_trial", MAX_PASSAGE)
    change(folder / "passage_corpus.jsonl", parent_id=None)
    change(folder / "eval" / "query_labels.jsonl", use_max_p=None)
    task = find_task("CRUMBClinicalTrial")

    found = list(loader_of(task).inspect(task, "test", open_source(task, root=tmp_path)))
    notes = load_collection(task, data_root=tmp_path).notes

    messages = [entry.message for entry in found]
    assert "first passage: document_id 'DOC0000000:0', parent_id null" in messages
    assert not [message for message in (*messages, *notes) if message.startswith("use_max_p of ")]


def test_papers_have_graded_and_binary_labels(tmp_path: Path) -> None:
    """A grade above zero that the binary labels call 0 is used by nDCG and not by recall (known problem R10)."""
    folder = write_task(tmp_path, "scientific_paper", PAPERS)
    change(
        folder / "eval" / "query_labels.jsonl",
        passage_qrels=[{"id": "DOC0000000", "label": 3.0}, {"id": "DOC0000001", "label": 1.0}],
        passage_binary_qrels=[{"id": "DOC0000000", "label": 1.0}, {"id": "DOC0000001", "label": 0.0}],
    )

    collection = load_collection("CRUMBPaperRetrieval", data_root=tmp_path)

    assert collection.qrels["graded"].to_dict()["100"] == {"DOC0000000": 3, "DOC0000001": 1}
    assert collection.qrels["binary"].to_dict()["100"] == {"DOC0000000": 1, "DOC0000001": 0}


def test_fractional_labels_are_cut_and_counted(tmp_path: Path) -> None:
    """0.5 becomes 0 and 1.7 becomes 1, as `int()` does in the benchmark's evaluator; the result says so."""
    folder = write_task(tmp_path, "scientific_paper", PAPERS)
    labels = [{"id": "DOC0000000", "label": 0.5}, {"id": "DOC0000001", "label": 1.7}]
    change(folder / "eval" / "query_labels.jsonl", passage_qrels=labels)

    collection = load_collection("CRUMBPaperRetrieval", data_root=tmp_path)

    assert collection.graded.to_dict()["100"] == {"DOC0000000": 0, "DOC0000001": 1}
    assert collection.notes == ("2 fractional graded labels cut to integers, as upstream's evaluator does",)


def test_several_instructions_stay_with_their_queries(tmp_path: Path) -> None:
    """They are data, in the column `prompt`; the query text has none of them, null is no instruction."""
    folder = write_task(tmp_path, "legal_qa")
    change(folder / "eval" / "query_labels.jsonl", instruction=None)

    queries = load_collection("CRUMBLegalQA", data_root=tmp_path).queries

    assert queries["prompt"].to_pylist()[:3] == ["", "Find the item that is meant.", "Find what answers the question."]
    assert not any("Find" in text for text in queries["text"].to_pylist())


def test_a_query_without_judgements_is_kept_and_unjudged(tmp_path: Path) -> None:
    """An empty or null list is no error: scoring leaves the query out and counts it (R05)."""
    folder = write_task(tmp_path, "legal_qa")
    change(folder / "eval" / "query_labels.jsonl", passage_qrels=[])

    collection = load_collection("CRUMBLegalQA", data_root=tmp_path)

    assert collection.graded.query_ids[0] == "100"
    assert collection.graded.counts[0] == 0


@pytest.mark.parametrize("use_max_p", [False, True])
def test_a_flag_that_contradicts_the_card_is_noted(tmp_path: Path, *, use_max_p: bool) -> None:
    """`use_max_p` is compared with max_passage; the card is followed, as the benchmark's evaluator has its own list."""
    name, folder = ("CRUMBLegalQA", "legal_qa") if use_max_p else ("CRUMBClinicalTrial", "clinical_trial")
    write_task(tmp_path, folder, Shape(use_max_p=use_max_p))

    notes = load_collection(name, data_root=tmp_path).notes

    assert notes == (f"use_max_p of 6 queries is {use_max_p}; the card's max_passage is followed",)


def test_other_columns_are_a_schema_error_that_names_them(tmp_path: Path) -> None:
    """Rows with `doc_id` and `relevance`, as some users expect, or a renamed corpus column."""
    folder = write_task(tmp_path, "legal_qa")
    (folder / "passage_corpus.jsonl").write_text('{"doc_id": "a", "text": "b"}\n', encoding="utf-8")

    with pytest.raises(SchemaError, match=r"passage_corpus\.jsonl:1: .*`document_id`.*found the fields doc_id, text"):
        load_collection("CRUMBLegalQA", data_root=tmp_path)
    (folder / "eval" / "query_labels.jsonl").write_text('{"query_id": "1", "relevance": []}\n', encoding="utf-8")
    write_rows(folder / "passage_corpus.jsonl", [{"document_id": "a", "document_content": "b", "parent_id": None}])
    with pytest.raises(SchemaError, match=r"query_labels\.jsonl:1: .*found the fields query_id, relevance"):
        load_collection("CRUMBLegalQA", data_root=tmp_path)


def test_a_query_id_twice_is_refused(tmp_path: Path) -> None:
    """Both rows are named (R24)."""
    folder = write_task(tmp_path, "legal_qa")
    change(folder / "eval" / "query_labels.jsonl", query_id="101")

    with pytest.raises(DataError, match=r"the id '101' stands in rows 1 and 2, with different texts"):
        load_collection("CRUMBLegalQA", data_root=tmp_path)


def test_integer_ids_are_text(tmp_path: Path) -> None:
    """Queries, judgements, documents and parents alike (R23)."""
    folder = write_task(tmp_path, "tip_of_the_tongue", MAX_PASSAGE)
    write_rows(folder / "passage_corpus.jsonl", [{"document_id": 7, "document_content": "x", "parent_id": 2093587}])
    row = read_rows(folder / "eval" / "query_labels.jsonl")[0]
    row |= {"query_id": 1006, "full_document_qrels": [{"id": 2093587, "label": 1}]}
    write_rows(folder / "eval" / "query_labels.jsonl", [row])

    collection = load_collection("CRUMBTipOfTheTongue", data_root=tmp_path)

    assert collection.graded.to_dict() == {"1006": {"2093587": 1}}
    assert (collection.corpus["id"].to_pylist(), collection.parents.to_pylist()) == (["7"], ["2093587"])


@pytest.mark.parametrize(
    ("split", "answer"),
    [("train", "has no training data"), ("evaluation_queries", "'test'"), ("val", "'validation'")],
)
def test_upstream_names_of_splits_get_a_friendly_answer(split: str, answer: str) -> None:
    """split="train" is what users try first; upstream's own names are told apart from this package's."""
    with pytest.raises(UsageError, match=answer):
        load_collection("CRUMBLegalQA", split)


def test_a_wrong_label_column_is_a_wrong_card(tmp_path: Path) -> None:
    """With the name that was probably meant."""
    write_task(tmp_path, "legal_qa")
    card = find_task("CRUMBLegalQA").model_copy(update={"qrels": {"graded": "pasage_qrels"}})

    with pytest.raises(CardError, match="no column 'pasage_qrels'; did you mean 'passage_qrels'"):
        load_collection(card, data_root=tmp_path)


def test_missing_files_name_the_command(tmp_path: Path) -> None:
    """Repository, revision, files, command: one line."""
    write_task(tmp_path, "legal_qa")

    with pytest.raises(
        MissingDataError, match=r"theorem_retrieval/eval/query_labels\.jsonl, theorem_retrieval/passage"
    ):
        load_collection("CRUMBTheoremRetrieval", data_root=tmp_path)


def test_a_plain_locale_does_not_change_what_is_read(tmp_path: Path) -> None:
    """LC_ALL=C without UTF-8 mode, ids and texts beyond ASCII (R30)."""
    folder = write_task(tmp_path, "clinical_trial", MAX_PASSAGE)
    rows = read_rows(folder / "passage_corpus.jsonl")
    rows[0] |= {"document_id": "Zoë:0", "document_content": "naïve \u2028 文書", "parent_id": "Zoë"}
    write_rows(folder / "passage_corpus.jsonl", rows)
    code = (
        "from crumb_tasks.loaders import load_collection; c = load_collection('CRUMBClinicalTrial')\n"
        "print(ascii([c.corpus['id'][0].as_py(), c.corpus['text'][0].as_py(), c.parents[0].as_py()]))"
    )
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "CRUMB_TASKS_DATA": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, encoding="ascii", check=True
    )

    assert done.stdout.strip() == ascii(["Zoë:0", "naïve \u2028 文書", "Zoë"])


@pytest.mark.parametrize("task", crumb_tasks_of("crumb_sample"), ids=lambda task: task.name)
def test_the_sample_has_enough_of_everything(task: TaskCard) -> None:
    """At least 15 test and 3 validation queries, 80 to 150 documents, nothing empty, nothing to note; no network."""
    test, validation = load_collection(task), load_collection(task, "validation")

    n_documents = len(test.corpus if test.parents is None else test.parents.unique())
    chunked_passages = bool(dict(task.options).get("chunked")) and dict(task.options).get("level") != "full_document"
    assert len(test.queries) >= 15
    assert len(validation.queries) >= 3
    assert n_documents >= 80
    assert n_documents <= 150 or (chunked_passages and test.parents is None)
    assert test.n_empty_texts == 0
    assert test.notes == ()
    assert all(count > 0 for count in test.graded.counts)


def test_the_sample_is_in_the_very_upstream_layout() -> None:
    """Copied into a data root as jfkback/crumb it loads as the real tasks do."""
    sample, real = crumb_tasks_of("crumb_sample"), crumb_tasks_of("crumb")

    assert [task.name.replace("Sample", "") for task in sample] == [task.name for task in real]
    for one, other in zip(sample, real, strict=True):
        assert loader_of(one).files(one, "test") == loader_of(other).files(other, "test")
        assert (one.options, one.qrels, one.max_passage) == (other.options, other.qrels, other.max_passage)


def test_the_sample_loads_as_the_real_tasks(tmp_path: Path) -> None:
    """The same numbers under both names."""
    for name in ("ClinicalTrial", "PaperRetrieval"):
        sample = find_task(f"CRUMBSample{name}")
        for file in loader_of(sample).files(sample, "test"):
            target = tmp_path / REPOSITORY / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(open_source(sample).path(file).read_bytes())

        real = load_collection(f"CRUMB{name}", data_root=tmp_path)

        assert real.corpus.equals(load_collection(sample).corpus)
        assert real.graded.to_dict() == load_collection(sample).graded.to_dict()


def test_rows_of_real_size_are_read_without_their_metadata(tmp_path: Path) -> None:
    """Upstream's code queries carry 98 kB a row; unread fields cost no Python object."""
    folder = write_task(tmp_path, "code_retrieval", Shape(chunked=False))
    path = folder / "eval" / "query_labels.jsonl"
    rows = read_rows(path)
    for row in rows:
        row["metadata"] = json.dumps({"tests": ["\u2028" * 30_000]})
        row["another field"] = {"nested": [1, 2, 3]}
    write_rows(path, rows)

    assert len(load_collection("CRUMBCodeRetrieval", data_root=tmp_path).queries) == 6
    assert msgspec.json.decode(path.read_bytes().split(b"\n")[0])["another field"] == {"nested": [1, 2, 3]}


def test_the_aggregates_have_their_eight_members() -> None:
    """Passages: eight; full documents: five plus the three tasks that have one corpus only."""
    passages, documents = find_aggregate("CRUMB"), find_aggregate("CRUMBFullDocument")

    assert len(passages.task_names) == len(documents.task_names) == 8
    assert sum(name.endswith("FullDocument") for name in documents.task_names) == 5
    assert set(passages.task_names) & set(documents.task_names) == {
        "CRUMBCodeRetrieval",
        "CRUMBPaperRetrieval",
        "CRUMBTheoremRetrieval",
    }


def test_an_aggregate_names_its_members() -> None:
    """CRUMB is eight tasks; it has no data of its own."""
    with pytest.raises(UsageError, match=r"CRUMB is an aggregate .* load one of its members: CRUMBClinicalTrial, "):
        load_collection("CRUMB")
