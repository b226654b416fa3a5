"""What ``crumb-tasks doctor`` tells about the plugin: is the hook active, which MTEB, what clashes, what is missing."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from crumb_tasks.errors import CrumbTasksError
from crumb_tasks.mteb_compat import (
    benchmarks_in,
    check_version,
    mteb_version,
    names_that_moved,
    supported_range,
    task_classes,
)
from crumb_tasks.plugin import Registered, cards_one_by_one, is_disabled, registered, task_names


@dataclass(frozen=True)
class Facts:
    """What ``crumb-tasks doctor`` tells about the plugin in this process.

    Attributes:
        mteb_version: Of the installed MTEB; empty without one.
        supported: The supported range, as in ``>=2.26,<3``; empty where unknown.
        problem: Why MTEB cannot be used, one line, or ``None``.
        is_disabled: ``CRUMB_TASKS_DISABLE=1``.
        has_hook: Whether the start-up hook is active in this process.
        registered: What is registered, clashes and problems.
        unseen: Our tasks and benchmarks that MTEB should know and does not.
        moved: Private names of MTEB that this version lacks, and where they were expected.
    """

    mteb_version: str
    supported: str
    problem: str | None
    is_disabled: bool
    has_hook: bool
    registered: Registered
    unseen: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()


def facts() -> Facts:
    """Import MTEB, look at its registries, and return what is there."""
    has_hook = any(type(finder).__module__ == "_crumb_tasks_hook" for finder in sys.meta_path)
    problem: str | None = None
    unseen: list[str] = []
    moved: dict[str, str] = {}
    try:
        check_version()
        import mteb.benchmarks.benchmarks

        if not is_disabled():
            known = {*task_classes(sys.modules["mteb.tasks"]), *benchmarks_in(mteb.benchmarks.benchmarks)}
            named = [
                name
                for card in cards_one_by_one()
                for name in (*task_names(card), *(entry.name for entry in card.benchmarks))
            ]
            unseen = [name for name in named if name not in known]
        moved = dict(names_that_moved())
    except CrumbTasksError as error:
        problem = str(error)
    except ImportError as error:
        problem = f"mteb cannot be imported ({error})"
    return Facts(
        mteb_version=mteb_version(),
        supported=supported_range() or "",
        problem=problem,
        is_disabled=is_disabled(),
        has_hook=has_hook,
        registered=registered,
        unseen=tuple(unseen),
        moved=tuple(sorted(moved.items())),
    )
