"""The house: who may import whom, checked by walking the syntax trees of all modules."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from standin import ROOT

PACKAGE = ROOT / "crumb_tasks"
FLOORS = {
    "ground": (
        "errors",
        "files",
        "_inject",
        "id_order",
        "runs",
        "collection",
        "measures",
        "aggregators",
        "cards",
        "aggregates",
        "runfiles",
        "scoring",
        "comparison",
    ),
    "data": ("sources", "loaders", "builders", "checks", "downloading", "exporting"),
    "engine": (
        "mteb_compat",
        "search",
        "request",
        "own_search",
        "ranking",
        "model_folders",
        "local_models",
        "models",
        "cost",
        "cluster",
    ),
    "mteb side": (
        "mteb_metadata",
        "mteb_scores",
        "tasks",
        "aggregate_tasks",
        "summary_tables",
        "benchmarks",
        "plugin",
        "diagnosis",
        "running",
        "leaderboard",
    ),
    "face": ("report", "cli", "__main__"),
}
"""A module imports only from modules before it, on its own floor or below."""
ORDER = [module for modules in FLOORS.values() for module in modules]
HEAVY_OF_DATA = {"datasets", "huggingface_hub"}
HEAVY_OF_ENGINE = {"mteb", "torch", "transformers", "sentence_transformers", "ray"}
PRIVATE_NAMES_OF_MTEB = {"mteb_compat": "its purpose", "_inject": "names the modules that the hook waits for"}
MACHINE_PATH = re.compile(r"(?<![\w.:/}*$-])/(?:work|root|home|tmp|opt|mnt|Users)/|[A-Z]:\\\\Users")
REGISTRY_HOST = re.compile(r"pypi\.org|pythonhosted|npmjs|deb\.debian")


@dataclass(frozen=True)
class Import:
    """One imported name.

    Attributes:
        name: Dotted name, that of the object included: ``mteb.types.PromptType``.
        line: Where.
        is_deferred: It stands in a function or is for type checkers, so importing the module does not cause it.
    """

    name: str
    line: int
    is_deferred: bool

    @property
    def package(self) -> str:
        """The top-level package."""
        return self.name.partition(".")[0]


def find_imports(node: ast.AST, *, is_deferred: bool = False) -> Iterator[Import]:
    """Yield all imports below ``node``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, is_deferred) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {child.lineno}: relative import"
            yield from (Import(f"{child.module}.{alias.name}", child.lineno, is_deferred) for alias in child.names)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_types_only(child)
            yield from find_imports(child, is_deferred=is_deferred or inside)


def _is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def module_of(path: Path) -> str:
    """Return the module or sub-package directly below crumb_tasks that ``path`` belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def floor_of(module: str) -> str:
    """Return the floor on which ``module`` stands."""
    return next(floor for floor, modules in FLOORS.items() if module in modules)


def wrong_order(module: str, imports: Iterator[Import]) -> list[str]:
    """Return what ``module`` imports although it stands above or on a later place."""
    found = []
    for entry in imports:
        if entry.package != "crumb_tasks" or entry.name in {"crumb_tasks.__version__", "crumb_tasks.register"}:
            continue
        other = entry.name.split(".")[1]
        if other != module and ORDER.index(other) > ORDER.index(module):
            found.append(f"{module}:{entry.line} imports {other}")
    return found


def too_heavy(module: str, imports: Iterator[Import]) -> list[str]:
    """Return the packages that ``module`` imports although its floor does without them."""
    floor = floor_of(module)
    forbidden = {"ground": HEAVY_OF_DATA | HEAVY_OF_ENGINE, "data": HEAVY_OF_ENGINE}.get(floor, set())
    at_import = {"data": HEAVY_OF_DATA, "face": HEAVY_OF_DATA | HEAVY_OF_ENGINE}.get(floor, set())
    return [
        f"{module}:{entry.line} imports {entry.package}"
        for entry in imports
        if entry.package in forbidden or (entry.package in at_import and not entry.is_deferred)
    ]


def private_names(tree: ast.Module) -> list[str]:
    """Return the private names of mteb that a module imports, reads or names in a string."""
    found = [f"{entry.line}: {entry.name}" for entry in find_imports(tree) if _is_private(entry.name)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(name := ast.unparse(node)):
            found.append(f"{node.lineno}: {name}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_private(node.value):
            found.append(f"{node.lineno}: {node.value}")
    return found


def _is_private(name: str) -> bool:
    return re.fullmatch(r"mteb(\.\w+)*\._(?!_)\w+(\.\w+)*", name) is not None


SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if "samples" not in path.relative_to(PACKAGE).parts)
INSIDE = [path for path in SOURCES if path != PACKAGE / "__init__.py"]
by_path = pytest.mark.parametrize("path", INSIDE, ids=lambda path: str(path.relative_to(PACKAGE)))


def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@by_path
def test_every_module_has_a_floor(path: Path) -> None:
    """A new module gets a place in the house before it gets in."""
    assert module_of(path) in ORDER


@by_path
def test_modules_import_only_from_before(path: Path) -> None:
    """Nothing reaches up: the order of FLOORS is the order of knowledge."""
    assert wrong_order(module_of(path), find_imports(parse(path))) == []


@by_path
def test_floors_stay_light(path: Path) -> None:
    """Ground knows no mteb, torch or datasets at all, data no mteb or torch; the face imports them when it runs."""
    assert too_heavy(module_of(path), find_imports(parse(path))) == []


@by_path
def test_private_names_of_mteb_stand_in_one_module(path: Path) -> None:
    """When mteb moves a private name, one module changes."""
    if module_of(path) in PRIVATE_NAMES_OF_MTEB:
        pytest.skip(PRIVATE_NAMES_OF_MTEB[module_of(path)])

    assert private_names(parse(path)) == []


@by_path
def test_only_commands_print(path: Path) -> None:
    """A library that prints cannot be used in a pipe."""
    if module_of(path) in {"cli", "__main__"}:
        pytest.skip("commands print")
    calls = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]

    assert [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"] == []


DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _packages_of(requirements: list[str]) -> set[str]:
    names = {re.split(r"[^\w.-]", requirement)[0].lower().replace("-", "_") for requirement in requirements}
    through_mteb = {"torch", "polars", "transformers", "sentence_transformers"}  # it hands out their objects
    modules = {"faiss_cpu": {"faiss"}, "pystemmer": {"Stemmer"}, "mteb": through_mteb}
    return names.union(*(modules.get(name, set()) for name in names))


@by_path
def test_third_party_imports_are_declared(path: Path) -> None:
    """What a module imports stands in pyproject.toml; an extra's package is imported only when it is needed."""
    always = _packages_of(DECLARED["dependencies"]) | sys.stdlib_module_names | {"crumb_tasks", "_crumb_tasks_hook"}
    extras = _packages_of([entry for extra in DECLARED["optional-dependencies"].values() for entry in extra])
    imports = list(find_imports(parse(path)))

    assert {entry.package for entry in imports} - always - extras == set()
    assert {entry.package for entry in imports if not entry.is_deferred} - always == set()


