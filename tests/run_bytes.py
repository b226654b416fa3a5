"""Run files as bytes: well-formed ones in every format, for the tests of readers and commands."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

RunDict = Mapping[str, Mapping[str, float]]
SMALL: dict[str, dict[str, float]] = {"q1": {"d1": 0.9, "d2": 0.5}, "q2": {"d3": 0.7}}


def trec(run: RunDict, tag: str = "sys") -> bytes:
    """Return TREC lines."""
    rows = [
        f"{query_id} Q0 {doc_id} {rank} {score!r} {tag}\n"
        for query_id, score_by_doc in run.items()
        for rank, (doc_id, score) in enumerate(score_by_doc.items(), 1)
    ]
    return "".join(rows).encode()


def jsonl(run: RunDict) -> bytes:
    """Return lines as CRUMB's evaluator reads them, with the further fields that its runs have."""
    lines = [
        {
            "query": {"id": query_id, "content": "what\u2028is\u0085this"},
            "items": [{"id": doc_id, "metadata": {"parent_id": None}, "score": x} for doc_id, x in docs.items()],
        }
        for query_id, docs in run.items()
    ]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def nested(run: RunDict) -> bytes:
    """Return what ranx and BEIR write."""
    return json.dumps(run, ensure_ascii=False).encode()


def mteb(run: RunDict) -> bytes:
    """Return what MTEB's ``--prediction-folder`` writes."""
    meta = {"model_name": "org/model", "revision": None}
    return json.dumps({"mteb_model_meta": meta, "default": {"test": run}}).encode()


def parquet(run: RunDict | None = None, **columns: Any) -> bytes:
    """Return a Parquet file of ``run`` with the usual names, or of ``columns``."""
    if run is not None:
        rows = [(query_id, doc_id, x) for query_id, docs in run.items() for doc_id, x in docs.items()]
        names = ("query_id", "doc_id", "score")
        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)) | {"text": ["…"] * len(rows)}
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def zstd(data: bytes) -> bytes:
    """Compress with zstd."""
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


FORMATS: dict[str, Callable[[RunDict], bytes]] = {
    "trec": trec,
    "jsonl": jsonl,
    "json": nested,
    "mteb": mteb,
    "parquet": parquet,
}
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {"plain": bytes, "gzip": gzip.compress, "zstd": zstd}
