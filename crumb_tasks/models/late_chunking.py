"""Late chunking (Günther et al. 2024, arXiv 2409.04701): read a document once, pool each chunk from its part of it.

A chunk that stands alone has lost what the rest of its document says; pooled from the token vectors of the whole
document it has not. The wrapper is for models of sentence-transformers that average their token vectors. It needs to
know which chunks make up which document, and learns that from the collection (`see_corpus`); of a corpus that does not
say so every text stands for itself, as without the wrapper.

What a model cannot read at once is read in windows of whole chunks, without overlap: as many as fit into its length
limit. A chunk that is longer alone is cut there, as it would be without the wrapper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from crumb_tasks.errors import UsageError
from crumb_tasks.models.conditioned import unmetered

if TYPE_CHECKING:
    import torch
    from mteb.abstasks.task_metadata import TaskMetadata
    from sentence_transformers import SentenceTransformer
    from torch.utils.data import DataLoader

    from crumb_tasks.collection import Collection
    from crumb_tasks.models.conditioned import Meter, Observer

_BETWEEN = " "
_BATCH = 32

EXPERIMENT = {"chunks": "late"}
"""What tells results of late chunking from the model's own, as MTEB's ``experiment_kwargs``."""


@dataclass(frozen=True)
class _Window:
    """Chunks that are read together.

    Attributes:
        ids: Of the chunks.
        text: The prompt and the chunks.
        starts: Where each chunk begins in the text.
        ends: Where it ends.
    """

    ids: tuple[str, ...]
    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


class LateChunking:
    """An encoder that reads a document once and pools each of its chunks from the tokens of that chunk.

    Args:
        model: MTEB's wrapper of a sentence-transformers model, or a condition of one. Queries are its own business.
        observe: Told how many chunks were encoded.

    Raises:
        UsageError: The model is of another kind, does not average its token vectors, or has a tokenizer that does not
            tell where a token stands.
    """

    sorts_by_length = True
    """The chunks of a document come one after the other, in the corpus' order."""

    def __init__(self, model: Any, observe: Observer | None = None) -> None:
        self._model = model  # the name under which MTEB's own wrappers keep theirs
        self._observe = observe or (lambda _kind, _count: None)
        self.meter: Meter = unmetered
        self._transformer = _transformer_of(model)
        self._pooling = _pooling_at(self._transformer)
        self._document_by_chunk: dict[str, str] = {}
        self._chunks_by_document: dict[str, list[str]] = {}
        self._text_by_chunk: dict[str, str] = {}
        self._kept: dict[str, torch.Tensor] = {}
        meta = model.mteb_model_meta
        self.mteb_model_meta = meta.model_copy(
            update={"experiment_kwargs": {**(meta.experiment_kwargs or {}), **EXPERIMENT}}
        )

    def __getattr__(self, name: str) -> Any:
        if name == "_model":  # asked for while unpickling, before it is there
            raise AttributeError(name)
        return getattr(self._model, name)

    def see_corpus(self, collection: Collection) -> None:
        """Take note of the documents that a collection's chunks are from.

        They are told by the corpus' columns ``document`` and ``position``, else by the parents of its passages, which
        follow each other in the corpus' order.
        """
        from crumb_tasks.search.batches import joined_documents

        corpus = collection.corpus
        self._document_by_chunk, self._chunks_by_document, self._text_by_chunk, self._kept = {}, {}, {}, {}
        if "document" in corpus.column_names:
            documents = corpus.column("document").to_pylist()
            positions = [int(position) for position in corpus.column("position").to_pylist()]
        elif collection.parent_ids is not None:
            documents = collection.parent_ids.to_pylist()
            positions = list(range(len(documents)))
        else:
            return
        ids: list[str] = corpus.column("id").to_pylist()
        self._document_by_chunk = dict(zip(ids, documents, strict=True))
        for _, chunk, document in sorted(zip(positions, ids, documents, strict=True)):
            self._chunks_by_document.setdefault(document, []).append(chunk)
        columns = [name for name in ("id", "title", "text") if name in corpus.column_names]
        texts = joined_documents(corpus.select(columns)).column("text").to_pylist()
        self._text_by_chunk = dict(zip(ids, texts, strict=True))

    def encode(
        self, inputs: DataLoader[Any], *, task_metadata: TaskMetadata, prompt_type: Any = None, **kwargs: Any
    ) -> Any:
        """Encode queries as the model does, and chunks by their documents.

        Raises:
            UsageError: A chunk is not of the corpus that was seen last.
        """
        is_document = prompt_type is not None and prompt_type.value == "document"
        if not is_document or not self._document_by_chunk:
            return self._model.encode(inputs, task_metadata=task_metadata, prompt_type=prompt_type, **kwargs)
        import torch

        from crumb_tasks.search.identity import document_prompt

        ids = [str(chunk) for batch in inputs for chunk in batch["id"]]
        if foreign := next((chunk for chunk in ids if chunk not in self._document_by_chunk), None):
            raise UsageError(f"late chunking: '{foreign}' is no chunk of the corpus that the model was shown")
        lacking = {self._document_by_chunk[chunk]: None for chunk in ids if chunk not in self._kept}
        prompt = document_prompt(self._model, task_metadata)
        windows = [window for document in lacking for window in self._windows(document, prompt)]
        with self.meter("document", len(ids)):
            vectors = {**self._kept, **self._read(windows, int(kwargs.get("batch_size") or _BATCH))}
        asked = frozenset(ids)
        # a document may go on in the next call: what of it was not asked for is kept, and nothing else
        self._kept = {chunk: vector for chunk, vector in vectors.items() if chunk not in asked}
        self._observe("document", len(ids))
        return torch.stack([vectors[chunk] for chunk in ids]).numpy()

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the model's similarity of all pairs."""
        return self._model.similarity(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the model's similarity of aligned pairs."""
        return self._model.similarity_pairwise(embeddings1, embeddings2)

    def _windows(self, document: str, prompt: str) -> Iterator[_Window]:
        """Yield a document's chunks in windows that the model can read."""
        tokenizer = self._transformer.tokenizer
        chunks = self._chunks_by_document[document]
        texts = [self._text_by_chunk[chunk] for chunk in chunks]
        spaced = [_BETWEEN + text for text in texts]  # as it stands in a window
        lengths = [len(of_chunk) for of_chunk in tokenizer(spaced, add_special_tokens=False)["input_ids"]]
        room = (self._transformer.max_seq_length or sum(lengths) + len(lengths)) - len(tokenizer(prompt)["input_ids"])
        first = 0
        while first < len(chunks):
            last, used = first + 1, lengths[first]
            while last < len(chunks) and used + lengths[last] <= room:
                used += lengths[last]
                last += 1
            yield _window(chunks[first:last], texts[first:last], prompt)
            first = last

    def _read(self, windows: Sequence[_Window], batch_size: int) -> dict[str, torch.Tensor]:
        """Return the vector of each chunk; windows of about one length are read together."""
        import torch

        vectors: dict[str, torch.Tensor] = {}
        ordered = iter(sorted(windows, key=lambda window: -len(window.text)))
        self._transformer.eval()
        with torch.no_grad():
            while batch := list(islice(ordered, batch_size)):
                for window, tokens, offsets in zip(batch, *self._tokens(batch), strict=True):
                    vectors |= self._pooled(window, tokens, offsets)
        return vectors

    def _tokens(self, batch: Sequence[_Window]) -> tuple[list[torch.Tensor], list[list[tuple[int, int]]]]:
        """Return for each window the vectors of its tokens, and where in the text each stands."""
        transformer = self._transformer
        prepare = getattr(transformer, "preprocess", None) or transformer.tokenize
        features = {
            name: value.to(transformer.device) if hasattr(value, "to") else value
            for name, value in prepare([window.text for window in batch]).items()
        }
        limit = {"truncation": True, "max_length": transformer.max_seq_length} if transformer.max_seq_length else {}
        told = transformer.tokenizer([window.text for window in batch], return_offsets_mapping=True, **limit)
        offsets: list[list[tuple[int, int]]] = told["offset_mapping"]
        kept = features["attention_mask"].sum(dim=1).tolist()
        if [len(of_window) for of_window in offsets] != kept:
            raise UsageError(
                f"late chunking: the model reads {kept[0]} tokens where its tokenizer tells of {len(offsets[0])}"
            )
        for module in islice(transformer, self._pooling):
            features = module(features)
        vectors = features["token_embeddings"]
        mask = features["attention_mask"].bool()
        return [of_window[here] for of_window, here in zip(vectors, mask, strict=True)], offsets

    def _pooled(
        self, window: _Window, tokens: torch.Tensor, offsets: Sequence[tuple[int, int]]
    ) -> Mapping[str, torch.Tensor]:
        """Return the mean of each chunk's tokens, and what the model does to it behind its pooling."""
        import torch

        places = torch.tensor(offsets, device=tokens.device)
        is_text = places[:, 1] > places[:, 0]  # special tokens stand nowhere
        means = []
        for start, end in zip(window.starts, window.ends, strict=True):
            own = is_text & (places[:, 0] >= start) & (places[:, 0] < end)
            means.append(tokens[own if own.any() else torch.ones_like(own)].mean(dim=0))
        features: dict[str, Any] = {"sentence_embedding": torch.stack(means)}
        for module in islice(self._transformer, self._pooling + 1, None):
            features = module(features)
        vectors = features["sentence_embedding"]
        if (dimensions := getattr(self._transformer, "truncate_dim", None)) is not None:
            vectors = vectors[:, :dimensions]
        return dict(zip(window.ids, vectors.float().cpu(), strict=True))


def _window(ids: Sequence[str], texts: Sequence[str], prompt: str) -> _Window:
    starts: list[int] = []
    ends: list[int] = []
    text = prompt
    for at, chunk in enumerate(texts):
        text += _BETWEEN if at else ""
        starts.append(len(text))
        text += chunk
        ends.append(len(text))
    return _Window(tuple(ids), text, tuple(starts), tuple(ends))


def _transformer_of(model: Any) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    from crumb_tasks.search.identity import layers

    transformer = next((layer for layer in layers(model) if isinstance(layer, SentenceTransformer)), None)
    if transformer is None:
        raise UsageError(f"late chunking is for models of sentence-transformers; {type(model).__name__} is none")
    if not getattr(transformer.tokenizer, "is_fast", False):
        raise UsageError("late chunking needs a tokenizer that tells where a token stands (a fast one)")
    return transformer


def _pooling_at(transformer: SentenceTransformer) -> int:
    """Return the place of the module that averages token vectors."""
    modules: Iterable[Any] = transformer
    for place, module in enumerate(modules):
        if type(module).__name__ == "Pooling":  # its module has moved from one version to the next
            mode = getattr(module, "pooling_mode", None) or module.get_pooling_mode_str()
            if mode != "mean":
                raise UsageError(
                    f"late chunking averages the tokens of a chunk; this model takes the pooling '{mode}', which needs "
                    "the whole text"
                )
            return place
    raise UsageError("late chunking averages token vectors; this model has none")
