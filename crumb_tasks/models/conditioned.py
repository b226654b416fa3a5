"""Wrappers that send a model the text of a condition, and tell an observer how far it has got.

Everything else of a model stays visible through the wrapper. There is one class for each of MTEB's kinds because MTEB
tells kinds by their methods: an encoder must not look as if it could search.

A wrapper owns the model it is given. Where a model fetches its instruction itself (MTEB's `AbsEncoder`), the fetching
is replaced on that one object: an empty prompt in the task's metadata would not do, since MTEB puts its default
sentence in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from crumb_tasks.errors import UsageError
from crumb_tasks.models.instructions import Instructions

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from torch.utils.data import DataLoader

_LEFT_ALONE = ("native", "separate")
"""Conditions in which the model finds the task's instruction by its own ways."""

_IN_THE_TEXT = ("prepended", "template")
"""Conditions in which the instruction is written into the text."""

Observer = Callable[[str, int], None]
"""Called with ``query``, ``document`` or ``pair`` and how many of them were done."""

Meter = Callable[[str, int], AbstractContextManager[None]]
"""Stands around a call of the model for ``query``, ``document``, ``pair`` or ``index``, and how many texts it has."""


def unmetered(_kind: str, _count: int) -> AbstractContextManager[None]:
    """Stand around a call and do nothing."""
    return nullcontext()


def conditioned(model: Any, instructions: Instructions, observe: Observer | None = None) -> Any:
    """Return ``model`` under a condition.

    Args:
        model: A loaded model, by MTEB's protocols. It must not be used without the wrapper from then on.
        instructions: The condition; ``native`` changes nothing.
        observe: Told about progress.

    Raises:
        UsageError: It is no model that MTEB can run.
    """
    from mteb.models import CrossEncoderProtocol, EncoderProtocol, SearchProtocol

    searches, encodes = isinstance(model, SearchProtocol), isinstance(model, EncoderProtocol)
    wrapper: type[_Conditioned]
    if searches:
        wrapper = ConditionedSearchEncoder if encodes else ConditionedSearch
    elif encodes:
        wrapper = ConditionedEncoder
    elif isinstance(model, CrossEncoderProtocol):
        wrapper = ConditionedCrossEncoder
    else:
        raise UsageError(
            f"{type(model).__name__} is no model that MTEB can run: it can neither encode nor score pairs nor search"
        )
    return wrapper(model, instructions, observe or (lambda _kind, _count: None))


class _Conditioned:
    def __init__(self, model: Any, instructions: Instructions, observe: Observer) -> None:
        self._model = model  # the name under which MTEB's own wrappers keep theirs
        self._instructions = instructions
        self._observe = observe
        self.meter: Meter = unmetered
        self._prompts: Mapping[str, str] = dict(getattr(model, "model_prompts", None) or {})
        if instructions.mode not in _LEFT_ALONE:
            _replace_fetching(model, instructions)

    def __getattr__(self, name: str) -> Any:
        if name == "_model":  # asked for while unpickling, before it is there
            raise AttributeError(name)
        return getattr(self._model, name)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's metadata of the model, with the experiment."""
        meta: ModelMeta = self._model.mteb_model_meta
        return meta

    def _prepare(self, task_metadata: TaskMetadata, *, is_query: bool) -> TaskMetadata:
        """Set the model's own prompts for this call and return the metadata to call it with."""
        if self._instructions.mode == "separate" and is_query:
            self._set_prompt(instruction_of(task_metadata, "query"))
        if self._instructions.mode in _LEFT_ALONE:
            return task_metadata
        if self._prompts:
            self._model.model_prompts = self._own_prompts(task_metadata.name, is_query=is_query)
        documents = instruction_of(task_metadata, "document")
        return task_metadata.model_copy(update={"prompt": {"document": documents} if documents else None})

    def _set_prompt(self, instruction: str) -> None:
        """Give a model without an instruction template the instruction as its prompt for queries."""
        if getattr(self._model, "instruction_template", None):
            return
        if not hasattr(self._model, "model_prompts"):
            raise UsageError(
                f"{type(self._model).__name__} takes no instruction apart from the query; run it with --instructions "
                "prepended, or with a template"
            )
        documents = {key: prompt for key, prompt in self._prompts.items() if key.endswith("document")}
        self._model.model_prompts = {**documents, "query": instruction}

    def _own_prompts(self, task: str, *, is_query: bool) -> dict[str, str]:
        if is_query and self._instructions.mode == "template":
            return {"query": ""}
        of_task = {task, f"{task}-query", f"{task}-document"}
        return {key: prompt for key, prompt in self._prompts.items() if key not in of_task}

    def _leaves_texts(self, task_metadata: TaskMetadata) -> bool:
        is_final = getattr(task_metadata, "has_final_texts", False)
        return is_final or self._instructions.mode not in _IN_THE_TEXT

    def _texts(self, texts: Sequence[str], task_metadata: TaskMetadata) -> list[str]:
        instruction = instruction_of(task_metadata, "query")
        return [self._instructions.text(instruction, text) for text in texts]

    def _queries(self, queries: Dataset, task_metadata: TaskMetadata) -> Dataset:
        """Return the queries with the condition's texts."""
        if self._leaves_texts(task_metadata):
            return queries
        from datasets import Dataset

        columns: dict[str, list[Any]] = {name: list(queries[name]) for name in queries.column_names}
        if not isinstance(next(iter(columns.get("text", [])), None), str):
            raise UsageError(f"{task_metadata.name}: its queries are no plain texts; run it with --instructions native")
        columns["text"] = self._texts(columns["text"], task_metadata)
        if "query" in columns:
            columns["query"] = columns["text"]
        return Dataset.from_dict(columns)

    def _loader(self, loader: DataLoader[Any], task_metadata: TaskMetadata) -> DataLoader[Any]:
        """Return a loader over the condition's texts, else like ``loader``."""
        if self._leaves_texts(task_metadata):
            return loader
        from torch.utils.data import DataLoader

        return DataLoader(
            self._queries(_rows_of(loader), task_metadata),
            batch_size=loader.batch_size,
            collate_fn=loader.collate_fn,
            num_workers=loader.num_workers,
            shuffle=False,
        )


