"""A report as one HTML page that needs nothing else: no script, no network, no file beside it.

Everything that comes from results, runs or data goes through the template's escaping; only drawings are put in as they
are, and their text was escaped by what drew them. The page's own policy forbids scripts and requests on top.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from crumb_tasks import __version__
from crumb_tasks.cards import TaskCard, find_task, iter_tasks
from crumb_tasks.cards.wording import (
    KINDS,
    aggregation_rule,
    judgement_rule,
    query_rule,
    relevance,
    score_rule,
    source_text,
    zero_rule,
)
from crumb_tasks.cost import READING
from crumb_tasks.errors import MissingExtraError
from crumb_tasks.report.apart import MOST_TESTED
from crumb_tasks.report.charts import Chart, draw_charts
from crumb_tasks.report.cost_tables import cost_table
from crumb_tasks.report.members import values_of
from crumb_tasks.report.queries import TaskViews
from crumb_tasks.report.ranking import Ranking, Row
from crumb_tasks.report.rendering import published_rows
from crumb_tasks.report.results import Result, Skipped, System

N_MARKED = 6
"""Systems that have colours where nobody chose them."""
_COUNTS = {
    "n_missing": "unanswered queries, which count 0",
    "n_omitted": "queries left out of the mean",
    "n_truncated_labels": "fractional grades cut to integers",
    "n_empty_texts": "empty documents",
    "n_unproven": "rankings that search could not prove",
}
"""What a result counts of the odd cases, in words."""
_WORDS = re.compile(r"[^A-Z]*(?:[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^A-Z]+|[A-Z]+$)|.+")
"""Parts of a task's name between which a line may break."""
_SHAPES = (
    "M6 1a5 5 0 1 0 .01 0z",
    "M1.5 1.5h9v9h-9z",
    "M6 .8l5.4 10H.6z",
    "M6 .2L11.8 6 6 11.8.2 6z",
    "M6 11.2L.6 1.2h10.8z",
    "M4 .5h4V4h3.5v4H8v3.5H4V8H.5V4H4z",
    "M3 .5l3 3 3-3L11.5 3l-3 3 3 3L9 11.5l-3-3-3 3L.5 9l3-3-3-3z",
    "M6 .5l5.5 4-2.1 6.7H2.6L.5 4.5z",
)
"""The markers of the charts on a square of 12, for legends."""


