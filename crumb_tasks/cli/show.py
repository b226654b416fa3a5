"""``crumb-tasks show NAME``: a card for a person."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, TypeAlias

from crumb_tasks.cards import AggregateCard, BenchmarkCard, Card, Counts, Reduction, Source, TaskCard, read_cards
from crumb_tasks.cli._text import add_command, paragraph
from crumb_tasks.cli.list import marks
from crumb_tasks.errors import UsageError, did_you_mean

_Entry: TypeAlias = TaskCard | AggregateCard | BenchmarkCard
_KINDS = {
    "retrieval": "retrieval over the corpus",
    "reranking": "re-ranking of each query's candidates",
    "choice": "choice among each query's own options",
}
_ALL_ZERO = {
    "zero": "a query whose judgements are all zero counts 0",
    "exclude": "a query whose judgements are all zero is left out and counted",
}


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``show``."""
    parser = add_command(
        subparsers,
        "show",
        "show what a task, aggregate or benchmark is",
        "Show a card: the need it tests, what counts as relevant, how it is scored, where its data and the published "
        "numbers come from, and what users should know.",
    )
    parser.add_argument(
        "name", metavar="NAME", help="a task, an aggregate or a benchmark (crumb-tasks list names them)"
    )


def run(args: argparse.Namespace) -> int:
    """Print everything that is called ``args.name``."""
    cards = read_cards()
    found = [
        "\n".join(line for line in describe(card, entry) if line)
        for card in cards
        for entry in _entries(card)
        if args.name == entry.name or args.name in getattr(entry, "aliases", ())
    ]
    if not found:
        known = {entry.name for card in cards for entry in _entries(card)}
        raise UsageError(f"no card has '{args.name}'{did_you_mean(args.name, known)} (crumb-tasks list shows all)")
    print("\n\n".join(found))
    return 0


def _entries(card: Card) -> Iterator[_Entry]:
    yield from card.tasks
    yield from card.aggregates
    yield from card.benchmarks


def describe(card: Card, entry: _Entry) -> Iterator[str]:
    """Yield the paragraphs about ``entry``; those without content are empty."""
    if isinstance(entry, TaskCard):
        yield from _describe_task(entry)
    elif isinstance(entry, AggregateCard):
        yield from _describe_aggregate(entry)
    else:
        yield from _describe_benchmark(entry)
    for fact in (*card.facts, *getattr(entry, "facts", ())):
        yield paragraph("note", fact)
    for value in (
        value for value in card.published if value.task == entry.name and not isinstance(entry, BenchmarkCard)
    ):
        setting = f", {value.setting}" if value.setting else ""
        source = value.source if value.verified else f"{value.source}; secondary source"
        yield paragraph("published", f"{value.system}: {value.measure} {value.value:g}{setting} ({source})")


def _optional(label: str, text: str) -> str:
    return paragraph(label, text) if text else ""


def _describe_task(task: TaskCard) -> Iterator[str]:
    yield paragraph(task.name, task.title or task.description, indent=max(16, len(task.name) + 2))
    yield _optional("marks", ", ".join(marks(task)))
    yield _optional("description", task.description if task.title else "")
    yield _optional("need", task.need)
    yield paragraph("relevant", task.relevant or f"a judgement of {task.relevant_from} or more")
    yield paragraph("kind", _KINDS[task.kind])
    yield paragraph("score", _score(task))
    yield _optional("also shown", ", ".join(task.measures))
    yield paragraph("judgements", _judgements(task))
    yield paragraph("aggregation", _aggregation(task))
    yield paragraph("zero rules", f"{_ALL_ZERO[task.all_zero]}; one without judgements is left out and counted")
    yield paragraph("query text", _query_text(task))
    for split, upstream in task.splits.items():
        yield paragraph("split", f"{split} = {_split(upstream, task.expected.get(split))}")
    yield paragraph("source", _source(task.source))
    yield paragraph("licence", task.license)
    yield _optional("derived from", ", ".join(task.adapted_from))
    yield _optional("paper", task.paper)


def _score(task: TaskCard) -> str:
    measure, _, cutoff = task.main_measure.partition("@")
    gain = ""
    if "nDCG" in measure or "DCG" in measure:
        gain = ", exponential gain (2^grade - 1)" if "exp" in measure else ", linear gain (the grade itself)"
    where = f", looking at the first {cutoff}" if cutoff else ""
    return f"{task.main_measure}{gain}{where}; rankings are kept to depth {task.depth}"


