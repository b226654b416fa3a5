"""Cards → MTEB's retrieval tasks.

A `CardTask` loads its collection through `crumb_tasks.loaders`, ranks with `crumb_tasks.ranking` and scores with
`crumb_tasks.scoring`: the same code that scores a run file. What is MTEB's stays MTEB's: the cache, the result file,
its standard score keys, prediction files and the re-ranking of them, timing.
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.timing import TimingStack

from crumb_tasks.cards import TaskCard
from crumb_tasks.errors import DataError, UsageError
from crumb_tasks.mteb_metadata import computed_statistics, metadata_of, prompt_of, shipped_statistics
from crumb_tasks.mteb_scores import STANDARD_CUTOFFS

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata

    from crumb_tasks.collection import Collection
    from crumb_tasks.request import QueryGroup, Ranking, Request
    from crumb_tasks.runs import Run
    from crumb_tasks.scoring import Scores

_logger = logging.getLogger("crumb_tasks")
SUBSET = "default"
"""MTEB's name of the only subset of each of our tasks."""


def task_class(card: TaskCard) -> type[CardTask]:
    """Return the class of the task that ``card`` describes.

    Raises:
        ValidationError: MTEB does not know a term of the card.
    """
    names: dict[str, Any] = {
        "__doc__": card.description,
        "__module__": __name__,
        "card": card,
        "metadata": metadata_of(card),
    }
    if card.prompt.from_data:
        # Instructions are data here: a query that has none gets none, instead of MTEB's default sentence.
        names["abstask_prompt"] = ""
    return type(card.name.replace(".", "_"), (CardTask,), names)


