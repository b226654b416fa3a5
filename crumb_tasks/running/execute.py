"""Evaluating what a plan holds: one task after the other, failures kept apart, everything finished kept."""

from __future__ import annotations

import contextlib
import importlib.metadata
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mteb.abstasks import AbsTaskRetrieval

from crumb_tasks.errors import CrumbTasksError, DataError, UsageError
from crumb_tasks.ranking import RanksElsewhere
from crumb_tasks.runfiles import write_run
from crumb_tasks.running.cache import WholeFilesCache
from crumb_tasks.running.condition import Condition
from crumb_tasks.running.costs import CostMeter
from crumb_tasks.running.outcomes import main_value, runs_of, values_per_query
from crumb_tasks.running.plan import Plan, Unit
from crumb_tasks.running.preparing import Preparation, sizes_of
from crumb_tasks.running.progress import Reports
from crumb_tasks.running.records import DATA, Record, clear_failure, file_sha256, now, run_path, write_failure
from crumb_tasks.runs import Run
from crumb_tasks.tasks import CardTask

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

_PACKAGES = ("crumb-tasks", "mteb", "torch", "sentence-transformers", "transformers", "numpy")


@dataclass(frozen=True)
class Settings:
    """What a run needs beside model, tasks and condition.

    Attributes:
        encode_kwargs: Passed to the model's ``encode`` or ``predict``.
        num_proc: Passed to MTEB.
        embeddings: Where document embeddings are kept between runs.
        recorded: Written into records as they are.
        costs: Measures costs, where that is asked for.
    """

    encode_kwargs: Mapping[str, Any] = field(default_factory=dict)
    num_proc: int | None = None
    embeddings: Path | None = None
    recorded: Mapping[str, Any] = field(default_factory=dict)
    costs: CostMeter | None = None


class NamedModel(Protocol):
    """A model that is known by its metadata and loaded when it is needed, such as `crumb_tasks.models.LazyModel`."""

    meta: ModelMeta

    @property
    def is_loaded(self) -> bool:
        """Whether nothing is left to be loaded."""

    @property
    def is_cross_encoder(self) -> bool:
        """Whether it scores pairs."""

    def load(self) -> Any:
        """Return what tasks are evaluated with."""


Each = Callable[[Sequence[Unit], Callable[[Unit], None]], None]
"""Calls its second argument for each unit."""


def one_by_one(units: Sequence[Unit], attempt: Callable[[Unit], None]) -> None:
    """Evaluate units in their order."""
    for unit in units:
        attempt(unit)


