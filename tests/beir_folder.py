"""BEIR folders for tests, written row by row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crumb_tasks.cards import TaskCard

Rows = Sequence[dict[str, Any]]
CORPUS: Rows = ({"_id": "d1", "title": "One", "text": "a"}, {"_id": "d2", "text": "b"}, {"_id": "d3", "text": "c"})
QUERIES: Rows = ({"_id": "q1", "text": "first"}, {"_id": "q2", "text": "second"})
QRELS = (("q1", "d1", 1), ("q2", "d2", 2), ("q2", "d3", 0))


def write_beir(
    root: Path,
    *,
    corpus: Rows = CORPUS,
    queries: Rows = QUERIES,
    qrels: Sequence[tuple[str, str, object]] = QRELS,
    candidates: dict[str, list[str]] | None = None,
    split: str = "test",
) -> Path:
    """Write a BEIR folder ``tiny`` below the data root ``root`` and return it."""
    folder = root / "tiny"
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    _write_jsonl(folder / "corpus.jsonl", corpus)
    _write_jsonl(folder / "queries.jsonl", queries)
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    if candidates is not None:
        rows = [{"query-id": query_id, "corpus-ids": ids} for query_id, ids in candidates.items()]
        _write_jsonl(folder / "top_ranked.jsonl", rows)
    return folder


def beir_card(**fields: Any) -> TaskCard:
    """Return a card for that folder with these fields."""
    known: dict[str, Any] = {"name": "Tiny", "description": "Tiny.", "loader": "beir", "source": {"path": "tiny"}}
    return TaskCard.model_validate(known | fields)


def _write_jsonl(path: Path, rows: Rows) -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
