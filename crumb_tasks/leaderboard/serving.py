"""MTEB's leaderboard, started on this machine for this machine."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crumb_tasks.errors import MissingExtraError, UsageError
from crumb_tasks.mteb_compat import MENU_MODULE, refresh_benchmark_registry
from crumb_tasks.plugin import MENU_VARIABLE, inject_menu

HOST = "127.0.0.1"


def check_extra() -> None:
    """Check that MTEB's leaderboard can be imported, without doing so.

    Raises:
        MissingExtraError: What it needs is not installed.
    """
    if any(importlib.util.find_spec(name) is None for name in ("gradio", "plotly", "cachetools")):
        raise MissingExtraError("MTEB's leaderboard", "leaderboard")


def serve(root: Path, port: int | None, announce: Callable[[str], None]) -> None:
    """Show MTEB's leaderboard of a prepared cache until it is interrupted.

    Args:
        root: MTEB's cache.
        port: Where it listens; by default the first free one from 7860.
        announce: Called with the address once it answers.

    Raises:
        MissingExtraError: The extra ``leaderboard`` is not installed.
        UsageError: The port is taken.
    """
    check_extra()
    app = _app(root)
    try:
        _, address, _ = app.launch(
            server_name=HOST, server_port=port, prevent_thread_lock=True, quiet=True, share=False, theme="soft"
        )
    except OSError as error:
        if port is None:
            raise
        raise UsageError(f"port {port} of {HOST} cannot be used; name another with --port") from error
    announce(address)
    app.block_thread()


def _app(root: Path) -> Any:
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ[MENU_VARIABLE] = "all"
    from mteb.cache import ResultCache
    from mteb.leaderboard import get_leaderboard_app

    inject_menu(importlib.import_module(MENU_MODULE))
    refresh_benchmark_registry()
    return get_leaderboard_app(ResultCache(root), cache_repo_id="")