class CardTask(AbsTaskRetrieval):
    """A retrieval task made from a card; see `task_class`."""

    card: ClassVar[TaskCard]
    k_values = STANDARD_CUTOFFS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._top_k = self.card.depth
        self._collections: dict[str, Collection] = {}
        self.outcomes: dict[str, tuple[Run, Scores]] = {}
        """By split what the last evaluation ranked and how it scored, until the data are unloaded."""

    def collection(self, split: str | None = None) -> Collection:
        """Return the collection of one split, loading it if need be.

        Args:
            split: By default the card's first.

        Raises:
            UsageError: The card has no such split.
            DataError: The data are missing or break a promise of the card.
        """
        wanted = split or self.card.default_split
        if wanted not in self._collections:
            from crumb_tasks.loaders import load_collection

            self._collections[wanted] = load_collection(self.card, wanted)
        return self._collections[wanted]

    def texts_apart(self, split: str, text_of: Callable[[str, str], str] | None = None) -> list[str] | None:
        """Return other texts for a split's queries, where these hold instruction and query.

        Args:
            split: The split.
            text_of: Makes the text from instruction and query, for all that a model is to get. Without, it is the
                query, and the instructions become MTEB's prompts.

        Returns:
            The texts, or ``None`` where the queries hold no instruction.
        """
        collection = self.collection(split)
        table = collection.queries
        if not {"instruction_part", "query_part"} <= set(table.column_names):
            return None
        instructions, queries = (table.column(name).to_pylist() for name in ("instruction_part", "query_part"))
        if text_of is not None:
            self.metadata = self.metadata.model_copy(update={"has_final_texts": True})
            return [text_of(*pair) for pair in zip(instructions, queries, strict=True)]
        if "prompt" not in table.column_names:
            table = table.append_column("prompt", table.column("instruction_part"))
            self._collections[split] = replace(collection, queries=table)
        return list(queries)

    def load_data(self, num_proc: int | None = None, *, timer: TimingStack | None = None, **kwargs: Any) -> None:
        """Load the splits that are to be evaluated; errors as `collection`."""
        del num_proc, kwargs
        if self.data_loaded:
            return
        self.dataset = {SUBSET: {}}
        timer = timer or TimingStack()
        with timer("Data loading", log_message=f"Loading dataset {self.metadata.name}..."):
            for split in self.eval_splits:
                self._load_split(split)
        self.data_loaded = True

    def _load_split(self, split: str) -> None:
        collection = self.collection(split)
        self.dataset[SUBSET][split] = {
            "corpus": _dataset(collection.corpus, ("id", "title", "text")),
            "queries": _dataset(collection.queries, ("id", "text")),
            "relevant_docs": collection.graded.to_dict(),
            "top_ranked": None
            if collection.candidates is None
            else {q: list(d) for q, d in collection.candidates.items()},
        }
        prompts = {prompt for loaded in self._collections.values() for prompt in _prompts(loaded)}
        self.__dict__.pop("metadata", None)
        if len(prompts) == 1:  # into the instance: MTEB's metadata belongs to the class
            self.metadata = self._metadata_with(prompts.pop())

    def unload_data(self) -> None:
        """Free the collections."""
        self._collections.clear()
        self.outcomes.clear()
        super().unload_data()

    def evaluate(self, model: Any, split: str = "test", *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Evaluate a model on one split, loading the split if only others were loaded; see MTEB's method."""
        if self.data_loaded and split not in self.dataset[SUBSET]:
            self._load_split(split)
        return super().evaluate(model, split, *args, **kwargs)

    def _evaluate_subset(
        self,
        model: Any,
        data_split: Any,
        *,
        encode_kwargs: Any,
        hf_split: str,
        hf_subset: str,
        prediction_folder: Path | None = None,
        num_proc: int | None = None,
        timer: TimingStack,
        **kwargs: Any,
    ) -> dict[str, Any]:
        from crumb_tasks.ranking import rank

        del kwargs
        collection = self.collection(hf_split)
        request = self.request(data_split, hf_split, encode_kwargs, num_proc=num_proc, timer=timer)
        if callable(see_corpus := getattr(model, "see_corpus", None)):
            see_corpus(collection)  # a contextual encoder learns which chunks make up which document
        ranking = rank(model, request)
        if prediction_folder:
            predictions = ranking.run.to_dict(passages=True)
            self._save_task_predictions(predictions, model, prediction_folder, hf_subset=hf_subset, hf_split=hf_split)
        log_message = "Running retrieval task - Evaluating retrieval scores..."
        with timer("Scoring", split=hf_split, subset=hf_subset, log_message=log_message):
            scores = self._score(ranking, collection)
        if self._previous_results_model_meta:
            scores["previous_results_model_meta"] = self._previous_results_model_meta
        return scores

    def request(
        self,
        data_split: Any,
        split: str,
        encode_kwargs: Mapping[str, Any],
        *,
        num_proc: int | None = None,
        timer: TimingStack | None = None,
    ) -> Request:
        """Return what a model is asked on one split.

        Args:
            data_split: MTEB's data of it.
            split: Its name.
            encode_kwargs: Passed to the model.
            num_proc: Passed to the model.
            timer: Records MTEB's phases.

        Raises:
            DataError: The corpus is no longer the one that was loaded.
        """
        from crumb_tasks.request import Request

        collection = self.collection(split)
        if collection.parents is not None and len(collection.parents) != len(data_split["corpus"]):
            raise DataError(
                f"{self.card.name}: the corpus was changed after loading; its passages have lost their documents"
            )
        return Request(
            corpus=data_split["corpus"],
            queries=data_split["queries"],
            groups=self._groups(collection),
            depth=self._top_k + int(self.card.exclude_self) + max(map(len, collection.exclusions.values()), default=0),
            parents=collection.parents,
            candidates=data_split["top_ranked"],
            hf_split=split,
            hf_subset=SUBSET,
            encode_kwargs=encode_kwargs,
            num_proc=num_proc,
            timer=timer or TimingStack(),
            card=self.card,
            in_memory_only=collection.in_memory_only,
        )

    def _score(self, ranking: Ranking, collection: Collection) -> dict[str, Any]:
        from crumb_tasks.mteb_scores import measures_of, score_dict
        from crumb_tasks.scoring import score

        measures = measures_of(self.card)
        scores = score(ranking.run, collection, self.card, measures, max_passage="off", depth=self._top_k)
        self.outcomes[collection.split] = (ranking.run, scores)
        revision = self.card.source.recorded_revision
        return score_dict(self.card, collection, scores, ranking, depth=self._top_k, revision=revision)

    def _groups(self, collection: Collection) -> list[QueryGroup]:
        """Return the queries by instruction: MTEB's models take one prompt a call."""
        from crumb_tasks.request import QueryGroup

        prompts = _prompts(collection)
        if len(prompts) <= 1:
            metadata = self._metadata_with(prompts[0]) if prompts else self.metadata
            return [QueryGroup(metadata, np.arange(collection.queries.num_rows, dtype=np.int64))]
        encoded = collection.queries.column("prompt").combine_chunks().dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(encoded.dictionary) + 1))
        return [
            QueryGroup(self._metadata_with(prompt), order[bounds[code] : bounds[code + 1]])
            for code, prompt in enumerate(encoded.dictionary.to_pylist())
        ]

    def _metadata_with(self, query_prompt: str) -> TaskMetadata:
        return self.metadata.model_copy(update={"prompt": prompt_of(query_prompt, self.card.prompt.document)})

    def _save_task_predictions(
        self, predictions: Any, model: Any, prediction_folder: Path, hf_split: str, hf_subset: str
    ) -> None:
        """Write the rankings as MTEB does, but whole or not at all, and never under another model's or setting's.

        MTEB's own method keeps the first writer's name over whatever is added. ``depth`` says how deep the search went,
        so that a ranking of fewer documents is known to be whole when the file is scored.
        """
        from crumb_tasks.files import written_whole

        path = self._predictions_path(prediction_folder)
        named = model.mteb_model_meta
        meta: dict[str, Any] = {"model_name": named.name, "revision": named.revision, "depth": self._top_k}
        if experiment := getattr(model.mteb_model_meta, "experiment_name", None):
            meta["experiment"] = experiment
        stored = _stored_predictions(path, hf_subset) if path.exists() else {}
        if stored.get("mteb_model_meta") != meta:
            stored = {"mteb_model_meta": meta}
        stored.setdefault(hf_subset, {})[hf_split] = predictions
        with written_whole(path) as file:
            file.write(json.dumps(stored, ensure_ascii=False).encode())

    def convert_to_reranking(self, top_ranked_path: str | Path, top_k: int = 10) -> Self:
        """Take the candidates from a prediction file, as MTEB does.

        Raises:
            UsageError: The file lacks a split that is to be evaluated.
        """
        try:
            return super().convert_to_reranking(top_ranked_path, top_k)
        except KeyError as error:
            splits = ", ".join(self.eval_splits)
            raise UsageError(
                f"{top_ranked_path} has no rankings of {self.card.name} ({splits}); write them with "
                "mteb run --prediction-folder and the same --eval-splits"
            ) from error

    def calculate_descriptive_statistics(self, overwrite_results: bool = False, num_proc: int | None = None) -> Any:  # noqa: FBT001, FBT002 -- MTEB's signature
        """Compute MTEB's descriptive statistics, or read those that exist; they are written to the cache folder."""
        shipped, computed = shipped_statistics(self.card.name), computed_statistics(self.card.name)
        if overwrite_results and shipped.exists() and not computed.exists():
            computed.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(shipped, computed)  # the path that MTEB writes to is the one that exists
        return super().calculate_descriptive_statistics(overwrite_results, num_proc)


def _stored_predictions(path: Path, hf_subset: str) -> dict[str, Any]:
    """Return what a prediction file holds; nothing where it is broken, which must not cost an evaluation."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        _logger.warning("%s is no JSON file (%s); its predictions are written anew", path, error)
        return {}
    if not isinstance(stored, dict) or not isinstance(stored.get(hf_subset, {}), dict):
        _logger.warning("%s holds no predictions by subset and split; they are written anew", path)
        return {}
    return stored


def _prompts(collection: Collection) -> list[str]:
    """Return the distinct instructions of a collection's queries, empty where it has none."""
    if "prompt" not in collection.queries.column_names:
        return []
    found: list[str] = collection.queries.column("prompt").unique().to_pylist()
    return found


def _dataset(table: pa.Table, columns: tuple[str, ...]) -> Dataset:
    """Return a table as MTEB's dataset without copying it.

    Only the columns that MTEB's models read: it batches whatever else it finds. The fingerprint is given because
    ``datasets`` would compute it from every byte of the table.
    """
    from datasets import Dataset

    present = [name for name in columns if name in table.column_names]
    return Dataset(table.select(present), fingerprint=uuid.uuid4().hex[:16])
