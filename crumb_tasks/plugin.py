"""What the start-up hook calls: our tasks, benchmarks, menu entry and local models enter MTEB's namespaces.

MTEB collects its registries from modules while it is imported. The hook calls ``inject_…`` right after such a module
was executed; `register` does the same when that was long ago. Classes are added, nothing of MTEB's is replaced: where a
name is taken MTEB's stays. What goes wrong here is a log line (``CRUMB_TASKS_STRICT=1``: an exception), one for each
card.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from crumb_tasks.cards import Card, card_folder, read_card, read_cards
from crumb_tasks.errors import CardError, CrumbTasksError
from crumb_tasks.mteb_compat import (
    MENU_LISTS,
    MENU_MODULE,
    benchmarks_in,
    check_version,
    menu_entry,
    model_registry,
    refresh_benchmark_registry,
    refresh_task_registry,
    task_classes,
)

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.benchmarks import Benchmark

PREFIX = "_crumb_tasks__"
"""Before the names under which our classes stand in MTEB's modules."""

MENU_NAME = "Complex retrieval"
LOCAL_MENU_NAME = "Complex retrieval, not public"

MENU_VARIABLE = "CRUMB_TASKS_MENU"
"""Environment variable: ``all`` puts samples and benchmarks on data of the user's own into the menus, too."""

_logger = logging.getLogger("crumb_tasks")


@dataclass
class Registered:
    """What is in MTEB's registries because of this package, and what is not.

    Attributes:
        tasks: Names of tasks and aggregates.
        benchmarks: Names of benchmarks.
        models: Names of local models.
        clashes: Our names that MTEB already has, with what they are.
        problems: What went wrong, one line each.
    """

    tasks: list[str] = field(default_factory=list)
    benchmarks: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    clashes: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


registered = Registered()
"""The state of this process."""


def is_disabled() -> bool:
    """Return whether ``CRUMB_TASKS_DISABLE=1`` turns the plugin off."""
    return os.environ.get("CRUMB_TASKS_DISABLE", "0") not in {"", "0"}


def register() -> None:
    """Add everything to an MTEB that is already imported, and let MTEB's registries know.

    It may be called as often as you like, and imports MTEB if nobody has.

    Raises:
        UnsupportedMtebError: MTEB is outside the supported range.
    """
    if is_disabled():
        return
    check_version()
    import _crumb_tasks_hook

    _crumb_tasks_hook.install()  # for the modules that MTEB imports later
    import mteb  # noqa: F401 -- its submodules are taken from sys.modules below, where this has put them

    handlers: dict[str, Callable[[ModuleType], None]] = {
        "mteb.models.model_implementations": inject_models,
        "mteb.tasks": inject_tasks,
        "mteb.benchmarks.benchmarks": inject_benchmarks,
        MENU_MODULE: inject_menu,
    }
    for name, handler in handlers.items():
        if name in sys.modules:
            handler(sys.modules[name])
        elif name == "mteb.benchmarks.benchmarks":  # MTEB imports it when it is asked for a benchmark
            import mteb.benchmarks.benchmarks

            handler(mteb.benchmarks.benchmarks)
    refresh_task_registry(_own_tasks(sys.modules["mteb.tasks"]).values())
    refresh_benchmark_registry()


def inject_tasks(module: ModuleType) -> None:
    """Add the tasks and aggregates of all cards to ``mteb.tasks``, before MTEB collects its task registry from it."""
    if is_disabled():
        return
    check_version()
    from crumb_tasks.aggregate_tasks import aggregate_class
    from crumb_tasks.tasks import task_class

    taken = task_classes(module)
    own = _own_tasks(module)
    cards = cards_one_by_one()
    for card in cards:
        for entry in card.tasks:
            if entry.name not in own and _is_free(entry.name, "task", taken):
                with _only_logged(f"task '{entry.name}'"):
                    _add_task(module, task_class(entry))
    classes = task_classes(module)
    for card in cards:
        for aggregate in card.aggregates:
            if aggregate.name not in own and _is_free(aggregate.name, "aggregate", taken):
                with _only_logged(f"aggregate '{aggregate.name}'"):
                    _refuse_clashing_members(aggregate.name, aggregate.task_names)
                    _add_task(module, aggregate_class(aggregate, classes))


def _add_task(module: ModuleType, task: type[AbsTask]) -> None:
    setattr(module, PREFIX + task.__name__, task)
    if task.metadata.name not in registered.tasks:
        registered.tasks.append(task.metadata.name)


def _own_tasks(module: ModuleType) -> dict[str, type[AbsTask]]:
    return {
        name: task for name, task in task_classes(module).items() if vars(module).get(PREFIX + task.__name__) is task
    }


def _is_free(name: str, kind: str, taken: Any) -> bool:
    if name in taken:
        if name not in registered.clashes:
            registered.clashes[name] = kind
            _logger.warning(
                "crumb_tasks: MTEB has a %s of its own called '%s'; MTEB's stays and ours is left out", kind, name
            )
        return False
    return True


