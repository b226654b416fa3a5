"""A JSONL run of 500 queries x 2,000 passages to CRUMB's nine measures with MaxP, beside CRUMB's own evaluator.

    python benchmarks/run_files.py [--queries 500] [--depth 2000] [--repeats 5]

The evaluator's steps are written anew from its description: a record object for each item, read with the standard
library; MaxP by sorting a query's items and keeping the first of each document, the part of an id before ``:``; the
measures through ir_measures, nDCG from graded, P, R, RR from binary judgements. One thing differs: where it keeps the
passage's id after MaxP, which no judgement knows, the document's id is kept, so that both ways must agree to 1e-9. In
process (imports and judgements excluded) and as a command (all included), medians of interleaved runs, by the clock and
in processor time, which a shared machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MEASURES = ("nDCG@10", "nDCG@5", "P@10", "P@5", "R@10", "RR", "R@1000", "R@100", "RR@10")
N_DOCUMENTS = 60_000
PASSAGES_EACH = 4
THEIRS = "evaluator's steps"


@dataclass
class Item:
    """A query, passage or judged document, as CRUMB's evaluator holds it."""

    content: str | None = None
    token_ids: list[int] | None = None
    id: str | None = None
    metadata: dict[str, Any] | None = None

    @classmethod
    def read(cls, value: dict[str, Any]) -> Item:
        """Return the record that a JSON object holds."""
        return cls(value.get("content"), value.get("token_ids"), value.get("id"), value.get("metadata"))


@dataclass
class Answered:
    """A query with its items and their scores or labels."""

    query: Item
    items: list[Item]
    scores: list[float]


