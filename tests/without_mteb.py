"""A pytest plugin for environments without torch and mteb: a test that turns out to need them is skipped.

    PYTHONPATH=tests pytest -p without_mteb

The continuous integration runs the torch-free tests so on the newest Python around.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import pytest

ABSENT = ("mteb", "torch", "datasets", "sentence_transformers", "transformers", "bm25s")


def _reason(text: str) -> str | None:
    missing = re.search(rf"No module named '(?:{'|'.join(ABSENT)})\b", text)
    return None if missing is None else f"needs mteb or torch ({missing[0]}…)"


def _skip(report: Any, reason: str, path: object) -> None:
    report.outcome = "skipped"
    report.longrepr = (str(path), 0, f"Skipped: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Skip a module that imports them."""
    report = yield
    if report.failed and (reason := _reason(str(report.longrepr))):
        _skip(report, reason, collector.path)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Skip a test that imports them, or starts a process that does."""
    report = yield
    if report.failed and (reason := _reason(str(report.longrepr))):
        _skip(report, reason, item.path)
    return report