def _refuse_clashing_members(name: str, members: Sequence[str]) -> None:
    clashing = [member for member in members if member in registered.clashes]
    if clashing:
        raise CardError(f"'{name}' is left out: its member '{clashing[0]}' gave way to MTEB's task of that name")


def inject_benchmarks(module: ModuleType) -> None:
    """Add the benchmarks of all cards to ``mteb.benchmarks.benchmarks``, from which MTEB builds its list when asked."""
    if is_disabled():
        return
    check_version()
    from crumb_tasks.benchmarks import benchmark

    taken = benchmarks_in(module)
    own = _own_benchmarks(module)
    classes = task_classes(sys.modules["mteb.tasks"])
    aggregates = {entry.name: entry for card in cards_one_by_one() for entry in card.aggregates}
    for card in cards_one_by_one():
        for entry in card.benchmarks:
            names = (entry.name, *entry.aliases)
            if entry.name in own or not all(_is_free(name, "benchmark", taken) for name in names):
                continue
            with _only_logged(f"benchmark '{entry.name}'"):
                aggregate = aggregates[entry.aggregate] if entry.aggregate else None
                _refuse_clashing_members(entry.name, entry.tasks or (aggregate.task_names if aggregate else ()))
                made = benchmark(entry, aggregate, classes, taken)
                setattr(module, PREFIX + entry.name, made)
                registered.benchmarks.append(entry.name)


def _own_benchmarks(module: ModuleType) -> dict[str, Benchmark]:
    return {value.name: value for key, value in vars(module).items() if key.startswith(PREFIX)}


def inject_menu(module: ModuleType) -> None:
    """Append an entry with our public benchmarks to the menus, in place: MTEB's leaderboard holds the very lists.

    With `MENU_VARIABLE` there is a second entry with those that are not public.
    """
    if is_disabled():
        return
    check_version()
    import mteb.benchmarks.benchmarks

    own = _own_benchmarks(mteb.benchmarks.benchmarks)
    public = {entry.name for card in cards_one_by_one() for entry in card.benchmarks if entry.public}
    _add_to_menus(
        module, MENU_NAME, "Queries with several requirements at once", [own[name] for name in own if name in public]
    )
    if os.environ.get(MENU_VARIABLE) == "all":
        _add_to_menus(
            module,
            LOCAL_MENU_NAME,
            "Samples, whose numbers stand beside no others, and what needs data of your own",
            [own[name] for name in own if name not in public],
        )


def _add_to_menus(module: ModuleType, name: str, description: str, benchmarks: list[Benchmark]) -> None:
    if not benchmarks:
        return
    for menu_name in MENU_LISTS:
        menu = getattr(module, menu_name)
        if not any(getattr(entry, "name", None) == name for entry in menu):
            menu.append(menu_entry(module, name, description, benchmarks))


def inject_models(module: ModuleType) -> None:
    """Add the local models that the user's file remembers to MTEB's model registry."""
    if is_disabled():
        return
    check_version()
    from crumb_tasks.local_models import is_local, model_meta, read_models

    registry = model_registry(module)
    with _only_logged("the file of local models"):
        for name, model in read_models().items():
            if is_local(registry.get(name)):
                continue
            if _is_free(name, "model", registry):
                with _only_logged(f"local model '{name}'"):
                    registry[name] = model_meta(name, model)
                    registered.models.append(name)


def task_names(card: Card) -> list[str]:
    """Return the names of a card's tasks and aggregates."""
    return [*(task.name for task in card.tasks), *(aggregate.name for aggregate in card.aggregates)]


def cards_one_by_one() -> tuple[Card, ...]:
    """Return all cards; when one is broken, the others, each of the broken ones being one log line."""
    try:
        return read_cards()
    except CardError as error:
        if _is_strict():
            raise
        _log_once(str(error))
    cards: list[Card] = []
    seen: set[str] = set()
    for path in sorted(card_folder().glob("*.toml")):
        with _only_logged(path.name):
            card = read_card(path)
            names = {name.casefold() for name in task_names(card)}
            if names & seen:
                raise CardError(f"{path.name}: left out, since another card has the name '{min(names & seen)}'")
            seen |= names
            cards.append(card)
    return tuple(cards)


@contextmanager
def _only_logged(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if _is_strict():
            raise
        _log_once(
            str(error)
            if isinstance(error, CrumbTasksError)
            else f"{what} is left out ({type(error).__name__}: {error})"
        )


def _log_once(line: str) -> None:
    line = " ".join(line.split())
    if line not in registered.problems:
        registered.problems.append(line)
        _logger.warning("crumb_tasks: %s", line)


def _is_strict() -> bool:
    return os.environ.get("CRUMB_TASKS_STRICT", "0") not in {"", "0"}
