"""Where files that can be made again are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return the folder for what can be made again: ``CRUMB_TASKS_CACHE``, else the platform's cache folder."""
    if named := os.environ.get("CRUMB_TASKS_CACHE", ""):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crumb_tasks"
