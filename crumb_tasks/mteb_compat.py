"""Every private name of MTEB that this package touches, and the range of versions for which that is known to work.

MTEB has no plugin interface: its registries are module-level objects that it fills once. This module is the only one
that names them, so that a version which moved one is met by one line here. Nothing is imported from MTEB before a
function is called: the start-up hook and ``crumb-tasks list`` import this module.

Not listed are the methods of MTEB's classes that ours override (``_evaluate_subset``, ``_save_task_predictions``,
``_create_summary_table``, ``_create_per_task_table``, ``filter_eval_splits``, ``task_results_to_scores``): they stand
where they are overridden.
"""

# ruff: noqa: SLF001 -- private names are what this module is for
from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from crumb_tasks.errors import UnsupportedMtebError

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.benchmarks import Benchmark
    from mteb.models import ModelMeta

MENU_MODULE = "mteb.benchmarks._leaderboard_menu"
"""The module of the leaderboard's menus."""

EXPERIMENT_COLUMN = "_experiment_id"
"""Column of MTEB's summary frames that keeps a model's experiments apart (2.23 and later)."""

MENU_LISTS = ("R_BENCHMARK_ENTRIES", "HOME_BENCHMARK_ENTRIES")
"""Menus that get an entry: the gradio leaderboard's retrieval menu, and the one that decides what is shown at all."""


@cache
def supported_range() -> str | None:
    """Return the version specifier for MTEB, such as ``>=2.26,<3``.

    It is stated in ``pyproject.toml`` and read from the installed package's metadata, or from that file in a checkout.
    ``None`` where neither exists.
    """
    try:
        requirements = importlib.metadata.requires("crumb-tasks") or []
    except importlib.metadata.PackageNotFoundError:
        pyproject = Path(__file__).parent.parent / "pyproject.toml"
        if not pyproject.is_file():
            return None
        requirements = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["dependencies"]
    for requirement in requirements:
        if (match := re.fullmatch(r"mteb\s*\(?([^);]*)\)?\s*", requirement)) is not None:
            return ",".join(sorted((bound.strip() for bound in match[1].split(",")), reverse=True))  # >= before <
    return None


