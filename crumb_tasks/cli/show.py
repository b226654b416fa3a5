"""``crumb-tasks show NAME``: a card for a person."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, TypeAlias

from crumb_tasks.cards import AggregateCard, BenchmarkCard, Card, Reduction, TaskCard, read_cards
from crumb_tasks.cards.wording import (
    KINDS,
    aggregation_rule,
    judgement_rule,
    query_rule,
    relevance,
    score_rule,
    source_text,
    split_text,
    zero_rule,
)
from crumb_tasks.cli._text import add_command, paragraph
from crumb_tasks.cli.list import NO_RETRIEVAL, marks
from crumb_tasks.errors import UsageError, did_you_mean

_Entry: TypeAlias = TaskCard | AggregateCard | BenchmarkCard | Card


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
    if card.no_retrieval:
        yield card


def describe(card: Card, entry: _Entry) -> Iterator[str]:
    """Yield the paragraphs about ``entry``; those without content are empty."""
    if isinstance(entry, TaskCard):
        yield from _describe_task(entry)
    elif isinstance(entry, AggregateCard):
        yield from _describe_aggregate(entry)
    elif isinstance(entry, BenchmarkCard):
        yield from _describe_benchmark(entry)
    else:
        yield from _describe_unbuilt(entry)
    for fact in dict.fromkeys((*card.facts, *getattr(entry, "facts", ()))):
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
    yield paragraph("relevant", relevance(task))
    yield paragraph("kind", KINDS[task.kind])
    yield paragraph("score", score_rule(task))
    yield _optional("also shown", ", ".join(task.measures))
    yield paragraph("judgements", judgement_rule(task))
    yield paragraph("aggregation", aggregation_rule(task))
    yield paragraph("zero rules", zero_rule(task))
    yield paragraph("query text", query_rule(task))
    for split, upstream in task.splits.items():
        yield paragraph("split", f"{split} = {split_text(upstream, task.expected.get(split))}")
    yield paragraph("source", source_text(task.source))
    yield paragraph("licence", task.license)
    yield _optional("derived from", ", ".join(task.adapted_from))
    yield _optional("paper", task.paper)


def _describe_aggregate(card: AggregateCard) -> Iterator[str]:
    yield paragraph(card.name, card.title or card.description, indent=max(16, len(card.name) + 2))
    yield _optional("marks", ", ".join(marks(card)))
    yield _optional("description", card.description if card.title else "")
    yield _optional("need", card.need)
    yield paragraph(
        "score", f"{card.reduction.mean} mean of the members' {card.measured}; no value while a member is missing"
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


def _describe_unbuilt(card: Card) -> Iterator[str]:
    yield paragraph(card.name, card.title, indent=max(16, len(card.name) + 2))
    yield paragraph("marks", NO_RETRIEVAL)
    yield paragraph("description", card.description)
    yield _optional("need", card.need)
    yield paragraph("instead", card.no_retrieval)
    yield _optional("paper", card.paper)


def _describe_benchmark(card: BenchmarkCard) -> Iterator[str]:
    yield paragraph(card.name, card.display_name or card.description, indent=max(16, len(card.name) + 2))
    yield paragraph("run it", f"mteb run -b '{card.name}' -m MODEL")
    yield _optional("description", card.description if card.display_name else "")
    yield _optional("aliases", ", ".join(card.aliases))
    yield _optional("tasks", ", ".join(card.tasks))
    yield _optional("tasks", f"the {' and '.join(card.types)} tasks of MTEB's {card.slice_of}" if card.slice_of else "")
    for label, members in {**card.groups, **card.beside}.items():
        yield paragraph("column", f"{label}: {', '.join(members)}")
    yield _optional(
        "ranked by",
        f"the aggregate {card.aggregate}, column '{card.column}'"
        if card.aggregate
        else (card.column if card.overall else "nothing: its columns stand side by side, on scales of their own"),
    )
    yield _optional("reference", card.reference)