class Runner:
    """Evaluates units with one model under one condition.

    Args:
        model: The model, loaded for the first unit that needs it.
        condition: What it runs under.
        cache: Where results go.
        settings: How it runs.
        reporter: Told about progress.
        each: Has each unit evaluated; by default one after the other.
    """

    def __init__(
        self,
        model: NamedModel,
        condition: Condition,
        cache: WholeFilesCache,
        settings: Settings,
        reporter: Reports,
        *,
        each: Each | None = None,
    ) -> None:
        self._model = model
        self._each = each or one_by_one
        self._cache = cache
        self._settings = settings
        self._reporter = reporter
        self._folder = cache.folder(model.meta)
        self._preparation = Preparation(condition, settings.num_proc)

    def run(self, plan: Plan) -> None:
        """Evaluate the units of ``plan`` that have no result, then combine the aggregates whose members all have one.

        Raises:
            CrumbTasksError: The model cannot be loaded.
        """
        self._preparation.note_shared_ids(plan, self._folder)
        self._each(plan.pending, self._attempt)
        self._combine(plan)

    def _attempt(self, unit: Unit) -> None:
        """Evaluate a unit, or keep why it failed."""
        try:
            self._evaluate(unit)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 -- whatever stops one task must not stop the others
            unit.failure = _reason(error).removeprefix(f"{unit.name}: ")
            write_failure(self._folder, unit.name, unit.failure)
            self._reporter.fail(unit.name, unit.failure)
        finally:
            if unit.task.data_loaded:
                unit.task.unload_data()

    def _evaluate(self, unit: Unit) -> None:
        import mteb

        if unit.reason:
            self._reporter.say(f"{unit.name}: {unit.reason}")
        first_stage = self._preparation.prepare(unit)
        model = self._load()
        if isinstance(model, RanksElsewhere) and not isinstance(unit.task, AbsTaskRetrieval):
            raise UsageError(f"{unit.name} is no retrieval task, which a cluster would rank; run it without --ray")
        self._reporter.start(unit.name, *sizes_of(unit, is_pairwise=self._model.is_cross_encoder))
        renews = unit.keeps and unit.state == "changed"
        before = unit.result
        computed = unit.task.eval_splits
        if unit.state == "missing" and before is not None:
            computed = list(before.get_missing_evaluations(unit.task))
        encode_kwargs: Any = {"show_progress_bar": False, **self._settings.encode_kwargs}
        costs = self._settings.costs
        with tempfile.TemporaryDirectory(prefix="crumb_tasks-") as predictions, self._kept_embeddings(model):
            needs_file = isinstance(unit.task, AbsTaskRetrieval) and not isinstance(unit.task, CardTask)
            with contextlib.nullcontext() if costs is None else costs.evaluating(model):
                found = mteb.evaluate(
                    model,
                    unit.task,
                    cache=None if renews else self._cache,
                    overwrite_strategy="only-missing" if unit.state == "missing" else "always",
                    encode_kwargs=encode_kwargs,
                    prediction_folder=predictions if needs_file else None,
                    show_progress_bar=False,
                    num_proc=self._settings.num_proc,
                    co2_tracker=False,  # it asks the network, and fails while another one runs or after one was killed
                )
            if found.exceptions:
                raise DataError(f"{unit.name}: {found.exceptions[0].exception}")
            unit.result = found.task_results[0]
            if renews and before is not None:  # MTEB would write the new splits alone
                unit.result = before.merge(unit.result)
                self._cache.save_to_cache(unit.result, model.mteb_model_meta, encode_kwargs=encode_kwargs)
            runs = dict(runs_of(unit, Path(predictions)))
            self._keep(unit, runs, first_stage)
            unit.computed = tuple(computed)
            self._reporter.finish(main_value(unit.result, unit.task))
            self._measure(unit, model, encode_kwargs)

    @contextlib.contextmanager
    def _kept_embeddings(self, model: Any) -> Iterator[None]:
        """Keep embeddings for the queries that are asked after an evaluation, where nobody else keeps them."""
        if self._settings.costs is None or self._settings.embeddings is not None:
            yield
            return
        from crumb_tasks.search import EmbeddingStore

        with tempfile.TemporaryDirectory(prefix="crumb_tasks-") as folder:
            model.embedding_store = EmbeddingStore(folder, is_optional=True)
            try:
                yield
            finally:
                model.embedding_store = None

    def _measure(self, unit: Unit, model: Any, encode_kwargs: Mapping[str, Any]) -> None:
        """Measure the cost of a result that is written; one that cannot be measured is no failure of the task."""
        if self._settings.costs is None:
            return
        self._reporter.say(f"{unit.name}: asking single queries")
        try:
            self._settings.costs.keep(unit, model, self._folder, encode_kwargs)
        except Exception as error:  # noqa: BLE001 -- the result is there and holds
            unit.notes.append(f"its cost was not measured: {_reason(error)}")

    def _load(self) -> Any:
        if not self._model.is_loaded:
            self._reporter.say(f"loading {self._model.meta.name}")
        try:
            model = self._model.load()
        except Exception as error:
            raise ModelError(str(self._model.meta.name), error) from error
        if self._settings.embeddings is not None:
            from crumb_tasks.search import EmbeddingStore

            model.embedding_store = EmbeddingStore(self._settings.embeddings)
        return model

    def _keep(self, unit: Unit, runs: Mapping[tuple[str, str], Run], first_stage: Mapping[str, Any]) -> None:
        """Write the runs, then the record: a record stands for a result that is whole."""
        for (subset, split), run in runs.items():
            depth = unit.task.outcomes[split][1].coverage.depth if isinstance(unit.task, CardTask) else None
            write_run(run, run_path(self._folder, unit.name, split, subset), "parquet", depth=depth)
        earlier = unit.record
        per_query = {**(earlier.per_query if earlier else {}), **dict(values_per_query(unit, runs))}
        stages = {**(earlier.first_stage if earlier else {}), **first_stage}
        identity = dict(unit.identity)
        if data := {**(earlier.identity.get(DATA, {}) if earlier else {}), **identity.get(DATA, {})}:
            identity[DATA] = data
        record = Record(
            task=unit.name,
            identity=identity,
            settings={**self._settings.recorded, "versions": versions()},
            first_stage=stages,
            per_query=per_query,
            notes=tuple(unit.notes),
            result_sha256=file_sha256(self._cache.get_task_result_path(unit.name, self._model.meta)),
            finished=now(),
        )
        record.write(self._folder)
        clear_failure(self._folder, unit.name)

    def _combine(self, plan: Plan) -> None:
        """Store the value of each aggregate whose members all have a result that holds."""
        results = plan.results
        results |= {unit.name: unit.result for unit in plan.units if unit.result is not None and not unit.failure}
        for aggregate in plan.aggregates:
            members = [task.metadata.name for task in aggregate.tasks]
            if all(name in results for name in members):
                combined = aggregate.combine_task_results([results[name] for name in members])
                if combined.scores:
                    results[aggregate.metadata.name] = combined
                    if not self._is_stored(combined):
                        self._cache.save_to_cache(combined, self._model.meta)

    def _is_stored(self, result: TaskResult) -> bool:
        """Return whether the cache has these very values, so that a run of cached members writes nothing."""
        try:
            stored = self._cache.read(result.task_name, self._model.meta)
        except ValueError:
            return False
        return stored is not None and _rounded(stored.scores) == _rounded(result.scores)


class ModelError(CrumbTasksError):
    """The model cannot be loaded, so that no task can be run; misuse where its options are why."""

    def __init__(self, name: str, cause: Exception) -> None:
        is_misuse = isinstance(cause, UsageError)
        super().__init__(str(cause) if is_misuse else f"'{name}' cannot be loaded: {_reason(cause)}")
        self.exit_code = UsageError.exit_code if is_misuse else CrumbTasksError.exit_code


def _rounded(value: Any) -> Any:
    """Return ``value`` with its numbers as MTEB stores them."""
    if isinstance(value, Mapping):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, CrumbTasksError):
        return text
    return f"{type(error).__name__}: {text[:300]}"


def versions() -> dict[str, str | None]:
    """Return the versions of the packages that a value may depend on."""
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
