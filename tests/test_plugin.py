"""The plugin inside MTEB: everything is known to MTEB's own lookups, and nothing of ours breaks `import mteb`."""

from __future__ import annotations

from pathlib import Path

import mteb
import pytest
from mteb_world import Installation, install, write_collection

from crumb_tasks import mteb_compat, plugin
from crumb_tasks.diagnosis import facts
from crumb_tasks.errors import UnsupportedMtebError

CARD = """
name = "mini"
title = "Mini"
description = "Six documents."

[defaults]
loader = "beir"
schema_verified = true
splits = { test = "test", validation = "validation" }

[[tasks]]
name = "MiniFirst"
description = "The first."
source = { hub = "test/first", revision = "r1" }
adapted_from = ["HellaSwag"]

[[tasks]]
name = "MiniSecond"
description = "The second."
source = { hub = "test/second", revision = "r1" }
public = false

[[aggregates]]
name = "MiniMean"
description = "Their mean."
splits = ["test", "validation"]
reduction = { members = ["MiniFirst", "MiniSecond"] }

[[benchmarks]]
name = "MiniBench"
aliases = ["mini-bench"]
description = "Two small tasks."
aggregate = "MiniMean"
column = "Mean (nDCG@10)"
"""
SHOW = """
import mteb
from mteb.benchmarks.get_benchmark import get_benchmarks
names = {task.metadata.name for task in mteb.get_tasks(exclude_private=False)}
print(len(names) > 1000, sorted(name for name in names if name.startswith("Mini")))
print(sorted(b.name for b in get_benchmarks() if b.name.startswith("Mini")))
"""
ALL_TASKS = "True ['MiniFirst', 'MiniMean', 'MiniSecond']"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An installation with the card above and its data."""
    made = install(tmp_path_factory.mktemp("site"), {"mini": CARD})
    write_collection(made.data / "test" / "first")
    write_collection(made.data / "test" / "second")
    return made


@pytest.fixture
def fresh(tmp_path: Path) -> Installation:
    """An installation of this test's own."""
    return install(tmp_path / "site", {"mini": CARD})


def test_every_lookup_of_mteb_finds_them(world: Installation) -> None:
    """By name, by alias, filtered, in the menus, as similar tasks, and with a suggestion for a near name."""
    shown = world.python(
        "import mteb, mteb.benchmarks._leaderboard_menu as menu\n"
        "by_alias = mteb.get_benchmark('mini-bench')\n"
        "print(mteb.get_task('MiniFirst'), by_alias.name, len(by_alias.tasks))\n"
        "names = [t.metadata.name for t in mteb.get_tasks(task_types=['Retrieval'], languages=['eng'])]\n"
        "print([name for name in names if 'Mini' in name])\n"
        "print([[e.name for e in m][-1:] for m in (menu.R_BENCHMARK_ENTRIES, menu.HOME_BENCHMARK_ENTRIES)])\n"
        "print(mteb.get_benchmark('MiniBench').display_on_leaderboard)\n"
        "from mteb.models.model_meta import _collect_similar_tasks\n"
        "print(sorted(_collect_similar_tasks('HellaSwag', set())))\n"
        "try: mteb.get_task('MiniFirts')\n"
        "except KeyError as error: print(error)\n"
    )

    assert shown.stdout.splitlines() == [
        "MiniFirst(name='MiniFirst', languages=['eng']) MiniBench 2",
        "['MiniFirst', 'MiniMean']",  # MiniSecond is not public: named it works, in unnamed listings it does not show
        "[['Complex retrieval'], ['Complex retrieval']]",
        "True",
        "['HellaSwag', 'MiniFirst']",
        "\"KeyError: 'MiniFirts' not found. Did you mean: 'MiniFirst'?\"",
    ], shown.stderr
    assert shown.stderr.count("crumb_tasks") == 0


