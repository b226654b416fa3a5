"""``crumb-tasks sweep MODEL``: what approximate search and smaller embeddings save, and what they lose."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb_tasks.cli._costs import amount, load_of
from crumb_tasks.cli._models import be_quiet, meta_of
from crumb_tasks.cli._text import add_command, add_data_option, table
from crumb_tasks.errors import UsageError

if TYPE_CHECKING:
    from crumb_tasks.running.sweeping import Sweep

_HEADS = {
    "ann_recall@10": "ann_recall@10",
    "nDCG@10": "nDCG@10",
    "single_queries_per_second": "single queries/s",
    "batch_queries_per_second": "batch queries/s",
    "batch_speed_over_exact": "x exact",
    "build_seconds": "build s",
    "index_bytes": "index",
    "memory_bytes": "memory",
}


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``sweep``."""
    parser = add_command(
        subparsers,
        "sweep",
        "measure what approximate search saves and loses",
        "Search a task's corpus exactly and approximately, after Big-ANN: FAISS HNSW and IVF, product and scalar "
        "quantisation, int8 and binary embeddings, and shorter ones where the model declares them. Each point has its "
        "agreement with exact neighbours (ann_recall@10, ties count; no recall, since nobody asks whether they are "
        "relevant), nDCG@10 under the task's own rules, speed of search alone, build time, index size and memory. "
        "Points are compared within one run only.",
    )
    parser.add_argument("model", metavar="MODEL", help="a directory with a model, or a name that MTEB knows")
    parser.add_argument("-t", "--tasks", nargs="+", metavar="TASK", required=True, help="tasks and aggregates")
    parser.add_argument("--split", metavar="SPLIT", help="split (default: each task's first)")
    parser.add_argument("--name", help="what MTEB shall call the model in a directory (default: local/ and the folder)")
    parser.add_argument("--revision", help="revision of a model on the Hub")
    parser.add_argument("--device", help="torch device of the model, such as cpu or cuda:0; search is on the CPU")
    parser.add_argument("--embeddings", type=Path, metavar="DIR", help="keep document embeddings in DIR between runs")
    parser.add_argument(
        "--batch-size", type=int, metavar="N", default=32, help="queries of a batch (default: %(default)s)"
    )
    parser.add_argument(
        "--queries", type=int, metavar="N", default=100, help="queries searched one by one (default: %(default)s)"
    )
    parser.add_argument(
        "--repeats", type=int, metavar="N", default=3, help="rounds, whose median counts (default: %(default)s)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write all values as JSON, too")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw speed against agreement and quality (.svg, .pdf, .png)"
    )
    add_data_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, and print a table for each task."""
    for name in ("batch_size", "queries", "repeats"):
        if getattr(args, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be 1 or more, not {getattr(args, name)}")
    be_quiet()
    from crumb_tasks import register
    from crumb_tasks.files import written_whole

    register()
    found: list[dict[str, Any]] = []
    for at, content in enumerate(_sweeps(args)):
        print("\n" * (at > 0) + _text_of(content), flush=True)
        found.append(content)
        if args.output is not None:
            with written_whole(args.output) as file:
                file.write((json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode())
    if args.plot is not None:
        from crumb_tasks.cli._sweep_plot import draw

        draw(found, args.plot)
    return 0


def _sweeps(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield what was measured of each task."""
    from crumb_tasks.models import Instructions, LazyModel, LoadOptions
    from crumb_tasks.running.points import declared_dimensions
    from crumb_tasks.running.sweeping import SweepSettings, open_sweep, tasks_of

    tasks = tasks_of(args.tasks, args.split)
    meta = meta_of(args)
    model = LazyModel(meta, LoadOptions(args.device), Instructions.parse("native"), {}).load()
    if args.embeddings is not None:
        from crumb_tasks.search import EmbeddingStore

        model.embedding_store = EmbeddingStore(args.embeddings)
    settings = SweepSettings(args.queries, args.batch_size, args.repeats)
    for task in tasks:
        name = task.metadata.name
        print(f"{name}: reading and encoding", file=sys.stderr)
        sweep = open_sweep(model, task, settings)
        points = []
        for point in sweep.measure(declared_dimensions(model)):
            print(f"{name}: {point.name}", file=sys.stderr)
            points.append(point)
        yield {**_head_of(sweep, name, meta), "points": [_point(point) for point in points]}
        task.unload_data()