class ConditionedEncoder(_Conditioned):
    """An encoder under a condition."""

    def encode(
        self, inputs: DataLoader[Any], *, task_metadata: TaskMetadata, prompt_type: Any = None, **kwargs: Any
    ) -> Any:
        """Encode as the model does; texts without a prompt type count as queries."""
        is_query = prompt_type is None or prompt_type.value == "query"
        metadata = self._prepare(task_metadata, is_query=is_query)
        loader = self._loader(inputs, task_metadata) if is_query else inputs
        kind, count = "query" if is_query else "document", len(_rows_of(inputs))
        with self.meter(kind, count):
            embeddings = self._model.encode(loader, task_metadata=metadata, prompt_type=prompt_type, **kwargs)
        self._observe(kind, count)
        return embeddings

    def document_prompt(self, task_metadata: TaskMetadata) -> str:
        """Return what stands in front of documents under the condition; embeddings on disk are kept by it."""
        from crumb_tasks.search.identity import document_prompt

        return document_prompt(self._model, self._prepare(task_metadata, is_query=False))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the model's similarity of all pairs."""
        return self._model.similarity(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the model's similarity of aligned pairs."""
        return self._model.similarity_pairwise(embeddings1, embeddings2)


class ConditionedCrossEncoder(_Conditioned):
    """A cross-encoder under a condition."""

    def predict(
        self, inputs1: DataLoader[Any], inputs2: DataLoader[Any], *, task_metadata: TaskMetadata, **kwargs: Any
    ) -> Any:
        """Score pairs as the model does; the first of each is the query."""
        metadata = self._prepare(task_metadata, is_query=True)
        loader = self._loader(inputs1, task_metadata)
        with self.meter("pair", len(_rows_of(inputs1))):
            scores = self._model.predict(inputs1=loader, inputs2=inputs2, task_metadata=metadata, **kwargs)
        self._observe("pair", len(_rows_of(inputs1)))
        return scores


class ConditionedSearch(_Conditioned):
    """A model with its own search under a condition."""

    def index(self, corpus: Dataset, *, task_metadata: TaskMetadata, **kwargs: Any) -> None:
        """Index the corpus as the model does."""
        metadata = self._prepare(task_metadata, is_query=False)
        with self.meter("index", len(corpus)):
            self._model.index(corpus, task_metadata=metadata, **kwargs)
        if not hasattr(self._model, "task_corpus"):  # those that have it only put it there, and encode in their search
            self._observe("document", len(corpus))

    def search(self, queries: Dataset, *, task_metadata: TaskMetadata, **kwargs: Any) -> Any:
        """Search as the model does."""
        metadata = self._prepare(task_metadata, is_query=True)
        n_documents = len(getattr(self._model, "task_corpus", None) or ())
        found = self._model.search(self._queries(queries, task_metadata), task_metadata=metadata, **kwargs)
        if n_documents:
            self._observe("document", n_documents)
        self._observe("query", len(queries))
        return found


class ConditionedSearchEncoder(ConditionedSearch, ConditionedEncoder):
    """A model that encodes and has its own search, under a condition."""


def instruction_of(task_metadata: TaskMetadata, kind: str) -> str:
    """Return the task's instruction for ``query`` or ``document``, empty where it has none."""
    prompt = task_metadata.prompt
    if isinstance(prompt, Mapping):
        return str(prompt.get(kind) or "")
    return str(prompt or "") if kind == "query" else ""


def _rows_of(loader: DataLoader[Any]) -> Any:
    return loader.dataset


def _replace_fetching(model: Any, instructions: Instructions) -> None:
    """Have ``model`` find the condition's instruction where it would look for the task's."""
    if not (hasattr(model, "get_instruction") and hasattr(model, "get_task_instruction")):
        return  # what such a model knows of the task it finds in the metadata

    def is_document(prompt_type: Any) -> bool:
        return prompt_type is not None and prompt_type.value == "document"

    def get_instruction(task_metadata: TaskMetadata, prompt_type: Any) -> str:
        return instruction_of(task_metadata, "document") if is_document(prompt_type) else ""

    def get_task_instruction(task_metadata: TaskMetadata, prompt_type: Any) -> str:
        instruction = get_instruction(task_metadata, prompt_type)
        template = getattr(model, "instruction_template", None)
        if not template or (instructions.mode == "template" and not is_document(prompt_type)):
            return instruction
        keeps_empty = not is_document(prompt_type) and instructions.mode == "none"
        if callable(template) or instruction or keeps_empty:
            return str(model.format_instruction(instruction, prompt_type))
        return instruction

    model.get_instruction = get_instruction
    model.get_task_instruction = get_task_instruction