@pytest.mark.parametrize(
    "code",
    [
        "import crumb_tasks; crumb_tasks.register(); import mteb",
        "import mteb; import crumb_tasks; crumb_tasks.register(); crumb_tasks.register()",
        "import mteb.benchmarks.benchmarks, mteb.benchmarks._leaderboard_menu, crumb_tasks; crumb_tasks.register()",
        "from crumb_tasks import plugin; plugin.register(); plugin.register(); import mteb",
    ],
    ids=["before", "after, twice", "after all of mteb", "plugin alone"],
)
def test_register_where_no_hook_is(world: Installation, code: str) -> None:
    """Before or after `import mteb`, as often as you like, everything is known once."""
    no_hook = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'crumb' not in type(f).__module__]\n"
    count = (
        "\nimport mteb.benchmarks._leaderboard_menu as menu"
        "\nprint([entry.name for entry in menu.R_BENCHMARK_ENTRIES].count('Complex retrieval'))"
    )

    shown = world.python(f"{no_hook}{code}\n{SHOW}{count}", TEST_NO_HOOK="1")

    assert shown.stdout.splitlines() == [ALL_TASKS, "['MiniBench']", "1"], shown.stderr


def test_reload_and_child_processes_find_them_again(world: Installation) -> None:
    """`importlib.reload` of MTEB's tasks goes through the hook and doubles nothing; a spawned worker knows ours."""
    script = world.path / "spawn.py"
    script.write_text(
        "import multiprocessing\n"
        "def name(task):\n    import mteb\n    return mteb.get_task(task).metadata.name\n"
        "if __name__ == '__main__':\n"
        f"    import importlib, mteb.tasks\n    importlib.reload(mteb.tasks)\n    exec({SHOW!r})\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(name, ['MiniFirst']))\n",
        encoding="utf-8",
    )

    shown = world.script(script)

    assert shown.stdout.splitlines() == [ALL_TASKS, "['MiniBench']", "['MiniFirst']"], shown.stderr


def test_names_that_mteb_has_stay_mtebs(fresh: Installation) -> None:
    """A doubled name would break `import mteb`: ours is left out, with the aggregate that would mean another task.

    `doctor` gets the same facts as data.
    """
    fresh.write_card("mini", CARD.replace("MiniSecond", "NFCorpus"))
    fresh.write_card("other", CARD.replace("Mini", "Other").replace("mini", "other").replace("other-bench", "BEIR"))
    code = (
        f"{SHOW}\n"
        "print(type(mteb.get_task('NFCorpus')).__module__, mteb.get_benchmark('BEIR').tasks[0].metadata.name)\n"
        "from crumb_tasks.diagnosis import facts; f = facts()\n"
        "print(f.has_hook, f.is_disabled, f.problem, f.supported, f.mteb_version)\n"
        "print(f.registered.tasks, f.registered.clashes, f.unseen, f.moved)\n"
    )

    shown = fresh.python(code)

    found = shown.stdout.splitlines()
    assert found[:2] == ["True ['MiniFirst']", "[]"], shown.stderr
    assert found[2].startswith("mteb.tasks")
    assert found[2].endswith(" TRECCOVID")
    assert found[3] == f"True False None >=2.26,<3 {mteb.__version__}"
    assert found[4] == (
        "['MiniFirst', 'OtherFirst', 'OtherSecond', 'OtherMean'] {'NFCorpus': 'task', 'BEIR': 'benchmark'} "
        "('MiniMean', 'MiniBench', 'OtherBench') ()"
    )
    assert "MTEB has a task of its own called 'NFCorpus'; MTEB's stays and ours is left out" in shown.stderr
    assert "MTEB has a benchmark of its own called 'BEIR'" in shown.stderr
    for name in ("MiniMean", "MiniBench"):
        assert f"'{name}' is left out: its member 'NFCorpus' gave way" in shown.stderr


ODD = CARD.replace("Mini", "{name}").replace('name = "mini"', 'name = "{name}"').replace("mini-bench", "{name}-bench")
BROKEN = {
    "toml": ("name = ", "toml.toml: not a TOML file"),
    "key": (ODD.replace("schema_verified", "schema_verifed"), "schema_verifed: unknown key"),
    "domain": (
        ODD.replace("schema_verified", 'domains = ["Cooking"]\nschema_verified'),
        "task 'domainFirst' is left out (ValidationError",
    ),
    "member": (
        ODD.replace('"{name}Second"]', '"{name}Third"]'),
        "'memberMean' names the task 'memberThird', which neither this package nor MTEB has; did you mean",
    ),
    "measure": (
        ODD.replace('"Their mean."', '"."\nmeasure = "nDCG@7"'),
        "reduces nDCG@7, which measureFirst, measureSecond does not report",
    ),
    "zz": (CARD, "zz.toml: left out, since another card has the name 'minifirst'"),
}


