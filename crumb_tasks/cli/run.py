"""``crumb-tasks run MODEL``: evaluate a model under a condition, and keep the result apart from every other."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from crumb_tasks.cli._cluster import add_cluster_options, evaluate_on_cluster, refuse_cluster_contradictions
from crumb_tasks.cli._costs import add_cost_options, cost_meter, print_costs, refuse_cost_contradictions
from crumb_tasks.cli._models import be_quiet, meta_of
from crumb_tasks.cli._text import add_command, add_data_option, given, given_folder, given_path, table
from crumb_tasks.errors import UsageError

if TYPE_CHECKING:
    from mteb.models import ModelMeta

    from crumb_tasks.models import LoadOptions
    from crumb_tasks.running.cache import WholeFilesCache
    from crumb_tasks.running.condition import Condition
    from crumb_tasks.running.costs import CostMeter
    from crumb_tasks.running.execute import NamedModel, Settings
    from crumb_tasks.running.plan import Plan

_EXAMPLES = (
    "Results are MTEB's own: under MTEB_CACHE, in MTEB's format, one folder for each condition. What is cached is not "
    "computed again; a failing task does not stop the others, and the exit code is then 1."
)


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``run``."""
    parser = add_command(
        subparsers,
        "run",
        "evaluate a model, in any condition",
        "Evaluate a model on tasks, aggregates and benchmarks, MTEB's own included: as MTEB does, without or with "
        f"other instructions, with rewritten queries, or as a re-ranker. {_EXAMPLES}",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="a directory with a model, a name that MTEB knows, or a repository on the Hub"
    )
    what = parser.add_argument_group("what to evaluate")
    what.add_argument("-t", "--tasks", nargs="+", metavar="TASK", default=[], help="tasks and aggregates")
    what.add_argument("-b", "--benchmarks", nargs="+", metavar="NAME", default=[], help="benchmarks")
    what.add_argument("--eval-splits", nargs="+", metavar="SPLIT", help="splits (default: each task's own)")
    what.add_argument(
        "--name", help="what MTEB shall call the model in a directory, as me/my-model (default: local/ and the folder)"
    )
    add_data_option(parser)
    _add_conditions(parser)
    _add_loading(parser)
    keeping = parser.add_argument_group("results")
    keeping.add_argument(
        "--output-folder",
        type=given_folder,
        metavar="DIR",
        help="MTEB's cache folder (default: $MTEB_CACHE or ~/.cache/mteb)",
    )
    keeping.add_argument(
        "--embeddings", type=given_folder, metavar="DIR", help="keep document embeddings in DIR between runs"
    )
    keeping.add_argument("--overwrite", action="store_true", help="evaluate again what is cached")
    add_cost_options(parser)
    add_cluster_options(parser)


def _add_conditions(parser: argparse.ArgumentParser) -> None:
    conditions = parser.add_argument_group("conditions", "each is an experiment of the model in MTEB's cache")
    conditions.add_argument(
        "--instructions",
        metavar="SETTING",
        default="native",
        help="native: as MTEB does; none: no task instruction, the model's own format stays; prepended: the "
        "instruction, a space, the query; separate: the instruction apart from the query, as the model takes one; "
        r"or a template such as 'Instruct: {instruction}\nQuery: {query}' (default: native)",
    )
    conditions.add_argument(
        "--queries",
        type=given_path,
        metavar="FILE",
        help="rewritten queries: JSON lines with id and content, a table of id and text, or a folder of such files",
    )
    conditions.add_argument(
        "--rerank",
        type=given,
        metavar="FIRST_STAGE",
        help="re-rank a run file, a folder of runs or predictions, or another model's cached runs (by its name)",
    )
    conditions.add_argument("--depth", type=int, metavar="N", help="how many of the first stage (default: 100)")


