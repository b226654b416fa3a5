from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from encoders import METADATA, QUIET, SpellingEncoder, corpus_of, queries_of

from crumb_tasks.errors import RunError, UsageError
from crumb_tasks.models import Instructions
from crumb_tasks.models.conditioned import conditioned
from crumb_tasks.runs import Run
from crumb_tasks.search import EmbeddingStore, grid, search_encoder
from crumb_tasks.search.identity import content_hash

RNG = np.random.default_rng(0)
DOCUMENTS = RNG.integers(-9, 10, (150, 3)).astype(float)
DOC_IDS = [f"d{number}" for number in RNG.permutation(150)]
QUERIES = queries_of(RNG.integers(-2, 3, (5, 3)), [f"q{number}" for number in range(5)])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the corpus three blocks."""
    monkeypatch.setattr(grid, "BLOCK", 64)
    monkeypatch.setattr("crumb_tasks.search.candidates.BLOCK", 64)
    monkeypatch.setattr("crumb_tasks.search.embeddings.BLOCK", 64)
    monkeypatch.setitem(grid.TILE_BY_DEVICE, "cpu", (8, 16))


def search(model: Any, store: EmbeddingStore | None, **changed: Any) -> Run:
    """Search the corpus above, or with some argument changed."""
    told = {
        "corpus": corpus_of(DOCUMENTS, DOC_IDS),
        "queries": QUERIES,
        "task_metadata": METADATA,
        "hf_split": "test",
        "hf_subset": "default",
        "depth": 20,
        "encode_kwargs": QUIET,
        **changed,
    }
    return search_encoder(model, store=store, **told)


def n_encoded(model: SpellingEncoder) -> int:
    """Return how many documents ``model`` has encoded."""
    return sum(count for kind, _, count in model.calls if kind == "document")


def key_of(store: EmbeddingStore) -> tuple[Path, dict[str, Any]]:
    """Return the one key file of ``store`` and what it says."""
    (path,) = store.path.rglob("key.json")
    return path, json.loads(path.read_text(encoding="utf-8"))


def test_a_second_search_encodes_no_document(tmp_path: Path) -> None:
    """Another task with the same corpus, under other ids even, reads what the first one wrote, with equal results."""
    first, second = SpellingEncoder(), SpellingEncoder()
    store = EmbeddingStore(tmp_path)
    run = search(first, store)
    renamed = corpus_of(DOCUMENTS, [f"other-{doc_id}" for doc_id in DOC_IDS])

    again = search(second, store)
    search(second, store, corpus=renamed, hf_split="validation", hf_subset="other", depth=3)

    assert n_encoded(first) == 150
    assert n_encoded(second) == 0
    assert run.to_dict() == again.to_dict() == search(SpellingEncoder(), None).to_dict()


def test_the_key_says_in_plain_words_what_the_embeddings_are(tmp_path: Path) -> None:
    """A user who finds the folder can read what is in it."""
    store = EmbeddingStore(tmp_path)
    search(SpellingEncoder(), store)

    path, key = key_of(store)

    assert path.parent.parent.name == "tests__spelling"
    assert (key["model"], key["revision"], key["documents"], key["dtype"]) == ("tests/spelling", "1", 150, "float32")
    assert sorted(file.name for file in path.parent.iterdir()) == ["00000.npy", "00001.npy", "00002.npy", "key.json"]


def test_an_interrupted_run_goes_on_at_the_first_missing_block(tmp_path: Path) -> None:
    """What was written whole is kept; nothing half-written is left behind."""

    class Interrupted(SpellingEncoder):
        def encode(self, inputs: Any, **told: Any) -> Any:
            """Fail at the third block."""
            if n_encoded(self) == 128:
                raise KeyboardInterrupt
            return super().encode(inputs, **told)

    store = EmbeddingStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        search(Interrupted(), store)

    model = SpellingEncoder()
    run = search(model, store)

    assert n_encoded(model) == 22
    assert run.to_dict() == search(SpellingEncoder(), None).to_dict()
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_write_that_fails_leaves_no_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not leave a file that a later run would read."""
    store = EmbeddingStore(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(OSError, match="No space left"):
            search(SpellingEncoder(), store)

    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["key.json"]


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"revision": "2"}, "model"),
        ({"corpus": corpus_of(DOCUMENTS[::-1], DOC_IDS)}, "search"),
        ({"corpus": corpus_of(DOCUMENTS[:-1], DOC_IDS[:-1])}, "search"),
        ({"corpus": corpus_of(DOCUMENTS, DOC_IDS).map(lambda _: {"title": " "})}, "search"),
        ({"task_metadata": METADATA.model_copy(update={"prompt": {"document": "a story"}})}, "search"),
        ({"task_metadata": METADATA.model_copy(update={"name": "OtherTask"})}, "search"),
    ],
    ids=["revision", "order", "length", "title", "prompt", "task"],
)
def test_other_embeddings_are_never_read(changed: dict[str, Any], where: str, tmp_path: Path) -> None:
    """Another revision, corpus or prompt is encoded anew, beside the first; so is another task of an unknown model."""
    store = EmbeddingStore(tmp_path)
    search(SpellingEncoder(), store)
    model = SpellingEncoder(**(changed if where == "model" else {}))

    search(model, store, **(changed if where == "search" else {}))

    assert n_encoded(model) == len(changed.get("corpus", DOC_IDS))
    assert len(list(tmp_path.rglob("key.json"))) == 2


