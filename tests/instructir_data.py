"""InstructIR's repository, made from the real files that lie beside the checkout; its corpus is not among them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crumb_tasks.cards import TaskCard, find_task

REPOSITORY = Path("kaistAI", "InstructIR", "INSTRUCTIR")
N_DOCUMENTS = 16_072
TASKS = (
    "InstructIROfficial",
    "InstructIRQueryOnly",
    "InstructIRInstructionOnly",
    "InstructIROrderSensitivity",
    "InstructIRPromptSensitivity",
)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSONL file."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines]


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as JSONL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8", newline="\n")


def read_qrels(path: Path) -> list[tuple[str, str]]:
    """Return the pairs of a judgement file with a header."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]


def write_repository(shared: Path, root: Path) -> Path:
    """Write the repository with all real queries and judgements and a corpus of the right ids; return its folder."""
    folder = root / REPOSITORY
    _copy_queries(shared / "instructir", folder)
    judged = [doc_id for _, doc_id in read_qrels(folder / "qrels" / "test.tsv")]
    ids = [*judged, *(f"other{number}" for number in range(N_DOCUMENTS - len(judged)))]
    write_jsonl(folder / "corpus.jsonl", ({"_id": id, "title": "", "text": f"text of {id}"} for id in ids))
    return folder


def write_seed_proxy(shared: Path, root: Path) -> Path:
    """Write the repository over the unrevised seed passages, to which all of a query's variants are judged."""
    folder = root / REPOSITORY
    _copy_queries(shared / "instructir", folder)
    shutil.copyfile(shared / "instructir" / "seed_proxy" / "corpus.jsonl", folder / "corpus.jsonl")
    for path in [*folder.glob("qrels/*.tsv"), *folder.glob("*/qrels/*.tsv")]:
        pairs = dict.fromkeys((query_id, doc_id.rpartition("_")[0]) for query_id, doc_id in read_qrels(path))
        lines = ["qid\tpid\tscore", *(f"{query_id}\t{doc_id}\t1" for query_id, doc_id in pairs)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _copy_queries(source: Path, folder: Path) -> None:
    for name in ("analysis_order_sensitivity", "analysis_prompt_sensitivity", "qrels"):
        for path in (source / name).rglob("*"):
            if path.is_file():
                target = folder / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    for name in ("only_queries.jsonl", "only_instruction_queries.jsonl"):
        shutil.copyfile(source / name, folder / name)
    shutil.copyfile(source / "queries.reconstructed.jsonl", folder / "queries.jsonl")


def relaxed(name: str, **changes: Any) -> TaskCard:
    """Return a task's card without its counts, for collections of another size."""
    return find_task(name).model_copy(update={"expected": {}, **changes})
