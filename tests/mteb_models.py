"""Models for tests, by MTEB's protocols: they remember what they were asked, and rank as one can by hand."""

# ruff: noqa: D102 -- what the methods do stands in MTEB's protocols

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mteb.models import ModelMeta
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

_DIMENSIONS = 16384  # so many that the words of a test fall into different ones
QUIET = {"batch_size": 4, "show_progress_bar": False}


def meta(name: str, revision: str = "1", **changes: Any) -> ModelMeta:
    """Return MTEB's metadata for a test model."""
    return ModelMeta.create_empty(overwrites={"name": f"tests/{name}", "revision": revision, **changes})


class WordEncoder:
    """An encoder whose similarity is the number of words that two texts share."""

    def __init__(self, name: str = "words", revision: str = "1") -> None:
        self.mteb_model_meta = meta(name, revision)
        self.calls: list[tuple[str, Any, list[str]]] = []

    def encode(self, inputs: Any, *, task_metadata: Any, prompt_type: Any, **_: Any) -> NDArray[np.float32]:
        texts = [text for batch in inputs for text in batch["text"]]
        self.calls.append((prompt_type.value, task_metadata.prompt, texts))
        vectors = np.zeros((len(texts), _DIMENSIONS), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in set(re.findall(r"\w+", text.lower())):
                vectors[row, zlib.crc32(word.encode()) % _DIMENSIONS] += 1
        return vectors

    def similarity(self, left: Any, right: Any) -> torch.Tensor:
        return torch.as_tensor(left) @ torch.as_tensor(right).T

    def similarity_pairwise(self, left: Any, right: Any) -> torch.Tensor:
        return (torch.as_tensor(left) * torch.as_tensor(right)).sum(dim=1)

    def texts(self, prompt_type: str) -> list[str]:
        """Return all texts that were encoded as ``query`` or ``document``."""
        return [text for kind, _, texts in self.calls if kind == prompt_type for text in texts]


class OwnSearch:
    """A model with its own search, over scores that are given.

    Args:
        score: Of a query id and a document id.
        ignores_candidates: Return what ranks first, whatever the candidates.
    """

    def __init__(self, score: Callable[[str, str], float], *, ignores_candidates: bool = False) -> None:
        self.mteb_model_meta = meta("own-search")
        self.score = score
        self.ignores_candidates = ignores_candidates
        self.asked: list[tuple[int, list[str]]] = []
        self.prompts: list[Any] = []
        self.n_indexed = 0
        self.ids: list[str] = []

    def index(self, corpus: Any, **_: Any) -> None:
        self.n_indexed += 1
        self.ids = list(corpus["id"])

    def search(self, queries: Any, *, top_k: int, top_ranked: Any = None, task_metadata: Any, **_: Any) -> Any:
        self.asked.append((top_k, list(queries["id"])))
        self.prompts.append(task_metadata.prompt)
        found: dict[str, dict[str, float]] = {}
        for query_id in queries["id"]:
            ranked = sorted(((self.score(query_id, doc_id), doc_id) for doc_id in self.ids), reverse=True)[:top_k]
            allowed = None if top_ranked is None or self.ignores_candidates else set(top_ranked.get(query_id, ()))
            found[query_id] = {doc_id: score for score, doc_id in ranked if allowed is None or doc_id in allowed}
        return found


class EncodesInside(OwnSearch):
    """As MTEB's late-interaction models: it keeps the corpus and encodes it in every search."""

    def __init__(self, score: Callable[[str, str], float]) -> None:
        super().__init__(score)
        self.task_corpus: Any = None
        self.seen: list[str] = []

    def index(self, corpus: Any, **kwargs: Any) -> None:
        super().index(corpus, **kwargs)
        self.task_corpus = corpus

    def search(self, queries: Any, **kwargs: Any) -> Any:
        assert self.task_corpus is not None, "Corpus must be indexed before searching."
        self.seen += list(self.task_corpus["text"])
        self.task_corpus = None
        return super().search(queries, **kwargs)


class PairScorer:
    """A cross-encoder whose score is the number of words that a pair shares."""

    def __init__(self) -> None:
        self.mteb_model_meta = meta("pairs", model_type=["cross-encoder"])
        self.pairs: list[tuple[str, str]] = []
        self.prompts: list[Any] = []

    def predict(self, inputs1: Any, inputs2: Any, *, task_metadata: Any, **_: Any) -> NDArray[np.float32]:
        left = [text for batch in inputs1 for text in batch["text"]]
        right = [text for batch in inputs2 for text in batch["text"]]
        self.pairs += list(zip(left, right, strict=True))
        self.prompts.append(task_metadata.prompt)
        words = [(set(a.lower().split()), set(b.lower().split())) for a, b in zip(left, right, strict=True)]
        return np.array([len(a & b) for a, b in words], dtype=np.float32)


class RecordingTokenizer:
    """A tokenizer that remembers the strings which reach it: what a model truly reads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.texts: list[str] = []

    def encode_batch(self, inputs: Sequence[str], **kwargs: Any) -> Any:
        self.texts += inputs
        return self._tokenizer.encode_batch(inputs, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def tiny_sentence_transformer(texts: Sequence[str], prompts: Mapping[str, str] | None = None) -> SentenceTransformer:
    """Return a real sentence-transformers model with one random vector for each word of ``texts``."""
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]+", text)})
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    vectors = np.random.default_rng(0).normal(size=(len(words) + 1, 16)).astype(np.float32)
    module = StaticEmbedding(tokenizer, embedding_weights=vectors)
    return SentenceTransformer(modules=[module], prompts=dict(prompts or {}) or None, device="cpu")


def record(model: SentenceTransformer) -> RecordingTokenizer:
    """Put a recorder before the tokenizer of ``model`` and return it."""
    recorder = RecordingTokenizer(model[0].tokenizer)
    model[0].tokenizer = recorder
    return recorder
