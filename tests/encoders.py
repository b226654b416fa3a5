"""Encoders for tests that follow MTEB's protocol: the text of a document or query spells out its vector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets import Dataset
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta
from numpy.typing import NDArray

METADATA = TaskMetadata(
    name="SpelledVectors",
    description="Vectors in words.",
    reference=None,
    dataset={"path": "none/none", "revision": "0"},
    type="Retrieval",
    category="t2t",
    modalities=["text"],
    eval_splits=["test"],
    eval_langs=["eng-Latn"],
    main_score="ndcg_at_10",
)
QUIET = {"batch_size": 32, "show_progress_bar": False}


def spell(vector: Iterable[float]) -> str:
    """Return the text that `SpellingEncoder` reads back as ``vector``."""
    return " ".join(f"{value:g}" for value in vector)


def corpus_of(vectors: NDArray[Any] | Sequence[Any], ids: Sequence[str]) -> Dataset:
    """Return a corpus whose documents have ``vectors``."""
    return (
        Dataset.from_dict(
            {
                "id": list(ids),
                "title": [""] * len(ids),
                "text": [spell(vector) for vector in vectors],
            }
        )
        if len(ids)
        else Dataset(pa.table({name: pa.array([], pa.string()) for name in ("id", "title", "text")}))
    )


def queries_of(vectors: NDArray[Any] | Sequence[Any], ids: Sequence[str]) -> Dataset:
    """Return queries that have ``vectors``."""
    if not len(ids):
        return Dataset(pa.table({name: pa.array([], pa.string()) for name in ("id", "text")}))
    return Dataset.from_dict({"id": list(ids), "text": [spell(vector) for vector in vectors]})


class SpellingEncoder:
    """An encoder by MTEB's protocol, which remembers what it was given.

    Args:
        similarity: ``dot``, ``cosine``, ``euclidean`` or ``capped`` (no product of the vectors).
        as_tensor: Return tensors instead of arrays.
    """

    def __init__(self, similarity: str = "dot", *, as_tensor: bool = False, revision: str = "1") -> None:
        self._similarity = similarity
        self._as_tensor = as_tensor
        self.mteb_model_meta = ModelMeta.create_empty(overwrites={"name": "tests/spelling", "revision": revision})
        self.texts: list[str] = []
        self.batches: list[list[str]] = []
        self.calls: list[tuple[str, str | None, int]] = []
        self.keys: set[str] = set()

    def encode(self, inputs: Any, *, task_metadata: TaskMetadata, prompt_type: Any, **_: Any) -> Any:
        """Return the vectors that the texts of ``inputs`` spell."""
        before = len(self.texts)
        for batch in inputs:
            self.keys |= set(batch)
            self.batches.append(list(batch["text"]))
            self.texts += batch["text"]
        vectors = self.vectors(self.texts[before:])
        self.calls.append((str(prompt_type.value), _prompt(task_metadata), len(vectors)))
        return torch.from_numpy(vectors) if self._as_tensor else vectors

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of ``texts``."""
        return np.asarray([[float(word) for word in text.split()] for text in texts], dtype=np.float32)

    def similarity(self, left: Any, right: Any) -> torch.Tensor:
        """Return the scores of all pairs."""
        left, right = torch.as_tensor(left).float(), torch.as_tensor(right).float()
        if self._similarity == "cosine":
            return torch.nn.functional.normalize(left) @ torch.nn.functional.normalize(right).T
        if self._similarity == "euclidean":
            return -torch.cdist(left, right)
        product = left @ right.T
        return product.clamp(max=3) if self._similarity == "capped" else product

    def similarity_pairwise(self, left: Any, right: Any) -> torch.Tensor:
        """Return the scores of aligned pairs."""
        return self.similarity(left, right).diagonal()


def _prompt(task_metadata: TaskMetadata) -> str | None:
    prompt = task_metadata.prompt
    return prompt.get("query") if isinstance(prompt, dict) else prompt


def brute_force(
    scores: NDArray[np.float64], doc_ids: Sequence[str], depth: int, parents: Sequence[str] | None = None
) -> list[list[tuple[str, float, str]]]:
    """Return for each query ``(document, score, passage)`` in the total order, by sorting everything."""
    rankings = []
    for row in scores:
        best: Mapping[str, tuple[float, str, str]] | dict[str, tuple[float, str, str]] = {}
        for at, (score, doc_id) in enumerate(zip(row.tolist(), doc_ids, strict=True)):
            key = (score, doc_id if parents is None else parents[at], doc_id)
            if key[1] not in best or key > best[key[1]]:
                best[key[1]] = key
        ranked = sorted(best.values(), reverse=True)[:depth]
        rankings.append([(document, score, passage) for score, document, passage in ranked])
    return rankings
