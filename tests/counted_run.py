"""``crumb-tasks`` with a model that writes down each call, for tests that watch or kill a process.

``CALLS`` is the file of calls. The model stops for ever in the task that ``STALL`` names, and fails in ``FAIL``'s.
``FILL`` gives MTEB's task of that name two queries and two documents in the place of data that only the Hub has.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import mteb
import torch
from datasets import Dataset
from mteb.models import ModelMeta
from mteb.models.model_implementations import MODEL_REGISTRY

from crumb_tasks.cli._main import main


class Counted:
    """An encoder whose vectors are counts of letters."""

    mteb_model_meta: ModelMeta

    def __init__(self, model_name: str = "", revision: str | None = None, **_: Any) -> None:
        del model_name, revision
        write("load", "model")

    def encode(self, inputs: Any, *, task_metadata: Any, prompt_type: Any = None, **_: Any) -> torch.Tensor:
        """Write down the call and count letters."""
        write(task_metadata.name, prompt_type.value)
        if task_metadata.name == os.environ.get("STALL"):
            time.sleep(3600)
        if task_metadata.name == os.environ.get("FAIL"):
            raise RuntimeError("out of memory")
        texts = [text for batch in inputs for text in batch["text"]]
        return torch.tensor([[float(text.lower().count(chr(97 + at))) for at in range(26)] for text in texts])

    def similarity(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return all dot products."""
        return torch.as_tensor(embeddings1) @ torch.as_tensor(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return aligned dot products."""
        return (torch.as_tensor(embeddings1) * torch.as_tensor(embeddings2)).sum(dim=-1)


def write(*words: str) -> None:
    """Add a line to the file of calls."""
    with Path(os.environ["CALLS"]).open("a", encoding="utf-8") as file:
        file.write(" ".join(words) + "\n")


def fill(name: str) -> None:
    """Put two queries and two documents in the place of the data of MTEB's task ``name``."""

    def load_data(self: Any, *_: Any, **__: Any) -> None:
        corpus = {"id": ["d1", "d2"], "title": ["", ""], "text": ["boiling water", "a long rope"]}
        self.dataset = {
            "default": {
                "test": {
                    "corpus": Dataset.from_dict(corpus),
                    "queries": Dataset.from_dict({"id": ["q1", "q2"], "text": ["boil an egg", "tie a knot"]}),
                    "relevant_docs": {"q1": {"d1": 1}, "q2": {"d2": 1}},
                    "top_ranked": None,
                }
            }
        }
        self.data_loaded = True

    type(mteb.get_task(name)).load_data = load_data


if __name__ == "__main__":
    MODEL_REGISTRY["test/counted"] = ModelMeta.create_empty(
        {"name": "test/counted", "revision": "1", "loader": Counted, "modalities": ["text"]}
    )
    if "FILL" in os.environ:
        fill(os.environ["FILL"])
    raise SystemExit(main(sys.argv[1:]))