@pytest.mark.parametrize(
    "flags", [(), ("-Werror::RuntimeWarning", "-Werror::UserWarning")], ids=["", "strict warnings"]
)
def test_broken_cards_break_neither_mteb_nor_the_others(fresh: Installation, flags: tuple[str, ...]) -> None:
    """One line for each broken card; MTEB and what can be had from the other cards are there."""
    for name, (text, _) in BROKEN.items():
        fresh.write_card(name, text.replace("{name}", name))

    shown = fresh.python(SHOW, *flags)

    assert shown.stdout.splitlines() == [ALL_TASKS, "['MiniBench']"], shown.stderr
    assert "Traceback" not in shown.stderr
    for _, complaint in BROKEN.values():
        assert shown.stderr.count(complaint) == 1, shown.stderr


def test_strict_raises(fresh: Installation) -> None:
    """CRUMB_TASKS_STRICT=1 is for CI."""
    fresh.write_card("broken", "name = ")

    shown = fresh.python("import mteb", CRUMB_TASKS_STRICT="1")

    assert shown.returncode == 1
    assert "CardError: broken.toml: not a TOML file" in shown.stderr


def test_disabled_plugin_adds_nothing(world: Installation) -> None:
    """CRUMB_TASKS_DISABLE=1, also against an explicit call."""
    code = f"import crumb_tasks; crumb_tasks.register(); from crumb_tasks import plugin; plugin.register()\n{SHOW}"

    shown = world.python(code, CRUMB_TASKS_DISABLE="1")

    assert shown.stdout.splitlines() == ["True []", "[]"], shown.stderr


def test_unsupported_mteb_is_one_line(fresh: Installation) -> None:
    """The line says which MTEB is needed and which was found; MTEB works."""
    fresh.requires("mteb<3,>=2.99")

    shown = fresh.python(SHOW)

    assert shown.stdout.splitlines() == ["True []", "[]"], shown.stderr
    lines = [line for line in shown.stderr.splitlines() if "crumb_tasks" in line]
    assert len(lines) == 1
    assert f"needs mteb >=2.99,<3; found {mteb.__version__}" in lines[0]


@pytest.mark.parametrize(
    ("version", "is_supported"), [("2.25.9", False), ("2.26.0", True), ("2.99", True), ("3.0.0", False)]
)
def test_supported_range(monkeypatch: pytest.MonkeyPatch, version: str, *, is_supported: bool) -> None:
    """A version outside the range is that message, not an AttributeError somewhere."""
    monkeypatch.setattr(mteb, "__version__", version)

    if is_supported:
        mteb_compat.check_version()
        return
    with pytest.raises(UnsupportedMtebError, match=rf"crumb_tasks \S+ needs mteb >=2\.26,<3; found {version}"):
        plugin.register()


def test_nothing_private_has_moved() -> None:
    """The installed MTEB has every private name that we touch; otherwise `doctor` says which is gone."""
    assert mteb_compat.names_that_moved() == {}


def test_facts_of_this_process() -> None:
    """All of the package's own cards are registered here, without a problem."""
    plugin.register()

    found = facts()

    assert (found.problem, found.registered.problems, found.registered.clashes) == (None, [], {})
    assert found.unseen == ()


def test_plugin_modules_are_light(world: Installation) -> None:
    """What the hook and the light commands import needs neither torch nor mteb."""
    shown = world.python(
        "import sys, crumb_tasks.aggregates, crumb_tasks.local_models, crumb_tasks.mteb_compat, crumb_tasks.plugin\n"
        "print(sorted({'torch', 'mteb', 'datasets', 'sentence_transformers'} & set(sys.modules)))"
    )

    assert shown.stdout == "[]\n", shown.stderr
