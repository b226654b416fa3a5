"""``crumb-tasks doctor``: is everything in place, in a person's words."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crumb_tasks.cards import TaskCard, iter_tasks, read_cards
from crumb_tasks.cli._text import add_command, add_data_option, paragraph

_ROOT = Path(__file__).parents[2]
_START_UP_FILES = ("crumb_tasks.pth", "crumb_tasks.start", "_crumb_tasks_hook.py")


def add_parser(subparsers: Any) -> None:
    """Add the parser of ``doctor``."""
    parser = add_command(
        subparsers,
        "doctor",
        "say whether MTEB knows the tasks, where data come from, and what is wrong",
        "Look at the start-up hook, the installed mteb, the cards, the data and the optional packages. Exits 1 when "
        "something needs attention, after saying what to do.",
    )
    add_data_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print what was found; 1 when something needs attention."""
    del args  # main has set the data root
    findings: list[str] = []
    cards = read_cards()
    tasks = list(iter_tasks(cards))
    print(paragraph("cards", f"{len(cards)} cards with {len(tasks)} tasks, all readable"))
    _look_at_mteb(findings)
    _look_at_data(tasks, findings)
    for extra, missing in missing_by_extra().items():
        state = f"lacks {', '.join(missing)}: pip install 'crumb-tasks[{extra}]'" if missing else "installed"
        print(paragraph(f"extra {extra}", state))
    print()
    for finding in findings:
        print(paragraph("TO DO", finding))
    if not findings:
        print("Everything is in place.")
    return 1 if findings else 0


def _look_at_mteb(findings: list[str]) -> None:
    from crumb_tasks.diagnosis import Facts, facts

    found: Facts = facts()
    print(paragraph("hook", _hook_state(found, findings)))
    supported = f" (supported: {found.supported})" if found.supported else ""
    print(paragraph("mteb", f"{found.mteb_version or 'not installed'}{supported}"))
    if found.problem is not None:
        findings.append(found.problem)
    known = found.registered
    what = ("tasks and aggregates", known.tasks), ("benchmarks", known.benchmarks), ("local models", known.models)
    print(paragraph("in MTEB", ", ".join(f"{len(names)} {kind}" for kind, names in what)))
    findings += [
        f"MTEB has a {kind} of its own called '{name}': MTEB's stays and ours is left out"
        for name, kind in known.clashes.items()
    ]
    findings += known.problems
    if found.has_hook and found.problem is None:
        findings += [
            f"MTEB does not know '{name}', which a card has" for name in found.unseen if name not in known.clashes
        ]
    findings += [
        f"this version of mteb lacks {module}.{name}, which crumb_tasks uses: install another supported version"
        for name, module in found.moved
    ]


def _hook_state(facts: Any, findings: list[str]) -> str:
    if facts.is_disabled:
        findings.append("CRUMB_TASKS_DISABLE turns the plugin off: MTEB knows none of the tasks; unset it")
        return "turned off by CRUMB_TASKS_DISABLE"
    if not facts.has_hook:
        findings.append(
            "MTEB's own commands do not know the tasks, since this Python read no crumb_tasks.pth: pip install the "
            "package into this environment, or call crumb_tasks.register() in your program"
        )
        return "not active"
    import _crumb_tasks_hook

    installed = Path(_crumb_tasks_hook.__file__).parent
    if stale := [name for name in _START_UP_FILES if _differs(installed / name, _ROOT / name)]:
        findings.append(f"{', '.join(stale)} in {installed} differs from this checkout's: run pip install -e . again")
    return f"active, in {installed}"


def _differs(installed: Path, own: Path) -> bool:
    if not own.is_file() or installed == own:
        return False
    return not installed.is_file() or installed.read_bytes() != own.read_bytes()


def _look_at_data(tasks: list[TaskCard], findings: list[str]) -> None:
    from crumb_tasks.sources import data_root, open_source

    root = data_root()
    print(paragraph("data root", "none (CRUMB_TASKS_DATA or --data names one)" if root is None else str(root)))
    if root is not None and not root.is_dir():
        findings.append(f"the data root {root} is no folder: correct CRUMB_TASKS_DATA or --data")
    places = Counter(_place(task, is_local=open_source(task).root is not None) for task in tasks)
    for place, count in sorted(places.items()):
        print(paragraph("data", f"{count} {'task' if count == 1 else 'tasks'} {place}"))


def _place(task: TaskCard, *, is_local: bool) -> str:
    if task.source.sample:
        return "embedded in the package"
    if is_local:
        return "in the data root"
    if task.source.user:
        return "on your own files, which are not in the data root (crumb-tasks show NAME says how to get them)"
    return f"from {'the Hub' if task.source.hub else 'GitHub'} when first run (crumb-tasks download NAME gets them)"


def missing_by_extra() -> dict[str, tuple[str, ...]]:
    """Return for each optional extra of the installed package the requirements that are not installed."""
    try:
        distribution = importlib.metadata.distribution("crumb-tasks")
    except importlib.metadata.PackageNotFoundError:
        return {}
    extras = distribution.metadata.get_all("Provides-Extra") or []
    return {extra: tuple(_missing("crumb-tasks", extra)) for extra in sorted(extras) if extra != "test"}


def _missing(name: str, extra: str) -> Iterator[str]:
    from packaging.requirements import Requirement

    for requirement in map(Requirement, importlib.metadata.requires(name) or []):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield requirement.name
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            yield f"{requirement.name}{requirement.specifier}"
        for nested in sorted(requirement.extras):
            yield from _missing(requirement.name, nested)
