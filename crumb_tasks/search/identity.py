"""What decides the vector that a model gives a document, as far as it can be known from outside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

WITHOUT_EFFECT = frozenset({"batch_size", "show_progress_bar", "num_workers", "num_proc"})
"""Keyword arguments of ``encode`` that change no vector beyond rounding."""

OF_QUERIES = frozenset({"instructions", "queries", "rerank", "depth"})
"""Settings of an experiment that reach no document, so that paired conditions share embeddings."""


def layers(model: object) -> Iterator[object]:
    """Yield ``model`` and what it wraps: MTEB's wrappers keep the inner model as ``_model`` or ``model``."""
    seen: set[int] = set()
    found: object | None = model
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        inner = getattr(found, "_model", None)
        found = inner if inner is not None else getattr(found, "model", None)


def document_prompt(model: object, task_metadata: TaskMetadata) -> str:
    """Return what ``model`` puts in front of documents, or a text that differs whenever that could differ.

    For MTEB's sentence-transformers and instruction wrappers it is the prompt itself, so that tasks share embeddings. A
    model may tell it by a method ``document_prompt(task_metadata)``. For others it is all that MTEB lets a prompt
    depend
    on: the task's name and type, and its document prompt.
    """
    from mteb.models import SentenceTransformerEncoderWrapper
    from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
    from mteb.types import PromptType

    for layer in layers(model):
        own = getattr(layer, "document_prompt", None)
        if callable(own):
            return str(own(task_metadata))
        if isinstance(layer, SentenceTransformerEncoderWrapper):
            prompts = layer.model_prompts or {}
            return prompts.get(layer.get_prompt_name(task_metadata, PromptType.document) or "", "")
        if isinstance(layer, InstructSentenceTransformerModel):
            if not layer.apply_instruction_to_passages:
                return ""
            return layer.get_task_instruction(task_metadata, PromptType.document)
    prompt = task_metadata.prompt
    of_documents = prompt.get("document") if isinstance(prompt, Mapping) else prompt
    return json.dumps({"task": task_metadata.name, "type": task_metadata.type, "prompt": of_documents})


def length_limit(model: object) -> int | None:
    """Return the number of tokens after which ``model`` cuts a text, ``None`` where it does not tell."""
    for layer in layers(model):
        for name in ("max_seq_length", "max_length", "max_model_len"):
            found = getattr(layer, name, None)
            if isinstance(found, int):
                return found
    return None


def weights_dtype(model: object) -> str | None:
    """Return the dtype of the model's weights, ``None`` where they are not to be seen."""
    for layer in layers(model):
        if isinstance(layer, torch.nn.Module):
            first = next(layer.parameters(), None)
            return None if first is None else str(first.dtype).removeprefix("torch.")
    return None


def model_identity(model: Any) -> dict[str, Any]:
    """Return name, revision and what of its experiment concerns documents, from the MTEB metadata of ``model``."""
    meta = getattr(model, "mteb_model_meta", None)
    experiment = getattr(meta, "experiment_kwargs", None) or {}
    return {
        "model": str(getattr(meta, "name", None) or type(model).__name__),
        "revision": str(getattr(meta, "revision", None) or ""),
        "experiment": {str(name): str(value) for name, value in sorted(experiment.items()) if name not in OF_QUERIES},
    }


def content_hash(tables: Iterable[pa.Table], columns: Iterable[str]) -> str:
    """Return a hash of the texts in ``columns``, whatever the chunks they come in.

    Streams the Arrow buffers: the lengths of the texts and their bytes, at about 1 GB/s and without a copy.
    """
    hashes = {name: (hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)) for name in columns}
    n_rows = 0
    for table in tables:
        n_rows += len(table)
        for name, (of_lengths, of_bytes) in hashes.items():
            for chunk in table.column(name).chunks if name in table.column_names else ():
                lengths, data = _buffers(chunk)
                of_lengths.update(lengths)
                of_bytes.update(data)
    whole = hashlib.blake2b(str(n_rows).encode(), digest_size=16)
    for name, (of_lengths, of_bytes) in sorted(hashes.items()):
        whole.update(name.encode() + b"\0" + of_lengths.digest() + of_bytes.digest())
    return whole.hexdigest()


def _buffers(chunk: pa.Array) -> tuple[bytes, memoryview]:
    if not (pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type)) or chunk.null_count:
        chunk = chunk.cast(pa.large_string()).fill_null("")
    width = np.int32 if pa.types.is_string(chunk.type) else np.int64
    _, offset_buffer, data_buffer = chunk.buffers()
    if not len(chunk):
        return b"", memoryview(b"")
    offsets = np.frombuffer(offset_buffer, dtype=width)[chunk.offset : chunk.offset + len(chunk) + 1]
    lengths = np.diff(offsets).astype("<i8")
    data = memoryview(b"") if data_buffer is None else memoryview(data_buffer)[int(offsets[0]) : int(offsets[-1])]
    return lengths.tobytes(), data
