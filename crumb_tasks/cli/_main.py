"""How ``crumb-tasks`` finds and runs a command.

Each module beside this one whose name has no underscore in front is a command of the same name. It has
``add_parser(subparsers)``, which adds its parser, and ``run(args)``, which returns the exit code: 0, 1 for a finding
about data or results, 2 for misuse. Only the module of the command that is asked for is imported (all of them for
``--help``), so no module may import torch, mteb or datasets before its ``run``.

This stands in no ``__init__``: there the module of the command ``list`` would hide the builtin.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from crumb_tasks import __version__
from crumb_tasks.cli._text import visible
from crumb_tasks.errors import CrumbTasksError, UsageError, did_you_mean

_PACKAGE = "crumb_tasks.cli"
_EPILOG = "Environment: CRUMB_TASKS_DATA=DIR reads data from DIR; CRUMB_TASKS_DEBUG=1 shows tracebacks."


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} ({self.prog} --help explains)")


def command_names() -> tuple[str, ...]:
    """Return the names of all commands, sorted, without importing them."""
    found = pkgutil.iter_modules(importlib.import_module(_PACKAGE).__path__)
    return tuple(sorted(module.name for module in found if not module.name.startswith("_")))


def command_module(name: str) -> ModuleType:
    """Import the module of one command."""
    return importlib.import_module(f"{_PACKAGE}.{name}")


def make_parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of ``crumb-tasks`` with the commands ``names``."""
    parser = _Parser(
        prog="crumb-tasks",
        description="Complex-retrieval benchmarks for MTEB: look at tasks, check and score data and runs.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"crumb-tasks {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for name in names:
        command_module(name).add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``crumb-tasks`` with ``argv`` (by default the process's) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # LC_ALL=C must not turn a name into a UnicodeEncodeError
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter's last flush complains
        return 141  # what a shell reports for SIGPIPE
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("CRUMB_TASKS_DEBUG", "0") not in {"", "0"}:
            raise
        print(f"crumb-tasks: {_one_line(error)}", file=sys.stderr)
        return error.exit_code if isinstance(error, CrumbTasksError) else 1
    return code


def _run(arguments: list[str]) -> int:
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    names = command_names()
    if asked is not None and asked not in names:
        raise UsageError(f"there is no command '{asked}'{did_you_mean(asked, names)} (crumb-tasks --help lists all)")
    needed = names if asked is None else (asked,)
    args = make_parser(() if "--version" in arguments[:1] else needed).parse_args(arguments)
    command = command_module(args.command)
    if getattr(args, "data", None) is None:
        return int(command.run(args))
    from crumb_tasks.sources import set_data_root

    set_data_root(args.data)
    try:
        return int(command.run(args))
    finally:
        set_data_root(None)  # who calls main in a program of their own keeps CRUMB_TASKS_DATA


def _one_line(error: Exception) -> str:
    text = visible(" ".join(str(error).split()))
    if isinstance(error, CrumbTasksError | OSError):
        return text
    return f"unexpected {type(error).__name__}: {text} (CRUMB_TASKS_DEBUG=1 shows where)"
