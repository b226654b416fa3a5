from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from crumb_tasks.cards import TaskCard, find_task
from crumb_tasks.collection import Collection
from crumb_tasks.errors import DataError
from crumb_tasks.loaders import load_collection

SIZES = (1, 10, 30)


def oracle(folder: Path) -> dict[str, object]:
    """Read a ready-made BEIR folder with nothing of this package."""

    def rows(name: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]

    qrels: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query_id, doc_id, grade = line.split("\t")
        qrels.setdefault(query_id, {})[doc_id] = int(grade)
    return {
        "corpus": {row["_id"]: row["text"] for row in rows("corpus.jsonl")},
        "queries": {row["_id"]: row["text"] for row in rows("queries.jsonl")},
        "qrels": qrels,
        "candidates": {row["query-id"]: row["corpus-ids"] for row in rows("top_ranked.jsonl")},
    }


def shown(collection: Collection) -> dict[str, object]:
    """Return a collection in the oracle's form."""
    corpus, queries = collection.corpus.to_pydict(), collection.queries.to_pydict()
    return {
        "corpus": dict(zip(corpus["id"], corpus["text"], strict=True)),
        "queries": dict(zip(queries["id"], queries["text"], strict=True)),
        "qrels": collection.graded.to_dict(),
        "candidates": collection.candidates,
    }


def card_of(setting: str, sentences: int) -> TaskCard:
    """Return a card for a setting, whether or not the package has a task for it."""
    card = find_task("AnaloBenchT2S1")
    options = {"setting": setting, "sentences": sentences}
    return card.model_copy(update={"options": options, "expected": {}, "name": f"{setting}S{sentences}"})


@pytest.mark.parametrize("sentences", SIZES)
def test_t2_equals_the_ready_made_folder(shared_data: Path, upstream_root: Path, sentences: int) -> None:
    """Texts, judgements and the 200 candidates in their order, from the raw upstream files."""
    collection = load_collection(f"AnaloBenchT2S{sentences}", data_root=upstream_root)

    assert shown(collection) == oracle(shared_data / "analobench" / "beir" / f"T2S{sentences}")


@pytest.mark.parametrize("sentences", SIZES)
def test_the_t1_subset_equals_the_ready_made_folder(shared_data: Path, upstream_root: Path, sentences: int) -> None:
    """Four options, one of them right; the five queries among their own options are noted."""
    collection = load_collection(card_of("T1-Subset", sentences), data_root=upstream_root)

    assert shown(collection) == oracle(shared_data / "analobench" / "beir" / f"T1S{sentences}_subset")
    assert collection.notes == ("5 queries stand among their own options: q152, q163, q168, q188, q192",)


def test_t1_full_asks_every_pair(upstream_root: Path) -> None:
    """2,460 questions, one for each pair of related stories; no query is its own option."""
    collection = load_collection(card_of("T1-Full", 10), data_root=upstream_root)

    assert len(collection.queries) == 2460
    assert {len(ids) for ids in collection.candidates.values()} == {4}
    assert Counter(len(grades) for grades in collection.graded.to_dict().values()) == {1: 2460}
    assert collection.notes == ()


def test_counts_and_ends_are_pinned(upstream_root: Path) -> None:
    """340 stories in 47 clusters, 5 to 17 right answers, first and last ids and texts."""
    collection = load_collection("AnaloBenchT2S1", data_root=upstream_root)

    ids, texts = collection.corpus["id"].to_pylist(), collection.corpus["text"].to_pylist()
    assert (len(ids), ids[0], ids[-1]) == (340, "s0", "s339")
    assert texts[0] == "All that glitters is not gold."
    assert (collection.graded.counts.min(), collection.graded.counts.max()) == (5, 17)
    assert len(collection.graded.codes) == 2460
    assert not any(f"s{query_id[1:]}" in ids for query_id, ids in collection.candidates.items())


@pytest.mark.parametrize("sentences", SIZES)
def test_in_the_full_bank_a_query_has_the_id_of_its_story(upstream_root: Path, sentences: int) -> None:
    """So that excluding the query itself is what MTEB and the card mean by it; judgements are those of T2."""
    options = load_collection(f"AnaloBenchT2S{sentences}", data_root=upstream_root)
    bank = load_collection(f"AnaloBenchT2S{sentences}FullBank", data_root=upstream_root)

    assert find_task(f"AnaloBenchT2S{sentences}FullBank").exclude_self
    assert bank.queries["id"].to_pylist() == bank.corpus["id"].to_pylist()
    assert bank.candidates is None
    assert list(bank.graded.to_dict().values()) == list(options.graded.to_dict().values())


def test_indices_that_contradict_the_clusters_are_refused(upstream_root: Path, tmp_path: Path) -> None:
    """Were `Indices` read as ids or from zero, this check would fail on every row of the real file."""
    place = tmp_path / "JHU-CLSP" / "AnaloBench" / "data"
    place.mkdir(parents=True)
    for name in ("AnaloBench-T2-Base.csv", "stories-10.csv"):
        content = (upstream_root / "JHU-CLSP" / "AnaloBench" / "data" / name).read_text(encoding="utf-8")
        (place / name).write_text(content.replace('"144,187,73', '"143,187,73'), encoding="utf-8", newline="")

    with pytest.raises(DataError, match=r"AnaloBench-T2-Base\.csv:2: the stories named as right are not those"):
        load_collection("AnaloBenchT2S1", data_root=tmp_path)
