"""Start-up hook: makes MTEB's own commands know the tasks of crumb_tasks.

Python runs this once at start, through ``crumb_tasks.pth``. It puts a finder on ``sys.meta_path`` that looks at no
import but those of `_TARGETS`, the modules from which MTEB collects its tasks, benchmarks, menus and models. When one
of them has been executed, `crumb_tasks._inject` adds ours to it. Nothing else is touched, and no failure of ours stops
MTEB.

``CRUMB_TASKS_DISABLE=1`` turns it off; ``CRUMB_TASKS_STRICT=1`` raises what goes wrong instead of logging it.
"""

import os
import sys

_TARGETS = frozenset(
    (
        "mteb.tasks",
        "mteb.benchmarks.benchmarks",
        "mteb.benchmarks._leaderboard_menu",
        "mteb.models.model_implementations",
    )
)


def _is_set(name):
    return os.environ.get(name, "0") not in {"", "0"}


class _Finder:
    has_complained = False

    def find_spec(self, name, path=None, target=None):
        if name not in _TARGETS or _is_set("CRUMB_TASKS_DISABLE"):
            return None
        try:
            from crumb_tasks._inject import wrap
        except Exception as error:
            if _is_set("CRUMB_TASKS_STRICT"):
                raise
            self.complain(error)
            return None
        return wrap(self, name, path, target)

    def complain(self, error):
        if not self.has_complained:
            self.has_complained = True
            import logging

            logging.getLogger("crumb_tasks").warning(
                "crumb_tasks: MTEB does without it (%s: %s); reinstall it, or: pip uninstall crumb-tasks",
                type(error).__name__,
                error,
            )


def install():
    """Put the finder on ``sys.meta_path``, once."""
    if not _is_set("CRUMB_TASKS_DISABLE") and not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


install()