def mteb_version() -> str:
    """Return the version of the MTEB that is installed or being imported, or an empty string."""
    version = getattr(sys.modules.get("mteb"), "__version__", None)
    if isinstance(version, str):
        return version
    for name in ("mteb", "mteb-core"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def check_version() -> None:
    """Check that the installed MTEB is one that this package was tried with.

    Raises:
        UnsupportedMtebError: It is not, or there is none.
    """
    from crumb_tasks import __version__

    supported, found = supported_range(), mteb_version()
    if not found:
        raise UnsupportedMtebError(f"crumb_tasks {__version__} needs mteb{supported or ''}; none is installed")
    if supported is None:
        return
    if not all(_allows(bound, found) for bound in supported.split(",")):
        raise UnsupportedMtebError(f"crumb_tasks {__version__} needs mteb {supported}; found {found}")


def _allows(bound: str, version: str) -> bool:
    match = re.fullmatch(r"(>=|<)\s*([\d.]+)", bound.strip())
    if match is None:
        raise ValueError(f"the range of mteb has the form >=A,<B; found '{bound}'")
    return (_release(version) >= _release(match[2])) is (match[1] == ">=")


def _release(version: str) -> tuple[int, ...]:
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    found = [int(number) for number in numbers[0].split(".")] if numbers else [0]
    return tuple(found + [0] * (3 - len(found)))


def task_classes(tasks_module: ModuleType) -> dict[str, type[AbsTask]]:
    """Return the task classes that MTEB finds in its module ``mteb.tasks``, by task name."""
    from mteb.abstasks import AbsTask

    return {
        entry.metadata.name: entry
        for entry in vars(tasks_module).values()
        if isinstance(entry, type) and issubclass(entry, AbsTask) and hasattr(entry, "metadata")
    }


def benchmarks_in(benchmarks_module: ModuleType) -> dict[str, Benchmark]:
    """Return the benchmarks that MTEB finds in its module ``mteb.benchmarks.benchmarks``, by name and alias."""
    from mteb.benchmarks.benchmark import Benchmark

    found = [entry for entry in vars(benchmarks_module).values() if isinstance(entry, Benchmark)]
    return {name: entry for entry in found for name in (entry.name, *entry.aliases)}


def refresh_task_registry(added: Iterable[type[AbsTask]]) -> None:
    """Add task classes to the registries that MTEB built from ``mteb.tasks`` when it was imported."""
    module: Any = sys.modules.get("mteb.get_tasks")  # the attribute ``mteb.get_tasks`` is a function of the same name
    if module is None or not hasattr(module, "TASK_LIST"):
        return
    new = tuple(task for task in added if task.metadata.name not in module._TASKS_REGISTRY)
    if not new:
        return
    module.TASK_LIST = (*module.TASK_LIST, *new)
    module._TASKS_REGISTRY.update({task.metadata.name: task for task in new})
    for original, derived in module._create_similar_tasks(new).items():
        module._SIMILAR_TASKS[original].extend(derived)
    routes: Any = sys.modules.get("mteb.api.routes")
    if routes is not None:
        routes.TASK_LIST = module.TASK_LIST


def refresh_benchmark_registry() -> None:
    """Make MTEB collect its benchmarks and menus again the next time it is asked."""
    for module_name, names in (
        ("mteb.benchmarks.get_benchmark", ("_build_registry", "_build_aliases_registry")),
        ("mteb.benchmarks.benchmark", ("_get_benchmarks_on_leaderboard",)),
    ):
        module = sys.modules.get(module_name)
        for name in names:
            cached = getattr(module, name, None)
            if cached is not None:
                cached.cache_clear()


def menu_entry(menu_module: ModuleType, name: str, description: str, benchmarks: list[Benchmark]) -> Any:
    """Return an entry for the menus of `MENU_MODULE`."""
    make: Callable[..., Any] = menu_module.MenuEntry
    return make(name=name, description=description, open=False, benchmarks=benchmarks)


def model_registry(implementations_module: ModuleType) -> dict[str | None, ModelMeta]:
    """Return MTEB's model registry, to which entries may be added in place."""
    registry: dict[str | None, ModelMeta] = implementations_module.MODEL_REGISTRY
    return registry


def encodes_while_searching(model: object) -> bool:
    """Return whether a model that searches by itself may be asked only once.

    Either it keeps the corpus in ``index`` and encodes it in ``search`` (MTEB's wrappers and late-interaction models,
    which all keep it as ``task_corpus``), so that a second search costs a second encoding; or it fuses the lists of
    several models (``wrapped_models``), so that its scores depend on the depth.
    """
    return hasattr(model, "task_corpus") or hasattr(model, "wrapped_models")


def reads_no_prompt(model: object) -> bool:
    """Return whether a model that searches by itself says that it matches words and takes no instruction, as BM25."""
    meta = getattr(model, "mteb_model_meta", None)
    return getattr(meta, "use_instructions", None) is False and "sparse" in getattr(meta, "model_type", ())


def experiment_of(model_result: Any) -> str:
    """Return the name that tells a model's experiments apart: the model's name, then the experiment's."""
    experiment = getattr(model_result, "experiment_name", None)
    name = str(model_result.model_name)
    return f"{name} ({experiment})" if experiment else name


def abstention_auc(confidence: Any, values: Any) -> float:
    """Return MTEB's normalised area under the abstention curve (NaN where all values are equal).

    Args:
        confidence: A number per query by which a system would abstain.
        values: A measure's value per query.
    """
    from mteb._evaluators.retrieval_metrics import nauc

    return float(nauc(confidence, values))


def rank_only(
    task: Any, candidates: Mapping[tuple[str, str], Mapping[str, list[str]]], depth: int, first_stage: Mapping[str, Any]
) -> None:
    """Make a loaded retrieval task re-rank, as MTEB's ``convert_to_reranking`` does with its own prediction files.

    Args:
        task: An ``AbsTaskRetrieval`` whose data are loaded.
        candidates: By subset and split the ids that each query may rank.
        depth: How many documents of a ranking are kept.
        first_stage: What the candidates are from; MTEB stores it with the scores.
    """
    for (subset, split), candidates_by_query in candidates.items():
        task.dataset[subset][split]["top_ranked"] = candidates_by_query
    task._top_k = depth
    task._previous_results_model_meta = dict(first_stage)


def emitted_by_retrieval(task: type[AbsTask] | AbsTask) -> frozenset[str]:
    """Return the score keys that MTEB's own retrieval scorer emits for ``task``; empty for other kinds of tasks."""
    from mteb.abstasks.retrieval import AbsTaskRetrieval

    if not (isinstance(task, AbsTaskRetrieval) or (isinstance(task, type) and issubclass(task, AbsTaskRetrieval))):
        return frozenset()
    families = ("ndcg", "map", "recall", "precision", "mrr", "hit_rate")
    keys = {f"{family}_at_{k}" for family in families for k in task.k_values}
    return frozenset(keys | {"accuracy", task.metadata.main_score})


def names_that_moved() -> Mapping[str, str]:
    """Return the private names above that the installed MTEB lacks, with the module where each was expected."""
    import importlib

    expected = {
        "mteb.get_tasks": ("TASK_LIST", "_TASKS_REGISTRY", "_SIMILAR_TASKS", "_create_similar_tasks"),
        "mteb.benchmarks.get_benchmark": ("_build_registry", "_build_aliases_registry"),
        "mteb.benchmarks.benchmark": ("_get_benchmarks_on_leaderboard",),
        MENU_MODULE: ("MenuEntry", *MENU_LISTS),
        "mteb.benchmarks._create_table": ("_create_summary_table", "_ensure_experiment_id", "_borda_rank_from_long"),
        "mteb.models.model_implementations": ("MODEL_REGISTRY",),
        "mteb._evaluators.retrieval_metrics": ("nauc",),
        "mteb.cache": ("ResultCache._get_model_name_and_revision_from_path",),
        "mteb.results": ("BenchmarkResults._to_results_df",),
    }
    gone: dict[str, str] = {}
    for module_name, names in expected.items():
        try:
            importlib.import_module(module_name)
            module = sys.modules[module_name]
        except ImportError:
            gone[module_name] = module_name
            continue
        gone.update({name: module_name for name in names if not _has(module, name)})
    return gone


def _has(module: ModuleType, dotted: str) -> bool:
    found: Any = module
    for name in dotted.split("."):
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


def with_experiments(frame: Any) -> Any:
    """Return MTEB's long frame of results with the column `EXPERIMENT_COLUMN`, empty for a model's usual setting."""
    from mteb.benchmarks._create_table import _ensure_experiment_id

    return _ensure_experiment_id(frame)


def borda_ranks(frame: Any, n_rows: int) -> dict[tuple[str, str], int]:
    """Return MTEB's Borda rank of each model and experiment.

    Args:
        frame: MTEB's long frame of results with the names of experiments, see `with_experiments`.
        n_rows: How many models and experiments have a score.
    """
    import polars as pl
    from mteb.benchmarks._create_table import _borda_rank_from_long

    key = pl.struct(pl.col("model_name").cast(pl.String), EXPERIMENT_COLUMN)
    of_rows = _borda_rank_from_long(frame.with_columns(key.alias("row")), model_col="row", n_models=n_rows)
    return {(row["model_name"], row[EXPERIMENT_COLUMN]): rank for row, rank in of_rows.iter_rows()}


@dataclass(frozen=True)
class Owner:
    """Whose results a folder of MTEB's cache holds.

    Attributes:
        model: The model's name.
        revision: Its revision.
        experiment: The experiment's name, ``None`` for MTEB's own setting.
        meta: The model's metadata, where there are any.
    """

    model: str
    revision: str
    experiment: str | None
    meta: Any


def owner_of_results(folder: Path) -> Owner | None:
    """Return whose results lie in ``folder``; ``None`` for an experiment that says nothing about itself."""
    from mteb.cache import ResultCache

    found = ResultCache._get_model_name_and_revision_from_path(folder)
    return None if found is None else Owner(*found)


def results_frame(results: Any) -> Any:
    """Return MTEB's long frame of results, a row for each score, with one revision of each model on each task."""
    return results._to_results_df()


@dataclass(frozen=True)
class ApiFiles:
    """How the files are called that MTEB's API reads at its start, and what their manifest must say.

    Attributes:
        repository: The repository whose results they stand for.
        version: Of the layout.
        manifest: Name of the file without which the others are not read.
        all_scores: Name of the file with the scores of all tasks.
    """

    repository: str
    version: int
    manifest: str
    all_scores: str


def api_files() -> ApiFiles | None:
    """Return the API's files; ``None`` where what MTEB's API needs is not installed."""
    try:
        from mteb.api.frames import _CACHE_SCHEMA_VERSION, _MANIFEST_FILE, _UNIFIED_FILE
        from mteb.api.settings import Settings
    except ImportError:
        return None
    repository = str(Settings.model_fields["cache_repo"].default)
    return ApiFiles(repository, _CACHE_SCHEMA_VERSION, _MANIFEST_FILE, _UNIFIED_FILE)


def single_scores(frame: Any) -> Any:
    """Return the frame of `ApiFiles.all_scores`: each model's highest score of each task, split and subset."""
    from mteb.api.frames import _dedupe_unified

    return _dedupe_unified(frame)
