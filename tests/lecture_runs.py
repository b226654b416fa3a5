"""A lecture benchmark evaluated as a user would: MTEB's BM25, MTEB's `evaluate`, the task by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crumb_tasks


def bm25_scores(task: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the scores that MTEB stores for BM25 on a task's default split, read from a data root."""
    pytest.importorskip("bm25s", reason="BM25 needs the extra bm25")
    import mteb

    monkeypatch.setenv("CRUMB_TASKS_DATA", str(root))
    crumb_tasks.register()
    results = mteb.evaluate(mteb.get_model("mteb/baseline-bm25s"), mteb.get_task(task), cache=None).task_results
    (scores,) = next(iter(results[0].scores.values()))
    return dict(scores)
