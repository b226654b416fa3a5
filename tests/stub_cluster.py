"""``crumb-tasks`` with models that are made for tests, on workers too: this module is on their path.

``test/stub`` is an encoder whose vectors are drawn from a hash of the text. ``SLOW`` is the seconds that it takes for a
block of the corpus; in the task that ``POISON`` names its process ends when it meets a text that begins with that word.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from typing import Any

import numpy as np
import torch
from mteb.models import ModelMeta
from mteb.models.model_implementations import MODEL_REGISTRY

from crumb_tasks.cli._main import main


class Stub:
    """An encoder without weights: nothing but the text decides the vector."""

    mteb_model_meta: ModelMeta

    def __init__(self, model_name: str = "", revision: str | None = None, **_: Any) -> None:
        del model_name, revision

    def encode(self, inputs: Any, *, prompt_type: Any = None, **_: Any) -> torch.Tensor:
        """Draw the vectors."""
        texts = [text for batch in inputs for text in batch["text"]]
        if prompt_type.value == "document":
            time.sleep(float(os.environ.get("SLOW", "0")))
            poison = os.environ.get("POISON")
            if poison and any(text.startswith(poison) for text in texts):
                os.abort()
        seeds = np.array([zlib.crc32(text.encode()) for text in texts], dtype=np.uint64)
        return torch.from_numpy(spread(seeds))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return all dot products."""
        return torch.as_tensor(embeddings1) @ torch.as_tensor(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return aligned dot products."""
        return (torch.as_tensor(embeddings1) * torch.as_tensor(embeddings2)).sum(dim=-1)


def spread(seeds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a vector of 32 numbers between -1 and 1 for each seed."""
    steps = np.arange(1, 33, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (seeds[:, np.newaxis] + np.uint64(1)) * steps
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23) - 1).astype(np.float32)


if __name__ == "__main__":
    import stub_cluster  # under its own name: workers unpickle the model's class from there

    MODEL_REGISTRY["test/stub"] = ModelMeta.create_empty(
        {"name": "test/stub", "revision": "1", "loader": stub_cluster.Stub, "modalities": ["text"]}
    )
    raise SystemExit(main(sys.argv[1:]))
