"""`crumb-tasks doctor` tells a person what is in place and what to do, through the real mteb."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from standin import ROOT, start

from crumb_tasks.cli import doctor

pytest.importorskip("mteb")

CLASHING_CARD = """
name = "clashing"
title = "Clashing"
description = "Names that MTEB has and members that nobody has."

[defaults]
description = "Find it."
loader = "beir"
source = { hub = "org/odd", revision = "0123456789012345678901234567890123456789" }

[[tasks]]
name = "NFCorpus"

[[tasks]]
name = "OddOpen"

[[tasks]]
name = "OddOwn"
source = { path = "odd", user = "bring your own" }
public = false

[[aggregates]]
name = "OddMean"
description = "A mean with a member that nobody has."
reduction = { members = ["OddOpen", "SciFactt"] }
"""


@pytest.fixture(scope="module")
def clashing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose only card clashes with MTEB; run commands in it."""
    folder = tmp_path_factory.mktemp("clashing")
    ignored = shutil.ignore_patterns("__pycache__", "samples", "task_metadata")
    shutil.copytree(ROOT / "crumb_tasks", folder / "crumb_tasks", ignore=ignored)
    (folder / "task_metadata").mkdir()
    (folder / "task_metadata" / "clashing.toml").write_text(CLASHING_CARD, encoding="utf-8")
    (folder / "_crumb_tasks_hook.py").write_text("# another version\n", encoding="utf-8")
    return folder


def test_a_sound_installation_needs_nothing() -> None:
    """Hook, mteb and its range, what MTEB knows, data, extras; exit code 0."""
    shown = start(sys.executable, "-m", "crumb_tasks", "doctor", cwd=ROOT)
    flowing = " ".join(shown.stdout.split())

    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.endswith("Everything is in place.\n")
    for part in ("hook active, in ", "(supported: ", "tasks and aggregates", "embedded in the package", "extra bm25"):
        assert part in flowing


def test_everything_that_is_wrong_is_said_with_what_to_do(clashing: Path) -> None:
    """A taken name, a member that nobody has, a data root that is none, an outdated hook: all in one go."""
    shown = start(sys.executable, "-m", "crumb_tasks", "doctor", "--data", "nowhere", cwd=clashing)
    to_do = " ".join(shown.stdout.partition("TO DO")[2].split())

    assert shown.returncode == 1
    assert "MTEB has a task of its own called 'NFCorpus': MTEB's stays and ours is left out" in to_do
    assert (
        "'OddMean' names the task 'SciFactt', which neither this package nor MTEB has; did you mean 'SciFact'" in to_do
    )
    assert "the data root nowhere is no folder" in to_do
    assert "_crumb_tasks_hook.py in" in to_do
    assert "run pip install -e . again" in to_do
    assert "1 task on your own files" in " ".join(shown.stdout.split())


def test_validate_looks_members_up_in_mteb(clashing: Path) -> None:
    """`list` does not import MTEB and cannot know its tasks; `validate` does."""
    assert start(sys.executable, "-m", "crumb_tasks", "list", cwd=clashing).returncode == 0
    shown = start(sys.executable, "-m", "crumb_tasks", "validate", "OddMean", cwd=clashing, HF_HUB_OFFLINE="1")

    assert shown.returncode == 1
    assert "finding members: 'OddMean' names the task 'SciFactt'" in shown.stdout


def test_without_the_hook_a_person_learns_how_to_get_it() -> None:
    """Where Python read no crumb_tasks.pth: install it there, or call register()."""
    reach = f"import sys; sys.path[:0] = {[str(ROOT), *sys.path[1:]]!r}"
    code = f"{reach}\nfrom crumb_tasks.cli import main\nsys.exit(main(['doctor']))"
    shown = start(sys.executable, "-S", "-c", code, cwd=ROOT.parent)
    flowing = " ".join(shown.stdout.split())

    assert shown.returncode == 1, shown.stderr
    assert "hook not active" in flowing
    assert "pip install the package into this environment, or call crumb_tasks.register()" in flowing


def test_a_disabled_plugin_is_said_to_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """CRUMB_TASKS_DISABLE, left in some profile, is the first thing to be told."""
    from crumb_tasks.diagnosis import Facts
    from crumb_tasks.plugin import registered

    monkeypatch.setenv("CRUMB_TASKS_DISABLE", "1")
    findings: list[str] = []
    facts = Facts(
        mteb_version="2.26.0", supported="", problem=None, is_disabled=True, has_hook=False, registered=registered
    )

    assert doctor._hook_state(facts, findings) == "turned off by CRUMB_TASKS_DISABLE"
    assert findings == ["CRUMB_TASKS_DISABLE turns the plugin off: MTEB knows none of the tasks; unset it"]


def test_extras_tell_what_is_missing() -> None:
    """Each extra of the package is looked up, with the packages that it asks of its own requirements."""
    missing = doctor.missing_by_extra()

    assert {"bm25", "measures", "xlsx"} <= set(missing)
    assert "test" not in missing
    assert all(isinstance(names, tuple) for names in missing.values())