def write_data(folder: Path, n_queries: int, depth: int) -> None:
    """Write judgements, and a run over passages in which some documents are retrieved far more often than others."""
    rng = random.Random(0)  # noqa: S311 (no secret)
    qrels: dict[str, dict[str, int]] = {}
    with (folder / "run.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        for query in range(n_queries):
            documents = {int(N_DOCUMENTS * rng.random() ** 2) for _ in range(depth)}
            passages = [f"NCT{document:08d}:{rng.randrange(PASSAGES_EACH)}" for document in sorted(documents)]
            rest = [f"NCT{document:08d}:{PASSAGES_EACH}" for document in documents][: depth - len(passages)]
            ids = rng.sample([*passages, *rest], len(passages) + len(rest))
            items = [{"id": doc_id, "score": 1 - at / 2**14} for at, doc_id in enumerate(ids)]
            file.write(json.dumps({"query": {"id": f"2021-{query}"}, "items": items}) + "\n")
            judged = rng.sample(ids, min(60, len(ids)))
            qrels[f"2021-{query}"] = {doc_id.split(":")[0]: rng.choice((0, 0, 1, 2)) for doc_id in judged}
    (folder / "qrels.json").write_text(json.dumps(qrels), encoding="utf-8")


def evaluator_steps(path: Path, qrels: dict[str, dict[str, int]]) -> dict[str, float]:
    """Return the nine measures by the steps of CRUMB's evaluator."""
    import ir_measures

    records = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            value = json.loads(line)
            items = [Item.read(item) for item in value["items"]]
            records.append(Answered(Item.read(value["query"]), items, [item.get("score") for item in value["items"]]))
    run = as_dict([best_passages(record) for record in records])
    judged = [
        Answered(Item(id=query), [Item(id=doc) for doc in docs], list(docs.values())) for query, docs in qrels.items()
    ]
    parsed = [ir_measures.parse_measure(name) for name in MEASURES]
    graded, binary = as_dict(judged, as_label=True), as_dict(judged, as_label=True)
    values = ir_measures.calc_aggregate([measure for measure in parsed if "nDCG" not in str(measure)], binary, run)
    values |= ir_measures.calc_aggregate([measure for measure in parsed if "nDCG" in str(measure)], graded, run)
    return {str(measure): value for measure, value in values.items()}


def best_passages(record: Answered) -> Answered:
    """Return the first item of each document in the order of scores, under the document's id."""
    seen = set()
    items, scores = [], []
    for item, score in sorted(zip(record.items, record.scores, strict=True), key=lambda pair: pair[1], reverse=True):
        document = str(item.id).split(":")[0]
        if document not in seen:
            seen.add(document)
            items.append(Item(id=document))
            scores.append(score)
    return Answered(record.query, items, scores)


def as_dict(records: list[Answered], *, as_label: bool = False) -> dict[str, dict[str, float]]:
    """Return what ir_measures takes."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for record in records:
        for item, score in zip(record.items, record.scores, strict=True):
            found[str(record.query.id)][str(item.id)] = int(score) if as_label else score
    return found


def our_steps(path: Path, collection: Any) -> dict[str, float]:
    """Return the nine measures by ours."""
    from crumb_tasks.runfiles import read_run
    from crumb_tasks.scoring import score

    return dict(score(read_run(path), collection, None, MEASURES, max_passage="on").summary)


def write_corpus(folder: Path) -> None:
    """Write the corpus as this package's loaders leave it in their cache: an Arrow file that is mapped into memory."""
    import pyarrow as pa

    documents = [f"NCT{document:08d}" for document in range(N_DOCUMENTS)]
    ids = pa.array([f"{document}:{at}" for document in documents for at in range(PASSAGES_EACH + 1)])
    parents = pa.array([document for document in documents for _ in range(PASSAGES_EACH + 1)])
    blank = pa.array([""] * len(ids))
    corpus = pa.table({"id": ids, "title": blank, "text": blank, "parent": parents})
    with pa.OSFile(str(folder / "corpus.arrow"), "wb") as file, pa.ipc.new_file(file, corpus.schema) as writer:
        writer.write_table(corpus)


def collection_of(folder: Path, qrels: dict[str, dict[str, int]]) -> Any:
    """Return a collection whose corpus is all passages, each with its document."""
    import pyarrow as pa

    from crumb_tasks.collection import Collection, Qrels

    corpus = pa.ipc.open_file(pa.memory_map(str(folder / "corpus.arrow"))).read_all()
    query_ids = pa.array(list(qrels))
    return Collection(
        name="generated",
        split="test",
        corpus=corpus.drop_columns("parent"),
        queries=pa.table({"id": query_ids, "text": query_ids}),
        qrels={"graded": Qrels.from_dict(qrels)},
        parents=corpus.column("parent"),
    )


def measure(ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, tuple[float, float]]:
    """Return the median seconds of each way, by the clock and of the processor, run in turns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            begin, before = time.perf_counter(), _processor_seconds()
            way()
            found[name].append((time.perf_counter() - begin, _processor_seconds() - before))
    return {
        name: (statistics.median(clock for clock, _ in both), statistics.median(used for _, used in both))
        for name, both in found.items()
    }


def _processor_seconds() -> float:
    """Return what this process and the commands it ran have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def command(way: str, folder: Path) -> None:
    """Run one way in an interpreter of its own."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    subprocess.run(
        [sys.executable, __file__, "--only", way, "--folder", str(folder)],
        check=True,
        env=os.environ | {"PYTHONPATH": paths},
    )


def only(way: str, folder: Path) -> None:
    """Do what a command does: imports, judgements, scores."""
    qrels = json.loads((folder / "qrels.json").read_text(encoding="utf-8"))
    if way == "theirs":
        evaluator_steps(folder / "run.jsonl", qrels)
    else:
        from crumb_tasks.cli._pandas import leave_pandas_out

        leave_pandas_out()  # as `crumb-tasks score` does
        our_steps(folder / "run.jsonl", collection_of(folder, qrels))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--depth", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        only(args.only, args.folder)
        return
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, args.queries, args.depth)
        write_corpus(folder)
        qrels = json.loads((folder / "qrels.json").read_text(encoding="utf-8"))
        collection = collection_of(folder, qrels)
        path = folder / "run.jsonl"
        size = path.stat().st_size / 1e6
        print(f"{args.queries} queries x {args.depth} passages, {size:.0f} MB of JSONL, {os.cpu_count()} cores")
        theirs, ours = evaluator_steps(path, qrels), our_steps(path, collection)
        worst = max(abs(theirs[name] - ours[name]) for name in MEASURES)
        print(f"largest difference of the nine values: {worst:.1e}")
        if worst > 1e-9:
            sys.exit("the two ways disagree")
        from crumb_tasks.runfiles import read_run

        seconds = measure(
            {
                THEIRS: lambda: evaluator_steps(path, qrels),
                "ours": lambda: our_steps(path, collection),
                "of which reading": lambda: read_run(path),
            },
            args.repeats,
        )
        report("in process", seconds)
        seconds = measure(
            {THEIRS: lambda: command("theirs", folder), "ours": lambda: command("ours", folder)}, args.repeats
        )
        report("as a command", seconds)
        print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def report(title: str, seconds: dict[str, tuple[float, float]]) -> None:
    """Print seconds and ratios."""
    for name, (clock, used) in seconds.items():
        ratio = (
            f"{seconds[THEIRS][0] / clock:5.1f}x, of processor {seconds[THEIRS][1] / used:5.1f}x"
            if name == "ours"
            else ""
        )
        print(f"{title:14} {name:20} {clock:6.2f} s, of processor {used:6.2f} s  {ratio}")


if __name__ == "__main__":
    main()
