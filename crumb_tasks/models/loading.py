"""A model that is named but not loaded: what is already cached needs no weights."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crumb_tasks.errors import UsageError, did_you_mean
from crumb_tasks.models.conditioned import Observer, conditioned
from crumb_tasks.models.instructions import Instructions, short_hash
from crumb_tasks.models.late_chunking import EXPERIMENT, LateChunking

if TYPE_CHECKING:
    from mteb.models import ModelMeta


DTYPES = ("float32", "float16", "bfloat16")
_PROMPTED = ("query", "document")


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded.

    Attributes:
        device: Torch device; by default MTEB's choice.
        dtype: Of the weights, one of `DTYPES`; by default the model's own.
        max_seq_length: Tokens after which a text is cut; by default the model's own.
        prompts: The model's prefixes for ``query`` and ``document``, in the place of its own.
        late_chunking: Pool each chunk of a document from the tokens of the whole document.
    """

    device: str | None = None
    dtype: str | None = None
    max_seq_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    late_chunking: bool = False

    @property
    def experiment(self) -> dict[str, str | int]:
        """What of it changes results beyond rounding, in short values: they become folder names."""
        found: dict[str, str | int] = {}
        if self.dtype is not None:
            found["dtype"] = self.dtype
        if self.max_seq_length is not None:
            found["max_seq_length"] = self.max_seq_length
        if self.prompts:
            found["prompt"] = short_hash("\0".join(f"{key}={text}" for key, text in sorted(self.prompts.items())))
        if self.late_chunking:
            found |= EXPERIMENT
        return found


def check_device(name: str) -> None:
    """Check that torch has a device called ``name``.

    Raises:
        UsageError: It has not.
    """
    import torch

    try:
        kind = torch.device(name).type
    except RuntimeError as error:
        raise UsageError(f"--device '{name}' is no device of torch; it is one such as cpu, cuda or cuda:1") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"--device '{name}': torch sees no CUDA device here")


def parse_prompts(texts: list[str]) -> dict[str, str]:
    """Read ``--prompt`` values: ``query=TEXT``, ``document=TEXT``, or a text alone, which is the queries'.

    Raises:
        UsageError: One stands there twice, or is nearly named.
    """
    prompts: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or key not in _PROMPTED:
            if separator and (near := _near(key)):
                raise UsageError(f"--prompt '{text}': did you mean '{near}={value}'? (A query prefix: 'query={text}')")
            key, value = "query", text
        if key in prompts:
            raise UsageError(f"--prompt names the prefix for '{key}' twice")
        prompts[key] = value
    return prompts


def _near(word: str) -> str | None:
    """Return which of the two is probably meant by ``word``."""
    folded = word.strip().casefold()
    begun = [name for name in _PROMPTED if len(folded) > 2 and name.startswith(folded.removesuffix("s"))]
    return next(iter(begun or difflib.get_close_matches(folded, _PROMPTED, n=1)), None)


class LazyModel:
    """A model of MTEB's registry or of the Hub, loaded once and only when it is first needed.

    Args:
        meta: MTEB's metadata of it.
        options: How to load it.
        instructions: The condition that it runs under.
        experiment: What tells this use of it from others, in short values.
        observe: Told about its progress.
    """

    def __init__(
        self,
        meta: ModelMeta,
        options: LoadOptions,
        instructions: Instructions,
        experiment: Mapping[str, str | int],
        observe: Observer | None = None,
    ) -> None:
        self._registered = meta
        self._options = options
        self._instructions = instructions
        self._observe = observe
        self._loaded: Any = None
        # Set afterwards, never before loading: MTEB hands what stands there to the model's constructor.
        self.meta: ModelMeta = meta.model_copy(update={"experiment_kwargs": dict(experiment) or None})

    @property
    def is_loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._loaded is not None

    @property
    def is_cross_encoder(self) -> bool:
        """Whether it scores pairs, as far as its metadata tell."""
        return "cross-encoder" in self.meta.model_type

    def load(self) -> Any:
        """Return the model under its condition, loading it the first time.

        Raises:
            UsageError: It cannot be loaded with these options.
            Exception: What its loader raises.
        """
        if self._loaded is None:
            model: Any = self._registered.load_model(device=self._options.device, **self._loader_arguments())
            _apply(model, self._options, str(self.meta.name))
            model.mteb_model_meta = model.mteb_model_meta.model_copy(
                update={"experiment_kwargs": self.meta.experiment_kwargs}
            )
            model = conditioned(model, self._instructions, self._observe)
            self._loaded = LateChunking(model, self._observe) if self._options.late_chunking else model
        return self._loaded

    def _loader_arguments(self) -> dict[str, Any]:
        if self._options.dtype is None or not _is_sentence_transformers(self._registered.loader):
            return {}
        own = self._registered.loader_kwargs.get("model_kwargs") or {}
        return {"model_kwargs": {**own, "torch_dtype": self._options.dtype}}


