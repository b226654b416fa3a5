"""MTEB's result cache, with files that appear whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mteb.cache import ResultCache
from mteb.models import ModelMeta
from mteb.results.task_result import TaskResult


class WholeFilesCache(ResultCache):
    """MTEB's cache for a run that may be killed at any moment.

    MTEB writes into the result file itself, and a run that is killed meanwhile leaves half of one, which stops every
    later run that reads it. Here MTEB writes into a folder of its own, from which the files are moved.
    """

    def save_to_cache(
        self,
        task_result: TaskResult,
        model_name: str | ModelMeta,
        model_revision: str | None = None,
        *,
        encode_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Save as MTEB does."""
        target = self.get_task_result_path(task_result.task_name, model_name, model_revision).parent
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.cache_path, prefix=".crumb_tasks-") as scratch:
            cache = ResultCache(scratch)
            source = cache.get_task_result_path(task_result.task_name, model_name, model_revision).parent
            source.mkdir(parents=True)
            settings = target / "run_settings.jsonl"  # MTEB adds to it
            if settings.is_file():
                shutil.copyfile(settings, source / settings.name)
            cache.save_to_cache(task_result, model_name, model_revision, encode_kwargs=encode_kwargs)
            # The result last: whoever finds it finds the model's metadata beside it.
            for file in sorted(source.iterdir(), key=lambda file: file.stem == task_result.task_name):
                file.replace(target / file.name)

    def read(self, task: str, meta: ModelMeta) -> TaskResult | None:
        """Return the result of a task, ``None`` where there is none.

        Raises:
            ValueError: There is one that cannot be read.
        """
        try:
            return self.load_task_result(task, meta)
        except Exception as error:
            raise ValueError(
                f"{self.get_task_result_path(task, meta)} cannot be read ({type(error).__name__})"
            ) from error

    def folder(self, meta: ModelMeta) -> Path:
        """Return where the results of a model under its experiment are."""
        return self.get_task_result_path("any", meta).parent
