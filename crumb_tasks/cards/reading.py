"""Reading cards from TOML and checking them against each other."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from crumb_tasks.cards.aggregate import AggregateCard, BenchmarkCard, Reduction, ReportColumn, Scope
from crumb_tasks.cards.fields import Frozen
from crumb_tasks.cards.published import Published, PublishedTable, PublishedTables
from crumb_tasks.cards.task import Counts, Dangling, Prompt, Source, TaskCard
from crumb_tasks.errors import CardError, UsageError, did_you_mean

_PACKAGE = Path(__file__).parents[1]
_MISSPELT = 0.9
"""From this likeness on a name that no card has is a misspelt one of ours, below it may be a task of MTEB's."""


class Card(Frozen):
    """One file of ``task_metadata/``.

    Attributes:
        no_retrieval: For a benchmark that is none of retrieval, and so has no task: why, and what there is instead.
    """

    name: str
    title: str
    description: str
    need: str = ""
    no_retrieval: str = ""
    paper: str = ""
    bibtex: str = ""
    facts: tuple[str, ...] = ()
    tasks: tuple[TaskCard, ...] = ()
    aggregates: tuple[AggregateCard, ...] = ()
    benchmarks: tuple[BenchmarkCard, ...] = ()
    published: tuple[Published, ...] = ()

    @model_validator(mode="after")
    def _published_values_are_of_members(self) -> Self:
        known = {task.name for task in self.tasks} | {aggregate.name for aggregate in self.aggregates}
        for aggregate in self.aggregates:
            for reduction in (aggregate.reduction, *aggregate.beside):
                known.update(reduction.task_names(), reduction.group_names())
        for value in self.published:
            if value.task not in known:
                raise ValueError(
                    f"published names '{value.task}', which this card lacks{did_you_mean(value.task, known)}"
                )
        return self


def card_folder() -> Path:
    """Return the folder of the cards: inside an installed package, beside it in a checkout."""
    inside = _PACKAGE / "task_metadata"
    return inside if inside.is_dir() else _PACKAGE.parent / "task_metadata"


