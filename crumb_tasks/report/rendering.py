"""A ranking as strict JSON or as CSV, with full precision, and which form a file's name asks for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from crumb_tasks import __version__
from crumb_tasks.errors import UsageError
from crumb_tasks.measures import mteb_key, parse_measure
from crumb_tasks.report.cost_tables import cost_objects, front_objects
from crumb_tasks.report.costs import COLUMNS, cost_of
from crumb_tasks.report.gain import Gain
from crumb_tasks.report.markdown import to_markdown
from crumb_tasks.report.ranking import Comparison, Ranking, Row
from crumb_tasks.report.results import Skipped

Renderer = Callable[[Sequence[Ranking], Sequence[Skipped]], str]


def to_json(rankings: Sequence[Ranking], skipped: Sequence[Skipped]) -> str:
    """Return one object: ``rankings``, ``skipped`` and the version; a value that does not exist is null."""
    content = {
        "crumb_tasks": __version__,
        "rankings": [_ranking_object(ranking) for ranking in rankings],
        "skipped": [{"path": entry.path, "reason": entry.reason} for entry in skipped],
    }
    return json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def to_csv(rankings: Sequence[Ranking], skipped: Sequence[Skipped]) -> str:
    """Return one line per system; an empty cell is a value that does not exist.

    Raises:
        UsageError: There are several rankings, whose columns differ.
    """
    del skipped
    if len(rankings) != 1:
        names = ", ".join(f"'{ranking.benchmark}'" for ranking in rankings)
        raise UsageError(
            f"a CSV file holds one ranking and there are {len(rankings)} ({names}); choose one with --benchmark"
        )
    (ranking,) = rankings
    text = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for row in ranking.rows:
        cells = _flat(ranking, row)
        if writer is None:
            writer = csv.DictWriter(text, list(cells), lineterminator="\n")
            writer.writeheader()
        writer.writerow(cells)
    return text.getvalue()


RENDERERS: Mapping[str, Renderer] = {".json": to_json, ".csv": to_csv, ".md": to_markdown}
"""By the suffix of the file that is written."""


def _ranking_object(ranking: Ranking) -> dict[str, Any]:
    card = ranking.aggregate
    return {
        "benchmark": ranking.benchmark,
        "aggregate": card.name,
        "measure": card.measured,
        "mean": card.reduction.mean,
        "split": ranking.split,
        "sample": card.sample,
        "models": [_row_object(ranking, row) for row in ranking.rows],
        "comparisons": [_comparison_object(comparison) for comparison in ranking.comparisons],
        "instruction_gains": [_gain_object(gain) for gain in ranking.gains],
        "published": list(published_rows(ranking)),
        "data_revisions": {task: dict(counts) for task, counts in ranking.data_revisions.items()},
        **front_objects(ranking),
    }


def _row_object(ranking: Ranking, row: Row) -> dict[str, Any]:
    return {
        **_identity(ranking, row),
        "problem": row.problem or None,
        "zeros": list(row.zeros),
        **_beside(ranking, row),
        "groups": dict(row.value_by_group),
        "members": dict(row.value_by_member),
        **_tests(row),
        **({"cost": cost_objects(ranking, row.system)} if row.system in ranking.costs else {}),
    }


def _tests(row: Row) -> dict[str, Any]:
    """Return what values per query allow to say; nothing where there are none."""
    found: dict[str, Any] = {}
    if row.interval is not None:
        found["interval"] = list(row.interval)
    if row.not_told_apart is not None:
        found["not_told_apart"] = [
            {"model": system.model, "model_revision": system.revision, "condition": system.condition}
            for system in row.not_told_apart
        ]
    if row.interval_by_member:
        found["member_intervals"] = {task: list(ends) for task, ends in row.interval_by_member.items()}
    return found


def _flat(ranking: Ranking, row: Row) -> dict[str, Any]:
    groups = dict.fromkeys(filter(None, ranking.aggregate.reduction.group_names()))
    return {
        **_identity(ranking, row),
        "problem": row.problem,
        "zeros": " ".join(row.zeros),
        **_beside(ranking, row),
        **{name: row.value_by_group.get(name) for name in groups},
        **row.value_by_member,
        **({f"cost_{key}": cost_of(ranking, row.system, key).value for key in COLUMNS} if ranking.costs else {}),
    }


def _identity(ranking: Ranking, row: Row) -> dict[str, Any]:
    return {
        "rank": row.rank,
        "model": row.system.model,
        "model_revision": row.system.revision,
        "condition": row.system.condition,
        ranking.value_name: row.value,
        "published": None if row.published is None else row.published.value,
        "published_setting": None if row.published is None else row.published.setting,
        "n_members": row.n_members,
    }


def _beside(ranking: Ranking, row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"{mteb_key(parse_measure(measure))}_{ranking.value_name}": value for measure, value in row.reported.items()
    }
    for name, value in row.beside.items():
        found |= {name: value, f"rank_{name}": row.rank_beside.get(name)}
    return {**found, **row.columns}


def _comparison_object(comparison: Comparison) -> dict[str, Any]:
    return {
        "with": comparison.name,
        "n_models": comparison.n_systems,
        "n_pairs": comparison.n_pairs,
        "n_flipped": comparison.n_flipped,
        "n_tied": comparison.n_tied,
    }


def _gain_object(gain: Gain) -> dict[str, Any]:
    return {
        "model": gain.with_instruction.model,
        "model_revision": gain.with_instruction.revision,
        "with": gain.with_instruction.condition,
        "without": gain.without.condition,
        "gain": gain.value,
        "n_tasks": gain.n_tasks,
    }


def published_rows(ranking: Ranking) -> Iterator[dict[str, Any]]:
    """Yield the published values by system, setting and measure."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for value in ranking.published:
        row = rows.setdefault(
            (value.system, value.setting, value.measure),
            {
                "system": value.system,
                "setting": value.setting,
                "measure": value.measure,
                "model": value.model or None,
                "sources": [],
                "values": {},
            },
        )
        row["values"][value.task] = value.value
        if value.source not in row["sources"]:
            row["sources"].append(value.source)
    yield from rows.values()
