"""What a worker is asked and what it answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crumb_tasks.cards import TaskCard
from crumb_tasks.cluster.shards import Shard
from crumb_tasks.request import QueryGroup
from crumb_tasks.search.identity import WITHOUT_EFFECT, content_hash

if TYPE_CHECKING:
    from mteb.models import ModelMeta

    from crumb_tasks.search.candidates import CandidatePairs

Kind = Literal["vectors", "pairs", "own search", "MTEB's"]
"""How a job is done.

``vectors``: a shard of the corpus is encoded and searched. ``pairs``: some queries' candidates are scored by a
cross-encoder. ``own search``: the model ranks the whole corpus by itself. ``MTEB's``: a task of MTEB's own, ranked as
MTEB does, as a whole.
"""

_FORMAT = 1  # raise it when the same search would find something else


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """What all shards of one search share. Texts of the corpus are not part of it: workers read them themselves.

    Attributes:
        kind: How it is done.
        task: Name of the task.
        card: Its card, ``None`` for a task of MTEB's own.
        split: MTEB's name of the split.
        subset: MTEB's name of the subset.
        queries: Columns ``id``, ``text`` as the condition has them.
        groups: The queries by instruction.
        depth: How many documents to keep of each ranking.
        encode_kwargs: Passed to the model.
        num_proc: Passed to the model.
        n_rows: Rows of the corpus.
        corpus: A digest of the corpus, empty where each shard has its own.
        rows: int64: the rows that are searched, ascending, else ``None`` for all.
        pairs: Which of ``rows`` each query may rank, else ``None``.
        candidates: The same as ids, for kinds that take those.
        embeddings: Folder of document embeddings, on storage that all workers see, else ``None``.
    """

    kind: Kind
    task: str
    card: TaskCard | None
    split: str
    subset: str
    queries: pa.Table
    groups: Sequence[QueryGroup]
    depth: int
    encode_kwargs: Mapping[str, Any]
    num_proc: int | None = None
    n_rows: int
    corpus: str = ""
    rows: NDArray[np.int64] | None = None
    pairs: CandidatePairs | None = None
    candidates: Mapping[str, Sequence[str]] | None = None
    embeddings: Path | None = None

    @property
    def query_ids(self) -> list[str]:
        """Ids of all queries, in order."""
        return [str(query_id) for query_id in self.queries.column("id").to_pylist()]

    @property
    def asked_ids(self) -> list[str]:
        """Ids of the queries that may rank something, in order: what shards of ``pairs`` count."""
        return [query_id for query_id in self.query_ids if query_id in (self.candidates or {})]

    def words(self, shard: Shard) -> str:
        """Return a part of it in words."""
        if self.kind not in {"vectors", "pairs"}:
            return self.task
        what = "queries" if self.kind == "pairs" else "rows"
        return f"{self.task}, {what} {shard.first:,} to {shard.stop:,}"

    def identity(self, meta: ModelMeta) -> dict[str, Any]:
        """Return all that decides what is found, in plain words, for models of that name and experiment.

        What changes a vector by rounding only (batch size, device) is not part of it.
        """
        metadata = self.groups[0].task_metadata
        groups = [
            [json.dumps(group.task_metadata.prompt, sort_keys=True, default=str), group.rows.tolist()]
            for group in self.groups
        ]
        return {
            "format": _FORMAT,
            "kind": self.kind,
            "model": str(meta.name),
            "revision": str(meta.revision),
            "experiment": {str(key): str(value) for key, value in sorted((meta.experiment_kwargs or {}).items())},
            "task": self.task,
            "split": self.split,
            "subset": self.subset,
            "data": str(metadata.revision),
            "rows": self.n_rows,
            "corpus": self.corpus,
            "queries": content_hash([self.queries], ("id", "text")),
            "instructions": _digest(groups),
            "candidates": _digest(self.candidates) if self.pairs is None else self.pairs.digest(),
            "depth": self.depth,
            "encode": {key: str(value) for key, value in self.encode_kwargs.items() if key not in WITHOUT_EFFECT},
        }


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, eq=False)
class Found:
    """What one shard has found: for each query its best documents, as rows of what was searched.

    Attributes:
        offsets: int64: the ranking of query ``i`` is ``offsets[i]:offsets[i + 1]``.
        rows: int32: the document, or the winning passage under MaxP: its place among all rows that are searched.
        scores: float32 for ``vectors``, as they are packed into keys; float64 for other kinds.
        counts: What else is known of the ranking, see `crumb_tasks.request.Ranking`.
        notes: What the user should know, one line each.
    """

    offsets: NDArray[np.int64]
    rows: NDArray[np.int32]
    scores: NDArray[Any]
    counts: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def owners(self) -> NDArray[np.int64]:
        """For each row the position of its query."""
        return np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int64), np.diff(self.offsets))


@dataclass(frozen=True)
class Failure:
    """Why a shard was not done.

    Attributes:
        reason: In words.
        is_final: Every worker would fail in the same way.
    """

    reason: str
    is_final: bool = False