def _head_of(sweep: Sweep, task: str, meta: Any) -> dict[str, Any]:
    from crumb_tasks import __version__
    from crumb_tasks.cost.machine import MachineRecord
    from crumb_tasks.running.records import now

    return {
        "task": task,
        "split": sweep.split,
        "model": meta.name,
        "revision": meta.revision,
        "documents": sweep.n_documents,
        "dimensions": sweep.dimension,
        "similarity": "cosine" if sweep.is_cosine else "dot",
        "queries": sweep.n_queries,
        "search_depth": sweep.depth,
        "queries_with_too_few_documents": sweep.n_short,
        "single_queries": min(sweep.settings.n_queries, sweep.n_queries),
        "batch_size": min(sweep.settings.batch_size, sweep.n_queries),
        "repeats": sweep.settings.repeats,
        "machine": MachineRecord.of_this().to_dict(),
        "measured_at": now(),
        "crumb_tasks": __version__,
    }


def _point(point: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, quantity in point.values.items():
        values[key] = {"value": quantity.value}
        if quantity.reason:
            values[key]["reason"] = quantity.reason
        if quantity.spread is not None:
            values[key]["spread"] = list(quantity.spread)
    return {"name": point.name, "family": point.family, "values": values}


def _text_of(content: dict[str, Any]) -> str:
    """Return the table of one task with what it was measured on, and why what is missing is missing."""
    machine = content["machine"]
    what = (
        f"{content['task']} ({content['split']}), {content['model']}: {content['documents']:,} documents of "
        f"{content['dimensions']} numbers, {content['queries']:,} queries, {content['similarity']}; each search "
        f"returns {content['search_depth']}"
    )
    how = (
        f"medians of {content['repeats']} rounds (lowest to highest), search alone; {content['single_queries']} single "
        f"queries, batches of {content['batch_size']}; x exact: speed of the batches over exact search in the same "
        "round"
    )
    where = (
        f"measured on {machine['processors']} x {machine['processor']}, {machine['threads']} threads, "
        f"{load_of(machine)}; compare within this table only"
    )
    points = table(["search", *_HEADS.values()], [_row(point) for point in content["points"]])
    lines = [what, points, "", how, where]
    reasons: dict[str, list[str]] = {}
    for point in content["points"]:
        for key, value in point["values"].items():
            if "reason" in value:
                reasons.setdefault(value["reason"], []).append(point["name"] if _is_refused(point) else _HEADS[key])
    for reason, names in reasons.items():
        lines.append(f"not known: {', '.join(dict.fromkeys(names))}: {reason}")
    if content["queries_with_too_few_documents"]:
        lines.append(
            f"{content['queries_with_too_few_documents']} queries have fewer than 10 documents among the first "
            f"{content['search_depth']} passages; their nDCG@10 is of those"
        )
    return "\n".join(lines)


def _is_refused(point: dict[str, Any]) -> bool:
    return all(value["value"] is None for value in point["values"].values())


def _row(point: dict[str, Any]) -> list[str]:
    return [point["name"], *(_cell(key, point["values"][key]) for key in _HEADS)]


def _cell(key: str, entry: dict[str, Any]) -> str:
    value, spread = entry["value"], entry.get("spread")
    if value is None:
        return "-"
    if key in {"ann_recall@10", "nDCG@10"}:
        return f"{value:.4f}"
    text = amount(key, value)
    return text if not spread else f"{text} ({amount(key, spread[0])} to {amount(key, spread[1])})"
