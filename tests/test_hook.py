"""The start-up hook: it makes MTEB know our tasks, and whatever breaks on our side, MTEB goes on.

Each guard was provoked once with real mteb; here a stand-in provokes it again, on this Python and the newest around.
"""

from __future__ import annotations

import ast
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from standin import ROOT, SiteDirectory, make_site_directory, newest_interpreter

import crumb_tasks._inject

SHOW_TASKS = "import mteb; print(*mteb.TASK_LIST)"


@pytest.fixture(params=["this", "newest"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> SiteDirectory:
    """A site directory with the hook and a stand-in for mteb, on this Python and on the newest one."""
    python = sys.executable if request.param == "this" else newest_interpreter()
    if python is None:
        pytest.skip("no Python newer than the running one on PATH or under PYENV_ROOT")
    return make_site_directory(tmp_path / "site", python)


def test_mteb_collects_what_the_plugin_adds(site: SiteDirectory) -> None:
    """All four modules from which mteb collects its registries hold our entries before mteb reads them."""
    shown = site.run(
        f"{SHOW_TASKS}\n"
        "import mteb.benchmarks._leaderboard_menu as menu\n"
        "print(mteb.benchmarks.benchmarks.CRUMB, menu.R_BENCHMARK_ENTRIES, mteb.models.model_implementations.REGISTRY)"
    )

    assert shown.stdout.splitlines() == ["CRUMB NFCorpus", "benchmark ['CRUMB'] {'crumb/local': 'model'}"]
    assert shown.stderr == ""


@pytest.mark.parametrize("flag", ["-I", "-E", "-s", "-P", "-B", "-OO", "-Werror"])
def test_hook_is_active_under_every_interpreter_flag(site: SiteDirectory, flag: str) -> None:
    """No flag but -S, which turns site-packages off altogether, keeps the tasks from mteb."""
    shown = site.run(SHOW_TASKS, flag)

    assert (shown.stdout, shown.stderr) == ("CRUMB NFCorpus\n", "")


def test_disable_leaves_python_as_it_was(site: SiteDirectory) -> None:
    """CRUMB_TASKS_DISABLE=1 puts no finder on sys.meta_path; 0 is off."""
    code = f"print(any('crumb' in type(finder).__module__ for finder in sys.meta_path))\n{SHOW_TASKS}"

    assert site.run(code, CRUMB_TASKS_DISABLE="1").stdout == "False\nNFCorpus\n"
    assert site.run(code, CRUMB_TASKS_DISABLE="0").stdout == "True\nCRUMB NFCorpus\n"


def test_disable_works_from_inside_python(site: SiteDirectory) -> None:
    """A notebook can turn the plugin off before it imports mteb."""
    shown = site.run(f"import os; os.environ['CRUMB_TASKS_DISABLE'] = '1'\n{SHOW_TASKS}")

    assert shown.stdout == "NFCorpus\n"


def test_plugin_that_raises_is_one_line(site: SiteDirectory) -> None:
    """A broken plugin costs mteb nothing but one line in the log, however many modules it breaks for."""
    site.write("crumb_tasks/plugin.py", "raise RuntimeError('broken\\nin two lines')")

    shown = site.run(SHOW_TASKS)

    assert shown.stdout == "NFCorpus\n"
    assert shown.stderr == "crumb_tasks: nothing of it is in mteb.tasks (RuntimeError: broken in two lines)\n"


def test_tasks_stay_when_benchmarks_break(site: SiteDirectory) -> None:
    """A failure for one module leaves the others registered."""
    site.write("crumb_tasks/plugin.py", _plugin_with("def inject_benchmarks(module):\n    raise KeyError('BEIR')"))

    shown = site.run(SHOW_TASKS)

    assert shown.stdout == "CRUMB NFCorpus\n"
    assert shown.stderr == "crumb_tasks: nothing of it is in mteb.benchmarks.benchmarks (KeyError: 'BEIR')\n"


def test_expected_errors_are_shown_as_they_are(site: SiteDirectory) -> None:
    """An unsupported mteb is one clear line, not four with type names."""
    failing = "".join(
        f"def {name}(module):\n    raise UnsupportedMtebError('needs mteb>=2.26,<3; found 2.1')\n"
        for name in crumb_tasks._inject.HANDLERS.values()
    )
    site.write("crumb_tasks/plugin.py", f"from crumb_tasks.errors import UnsupportedMtebError\n{failing}")

    shown = site.run(f"{SHOW_TASKS}\nimport mteb.benchmarks._leaderboard_menu")

    assert (shown.stdout, shown.stderr) == ("NFCorpus\n", "crumb_tasks: needs mteb>=2.26,<3; found 2.1\n")


@pytest.mark.parametrize("flag", ["-Werror", "-Werror::RuntimeWarning"])
def test_failures_are_logged_and_never_warned_of(site: SiteDirectory, flag: str) -> None:
    """Under warnings as errors a warning of ours would itself break `import mteb`."""
    site.write("crumb_tasks/plugin.py", "raise RuntimeError('broken')")

    assert site.run(SHOW_TASKS, flag).stdout == "NFCorpus\n"


def test_strict_raises_what_goes_wrong(site: SiteDirectory) -> None:
    """CRUMB_TASKS_STRICT=1 is for CI: nothing is swallowed."""
    site.write("crumb_tasks/plugin.py", "raise RuntimeError('broken')")

    shown = site.run(SHOW_TASKS, CRUMB_TASKS_STRICT="1")

    assert shown.returncode == 1
    assert shown.stderr.endswith("RuntimeError: broken\n")


def test_half_removed_package_is_one_line(site: SiteDirectory) -> None:
    """With the package's folder gone and the start-up files left, mteb works and the line says what to do."""
    shutil.rmtree(site.path / "crumb_tasks")

    shown = site.run(SHOW_TASKS)

    assert shown.stdout == "NFCorpus\n"
    assert shown.stderr.count("\n") == 1
    assert "pip uninstall crumb-tasks" in shown.stderr


def test_half_removed_package_is_an_error_under_strict(site: SiteDirectory) -> None:
    """CI notices an incomplete install."""
    shutil.rmtree(site.path / "crumb_tasks")

    assert "ModuleNotFoundError: No module named 'crumb_tasks'" in site.run(SHOW_TASKS, CRUMB_TASKS_STRICT="1").stderr


def test_pth_left_alone_is_silent(site: SiteDirectory) -> None:
    """A .pth whose hook is gone says nothing at any start of Python."""
    (site.path / "_crumb_tasks_hook.py").unlink()
    shutil.rmtree(site.path / "crumb_tasks")

    shown = site.run(SHOW_TASKS)

    assert (shown.stdout, shown.stderr) == ("NFCorpus\n", "")


def test_hook_that_does_not_parse_is_silent(site: SiteDirectory) -> None:
    """A damaged hook stops neither Python nor mteb."""
    site.write("_crumb_tasks_hook.py", "def install(:")

    shown = site.run(SHOW_TASKS)

    assert (shown.stdout, shown.stderr) == ("NFCorpus\n", "")


def test_errors_of_mteb_pass_through(site: SiteDirectory) -> None:
    """What mteb itself raises reaches the user unchanged."""
    site.write("mteb/tasks/__init__.py", "raise ImportError('no torch')")

    shown = site.run(SHOW_TASKS)

    assert shown.returncode == 1
    assert shown.stderr.endswith("ImportError: no torch\n")
    assert "crumb_tasks:" not in shown.stderr


def test_loader_is_pristine_after_the_import(site: SiteDirectory) -> None:
    """Tools that inspect read mteb's source as before, and a reload registers again."""
    shown = site.run(
        "import importlib, inspect, mteb.tasks\n"
        "print(inspect.getsource(mteb.tasks).split()[:2], vars(mteb.tasks.__loader__).keys())\n"
        "del mteb.tasks.CRUMB\n"
        "print(importlib.reload(mteb.tasks).CRUMB.__name__)"
    )

    assert shown.stdout == "['class', 'NFCorpus:'] dict_keys(['name', 'path'])\nCRUMB\n"


def test_mteb_in_a_zip_is_reached(site: SiteDirectory) -> None:
    """The hook asks whichever finder has mteb, so a zip is as good as a folder, also on reload."""
    with zipfile.ZipFile(site.path / "mteb.zip", "w") as archive:
        for file in (site.path / "mteb").rglob("*.py"):
            archive.write(file, file.relative_to(site.path))
    shutil.rmtree(site.path / "mteb")

    shown = site.run(
        f"sys.path.append({str(site.path / 'mteb.zip')!r})\n{SHOW_TASKS}\n"
        "import importlib; print(importlib.reload(mteb.tasks).CRUMB.__name__, mteb.tasks.__loader__.archive[-8:])"
    )

    assert shown.stdout == "CRUMB NFCorpus\nCRUMB mteb.zip\n"


@pytest.mark.parametrize(
    "code",
    [
        "import crumb_tasks; crumb_tasks.register(); crumb_tasks.register(); import mteb; print(*mteb.TASK_LIST)",
        "import mteb, crumb_tasks; crumb_tasks.register(); print(mteb.tasks.CRUMB.__name__, 'NFCorpus')",
    ],
    ids=["before mteb", "after mteb"],
)
def test_register_reaches_where_no_pth_is_read(site: SiteDirectory, code: str) -> None:
    """With PYTHONPATH, `pip --target` or a zip Python reads no .pth: register() does it, before or after mteb."""
    assert site.run(SHOW_TASKS, reads_pth=False).stdout == "NFCorpus\n"
    assert site.run(code, reads_pth=False).stdout == "CRUMB NFCorpus\n"


def test_register_imports_no_mteb(site: SiteDirectory) -> None:
    """register() before mteb costs one finder; it works without mteb and respects CRUMB_TASKS_DISABLE=1."""
    code = (
        "import crumb_tasks; crumb_tasks.register()\n"
        "print('mteb' in sys.modules, sum('crumb' in type(finder).__module__ for finder in sys.meta_path))"
    )

    assert site.run(code).stdout == "False 1\n"
    assert site.run(code, CRUMB_TASKS_DISABLE="1").stdout == "False 0\n"


def test_start_up_costs_no_import() -> None:
    """At every start of Python the hook imports os and sys, which are there, and nothing else."""
    tree = ast.parse((ROOT / "_crumb_tasks_hook.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}

    assert imported == {"os", "sys"}
    assert not [node for node in tree.body if isinstance(node, ast.ImportFrom)]


def test_start_file_names_the_hook() -> None:
    """Python 3.15 and later read crumb_tasks.start (PEP 829) in the place of the .pth's import line."""
    import pkgutil

    import _crumb_tasks_hook

    line = (ROOT / "crumb_tasks.start").read_text(encoding="utf-8").strip()

    assert pkgutil.resolve_name(line) is _crumb_tasks_hook.install


def test_hook_and_handlers_agree() -> None:
    """Every module that the hook waits for has a handler in the plugin."""
    import _crumb_tasks_hook
    from crumb_tasks import plugin

    assert set(crumb_tasks._inject.HANDLERS) == _crumb_tasks_hook._TARGETS
    assert all(callable(getattr(plugin, handler)) for handler in crumb_tasks._inject.HANDLERS.values())


def _plugin_with(replacement: str) -> str:
    from standin import PLUGIN

    return f"{PLUGIN}\n{replacement}\n"
