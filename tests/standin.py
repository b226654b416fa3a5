"""A site directory with our start-up files and a tiny mteb, and the interpreters to run it on.

Real mteb takes seconds to import and has no say in most of what the hook must survive. The stand-in has the modules
that the hook looks for and collects its registry as mteb does: from the classes of ``mteb.tasks``, once, at import.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
START_UP_FILES = ("crumb_tasks.pth", "crumb_tasks.start", "_crumb_tasks_hook.py")
FILES_OF_MTEB = {
    "__init__.py": "from mteb.get_tasks import TASK_LIST\nimport mteb.benchmarks.benchmarks\nimport mteb.models\n",
    "tasks/__init__.py": "class NFCorpus:\n    pass\n",
    "get_tasks.py": (
        "import mteb.tasks\nTASK_LIST = tuple(sorted(n for n, v in vars(mteb.tasks).items() if isinstance(v, type)))\n"
    ),
    "benchmarks/__init__.py": "",
    "benchmarks/benchmarks/__init__.py": "BEIR = 'benchmark'\n",
    "benchmarks/_leaderboard_menu.py": "R_BENCHMARK_ENTRIES = []\n",
    "models/__init__.py": "import mteb.models.model_implementations\n",
    "models/model_implementations/__init__.py": "REGISTRY = {}\n",
}
PLUGIN = """
import sys

def inject_tasks(module):
    module.CRUMB = type("CRUMB", (), {})

def inject_benchmarks(module):
    module.CRUMB = "benchmark"

def inject_menu(module):
    module.R_BENCHMARK_ENTRIES.append("CRUMB")

def inject_models(module):
    module.REGISTRY["crumb/local"] = "model"

def register():
    inject_tasks(sys.modules["mteb.tasks"])
"""


@dataclass(frozen=True)
class SiteDirectory:
    """A folder that Python treats like site-packages.

    Attributes:
        path: The folder.
        python: The interpreter that `run` starts.
    """

    path: Path
    python: str = sys.executable

    def write(self, name: str, text: str) -> None:
        """Write one file of the folder."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def run(
        self, code: str, *flags: str, reads_pth: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``code`` in a new interpreter that has this folder and no other site-packages."""
        reach = f"site.addsitedir({str(self.path)!r})" if reads_pth else f"sys.path.append({str(self.path)!r})"
        return start(
            self.python, "-S", *flags, "-c", f"import site, sys\n{reach}\n{code}", cwd=self.path.parent, **environment
        )


def start(*command: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command without this session's Python variables and return what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CRUMB_TASKS_"))}
    return subprocess.run(
        command,
        cwd=cwd,
        env=kept | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=600,
    )


def write_mteb(folder: Path) -> None:
    """Write the stand-in for mteb into ``folder``."""
    for name, text in FILES_OF_MTEB.items():
        SiteDirectory(folder).write(f"mteb/{name}", text)


def make_site_directory(folder: Path, python: str = sys.executable) -> SiteDirectory:
    """Write a site directory with the real hook, the real `_inject` and a plugin that only leaves marks."""
    site = SiteDirectory(folder, python)
    write_mteb(folder)
    for name in START_UP_FILES:
        shutil.copy(ROOT / name, folder / name)
    for name in ("__init__.py", "_inject.py", "errors.py"):
        site.write(f"crumb_tasks/{name}", (ROOT / "crumb_tasks" / name).read_text(encoding="utf-8"))
    site.write("crumb_tasks/plugin.py", PLUGIN)
    return site


@cache
def newest_interpreter() -> str | None:
    """Return the newest supported Python on this machine if it is newer than the running one."""
    found: dict[tuple[int, ...], str] = {}
    names = [shutil.which(f"python3.{minor}") for minor in (14, 13, 12)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for candidate in [*filter(None, names), *map(str, pyenv.glob("versions/3.1[234].*/bin/python"))]:
        answer = start(candidate, "-c", "import sys, venv; print(*sys.version_info[:3])")
        if answer.returncode == 0:
            found[tuple(map(int, answer.stdout.split()))] = candidate
    newest = max(found, default=(0,))
    return found[newest] if newest[:2] > sys.version_info[:2] else None
