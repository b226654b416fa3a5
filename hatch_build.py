"""Build hook: an editable install copies the three start-up files and nothing else.

The cards stay in the checkout. A copy of them in site-packages would make a folder ``crumb_tasks`` without code there,
which Python would import as an empty package once the checkout has moved.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

START_UP_FILES = ("crumb_tasks.pth", "crumb_tasks.start", "_crumb_tasks_hook.py")


class StartUpFilesOnly(BuildHookInterface):  # type: ignore[type-arg]
    """Replaces the forced files of editable wheels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Set what an editable wheel holds beside the path to the checkout."""
        if version == "editable":
            build_data["force_include_editable"] = {name: name for name in START_UP_FILES}
