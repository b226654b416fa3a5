"""Writes a made-up CRUMB task in the layout of the Hub dataset jfkback/crumb: a few documents, millions on request.

Used by tests and by ``benchmarks/load_crumb.py``. Sentences are drawn from a small stock, which is fast, yet every
passage differs from every other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

REPOSITORY = "jfkback/crumb"


@dataclass(frozen=True)
class Shape:
    """Size and kind of a made-up task.

    Attributes:
        documents: Number of full documents.
        passages: Largest number of passages a document has; they vary from 2 up (1 where documents are not cut).
        queries: Number of queries of the test split; validation has a third, at least two.
        characters: About how long a passage is.
        chunked: Documents are cut into passages, and a corpus of full documents exists.
        use_max_p: Upstream's flag; judgements then are the documents', copied to their passages.
        binary: Graded labels 0 to 4 and binary ones, as the papers have.
    """

    documents: int = 12
    passages: int = 3
    queries: int = 6
    characters: int = 120
    chunked: bool = True
    use_max_p: bool = False
    binary: bool = False


def write_task(root: Path, folder: str, shape: Shape | None = None, *, seed: int = 0) -> Path:
    """Write ``folder`` of the dataset below the data root ``root`` and return the folder.

    Query ``i`` is judged on the documents ``i`` and ``i + 1``, modulo their number.
    """
    shape = shape or Shape()
    rng = np.random.default_rng(seed)
    target = root / REPOSITORY / folder
    for part in ("eval", "val"):
        (target / part).mkdir(parents=True, exist_ok=True)
    counts = rng.integers(2, max(shape.passages, 2) + 1, shape.documents) if shape.chunked else [1] * shape.documents
    with (target / "passage_corpus.jsonl").open("w", encoding="utf-8", newline="\n") as passages:
        for document, texts in enumerate(_documents(rng, counts, shape.characters)):
            for index, text in enumerate(texts):
                passages.write(_corpus_row(document, index if shape.chunked else None, text))
    if shape.chunked:
        rng = np.random.default_rng(seed)
        rng.integers(2, max(shape.passages, 2) + 1, shape.documents)
        with (target / "full_document_corpus.jsonl").open("w", encoding="utf-8", newline="\n") as documents:
            for document, texts in enumerate(_documents(rng, counts, shape.characters)):
                documents.write(_corpus_row(document, None, "\n\n".join(texts)))
    for part, first, number in (("eval", 0, shape.queries), ("val", shape.queries, max(shape.queries // 3, 2))):
        with (target / part / "query_labels.jsonl").open("w", encoding="utf-8", newline="\n") as queries:
            for query in range(first, first + number):
                queries.write(_query_row(query, shape, counts))
    return target


def read_rows(path: Path) -> list[dict[str, object]]:
    """Return the rows of a JSONL file."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    """Write ``rows`` as JSONL."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8", newline="\n")


def document_id(document: int) -> str:
    """Return the id of a full document."""
    return f"DOC{document:07d}"


@cache
def _sentences() -> list[str]:
    rng = np.random.default_rng(0)
    syllables = ["ka", "lo", "mi", "ter", "an", "sub", "ri", "to", "ven", "ex", "pa", "dor", "quil", "sa", "ne", "um"]
    words = ["".join(rng.choice(syllables, rng.integers(1, 5))) for _ in range(4000)]
    return [" ".join(rng.choice(words, rng.integers(8, 16))).capitalize() + "." for _ in range(2000)]


def _documents(rng: np.random.Generator, counts: object, characters: int) -> Iterator[list[str]]:
    stock = _sentences()
    n_sentences = max(characters // 60, 1)
    for document, count in enumerate(counts):  # type: ignore[call-overload]
        places = rng.integers(0, len(stock), (count, n_sentences)).tolist()
        yield [
            f"# Item {document}\n## Part {index}\n" + " ".join([stock[place] for place in row])
            for index, row in enumerate(places)
        ]


def _corpus_row(document: int, passage: int | None, text: str) -> str:
    row = {
        "document_id": document_id(document) if passage is None else f"{document_id(document)}:{passage}",
        "document_content": text,
        "parent_id": None if passage is None else document_id(document),
        "metadata": json.dumps({"made_up": True}),
    }
    return json.dumps(row, ensure_ascii=False) + "\n"


def _query_row(query: int, shape: Shape, counts: object) -> str:
    stock = _sentences()
    documents = sorted({query % shape.documents, (query + 1) % shape.documents})
    n_passages = [int(counts[document]) for document in documents]  # type: ignore[index]
    if shape.chunked:
        ids = [
            f"{document_id(document)}:{index}"
            for document, n in zip(documents, n_passages, strict=True)
            for index in range(n)
        ]
    else:
        ids = [document_id(document) for document in documents]
    judged = ids if shape.use_max_p else ids[:1]
    grades = [float(4 - index) if shape.binary else 1.0 for index in range(len(judged))]
    row = {
        "query_id": str(100 + query),
        "query_content": f"Which item {query} is it that {stock[query % len(stock)].lower()}",
        "instruction": "Find the item that is meant." if query % 2 else "Find what answers the question.",
        "passage_qrels": [{"id": one, "label": grade} for one, grade in zip(judged, grades, strict=True)],
        "passage_binary_qrels": [
            {"id": one, "label": float(grade > 3)} for one, grade in zip(judged, grades, strict=True)
        ]
        if shape.binary
        else [],
        "full_document_qrels": [{"id": document_id(document), "label": 1.0} for document in documents]
        if shape.chunked
        else [],
        "use_max_p": shape.use_max_p,
        "metadata": json.dumps({"made_up": True}),
    }
    return json.dumps(row, ensure_ascii=False) + "\n"