def read_card(path: Path) -> Card:
    """Read one card.

    Raises:
        CardError: The file is no TOML, or a field is unknown, missing or wrong; names file, field and remedy.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CardError(f"{path.name}: not a TOML file ({error})") from error
    defaults = table.pop("defaults", {})
    if not isinstance(defaults, dict):
        raise CardError(f"{path.name}: defaults is a table, under [defaults]")
    shared: dict[str, Any] = {key: table[key] for key in ("need", "paper", "bibtex") if key in table}
    for kind, inherited in (("tasks", shared | defaults), ("aggregates", shared), ("benchmarks", {})):
        entries = table.get(kind, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise CardError(f"{path.name}: {kind} is a list of tables, each under its own [[{kind}]]")
        table[kind] = [_merge(inherited, entry) | {"benchmark": table.get("name", "")} for entry in entries]
    try:
        tables = PublishedTables.model_validate({"published_tables": table.get("published_tables", [])})
        cells = [cell for published in tables.published_tables for cell in published.cells()]
        own = {key: value for key, value in table.items() if key != "published_tables"}
        return Card.model_validate(own | {"published": [*table.get("published", []), *cells]})
    except ValidationError as error:
        raise CardError(f"{path.name}: {_first_problem(error, table)}") from error


def _merge(inherited: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(inherited)
    for key, value in own.items():
        both_are_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both_are_tables else value
    return merged


def _first_problem(error: ValidationError, table: Mapping[str, Any]) -> str:
    first = error.errors()[0]
    location = list(first["loc"])
    if len(location) >= 2 and isinstance(location[1], int):  # tasks.3.field → tasks 'Name'.field
        entry = table[str(location[0])][location[1]]
        location[:2] = [f"{location[0]} '{entry.get('name', location[1])}'"]
    where = ".".join(map(str, location))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"unknown key; remove it or correct its name{_near_key(str(first['loc'][-1]))}"
    return f"{where}: {message}" if where else message


def _near_key(key: str) -> str:
    entries = (Card, TaskCard, AggregateCard, BenchmarkCard, PublishedTable)
    models = (*entries, Source, Prompt, Counts, Dangling, Published, Reduction, ReportColumn, Scope)
    return did_you_mean(key, {name for model in models for name in model.model_fields})


@cache
def read_cards(folder: Path | None = None) -> tuple[Card, ...]:
    """Read all cards of ``folder`` (by default the package's own), by file name, and check them against each other.

    Raises:
        CardError: A card is wrong, or two tasks or aggregates have names that are equal ignoring case.
    """
    cards = tuple(read_card(path) for path in sorted((folder or card_folder()).glob("*.toml")))
    seen: dict[str, str] = {}
    for card in cards:
        entries: tuple[TaskCard | AggregateCard, ...] = (*card.tasks, *card.aggregates)
        for entry in entries:
            if (other := seen.get(entry.name.casefold())) is not None:
                raise CardError(
                    f"{card.name}: the name '{entry.name}' is taken by {other}; names differ by more than case"
                )
            seen[entry.name.casefold()] = f"'{entry.name}' of {card.name}"
    tasks = {task.name for card in cards for task in card.tasks}
    aggregates = {aggregate.name for card in cards for aggregate in card.aggregates}
    for card in cards:
        for benchmark in card.benchmarks:
            _check_benchmark(card, benchmark, tasks, aggregates)
        for aggregate in card.aggregates:
            _check_aggregate(card, aggregate, tasks, aggregates)
    return cards


def _check_benchmark(
    card: Card, benchmark: BenchmarkCard, tasks: AbstractSet[str], aggregates: AbstractSet[str]
) -> None:
    what = f"{card.name}: benchmark '{benchmark.name}'"
    if benchmark.aggregate is not None and benchmark.aggregate not in aggregates:
        near = did_you_mean(benchmark.aggregate, aggregates)
        raise CardError(f"{what} names the aggregate '{benchmark.aggregate}', which no card has{near}")
    for task in benchmark.tasks:
        _check_member(f"{what} names the task", task, tasks | aggregates)


def _check_aggregate(
    card: Card, aggregate: AggregateCard, tasks: AbstractSet[str], aggregates: AbstractSet[str]
) -> None:
    what = f"{card.name}: aggregate '{aggregate.name}'"
    for member in aggregate.task_names:
        if member in aggregates:
            raise CardError(f"{what} has the aggregate '{member}' as a member; nest a reduction instead")
        _check_member(f"{what} has the member", member, tasks)
    for column in aggregate.columns:
        _check_member(f"{what} shows a column of the task", column.task, tasks)
    for refused in aggregate.refused:
        if refused.task not in aggregate.task_names:
            near = did_you_mean(refused.task, aggregate.task_names)
            raise CardError(f"{what} refuses a result of '{refused.task}', which is no member of it{near}")


def _check_member(what: str, name: str, own: AbstractSet[str]) -> None:
    """Refuse a misspelt task of ours. Another name may be a task of MTEB's, which only registration can tell."""
    folded = [task.casefold() for task in own]
    if name not in own and difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=_MISSPELT):
        raise CardError(f"{what} '{name}', which no card has{did_you_mean(name, own, most=1)}")


def iter_tasks(cards: Sequence[Card] | None = None) -> Iterator[TaskCard]:
    """Yield the task cards of ``cards`` (by default all), in order."""
    for card in cards if cards is not None else read_cards():
        yield from card.tasks


def find_task(name: str) -> TaskCard:
    """Return the task card called ``name``.

    Raises:
        UsageError: No card has such a task; the message names near ones.
    """
    by_name = {task.name: task for task in iter_tasks()}
    if name not in by_name:
        raise UsageError(f"crumb_tasks has no task '{name}'{did_you_mean(name, by_name)} (crumb-tasks list shows all)")
    return by_name[name]


def find_aggregate(name: str) -> AggregateCard | None:
    """Return the aggregate card called ``name``, or ``None``."""
    return next((entry for card in read_cards() for entry in card.aggregates if entry.name == name), None)


def find_benchmark(name: str) -> BenchmarkCard | None:
    """Return the benchmark card called ``name`` or with that alias, or ``None``."""
    return next(
        (entry for card in read_cards() for entry in card.benchmarks if name in (entry.name, *entry.aliases)), None
    )
