"""Cards: everything known about a benchmark, as data.

One TOML file per benchmark stands in ``task_metadata/``. A file holds the benchmark's own facts, ``[defaults]`` that
each of its ``[[tasks]]`` inherits (tables are merged key by key), and ``[[aggregates]]`` and ``[[benchmarks]]`` made of
them. A card is frozen, and a key that nobody reads is refused: a misspelt rule must not be silently without effect.
"""

from __future__ import annotations

from crumb_tasks.cards.aggregate import AggregateCard, BenchmarkCard, Reduction, RefusedRevision, ReportColumn, Scope
from crumb_tasks.cards.fields import TASK_NAME, MeasureName
from crumb_tasks.cards.published import Published, PublishedTable
from crumb_tasks.cards.reading import (
    Card,
    card_folder,
    find_aggregate,
    find_benchmark,
    find_task,
    iter_tasks,
    read_card,
    read_cards,
)
from crumb_tasks.cards.task import Counts, Dangling, Prompt, Source, TaskCard, loader_names

__all__ = [
    "TASK_NAME",
    "AggregateCard",
    "BenchmarkCard",
    "Card",
    "Counts",
    "Dangling",
    "MeasureName",
    "Prompt",
    "Published",
    "PublishedTable",
    "Reduction",
    "RefusedRevision",
    "ReportColumn",
    "Scope",
    "Source",
    "TaskCard",
    "card_folder",
    "find_aggregate",
    "find_benchmark",
    "find_task",
    "iter_tasks",
    "loader_names",
    "read_card",
    "read_cards",
]
