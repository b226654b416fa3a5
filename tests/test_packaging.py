"""What pip does with the package, in fresh environments: wheel, wheel from the sdist, and editable.

Only --no-deps installs beside the stand-in for mteb, without network: the build backend comes with the `test` extra.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from standin import ROOT, START_UP_FILES, newest_interpreter, start, write_mteb

SHOW = "import mteb; print(*mteb.TASK_LIST)"
BUILD = "import sys; from hatchling import build; print(getattr(build, 'build_' + sys.argv[1])(sys.argv[2]))"

pytestmark = pytest.mark.slow


class Environment:
    """A fresh virtual environment with the stand-in for mteb and nothing else."""

    def __init__(self, folder: Path, python: str) -> None:
        start(python, "-m", "venv", str(folder)).check_returncode()
        scripts = folder / ("Scripts" if sys.platform == "win32" else "bin")
        self.folder = folder
        self.python = str(scripts / "python")
        self.command = str(scripts / "crumb-tasks")
        where = start(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        self.site_packages = Path(where.stdout.strip())
        write_mteb(self.site_packages)

    def run(self, code: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``code`` outside the checkout."""
        return start(self.python, *flags, "-c", code, cwd=self.folder.parent, **environment)

    def pip(self, *arguments: str) -> None:
        """Run pip without index."""
        answer = start(self.python, "-m", "pip", *arguments, "--disable-pip-version-check", cwd=self.folder.parent)
        assert answer.returncode == 0, answer.stderr

    def install(self, wheel: Path, *options: str) -> None:
        """Install a wheel without its dependencies."""
        self.pip("install", "--no-deps", "--no-index", *options, str(wheel))

    def files(self) -> set[str]:
        """Return the files of the environment, compiled ones left out."""
        found = (path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
        return {str(path.relative_to(self.folder)) for path in found}


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the build reads, so that tests may move it."""
    folder = tmp_path_factory.mktemp("checkout") / "crumb_tasks"
    kept = ("crumb_tasks", "task_metadata", "tests", "benchmarks")
    for name in kept:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*START_UP_FILES, "pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def build(kind: str, checkout: Path, folder: Path) -> Path:
    """Build ``kind`` (wheel, sdist, editable) as pip would, by PEP 517 and PEP 660."""
    answer = start(sys.executable, "-c", BUILD, kind, str(folder), cwd=checkout)
    assert answer.returncode == 0, answer.stderr
    return folder / answer.stdout.split()[-1]


@pytest.fixture(scope="session")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    return build("wheel", checkout, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    return build("sdist", checkout, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="session")
def wheel_from_sdist(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the unpacked source distribution."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return build("wheel", next(folder.iterdir()), tmp_path_factory.mktemp("wheel_from_sdist"))


@pytest.fixture(scope="session")
def editable(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `pip install -e .` makes and installs."""
    return build("editable", checkout, tmp_path_factory.mktemp("editable"))


@pytest.fixture(scope="session", params=["this", "newest"])
def python(request: pytest.FixtureRequest) -> str:
    """This Python, and the newest one on the machine."""
    found = sys.executable if request.param == "this" else newest_interpreter()
    if found is None:
        pytest.skip("no Python newer than the running one on PATH or under PYENV_ROOT")
    return found


@pytest.fixture(scope="session")
def new_environment(python: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Environment]:
    """Makes a fresh environment."""
    return lambda: Environment(tmp_path_factory.mktemp("environment") / "venv", python)


@pytest.fixture(scope="session")
def environment(new_environment: Callable[[], Environment], wheel: Path) -> Environment:
    """A fresh environment with the wheel; tests leave it as it is."""
    made = new_environment()
    made.install(wheel)
    return made


@pytest.mark.parametrize("kind", ["wheel", "wheel_from_sdist", "editable"])
def test_install_reaches_mteb_and_uninstall_leaves_nothing(
    kind: str, new_environment: Callable[[], Environment], request: pytest.FixtureRequest
) -> None:
    """Start-up files land beside mteb, the hook works, and pip takes everything away again."""
    environment = new_environment()
    before = environment.files()
    marks = (
        "import crumb_tasks._inject as inject\n"
        "inject.guard = lambda name, module: setattr(module, 'OURS', type('OURS', (), {}))"
    )

    environment.install(request.getfixturevalue(kind))
    assert set(START_UP_FILES) <= {path.name for path in environment.site_packages.iterdir()}
    assert environment.run(f"{marks}\n{SHOW}").stdout == "NFCorpus OURS\n"

    environment.pip("uninstall", "--yes", "crumb-tasks")
    assert environment.files() == before
    assert environment.run(SHOW).stdout == "NFCorpus\n"


def test_wheel_holds_cards_and_samples(wheel: Path, checkout: Path) -> None:
    """A card or sample file that stands in the checkout stands in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    cards = {f"crumb_tasks/task_metadata/{path.name}" for path in (checkout / "task_metadata").glob("*.toml")}
    files = [path.relative_to(checkout) for path in (checkout / "crumb_tasks").rglob("*") if path.is_file()]
    package = {
        str(file) for file in files if not [part for part in file.parts if part[0] == "." or part == "__pycache__"]
    }

    assert cards
    assert cards | package <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "hatch_build"))]


def test_editable_copies_the_start_up_files_only(editable: Path) -> None:
    """No folder crumb_tasks in site-packages shadows a checkout that has moved."""
    with zipfile.ZipFile(editable) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert names == {*START_UP_FILES, "_editable_impl_crumb_tasks.pth"}


def test_moved_checkout_leaves_mteb_working(
    new_environment: Callable[[], Environment], checkout: Path, tmp_path: Path
) -> None:
    """When the checkout of an editable install is gone, mteb works and one line says so."""
    environment = new_environment()
    copy = shutil.copytree(checkout, tmp_path / "copy")
    environment.install(build("editable", copy, tmp_path))
    shutil.rmtree(copy)

    shown = environment.run(SHOW)

    assert shown.stdout == "NFCorpus\n"
    assert shown.stderr.count("\n") == 1


@pytest.mark.parametrize("flag", ["-I", "-E", "-s", "-P", "-B", "-OO"])
def test_hook_is_active_in_an_installed_environment(environment: Environment, flag: str) -> None:
    """Each flag under which Python still reads site-packages."""
    code = "import sys; print(any('crumb_tasks' in type(finder).__module__ for finder in sys.meta_path))"

    assert environment.run(code, flag).stdout == "True\n"


def test_without_site_there_is_no_hook(environment: Environment) -> None:
    """-S turns site-packages off, and with it the hook."""
    assert (
        environment.run("import sys; print(len([f for f in sys.meta_path if 'crumb' in str(f)]))", "-S").stdout == "0\n"
    )


def test_spawned_processes_have_the_hook(environment: Environment, tmp_path: Path) -> None:
    """Spawn, as multiprocessing does it, starts a new interpreter, which has the hook as well and can import us."""
    script = tmp_path / "spawn.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "def look(_):\n"
        "    import crumb_tasks\n"
        "    return any('crumb_tasks' in type(finder).__module__ for finder in sys.meta_path)\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(look, [0]))\n",
        encoding="utf-8",
    )

    assert start(environment.python, str(script)).stdout == "[True]\n"


def test_target_install_needs_register(new_environment: Callable[[], Environment], wheel: Path, tmp_path: Path) -> None:
    """Python reads no .pth below `pip install --target`: the hook is off until crumb_tasks.register()."""
    environment = new_environment()
    environment.install(wheel, "--target", str(tmp_path))
    code = "print(any('crumb_tasks' in type(finder).__module__ for finder in sys.meta_path))"

    assert environment.run(f"import sys; {code}", PYTHONPATH=str(tmp_path)).stdout == "False\n"
    registered = environment.run(f"import sys, crumb_tasks; crumb_tasks.register(); {code}", PYTHONPATH=str(tmp_path))
    assert registered.stdout == "True\n"


def test_system_site_packages_of_a_nested_environment_have_no_hook(environment: Environment, tmp_path: Path) -> None:
    """A venv made from a venv links to the base Python, not to its parent: it needs its own install."""
    start(environment.python, "-m", "venv", "--system-site-packages", "--without-pip", str(tmp_path / "nested"))
    python = tmp_path / "nested" / Path(environment.python).relative_to(environment.folder)

    shown = start(str(python), "-c", "import sys; print([f for f in sys.meta_path if 'crumb' in str(f)])")

    assert shown.stdout == "[]\n"


def test_disable_leaves_no_trace(environment: Environment) -> None:
    """CRUMB_TASKS_DISABLE=1 in the environment is all it takes."""
    shown = environment.run(
        "import mteb, sys; print([f for f in sys.meta_path if 'crumb' in str(f)], 'crumb_tasks' in sys.modules)",
        CRUMB_TASKS_DISABLE="1",
    )

    assert shown.stdout == "[] False\n"


def test_command_is_installed(environment: Environment) -> None:
    """The wheel brings the command crumb-tasks, whose version needs none of the dependencies."""
    import crumb_tasks

    shown = start(environment.command, "--version")

    assert shown.stdout == f"crumb-tasks {crumb_tasks.__version__}\n"
