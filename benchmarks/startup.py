"""What the plugin costs: at every start of Python, and to import.

Runs in an environment where crumb_tasks is installed:

    python benchmarks/startup.py [--pairs 500]

With and without the hook alternate, and so does which of them comes first, so that a machine that warms up or gets
busy hits both alike. They are two bare virtual environments of the same interpreter; one has our three start-up files.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
START_UP_FILES = ("crumb_tasks.pth", "crumb_tasks.start", "_crumb_tasks_hook.py")


def make_environment(folder: Path, *, has_hook: bool) -> str:
    """Make a bare virtual environment, with our start-up files or without, and return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    if has_hook:
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site_packages = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        for name in START_UP_FILES:
            shutil.copy(ROOT / name, site_packages)
        subprocess.run([python, "-m", "compileall", "-q", site_packages], check=True)  # as pip does when it installs
    return python


def seconds_of(command: Sequence[str]) -> float:
    """Return how long ``command`` takes."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def interleave(first: Callable[[], float], second: Callable[[], float], pairs: int) -> tuple[list[float], list[float]]:
    """Return ``pairs`` measurements of each, taken in turns."""
    one: list[float] = []
    two: list[float] = []
    for pair in range(pairs):
        for measure, values in ((first, one), (second, two)) if pair % 2 else ((second, two), (first, one)):
            values.append(measure())
    return one, two


def report(name: str, one: Sequence[float], two: Sequence[float]) -> None:
    """Print medians, their ratio and the ratio of the fastest."""
    medians = statistics.median(one), statistics.median(two)
    print(
        f"{name}: {medians[0] * 1000:.3f} ms and {medians[1] * 1000:.3f} ms over {len(one)} pairs, "
        f"ratio of medians {medians[0] / medians[1]:.4f}, of the fastest {min(one) / min(two):.4f}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure what the start-up hook and `import crumb_tasks` cost.")
    parser.add_argument("--pairs", type=int, default=500, help="interleaved pairs (default: 500)")
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        with_hook = make_environment(Path(folder) / "with", has_hook=True)
        without = make_environment(Path(folder) / "without", has_hook=False)
        starts = interleave(
            lambda: seconds_of([with_hook, "-c", "pass"]), lambda: seconds_of([without, "-c", "pass"]), pairs
        )
    report("python -c pass, with the hook and without", *starts)
    code = "import time; begin = time.perf_counter(); import {}; print(time.perf_counter() - begin)"

    def import_seconds(module: str) -> float:
        shown = subprocess.run(
            [sys.executable, "-c", code.format(module)], check=True, capture_output=True, text=True, cwd=ROOT
        )
        return float(shown.stdout)

    imports = interleave(lambda: import_seconds("crumb_tasks"), lambda: import_seconds("numpy"), max(1, pairs // 10))
    report("import crumb_tasks and import numpy", *imports)


if __name__ == "__main__":
    main()
