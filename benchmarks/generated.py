"""Generated collections of any size, and an encoder that has their vectors ready.

The corpus is an Arrow file that is memory-mapped, as a downloaded one is: about 800 characters a passage, no two alike.
Passages per document are skewed (mean about 6, at most 352), as in the largest MaxP collections. Vectors are in a file
of their own, so that encoding costs nothing and the vectors are no memory of the process.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models import ModelMeta
from mteb.models.model_meta import ScoringFunction

DIMENSION = 384
N_QUERIES = 500
DEPTH = 1000
METADATA = TaskMetadata(
    name="GeneratedVectors",
    description="Generated.",
    reference=None,
    dataset={"path": "none/none", "revision": "0"},
    type="Retrieval",
    category="t2t",
    modalities=["text"],
    eval_splits=["test"],
    eval_langs=["eng-Latn"],
    main_score="ndcg_at_10",
)
ENCODE_KWARGS = {"batch_size": 32, "show_progress_bar": False}
TOLD = {"task_metadata": METADATA, "hf_split": "test", "hf_subset": "default", "encode_kwargs": ENCODE_KWARGS}
_ROWS = 10_000


@dataclass(frozen=True)
class Generated:
    """A corpus, its vectors and its parents, by size."""

    size: int

    @property
    def folder(self) -> Path:
        """Where the files are: ``CRUMB_TASKS_BENCHMARKS``, else the temporary directory."""
        root = os.environ.get("CRUMB_TASKS_BENCHMARKS") or f"{tempfile.gettempdir()}/crumb_tasks_benchmarks"
        return Path(root) / f"{self.size}x{DIMENSION}"

    def make(self) -> Generated:
        """Write the files where they are not there yet."""
        if not (self.folder / "complete").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            _write_corpus(self.folder / "corpus.arrow", self.size)
            _write_vectors(self.folder / "vectors.npy", self.size)
            _write_parents(self.folder / "parents.arrow", self.size)
            (self.folder / "complete").touch()
        return self

    def corpus(self) -> Dataset:
        """Return the memory-mapped corpus."""
        return Dataset.from_file(str(self.folder / "corpus.arrow"))

    def vectors(self) -> Any:
        """Return the memory-mapped vectors."""
        return np.load(self.folder / "vectors.npy", mmap_mode="c")

    def parents(self) -> pa.ChunkedArray:
        """Return the document of each passage, memory-mapped; the passages of a document stand together."""
        return Dataset.from_file(str(self.folder / "parents.arrow")).data.column("parent")


def queries(n_queries: int = N_QUERIES) -> Dataset:
    """Return queries whose vectors the encoder has."""
    ids = [f"q{number}" for number in range(n_queries)]
    return Dataset.from_dict({"id": ids, "text": [f"what is {query_id}?" for query_id in ids]})


def query_vectors(n_queries: int = N_QUERIES) -> Any:
    """Return the vectors of the queries."""
    return np.random.default_rng(5).standard_normal((n_queries, DIMENSION), dtype=np.float32)


class ReadyEncoder:
    """An encoder by MTEB's protocol that reads every text it is given and has the vectors ready, in corpus order.

    Args:
        vectors: Of the corpus.
        sorts: Say that it sorts by length itself, as sentence-transformers does; else texts come longest first, and it
            finds their vectors by id.
    """

    def __init__(self, vectors: Any, *, sorts: bool = True) -> None:
        self._vectors = vectors
        self._start = 0
        self.sorts_by_length = sorts
        self.n_characters = 0
        meta = {"name": "benchmarks/ready", "revision": "1", "similarity_fn_name": ScoringFunction.DOT_PRODUCT}
        self.mteb_model_meta = ModelMeta.create_empty(overwrites=meta)

    def encode(self, inputs: Any, *, prompt_type: Any, **_: Any) -> Any:
        """Read the texts and return their vectors."""
        is_query = prompt_type.value == "query"
        if is_query:
            self._start = 0
        ids: list[str] = []
        count = 0
        for batch in inputs:
            texts = batch["text"]
            for text in texts:
                self.n_characters += len(text)
            count += len(texts)
            if not self.sorts_by_length and not is_query:
                ids += batch["id"]
        if is_query:
            return query_vectors(count)
        if ids:
            return self._vectors[[int(one[1:]) for one in ids]]
        found = self._vectors[self._start : self._start + count]
        self._start += count
        return found

    def similarity(self, left: Any, right: Any) -> torch.Tensor:
        """Return dot products."""
        return torch.as_tensor(left) @ torch.as_tensor(right).T


class ReadyBlocks:
    """In the place of a store of embeddings: vectors without any loading."""

    def __init__(self, vectors: Any) -> None:
        self._vectors = torch.from_numpy(vectors)
        self._start = 0

    def open(self, *_: Any) -> ReadyBlocks:
        """Start at the first block."""
        self._start = 0
        return self

    def read(self, _block: int, n_rows: int) -> torch.Tensor:
        """Return the vectors of the next block."""
        self._start += n_rows
        return self._vectors[self._start - n_rows : self._start]


def _write_corpus(path: Path, size: int) -> None:
    rng = np.random.default_rng(0)
    words = [f"{'aeiou'[n % 5]}{n:x}" for n in range(5000)]
    pool = pa.array([" ".join(words[n] for n in rng.integers(0, 5000, rng.integers(80, 200))) for _ in range(20_000)])
    names = rng.permutation(size)
    schema = pa.schema({"id": pa.string(), "title": pa.string(), "text": pa.string()})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for start in range(0, size, _ROWS):
            rows = np.arange(start, min(start + _ROWS, size))
            number = pa.array(rows).cast(pa.string())
            text = pc.binary_join_element_wise(number, pool.take(pa.array(rng.integers(0, len(pool), len(rows)))), " ")
            title = pc.binary_join_element_wise("Title", pa.array(names[rows]).cast(pa.string()), " ")
            identifier = pc.binary_join_element_wise("d", number, "")
            writer.write_batch(pa.record_batch([identifier, title, text], schema=schema))


def _write_parents(path: Path, size: int) -> None:
    rng = np.random.default_rng(2)
    counts = np.clip(rng.lognormal(1.15, 1.15, size // 2 + 1).astype(np.int64), 1, 352)
    owner = np.repeat(np.arange(len(counts)), counts)[:size]
    names = rng.permutation(len(counts))[owner]
    table = pa.table({"parent": pc.binary_join_element_wise("doc", pa.array(names).cast(pa.string()), "")})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=_ROWS)


def _write_vectors(path: Path, size: int) -> None:
    rng = np.random.default_rng(1)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(size, DIMENSION))
    for start in range(0, size, _ROWS):
        rng.standard_normal(out=out[start : start + _ROWS], dtype=np.float32)
    out.flush()
