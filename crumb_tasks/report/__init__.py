"""From MTEB's result files to a ranking that people can read.

- `results`: the files, read one by one; those that cannot be read are named
- `members`: which aggregate ranks, and what of a task's result enters
- `ranking`: aggregates computed again from the members' results, and what belongs beside them
- `gain`: what an instruction is worth
- `evidence`: runs and values per query behind the results, from `crumb-tasks run` and from run files
- `apart`: intervals, and which systems cannot be told apart
- `queries`: single queries, what was put on top and what the others found
- `costs`, `cost_tables`: what results cost, and quality against each axis
- `rendering`, `markdown`: a ranking as JSON, CSV or Markdown
- `charts`, `page`: the same as one HTML page
"""

from __future__ import annotations

from crumb_tasks.report.apart import Evidence, QueryValues, with_tests
from crumb_tasks.report.costs import read_costs, with_costs
from crumb_tasks.report.evidence import Backing, Backings, ScoredRun, evidence_of, read_backings, with_runs
from crumb_tasks.report.gain import Gain, instruction_gain
from crumb_tasks.report.members import find_aggregate_of, ranked_benchmarks, tasks_of, tasks_with_subsets
from crumb_tasks.report.page import Content, to_html
from crumb_tasks.report.queries import TaskViews, view_queries
from crumb_tasks.report.ranking import Comparison, Ranking, Row, rank
from crumb_tasks.report.rendering import RENDERERS
from crumb_tasks.report.results import Result, Results, Skipped, System, read_results

__all__ = [
    "RENDERERS",
    "Backing",
    "Backings",
    "Comparison",
    "Content",
    "Evidence",
    "Gain",
    "QueryValues",
    "Ranking",
    "Result",
    "Results",
    "Row",
    "ScoredRun",
    "Skipped",
    "System",
    "TaskViews",
    "evidence_of",
    "find_aggregate_of",
    "instruction_gain",
    "rank",
    "ranked_benchmarks",
    "read_backings",
    "read_costs",
    "read_results",
    "tasks_of",
    "tasks_with_subsets",
    "to_html",
    "view_queries",
    "with_costs",
    "with_runs",
    "with_tests",
]
