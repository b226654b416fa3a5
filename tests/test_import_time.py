"""What a user waits for: importing the package, `--help`, `list`."""

from __future__ import annotations

import json
import sys

import pytest
from standin import ROOT, start

HEAVY = ("torch", "mteb", "datasets", "huggingface_hub", "transformers", "pandas", "polars", "scipy")
LOADED = f"import sys; print(*sorted(set({HEAVY}) & set(sys.modules)))"


def loaded_after(code: str) -> str:
    """Return the heavy packages that are loaded after ``code``, in a new interpreter."""
    answer = start(sys.executable, "-c", f"{code}\n{LOADED}", cwd=ROOT)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()[-1]


def test_import_loads_nothing_heavy() -> None:
    """`import crumb_tasks` loads neither torch nor mteb nor datasets, nor numpy."""
    assert loaded_after("import crumb_tasks") == ""
    answer = start(sys.executable, "-c", "import sys, crumb_tasks; print('numpy' in sys.modules)", cwd=ROOT)
    assert answer.stdout == "False\n"


def test_start_up_hook_loads_nothing_of_ours() -> None:
    """A Python that never imports mteb never imports the package."""
    answer = start(
        sys.executable, "-c", "import sys; print([name for name in sys.modules if name.startswith('crumb_tasks')])"
    )

    assert answer.stdout == "[]\n"


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["list", "--json"], ["--version"]])
def test_looking_around_loads_nothing_heavy(arguments: list[str]) -> None:
    """`--help` (which imports every command) and `list` load neither torch nor mteb nor datasets."""
    code = f"import sys; from crumb_tasks.cli import main\ntry:\n    main({arguments})\nexcept SystemExit:\n    pass"

    assert loaded_after(code) == ""


def test_list_as_json_names_the_tasks() -> None:
    """What the light import leaves is enough to answer."""
    answer = start(sys.executable, "-m", "crumb_tasks", "list", "--json", cwd=ROOT)

    assert json.loads(answer.stdout)["tasks"]