def _add_loading(parser: argparse.ArgumentParser) -> None:
    loading = parser.add_argument_group("loading")
    loading.add_argument("--device", help="torch device, such as cpu or cuda:0")
    loading.add_argument("--batch-size", type=int, metavar="N", help="texts encoded at once (default: 32)")
    loading.add_argument("--num-proc", type=int, metavar="N", help="processes that load data")
    loading.add_argument("--revision", help="revision of a model on the Hub")
    loading.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), help="type of the weights")
    loading.add_argument("--max-seq-length", type=int, metavar="N", help="tokens after which a text is cut")
    loading.add_argument(
        "--late-chunking",
        action="store_true",
        help="read a document once and pool each of its chunks from it (models that average their tokens)",
    )
    loading.add_argument(
        "--prompt",
        action="append",
        default=[],
        metavar="[query=|document=]TEXT",
        help="the model's prefix for queries or documents; repeatable",
    )


def run(args: argparse.Namespace) -> int:
    """Evaluate, and print the tables; 1 when a task failed."""
    _refuse_contradictions(args)
    be_quiet()
    from crumb_tasks import register
    from crumb_tasks.plugin import is_disabled
    from crumb_tasks.running.cache import WholeFilesCache
    from crumb_tasks.running.plan import find_tasks, make_plan

    if is_disabled():
        raise UsageError("CRUMB_TASKS_DISABLE turns this package's tasks off; unset it, or use mteb run")
    register()
    tasks = find_tasks(args.tasks, args.benchmarks, args.eval_splits)
    cache = WholeFilesCache(args.output_folder)
    condition = _condition(args, cache)
    meta = meta_of(args)
    plan = make_plan(
        tasks,
        meta.model_copy(update={"experiment_kwargs": condition.experiment or None}),
        condition,
        cache,
        is_fresh=args.overwrite,
    )
    costs = cost_meter(args, plan, cache, meta, condition)
    model, interrupted = _evaluate(args, plan, meta, condition, cache, costs=costs)
    _print_results(plan, model.meta, condition, cache)
    if costs is not None:
        print_costs(plan, cache.folder(model.meta))
    if interrupted:
        raise KeyboardInterrupt
    return 1 if any(unit.failure for unit in plan.units) else 0


