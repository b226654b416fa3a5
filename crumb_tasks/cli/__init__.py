"""The command ``crumb-tasks``: one module per command, see `crumb_tasks.cli._main`."""

from __future__ import annotations

from crumb_tasks.cli._main import command_module, command_names, main, make_parser

__all__ = ["command_module", "command_names", "main", "make_parser"]
