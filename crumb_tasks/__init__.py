"""Complex-retrieval benchmarks as a plugin for MTEB.

After ``pip install crumb-tasks`` MTEB's own commands know the tasks: ``mteb run -t CRUMB -m MODEL``. Importing this
package is cheap and changes nothing; the names below are loaded when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, whose import would take longer than all the rest
if TYPE_CHECKING:
    from crumb_tasks.loaders import load_collection
    from crumb_tasks.runfiles import read_run
    from crumb_tasks.scoring import score

__version__ = "0.1.0"
__all__ = ["__version__", "load_collection", "read_run", "register", "score"]

_MODULE_BY_NAME = {
    "load_collection": "crumb_tasks.loaders",
    "read_run": "crumb_tasks.runfiles",
    "score": "crumb_tasks.scoring",
}


def register() -> None:
    """Make MTEB know the tasks where Python did not read ``crumb_tasks.pth`` (``PYTHONPATH``, ``pip --target``, a zip).

    Call it before or after ``import mteb``, as often as you like. It does nothing under ``CRUMB_TASKS_DISABLE=1``.
    """
    import os
    import sys

    if os.environ.get("CRUMB_TASKS_DISABLE", "0") not in {"", "0"}:
        return
    import _crumb_tasks_hook

    _crumb_tasks_hook.install()
    if "mteb" in sys.modules:
        from crumb_tasks.plugin import register as register_now

        register_now()


def __getattr__(name: str) -> object:
    if name not in _MODULE_BY_NAME:
        message = f"module 'crumb_tasks' has no attribute '{name}'"
        raise AttributeError(message)
    import importlib

    return getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
