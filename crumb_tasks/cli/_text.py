"""What the commands share: parsers with a description, the option ``--data``, tables and labelled paragraphs."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WIDTH = 100


def add_command(subparsers: Any, name: str, summary: str, description: str) -> argparse.ArgumentParser:
    """Add the parser of a command and return it.

    Args:
        subparsers: What ``add_subparsers`` returned.
        name: The command.
        summary: Its line in ``crumb-tasks --help``; begins in lower case.
        description: The first paragraph of its own ``--help``.
    """
    parser: argparse.ArgumentParser = subparsers.add_parser(name, help=summary, description=description)
    return parser


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--data DIR``, which ``main`` hands to `crumb_tasks.sources` before the command runs."""
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="read data from DIR, where the repository org/name stands in DIR/org/name (default: $CRUMB_TASKS_DATA)",
    )


def given(text: str) -> str:
    """Return the value of an option; an empty one, such as a shell's unset variable, is refused, not taken for none."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; leave the option out, or set the variable it comes from")
    return text


def given_path(text: str) -> Path:
    """Return the path that an option gives; an empty one would be the current folder."""
    return Path(given(text))


def given_folder(text: str) -> Path:
    """Return the folder that an option gives, whether or not it exists; a file is refused."""
    path = given_path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"'{text}' is a file; name a folder")
    return path


def visible(text: str) -> str:
    """Return ``text`` on one line, whatever a file holds: what a terminal would obey is written as an escape."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Return ``rows`` under ``head`` in aligned columns; with ``width`` the lines are cut to it."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
    if width is not None:
        lines = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
    return "\n".join(lines)


def paragraph(label: str, text: str, *, indent: int = 16) -> str:
    """Return ``text`` wrapped, with ``label`` in front of its first line."""
    lines = textwrap.wrap(
        text,
        width=_WIDTH,
        initial_indent=f"{label:<{indent}}",
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)