@dataclass(frozen=True, eq=False)
class Content:
    """What a page shows.

    Attributes:
        rankings: One section each.
        skipped: Files that were left out.
        views: Benchmark → the queries shown of its tasks.
        notes: What a reader should know of how the page came about.
        chosen: The systems that have colours, by benchmark; missing benchmarks mark their best.
    """

    rankings: Sequence[Ranking]
    skipped: Sequence[Skipped] = ()
    views: Mapping[str, Sequence[TaskViews]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    chosen: Mapping[str, Sequence[System]] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskFacts:
    """What a reader must know of a task to read its values.

    Attributes:
        name: Task name.
        title: For people.
        rows: Label and text.
        facts: Upstream oddities.
        paper: Address of the paper, empty where there is none.
    """

    name: str
    title: str
    rows: tuple[tuple[str, str], ...]
    facts: tuple[str, ...]
    paper: str


def to_html(content: Content) -> str:
    """Return the page.

    Raises:
        MissingExtraError: jinja2 or matplotlib is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtraError("a report as .html", "report") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = _number
    environment.filters["breakable"] = lambda name: Markup("<wbr>").join(_WORDS.findall(name) or [name])
    environment.filters["sliced"] = lambda name: Markup("/<wbr>").join(name.split("/"))
    environment.filters["drawing"] = lambda chart: Markup(chart.svg)  # noqa: S704 -- matplotlib escaped its text
    folder = files("crumb_tasks.report")
    template = environment.from_string(folder.joinpath("page.html.jinja").read_text(encoding="utf-8"))
    style = folder.joinpath("page.css").read_text(encoding="utf-8")
    return template.render(
        version=__version__,
        style=Markup(style),  # noqa: S704 -- a file of this package
        sections=[_section(ranking, content) for ranking in content.rankings],
        skipped=content.skipped,
        notes=content.notes,
        shapes=_SHAPES,
        most_tested=MOST_TESTED,
    )


def _section(ranking: Ranking, content: Content) -> dict[str, Any]:
    chosen = content.chosen.get(ranking.benchmark)
    marked = list(chosen) if chosen else [row.system for row in ranking.rows[:N_MARKED]]
    ranked = [row for row in ranking.rows if row.value is not None]
    charts: list[Chart] = draw_charts(ranking, marked)
    return {
        "ranking": ranking,
        "card": ranking.aggregate,
        "slug": "".join(character if character.isalnum() else "-" for character in ranking.benchmark),
        "ranked": ranked,
        "unranked": [row for row in ranking.rows if row.value is None],
        "rank_of": {row.system: row.rank for row in ranked},
        "highest": max((row.value or 0.0 for row in ranked), default=0.0),
        "has_intervals": any(row.interval for row in ranked),
        "best": {task: _best(ranking.rows, task) for task in ranking.members},
        "charts": charts,
        "marked": marked,
        "costs": cost_table(ranking),
        "reading": READING,
        "published": list(published_rows(ranking)),
        "published_sources": list(dict.fromkeys(value.source for value in ranking.published)),
        "published_tasks": _aggregate_first(ranking),
        "tasks": [task_facts(name, ranking) for name in ranking.members],
        "views": content.views.get(ranking.benchmark, ()),
    }


def _aggregate_first(ranking: Ranking) -> list[str]:
    names = dict.fromkeys(value.task for value in ranking.published)
    return sorted(names, key=lambda name: name != ranking.aggregate.name)


def _best(rows: Sequence[Row], task: str) -> float | None:
    return max((value for row in rows if (value := row.value_by_member[task]) is not None), default=None)


def _number(value: float | None) -> str:
    return "\u2013" if value is None else f"{value:.4f}"


def task_facts(name: str, ranking: Ranking) -> TaskFacts:
    """Return the rules of a member and what its results counted."""
    card = find_task(name) if name in {task.name for task in iter_tasks()} else None
    results = [by_task[name] for by_task in ranking.results.values() if name in by_task]
    rows = [*_rules(card, name, ranking), *_found(results, ranking, name)]
    return TaskFacts(
        name=name,
        title=card.title or card.description if card is not None else "a task of MTEB",
        rows=tuple((label, text) for label, text in rows if text),
        facts=card.facts if card is not None else (),
        paper=card.paper if card is not None else ranking.aggregate.paper,
    )


def _rules(card: TaskCard | None, name: str, ranking: Ranking) -> Iterator[tuple[str, str]]:
    if card is None:
        yield "Need", ranking.aggregate.need
        yield "Scored by", f"MTEB, under its own rules; {ranking.aggregate.measured} enters here"
        yield "Name in MTEB", name
        return
    yield "Need", card.need
    yield "Relevant", relevance(card)
    yield "Kind", KINDS[card.kind]
    yield "Measure", score_rule(card)
    yield "Judgements", judgement_rule(card)
    yield "Aggregation", aggregation_rule(card)
    yield "MaxP", "yes, the best passage of a document counts" if card.max_passage else "no"
    yield "Zero rules", zero_rule(card)
    yield "A model gets", query_rule(card)
    yield "Data", source_text(card.source)
    yield "Licence", card.license


def _found(results: Sequence[Result], ranking: Ranking, name: str) -> Iterator[tuple[str, str]]:
    values = [values_of(ranking.aggregate, name, result, ranking.split) for result in results]
    yield "Queries in the mean", _distinct(found.get("n_queries") for found in values)
    for key, words in _COUNTS.items():
        counted = [found[key] for found in values if found.get(key) is not None]
        if counted and any(counted):
            yield words.capitalize(), _distinct(counted)
        elif counted and key in {"n_missing", "n_omitted"}:
            yield words.capitalize(), "0"
    revisions = ranking.data_revisions.get(name, {})
    yield "Revision of the data", "; ".join(f"{revision} ({some} results)" for revision, some in revisions.items())


def _distinct(values: Any) -> str:
    known = sorted({int(value) for value in values if value is not None})
    return f"{known[0]}" if len(known) == 1 else f"{known[0]} to {known[-1]}, depending on the system" if known else ""