def _judgements(task: TaskCard) -> str:
    families = ", ".join(f"{family} from '{origin}'" for family, origin in task.qrels.items())
    labels = "fractional grades are cut to integers and counted" if task.labels == "truncate" else "grades are integers"
    threshold = f"relevant from grade {task.relevant_from}"
    return "; ".join(part for part in (families, threshold, labels) if part)


def _aggregation(task: TaskCard) -> str:
    parts = ["MaxP: a document ranks where its best passage does"] if task.max_passage else []
    mean = f"mean of each {task.mean_over}'s mean" if task.mean_over else "mean"
    parts += [f"{mean} over the judged queries of the collection; one that a run lacks counts 0"]
    parts += (
        ["queries are variants of base queries (Robustness@k takes the worst of each group)"] if task.groups else []
    )
    parts += ["a query's own document is taken out first"] if task.exclude_self else []
    return "; ".join(parts)


def _query_text(task: TaskCard) -> str:
    prompts = [f"'{task.query_text}'"]
    if task.prompt.from_data:
        prompts.append("each query's own instruction goes to the model as its prompt")
    if task.prompt.query:
        prompts.append(f"prompt for queries: '{task.prompt.query}'")
    if task.prompt.document:
        prompts.append(f"prompt for documents: '{task.prompt.document}'")
    return "; ".join(prompts)


def _split(upstream: str, counts: Counts | None) -> str:
    known = (
        []
        if counts is None
        else [
            f"{value} {name}"
            for name in ("queries", "documents", "passages", "qrels")
            if (value := getattr(counts, name)) is not None
        ]
    )
    doubt = "" if counts is None or counts.verified else " (numbers from a secondary source)"
    return f"the upstream's '{upstream}'" + (": " + ", ".join(known) if known else "") + doubt


def _source(source: Source) -> str:
    if source.sample:
        return f"embedded in the package (samples/{source.sample})"
    where = [f"Hugging Face Hub {source.hub}"] if source.hub else []
    where += [f"GitHub {source.github}"] if source.github else []
    where += [f"folder {source.path} of the data root"] if source.path else []
    text = " or ".join(where)
    if source.revision:
        text += f" at {source.revision}"
    if source.folder:
        text += f", folder {source.folder}"
    return f"{text}. Your own files: {source.user}" if source.user else text


def _describe_aggregate(card: AggregateCard) -> Iterator[str]:
    yield paragraph(card.name, card.title or card.description, indent=max(16, len(card.name) + 2))
    yield _optional("marks", ", ".join(marks(card)))
    yield _optional("description", card.description if card.title else "")
    yield _optional("need", card.need)
    yield paragraph(
        "score", f"{card.reduction.mean} mean of the members' {card.measure}; no value while a member is missing"
    )
    yield from _members(card.reduction, 0)
    yield paragraph("splits", ", ".join(card.splits))
    beside = [f"{reduction.name} of {len(list(reduction.task_names()))} tasks" for reduction in card.beside]
    columns = [f"{column.name} ({column.task})" for column in card.columns]
    yield _optional("shown beside", ", ".join([*card.reported, *beside, *columns]))
    for refused in card.refused:
        yield paragraph("refused", f"{refused.task} at {refused.revision}: {refused.reason}")
    yield paragraph("licence", card.license)
    yield _optional("paper", card.paper)


def _members(reduction: Reduction, depth: int) -> Iterator[str]:
    names = [member for member in reduction.members if isinstance(member, str)]
    if names:
        yield paragraph("members", "  " * depth + ", ".join(names))
    for member in reduction.members:
        if isinstance(member, Reduction):
            yield paragraph("group", f"{'  ' * depth}{member.name} ({member.mean} mean of:)")
            yield from _members(member, depth + 1)


def _describe_benchmark(card: BenchmarkCard) -> Iterator[str]:
    yield paragraph(card.name, card.display_name or card.description, indent=max(16, len(card.name) + 2))
    yield paragraph("run it", f"mteb run -b '{card.name}' -m MODEL")
    yield _optional("description", card.description if card.display_name else "")
    yield _optional("aliases", ", ".join(card.aliases))
    yield _optional("tasks", ", ".join(card.tasks))
    yield _optional(
        "ranked by", f"the aggregate {card.aggregate}, column '{card.column}'" if card.aggregate else card.column
    )
    yield _optional("reference", card.reference)
