"""NCI's collections for tests: built from the raw files beside the checkout, or with real ids and no text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crumb_tasks.builders.checkpoint import SCHEMAS, Checkpoint
from crumb_tasks.cards import TaskCard, find_task

N_DOCUMENTS = 109_739
FIRST_UNSEEN = 108_026
Rows = Sequence[tuple[Any, ...]]


def real_dev(shared: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str, int, str]]]:
    """Return all 7,830 real dev queries and their judgements."""
    folder = shared / "nci" / "nq320k_dev"
    with (folder / "queries.jsonl").open(encoding="utf-8", newline="\n") as lines:
        queries = [(row["_id"], row["text"]) for row in map(json.loads, lines)]
    rows = (line.split("\t") for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:])
    return queries, [(query_id, doc_id, int(score), subset) for query_id, doc_id, score, subset in rows]


def write_build(folder: Path, recipe: str, tables: Mapping[str, Rows]) -> None:
    """Write a finished build with these rows, with its manifest."""
    checkpoint = Checkpoint(folder, recipe)
    for name, rows in tables.items():
        for row in rows:
            checkpoint.add(name, row)
    checkpoint.save({})
    counts = {"documents": len(tables["corpus"]), "queries": len(tables["queries"])}
    checkpoint.finish(recipe=recipe, version=1, inputs=(), counts=counts, notes=("made for a test",))


def write_nq320k(shared: Path, root: Path) -> Path:
    """Write NQ320k with its real queries, judgements and document numbers; the pages have no text but their number."""
    queries, qrels = real_dev(shared)
    corpus = [(str(number), f"title {number}", f"page {number}") for number in range(N_DOCUMENTS)]
    folder = root / "nci" / "NQ320k"
    write_build(folder, "nq320k-nci", {"corpus": corpus, "queries": queries, "qrels": qrels, "train": ()})
    return folder


def relaxed(name: str, **options: Any) -> TaskCard:
    """Return a task's card for a collection of another size."""
    card = find_task(name)
    kept = {key: value for key, value in card.options.items() if key not in {"unseen_from", "parts"}}
    return card.model_copy(update={"expected": {}, "options": kept | options})


def read_table(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of one table of a build."""
    table: pa.Table = pq.read_table(folder / f"{name}.parquet", schema=SCHEMAS[name])
    return table.to_pylist()


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file with a line feed after each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
