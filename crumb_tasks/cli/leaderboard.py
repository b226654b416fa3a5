"""``crumb-tasks leaderboard DIR``: MTEB's own leaderboard, of local results and without network."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crumb_tasks.cli._text import add_command, visible
from crumb_tasks.errors import UsageError

if TYPE_CHECKING:
    from crumb_tasks.leaderboard import Prepared

_DESCRIPTION = (
    "Show the results in a folder on MTEB's own leaderboard, without network: write the files that MTEB's leaderboard "
    "and API read, start the leaderboard on this machine only, and print its address. Benchmarks of this package are "
    "ranked by their own aggregate, conditions are rows of their own, and samples are shown too. What cannot be shown "
    "is named on standard error and left out."
)
_MOST_LEFT_OUT = 10


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``leaderboard``."""
    parser = add_command(subparsers, "leaderboard", "show local results on MTEB's leaderboard", _DESCRIPTION)
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=Path,
        help="where mteb run or crumb-tasks run wrote to: MTEB's cache, such as ~/.cache/mteb",
    )
    parser.add_argument(
        "--prepare-only",
        action="store_true",
        help="write the files, and print how MTEB's own commands are started on them",
    )
    parser.add_argument("--port", type=int, metavar="N", help="port of the leaderboard (default: a free one from 7860)")


def run(args: argparse.Namespace) -> int:
    """Prepare the files, then serve them or say how."""
    if args.port is not None and not 0 < args.port < 2**16:
        raise UsageError(f"--port {args.port} is no port; ports are 1 to {2**16 - 1}")
    _stay_here()
    from crumb_tasks import register

    register()
    from crumb_tasks.leaderboard import cache_root, check_extra, prepare, serve

    root = cache_root(args.folder)
    if not args.prepare_only:
        check_extra()
    prepared = prepare(root)
    _print_left_out(prepared.left_out)
    print(_summary(prepared), flush=True)
    if args.prepare_only:
        print("\n".join(_commands(root, prepared)))
        return 0
    serve(root, args.port, lambda address: print("\n".join(_addresses(address, prepared)), flush=True))
    return 0


def _stay_here() -> None:
    """Keep MTEB from looking for results on the Hub, and leave the screen to this command."""
    import logging
    import warnings

    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TQDM_DISABLE", "1")
    warnings_only = logging.StreamHandler()
    warnings_only.setLevel(logging.WARNING)
    logging.getLogger().addHandler(warnings_only)  # without any, MTEB's modules add some that tell each step
    logging.getLogger("mteb").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(mteb|gradio|pandas)(\.|$)")


def _summary(prepared: Prepared) -> str:
    shown = [f"{name} ({count} rows)" for name, count in sorted(prepared.rows_by_benchmark.items())]
    if prepared.others:
        shown.append(f"{len(prepared.others)} of MTEB's own")
    return f"{prepared.folder}: {', '.join(shown) or 'no benchmark has results'}"


def _addresses(address: str, prepared: Prepared) -> list[str]:
    from urllib.parse import urlencode

    names = sorted(prepared.rows_by_benchmark)
    return [
        f"MTEB's leaderboard: {address} (Ctrl-C ends it)",
        *(f"  {name}: {address}?{urlencode({'benchmark_name': name})}" for name in names),
    ]


def _commands(root: Path, prepared: Prepared) -> list[str]:
    from crumb_tasks.leaderboard.serving import HOST
    from crumb_tasks.plugin import MENU_VARIABLE

    folder = shlex.quote(str(root))
    lines = [
        "MTEB's leaderboard of these files:",
        f"  HF_HUB_OFFLINE=1 {MENU_VARIABLE}=all mteb leaderboard --cache-path {folder} --host {HOST}",
    ]
    if prepared.has_api:
        return [
            *lines,
            "MTEB's API of these files:",
            f"  HF_HUB_OFFLINE=1 MTEB_CACHE={folder} uvicorn mteb.api.app:app --host {HOST}",
        ]
    return [
        *lines,
        "MTEB's API needs files of its own, which are written after: pip install 'crumb-tasks[leaderboard]'",
    ]


def _print_left_out(lines: tuple[str, ...]) -> None:
    for line in lines[:_MOST_LEFT_OUT]:
        print(visible(f"left out: {line}"), file=sys.stderr)
    if len(lines) > _MOST_LEFT_OUT:
        print(f"left out: {len(lines) - _MOST_LEFT_OUT} more", file=sys.stderr)
