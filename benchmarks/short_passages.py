"""Writes a made-up MaxP task of short passages in CRUMB's layout, as many as wanted, for a real encoder to embed.

    python benchmarks/short_passages.py DIR [--passages 200000] [--queries 500] [--stub MODEL [--dimension 64]]
    CRUMB_TASKS_DATA=DIR crumb-tasks sweep MODEL -t CRUMBTipOfTheTongue --embeddings DIR2

Words are the sample's own. A document has words of its own that most of its passages mention, and a query remembers
some of one passage: easy enough for a real encoder to be right at times, hard enough for it to be wrong. Passages have
eight to ten words, which are at most 20 tokens of BERT's vocabulary, the two special ones included. With ``--stub``
there is a model as well: the mean of random vectors of words, which costs next to nothing to run and finds what shares
words.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np

SAMPLE = Path(__file__).resolve().parent.parent / "crumb_tasks" / "samples" / "crumb"
FOLDER = Path("jfkback") / "crumb" / "tip_of_the_tongue"
_OWN, _FROM_PASSAGE, _OTHERS = 6, 4, 3


def main() -> None:
    """Write the task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path, metavar="DIR", help="data root")
    parser.add_argument("--passages", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--stub", type=Path, metavar="MODEL", help="write a model of random word vectors there")
    parser.add_argument("--dimension", type=int, default=64, help="of the stub")
    arguments = parser.parse_args()
    write_task(arguments.root / FOLDER, arguments.passages, arguments.queries)
    if arguments.stub is not None:
        write_stub(arguments.stub, arguments.dimension)


def words() -> list[str]:
    """Return the common short words of the sample."""
    text = " ".join(path.read_text(encoding="utf-8") for path in sorted(SAMPLE.rglob("passage_corpus.jsonl")))
    found, counts = np.unique(re.findall(r"\b[a-z]{3,6}\b", text), return_counts=True)
    return list(found[np.argsort(-counts, kind="stable")])


def write_task(target: Path, n_passages: int, n_queries: int) -> None:
    """Write corpus, queries and judgements into ``target``."""
    rng = np.random.default_rng(0)
    vocabulary = words()
    counts = np.clip(rng.lognormal(1.3, 0.8, n_passages).astype(np.int64), 1, 100)
    counts = counts[: int(np.searchsorted(np.cumsum(counts), n_passages))]  # the last document fills what is left
    counts = np.append(counts, n_passages - counts.sum())
    remembered = set(rng.choice(len(counts), n_queries + 20, replace=False).tolist())
    queries: list[tuple[int, str]] = []
    target.mkdir(parents=True, exist_ok=True)
    with (target / "passage_corpus.jsonl").open("w", encoding="utf-8", newline="\n") as corpus:
        for document, count in enumerate(counts.tolist()):
            own = rng.integers(50, len(vocabulary), _OWN)
            for index in range(count):
                picked = _passage(rng, own, len(vocabulary))
                row = {
                    "document_id": f"D{document:06d}:{index}",
                    "document_content": " ".join(vocabulary[at] for at in picked),
                    "parent_id": f"D{document:06d}",
                    "metadata": "{}",
                }
                corpus.write(json.dumps(row) + "\n")
            if document in remembered:
                part = rng.permutation(picked)[:_FROM_PASSAGE]
                others = rng.integers(0, len(vocabulary), _OTHERS)
                queries.append((document, " ".join(vocabulary[at] for at in rng.permutation([*part, *others]))))
    rng.shuffle(queries)
    _write_queries(target / "eval", queries[:n_queries])
    _write_queries(target / "val", queries[n_queries:])


def write_stub(folder: Path, dimension: int) -> None:
    """Write a sentence-transformers directory with random vectors for the words."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = ["[UNK]", *words()]
    tokenizer = Tokenizer(models.WordLevel({piece: at for at, piece in enumerate(pieces)}, unk_token=pieces[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = torch.randn(len(pieces), dimension, generator=torch.Generator().manual_seed(0))
    module = StaticEmbedding(tokenizer, embedding_weights=vectors)
    SentenceTransformer(modules=[module], device="cpu").save_pretrained(str(folder), create_model_card=False)


def _passage(rng: np.random.Generator, own: np.ndarray, n_words: int) -> np.ndarray:
    kept = rng.permutation(own)[: rng.integers(3, 5)]
    others = (n_words * rng.random(rng.integers(5, 7)) ** 2).astype(np.int64)  # frequent words more often
    return rng.permutation([*kept, *others])


def _write_queries(folder: Path, queries: list[tuple[int, str]]) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "query_labels.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        for document, text in queries:
            qrels = [{"id": f"D{document:06d}", "label": 1.0}]
            row = {
                "query_id": f"Q{document:06d}",
                "query_content": text,
                "instruction": "Find the item that is meant.",
                "use_max_p": True,
                "passage_qrels": [],
                "passage_binary_qrels": [],
                "full_document_qrels": qrels,
                "full_document_binary_qrels": [],
                "metadata": "{}",
            }
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