def _refuse_contradictions(args: argparse.Namespace) -> None:
    if not args.tasks and not args.benchmarks:
        raise UsageError("name what to evaluate with -t TASK or -b BENCHMARK (crumb-tasks list shows all)")
    if args.depth is not None and not args.rerank:
        raise UsageError("--depth says how many of a first stage are re-ranked; name it with --rerank")
    for name in ("depth", "batch_size", "max_seq_length", "num_proc"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be 1 or more, not {value}")
    refuse_cost_contradictions(args)
    refuse_cluster_contradictions(args)


def _condition(args: argparse.Namespace, cache: WholeFilesCache) -> Condition:
    from crumb_tasks.models import Instructions, LoadOptions
    from crumb_tasks.models.loading import check_device, parse_prompts
    from crumb_tasks.running.condition import Condition
    from crumb_tasks.running.first_stage import open_first_stage
    from crumb_tasks.running.rewriting import read_rewritten

    prompts = parse_prompts(args.prompt)
    if args.device is not None:
        check_device(args.device)
    options = LoadOptions(args.device, args.dtype, args.max_seq_length, prompts, late_chunking=args.late_chunking)
    return Condition(
        instructions=Instructions.parse(args.instructions),
        rewritten=read_rewritten(args.queries) if args.queries else None,
        first_stage=open_first_stage(args.rerank, cache) if args.rerank else None,
        depth=args.depth or 100,
        options=options,
    )


def _evaluate(
    args: argparse.Namespace,
    plan: Plan,
    meta: ModelMeta,
    condition: Condition,
    cache: WholeFilesCache,
    *,
    costs: CostMeter | None,
) -> tuple[NamedModel, bool]:
    """Run the plan; return the model and whether the user interrupted it."""
    from crumb_tasks.models import LazyModel
    from crumb_tasks.running.execute import Runner
    from crumb_tasks.running.progress import Pace, Reporter

    pending = plan.pending
    settings = _settings(args, condition.options, costs)
    if pending and condition.first_stage is None and "cross-encoder" in meta.model_type:
        raise UsageError(f"'{meta.name}' scores pairs of query and document; name what it re-ranks with --rerank")
    if args.ray is not None and pending:
        return evaluate_on_cluster(args, plan, meta, condition, cache, settings=settings)
    noun = "pairs" if "cross-encoder" in meta.model_type else "documents"
    pace = Pace(len(pending), plan.expected_documents() if condition.first_stage is None else {}, noun=noun)
    with Reporter(sys.stderr, pace) as reporter:
        model = LazyModel(meta, condition.options, condition.instructions, condition.experiment, reporter.observe)
        reporter.say(f"{meta.name} ({condition.label}): {len(pending)} of {len(plan.units)} tasks to evaluate")
        try:
            Runner(model, condition, cache, settings, reporter).run(plan)
        except KeyboardInterrupt:
            done = sum(bool(unit.computed) for unit in plan.units)
            reporter.say(f"interrupted after {done} of {len(pending)} tasks; the same command goes on from there")
            return model, True
    return model, False


def _settings(args: argparse.Namespace, options: LoadOptions, costs: CostMeter | None) -> Settings:
    from crumb_tasks.running.execute import Settings

    recorded = {
        "device": options.device,
        "batch_size": args.batch_size or 32,
        "revision": args.revision,
        "dtype": options.dtype,
        "max_seq_length": options.max_seq_length,
        "prompts": dict(options.prompts),
        "late_chunking": options.late_chunking,
    }
    encode_kwargs = {"batch_size": args.batch_size or 32}
    return Settings(encode_kwargs, args.num_proc, args.embeddings, recorded, costs)


def _print_results(plan: Plan, meta: ModelMeta, condition: Condition, cache: WholeFilesCache) -> None:
    from crumb_tasks.running.summary import lines

    head = ["task", "split", "measure", "value", "coverage", "result", "scorer", "published"]
    rows = [
        [
            line.name,
            line.split,
            line.measure,
            "-" if line.value is None else f"{line.value:.4f}",
            line.coverage,
            line.state,
            line.scorer,
            line.published,
        ]
        for line in lines(plan, str(meta.name))
    ]
    print(_without_empty_columns(head, rows))
    _print_conditions(plan, meta, cache)
    if condition.rewritten is not None:
        _print_effects(plan, meta, cache)
    for note in [*plan.notes, *(f"{unit.name}: {note}" for unit in plan.units for note in unit.notes)]:
        print(f"note: {note}")
    failed = [unit for unit in plan.units if unit.failure]
    if failed:
        print(f"\n{len(failed)} of {len(plan.units)} tasks failed:")
        for unit in failed:
            print(f"  {unit.name}: {unit.failure}")
    print(f"\nresults: {cache.folder(meta)}")


def _print_conditions(plan: Plan, meta: ModelMeta, cache: WholeFilesCache) -> None:
    from crumb_tasks.running.summary import condition_lines

    conditions = condition_lines(plan, meta, cache)
    if conditions:
        print(f"\nconditions of {meta.name}")
        rows = [
            [
                line.task,
                line.split,
                line.condition,
                f"{line.value:.4f}",
                "" if line.gain is None else f"{line.gain:+.4f}",
            ]
            for line in conditions
        ]
        print(table(["task", "split", "condition", "value", "gain"], rows))


def _print_effects(plan: Plan, meta: ModelMeta, cache: WholeFilesCache) -> None:
    from crumb_tasks.running.summary import rewriting_effects

    effects, without = rewriting_effects(plan, meta, cache)
    print()
    for effect in effects:
        print(effect)
    if len(effects) > 1:
        helped, hurt, same = (sum(getattr(one, name) for one in effects) for name in ("helped", "hurt", "same"))
        print(f"in all: rewriting helped {helped} queries, hurt {hurt}, left {same} as they were")
    for task, reason in without.items():
        print(f"{task}: not compared: {reason}; run it without --queries (with --overwrite if MTEB has run it)")


def _without_empty_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    kept = [at for at in range(len(head)) if any(row[at] for row in rows)]
    return table([head[at] for at in kept], [[row[at] for at in kept] for row in rows])