def test_package_itself_imports_nothing() -> None:
    """`import crumb_tasks` executes no import statement but __future__'s."""
    own = find_imports(ast.Module(_executed(parse(PACKAGE / "__init__.py")), []))

    assert [entry.name for entry in own if not entry.is_deferred and entry.package != "__future__"] == []


def _executed(tree: ast.Module) -> list[ast.stmt]:
    return [node for node in tree.body if not _is_for_types_only(node)]


def _text_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("no git checkout")
    kept = (".py", ".toml", ".md", ".pth", ".start", ".ipynb", ".yml", "run", ".sh", ".cfg", ".ini")
    paths = (ROOT / line for line in listed.stdout.splitlines() if line.endswith(kept))
    return [path for path in paths if path.is_file() and path != Path(__file__).resolve()]


def test_repository_names_no_machine() -> None:
    """No absolute path of a machine and no registry's host stands in code, cards or documents."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in _text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if MACHINE_PATH.search(line) or REGISTRY_HOST.search(line)
    ]

    assert found == []


@pytest.mark.parametrize(
    ("module", "code", "complaint"),
    [
        ("runs", "from crumb_tasks.scoring import score", "runs:1 imports scoring"),
        ("cards", "def f():\n    from crumb_tasks import tasks", "cards:2 imports tasks"),
        ("search", "from crumb_tasks.cli._text import table", "search:1 imports cli"),
    ],
)
def test_reaching_up_is_found(module: str, code: str, complaint: str) -> None:
    """The check sees imports in functions and in sub-packages."""
    assert wrong_order(module, find_imports(ast.parse(code))) == [complaint]


@pytest.mark.parametrize(
    ("module", "code", "is_allowed"),
    [
        ("scoring", "def f():\n    import torch", False),
        ("sources", "import mteb", False),
        ("sources", "from huggingface_hub import hf_hub_download", False),
        ("sources", "def f():\n    from huggingface_hub import hf_hub_download", True),
        ("search", "import torch", True),
        ("cli", "import mteb", False),
        ("cli", "def run(args):\n    import mteb", True),
    ],
)
def test_heavy_imports_are_found(module: str, code: str, *, is_allowed: bool) -> None:
    """The check tells importing at import time from importing when called."""
    assert (too_heavy(module, find_imports(ast.parse(code))) == []) is is_allowed


@pytest.mark.parametrize(
    "code",
    [
        "from mteb.get_tasks import _TASKS_REGISTRY",
        "from mteb._evaluators import x",
        "import mteb\nmteb.benchmarks._leaderboard_menu",
        "importlib.import_module('mteb.benchmarks._leaderboard_menu')",
    ],
)
def test_private_names_are_found(code: str) -> None:
    """The check sees imports, attributes and module names in strings."""
    assert private_names(ast.parse(code)) != []


def test_public_names_are_fine() -> None:
    """What mteb offers to everyone is no private name."""
    assert private_names(ast.parse("from mteb import AbsTask\nimport mteb\nmteb.__version__")) == []
