"""What happens when MTEB executes a module from which it collects its registries.

The finder of ``_crumb_tasks_hook`` calls `wrap`. It finds the module as Python would have, and has the module's loader
call one handler after the module ran. An error of MTEB passes through; an error of ours becomes one log line.
Standard library only: this runs inside ``import mteb``.
"""

from __future__ import annotations

import copy
import importlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from crumb_tasks.errors import CrumbTasksError

HANDLERS: Mapping[str, str] = {
    "mteb.tasks": "inject_tasks",
    "mteb.benchmarks.benchmarks": "inject_benchmarks",
    "mteb.benchmarks._leaderboard_menu": "inject_menu",
    "mteb.models.model_implementations": "inject_models",
}
"""Module of MTEB → the function of `crumb_tasks.plugin` that gets it once it has been executed."""

_logger = logging.getLogger("crumb_tasks")
_logged: set[str] = set()  # what broke one handler usually breaks all: say it once


def wrap(finder: object, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    """Return the spec that the other finders have for ``name``, with a loader that calls our handler at the end.

    Args:
        finder: The finder that asks, which is not asked again.
        name: Module name, a key of `HANDLERS`.
        path: As for ``find_spec``.
        target: As for ``find_spec``.
    """
    spec = _ask_the_others(finder, name, path, target)
    if spec is None or not hasattr(spec.loader, "exec_module"):
        return spec
    loader: Any = copy.copy(spec.loader)  # zipimport shares one loader object between modules
    exec_module = loader.exec_module

    def exec_and_inject(module: ModuleType) -> None:
        del loader.exec_module  # pristine again, for inspect and reload
        exec_module(module)
        guard(name, module)

    loader.exec_module = exec_and_inject
    spec.loader = loader
    return spec


def _ask_the_others(
    finder: object, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for other in sys.meta_path:
        if other is finder or not hasattr(other, "find_spec"):
            continue
        spec = other.find_spec(name, path, target)
        if spec is not None:
            return spec
    return None


def guard(name: str, module: ModuleType) -> None:
    """Call the handler of the module ``name``; what goes wrong is one log line, the same line only once.

    It is logged, not warned of: under ``-W error`` a warning would break ``import mteb``.

    Raises:
        Exception: Whatever the handler raised, under ``CRUMB_TASKS_STRICT=1``.
    """
    try:
        handler: Callable[[ModuleType], None] = getattr(importlib.import_module("crumb_tasks.plugin"), HANDLERS[name])
        handler(module)
    except Exception as error:
        if os.environ.get("CRUMB_TASKS_STRICT", "0") not in {"", "0"}:
            raise
        problem = " ".join(f"{error}".split())
        if not isinstance(error, CrumbTasksError):
            problem = f"nothing of it is in {name} ({type(error).__name__}: {problem})"
        if (cause := f"{type(error).__name__}: {error}") not in _logged:
            _logged.add(cause)
            _logger.warning("%s", problem if problem.startswith("crumb_tasks ") else f"crumb_tasks: {problem}")