def _is_sentence_transformers(loader: Any) -> bool:
    """Return whether ``loader`` hands its arguments to a class of sentence-transformers."""
    from mteb.models import CrossEncoderWrapper, SentenceTransformerEncoderWrapper
    from mteb.models.instruct_wrapper import InstructSentenceTransformerModel

    from crumb_tasks.local_models import load_local

    known = (CrossEncoderWrapper, SentenceTransformerEncoderWrapper, InstructSentenceTransformerModel)
    function = getattr(loader, "func", loader)
    return function is load_local or (isinstance(function, type) and issubclass(function, known))


def _apply(model: Any, options: LoadOptions, name: str) -> None:
    if options.max_seq_length is not None:
        _set_length(model, options.max_seq_length, name)
    if options.dtype is not None:
        _set_dtype(model, options.dtype, name)
    if options.prompts:
        if not hasattr(model, "model_prompts"):
            raise UsageError(f"'{name}' has no prompts that --prompt could set; an --instructions template may do")
        model.model_prompts = {**(model.model_prompts or {}), **options.prompts}


def _set_length(model: Any, length: int, name: str) -> None:
    inner = getattr(model, "model", None)
    for attribute in ("max_seq_length", "max_length"):
        if hasattr(inner, attribute):
            try:
                setattr(inner, attribute, length)
            except AttributeError:  # it tells its length, and that is all
                break
            return
    raise UsageError(f"'{name}' has no length limit that --max-seq-length could set")


def _set_dtype(model: Any, dtype: str, name: str) -> None:
    """Cast weights that the loader left in another type."""
    import torch

    inner = getattr(model, "model", None)
    if not isinstance(inner, torch.nn.Module):
        raise UsageError(f"'{name}' has no weights whose type --dtype could set")
    if next(inner.parameters()).dtype != getattr(torch, dtype):
        inner.to(getattr(torch, dtype))


def find_meta(name: str, revision: str | None) -> ModelMeta:
    """Return MTEB's metadata of a model by its name, from the registry or else from the Hub.

    Args:
        name: As MTEB has it.
        revision: Of the weights; by default the registry's.

    Raises:
        UsageError: Neither knows it.
    """
    import mteb
    from mteb.models.model_implementations import MODEL_REGISTRY

    try:
        meta = mteb.get_model_meta(name)
    except KeyError as error:
        if "/" not in name:
            known = [part for entry in MODEL_REGISTRY if entry for part in (entry, entry.rpartition("/")[2])]
            raise UsageError(
                f"'{name}' is neither a directory nor a model that MTEB knows{did_you_mean(name, known)}"
            ) from error
        return _from_hub(name, revision, did_you_mean(name, filter(None, MODEL_REGISTRY)))
    return meta if revision is None else meta.model_copy(update={"revision": revision})


def _from_hub(name: str, revision: str | None, hint: str) -> ModelMeta:
    import mteb

    try:
        return mteb.get_model_meta(name, revision, fetch_from_hf=True)
    except Exception as error:
        raise UsageError(
            f"'{name}' is neither a directory nor in MTEB's registry, and the Hub does not give it "
            f"({type(error).__name__}){hint}"
        ) from error
