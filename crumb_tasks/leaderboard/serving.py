"""MTEB's leaderboard, started on this machine for this machine."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb_tasks.errors import MissingExtraError, UsageError
from crumb_tasks.mteb_compat import MENU_MODULE, refresh_benchmark_registry
from crumb_tasks.plugin import MENU_VARIABLE, inject_menu

if TYPE_CHECKING:
    from mteb.cache import ResultCache

HOST = "127.0.0.1"


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
    app = _app(root)
    try:
        _, address, _ = app.launch(
            server_name=HOST, server_port=port, prevent_thread_lock=True, quiet=True, share=False, theme="soft"
        )
    except OSError as error:
        if port is None:
            raise
        raise UsageError(f"port {port} cannot be used ({error}); name another with --port") from error
    announce(address)
    app.block_thread()


def _app(root: Path) -> Any:
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ[MENU_VARIABLE] = "all"
    from mteb.cache import ResultCache

    try:
        from mteb.leaderboard import get_leaderboard_app
    except ImportError as error:
        raise MissingExtraError("MTEB's leaderboard", "leaderboard") from error
    inject_menu(importlib.import_module(MENU_MODULE))
    refresh_benchmark_registry()
    cache: ResultCache = ResultCache(root)
    return get_leaderboard_app(cache, cache_repo_id="")
