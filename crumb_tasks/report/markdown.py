"""A ranking as Markdown, with four decimals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from crumb_tasks.cost import READING
from crumb_tasks.report.cost_tables import cost_heading, cost_table
from crumb_tasks.report.costs import fronts
from crumb_tasks.report.ranking import Comparison, Ranking, Row
from crumb_tasks.report.results import Skipped

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")


def to_markdown(rankings: Sequence[Ranking], skipped: Sequence[Skipped]) -> str:
    """Return tables with four decimals; names of models and files are text, whatever they hold."""
    parts = [part for ranking in rankings for part in _ranking_parts(ranking)]
    if skipped:
        lines = [f"- {_text(entry.path)}: {_text(entry.reason)}" for entry in skipped]
        parts += ["## Files left out", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _ranking_parts(ranking: Ranking) -> Iterator[str]:
    card = ranking.aggregate
    yield f"# {_text(ranking.benchmark)}"
    mean = f"{card.reduction.mean} mean of {card.measured}, split {ranking.split}"
    yield f"{_text(card.title or card.description)}: {mean}, computed from the members' results."
    if card.sample:
        yield "These are samples for trying things out; their numbers stand beside no published ones."
    ranked = [row for row in ranking.rows if row.value is not None]
    if ranked:
        yield _table(_head(ranking), (_cells(ranking, row) for row in ranked))
        yield from (_sentence(comparison) for comparison in ranking.comparisons if comparison.n_pairs)
    if unranked := [row for row in ranking.rows if row.value is None]:
        yield "## Without a value"
        yield _table(("Model", "Condition", "Members", "Why"), (_unranked(ranking, row) for row in unranked))
    yield "## Members"
    names = ranking.members
    rows = ([*_system(row), *(_number(row.value_by_member[name]) for name in names)] for row in ranking.rows)
    yield _table(("Model", "Condition", *names), rows)
    if zeros := [f"{_text(row.system.name)} ({', '.join(row.zeros)})" for row in ranking.rows if row.zeros]:
        yield f"A member is 0 for: {'; '.join(zeros)}."
    if mixed := sum(len(counts) > 1 for counts in ranking.data_revisions.values()):
        n_members = len(ranking.data_revisions)
        yield f"{mixed} of {n_members} members have results on several revisions of their data, as the JSON form lists."
    yield from _costs(ranking)
    yield from _gains(ranking)
    yield from _published_part(ranking)


def _head(ranking: Ranking) -> list[str]:
    mean = ranking.aggregate.reduction.mean.capitalize()
    others = [name for reduction in ranking.aggregate.beside for name in (reduction.name, "rank")]
    columns = [column.name for column in ranking.aggregate.columns]
    tests = ["95 % interval", "Not told apart from"] if _has_tests(ranking) else []
    return [
        "Rank",
        "Model",
        "Condition",
        f"{mean} mean",
        *tests,
        "Published",
        *ranking.aggregate.reported,
        *others,
        *columns,
    ]


def _cells(ranking: Ranking, row: Row) -> list[str]:
    cells = [_number(row.rank), *_system(row), _number(row.value)]
    if _has_tests(ranking):
        place = {other.system: other.rank for other in ranking.rows}
        cells.append(" to ".join(map(_number, row.interval or (None,))))
        cells.append(", ".join(f"{place[other]}" for other in row.not_told_apart or ()) or "-")
    cells.append(_number(None if row.published is None else row.published.value))
    cells += [_number(row.reported[measure]) for measure in ranking.aggregate.reported]
    for reduction in ranking.aggregate.beside:
        cells += [_number(row.beside[reduction.name]), _number(row.rank_beside.get(reduction.name))]
    return cells + [_number(row.columns[column.name]) for column in ranking.aggregate.columns]


def _has_tests(ranking: Ranking) -> bool:
    return any(row.interval is not None for row in ranking.rows)


def _unranked(ranking: Ranking, row: Row) -> list[str]:
    coverage = f"{row.n_members}/{len(ranking.aggregate.task_names)}"
    return [*_system(row), coverage, _text(row.problem)]


def _system(row: Row) -> list[str]:
    return [_text(row.system.name), _text(row.system.condition)]


def _sentence(comparison: Comparison) -> str:
    tied = f", {comparison.n_tied} are ties in one of the two" if comparison.n_tied else ""
    return (
        f"{comparison.name} orders {comparison.n_flipped} of the {comparison.n_pairs} pairs of "
        f"{comparison.n_systems} models the other way round{tied}."
    )


def _gains(ranking: Ranking) -> Iterator[str]:
    if not ranking.gains:
        return
    yield "## Instruction gain"
    yield f"Mean of log2(x with + 1) - log2(x without + 1) over {ranking.gains[0].n_tasks} numbers."
    rows = (
        [
            _text(gain.with_instruction.name),
            _text(gain.with_instruction.condition),
            _text(gain.without.condition),
            f"{gain.value:+.4f}",
        ]
        for gain in ranking.gains
    )
    yield _table(("Model", "With", "Without", "Gain"), rows)


def _costs(ranking: Ranking) -> Iterator[str]:
    table = cost_table(ranking)
    if not table.rows:
        return
    yield "## Cost"
    yield f"Mean over the members. {READING}"
    rows = (
        [_text(row.system.name), _text(row.system.condition), *row.cells, row.machines or "-", _text(row.source)]
        for row in table.rows
    )
    yield _table(("Model", "Condition", *table.heads, "Machine", "Source"), rows)
    if table.machines:
        yield "\n".join(f"- Machine {number}: {_text(label)}" for number, label in enumerate(table.machines, 1))
    if table.missing:
        yield "\n".join(
            ["Not known:", "", *(f"- {_text(names)}: {_text(why)}" for why, names in table.missing.items())]
        )
    for front in fronts(ranking):
        names = ", ".join(_text(system.label) for system in front.systems)
        cost = f"{front.axis.title} ({cost_heading(front.axis.headline)}{front.machine and ', '}{_text(front.machine)})"
        yield f"Not beaten in both quality and {cost}: {names}."


def _published_part(ranking: Ranking) -> Iterator[str]:
    own = [
        [_text(value.system), _text(value.setting), value.measure, f"{value.value:.4f}"]
        for value in ranking.published
        if value.task == ranking.aggregate.name
    ]
    if own:
        yield "## Published, for reference"
        sources = dict.fromkeys(value.source for value in ranking.published if value.task == ranking.aggregate.name)
        yield f"{_text('; '.join(sources))}."
        yield _table(("System", "Setting", "Measure", "Value"), own)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value}" if isinstance(value, int) else f"{value:.4f}"


def _text(text: str) -> str:
    """Return ``text`` so that Markdown shows it as it is."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