class Limited(SpellingEncoder):
    """An encoder whose length limit and weights can be seen."""

    def __init__(self, max_seq_length: int = 128, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model = torch.nn.Linear(1, 1, dtype=dtype)
        self.max_seq_length = max_seq_length


@pytest.mark.parametrize(
    ("model", "store_dtype", "encode_kwargs", "reason"),
    [
        (Limited(64), "float32", QUIET, r"max_length 128 \(now 64\)"),
        (Limited(dtype=torch.float16), "float32", QUIET, r"weights 'float32' \(now 'float16'\)"),
        (Limited(), "float16", QUIET, r"dtype 'float32' \(now 'float16'\)"),
        (Limited(), "float32", {**QUIET, "precision": "int8"}, r"encode \{\} \(now \{'precision': 'int8'\}\)"),
    ],
    ids=["length", "weights", "dtype", "encode"],
)
def test_settings_that_differ_are_refused_by_name(
    model: Any, store_dtype: str, encode_kwargs: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """Embeddings of one name made in two ways would be one wrong score."""
    search(Limited(), EmbeddingStore(tmp_path))

    with pytest.raises(UsageError, match=reason):
        search(model, EmbeddingStore(tmp_path, dtype=store_dtype), encode_kwargs=encode_kwargs)

    assert n_encoded(model) == 0


def test_settings_without_effect_are_not_part_of_the_key(tmp_path: Path) -> None:
    """A larger batch on a larger GPU reads the same embeddings."""
    search(SpellingEncoder(), EmbeddingStore(tmp_path))
    model = SpellingEncoder()

    search(model, EmbeddingStore(tmp_path), encode_kwargs={**QUIET, "batch_size": 256})

    assert n_encoded(model) == 0


def test_paired_conditions_encode_the_corpus_once(tmp_path: Path) -> None:
    """With and without instructions only the queries differ."""
    store = EmbeddingStore(tmp_path)
    task = METADATA.model_copy(update={"prompt": {"query": "find it"}})
    counts = []
    for name in ("native", "none", "prepended"):
        model = SpellingEncoder()
        model.vectors = lambda texts: SpellingEncoder().vectors([t.replace("find it", "") for t in texts])  # type: ignore[method-assign]
        experiment = {} if name == "native" else {"instructions": name}
        model.mteb_model_meta = model.mteb_model_meta.model_copy(update={"experiment_kwargs": experiment or None})
        search(conditioned(model, Instructions.parse(name)), store, task_metadata=task)
        counts.append(n_encoded(model))

    assert counts == [150, 0, 0]


@pytest.mark.parametrize("damage", ["truncated", "shape", "key", "no key"])
def test_damaged_embeddings_are_refused_with_the_remedy(damage: str, tmp_path: Path) -> None:
    """Never read as something else, never silently encoded over."""
    store = EmbeddingStore(tmp_path)
    search(SpellingEncoder(), store)
    key, _ = key_of(store)
    shard = key.parent / "00001.npy"
    if damage == "truncated":
        shard.write_bytes(shard.read_bytes()[:200])
    elif damage == "shape":
        np.save(shard, np.zeros((3, 3), dtype=np.float32))
    elif damage == "key":
        key.write_text('{"model": ', encoding="utf-8")
    else:
        key.unlink()

    with pytest.raises(UsageError, match="delete"):
        search(SpellingEncoder(), store)


def test_half_precision_gives_the_same_scores_the_first_and_the_second_time(tmp_path: Path) -> None:
    """The run that writes ranks by what a later run will read."""
    store = EmbeddingStore(tmp_path, dtype="float16")
    corpus = corpus_of(DOCUMENTS + 0.123, DOC_IDS)

    first, second = (search(SpellingEncoder(as_tensor=True), store, corpus=corpus) for _ in range(2))

    assert first.to_dict() == second.to_dict()
    assert first.to_dict() != search(SpellingEncoder(), None, corpus=corpus).to_dict()


def test_candidates_have_embeddings_of_their_own(tmp_path: Path) -> None:
    """Only what may be ranked is encoded and kept; a second run encodes nothing."""
    store = EmbeddingStore(tmp_path)
    candidates = {f"q{number}": DOC_IDS[number : number + 5] for number in range(5)}
    first, second = SpellingEncoder(), SpellingEncoder()

    runs = [search(model, store, candidates=candidates) for model in (first, second)]

    assert (n_encoded(first), n_encoded(second)) == (9, 0)
    assert runs[0].to_dict() == runs[1].to_dict()


def test_a_nan_embedding_is_not_kept(tmp_path: Path) -> None:
    """The corrected model or corpus shall not meet it again."""
    documents = DOCUMENTS.copy()
    documents[100] = np.nan

    with pytest.raises(RunError, match="holds NaN"):
        search(SpellingEncoder(), EmbeddingStore(tmp_path), corpus=corpus_of(documents, DOC_IDS))

    assert [path.name for path in tmp_path.rglob("*.npy")] == ["00000.npy"]


def test_embeddings_that_are_no_matrix_are_refused(tmp_path: Path) -> None:
    """Sparse and multi-vector embeddings are searched, but not kept."""

    class Sparse(SpellingEncoder):
        def encode(self, inputs: Any, **told: Any) -> Any:
            """Return a sparse tensor."""
            return torch.from_numpy(super().encode(inputs, **told)).to_sparse()

    with pytest.raises(UsageError, match="leave out --embeddings"):
        search(Sparse(), EmbeddingStore(tmp_path))


def test_a_precision_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    """Only types that NumPy writes and torch reads."""
    with pytest.raises(UsageError, match="'float32' or 'float16', not as 'int4'"):
        EmbeddingStore(tmp_path, dtype="int4")


def test_the_content_hash_ignores_chunks_and_tells_texts_apart() -> None:
    """Texts are hashed with their lengths, so that no two columns run into one."""
    texts = ["one", "", "three", "vier ü"]
    whole = content_hash([pa.table({"text": texts})], ("title", "text"))
    pieces = pa.chunked_array([pa.array(["x", *texts[:1]])[1:], pa.array(texts[1:])])
    large = pa.table({"text": pa.chunked_array([pa.array(texts, pa.large_string())])})

    assert content_hash([pa.table({"text": pieces})], ("title", "text")) == whole
    assert content_hash([pa.table({"text": texts[:2]}), pa.table({"text": texts[2:]})], ("title", "text")) == whole
    assert content_hash([large], ("title", "text")) == whole
    for other in (["one", "t", "hree", "vier ü"], texts[:3], ["one", "", "three", "vier u"]):
        assert content_hash([pa.table({"text": other})], ("title", "text")) != whole
    assert content_hash([pa.table({"text": texts, "title": [""] * 4})], ("title", "text")) != whole
