"""Run files ↔ `Run`: TREC, JSON lines of CRUMB's evaluator, MTEB's predictions, nested JSON, Parquet; gzip or zstd.

The only exception that leaves a reader is `RunFileError`, with path and line (and `UsageError` for a wrong argument).
"""

from __future__ import annotations

from crumb_tasks.runfiles.detection import FORMATS, Format
from crumb_tasks.runfiles.reading import RunFile, read_run, read_run_file
from crumb_tasks.runfiles.writing import format_by_name, has_place_for_passages, write_run

__all__ = [
    "FORMATS",
    "Format",
    "RunFile",
    "format_by_name",
    "has_place_for_passages",
    "read_run",
    "read_run_file",
    "write_run",
]
