"""From MTEB's result files to a ranking that people can read.

- `results`: the files, read one by one; those that cannot be read are named
- `ranking`: aggregates computed again from the members' results, and what belongs beside them
- `gain`: what an instruction is worth
- `rendering`: a ranking as JSON, CSV or Markdown
"""

from __future__ import annotations

from crumb_tasks.report.gain import Gain, instruction_gain
from crumb_tasks.report.ranking import Comparison, Ranking, Row, find_aggregate_of, rank, ranked_benchmarks, tasks_of
from crumb_tasks.report.rendering import RENDERERS
from crumb_tasks.report.results import Result, Results, Skipped, System, read_results

__all__ = [
    "RENDERERS",
    "Comparison",
    "Gain",
    "Ranking",
    "Result",
    "Results",
    "Row",
    "Skipped",
    "System",
    "find_aggregate_of",
    "instruction_gain",
    "rank",
    "ranked_benchmarks",
    "read_results",
    "tasks_of",
]
