"""What a model is given while it works: calls, texts, tokens and seconds, by kind of text."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from crumb_tasks.search.identity import layers


@dataclass
class Tally:
    """What was done for one kind of text.

    Attributes:
        texts: Documents, queries or pairs.
        seconds: How long the model took.
        tokens: That it read, padding not counted.
    """

    texts: int = 0
    seconds: float = 0.0
    tokens: int = 0


@dataclass
class Meter:
    """Counts for one model, as long as it is attached.

    Attributes:
        tallies: By ``query``, ``document``, ``pair`` or ``index``.
        counts_tokens: Whether tokens can be counted: the model is a torch module that is given masks or ids.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    counts_tokens: bool = False
    _tokens: int = 0

    @contextlib.contextmanager
    def attached(self, model: object) -> Iterator[None]:
        """Count what ``model`` does meanwhile."""
        module = next((layer for layer in layers(model) if isinstance(layer, torch.nn.Module)), None)
        if isinstance(module, torch.nn.Sequential):  # sentence-transformers calls its parts, never the whole
            module = next(iter(module), None)
        metered: list[Any] = [layer for layer in layers(model) if hasattr(layer, "meter")]
        handle = None if module is None else module.register_forward_pre_hook(self._look, with_kwargs=True)
        before = [layer.meter for layer in metered]
        for layer in metered:
            layer.meter = self.call
        try:
            yield
        finally:
            for layer, earlier in zip(metered, before, strict=True):
                layer.meter = earlier
            if handle is not None:
                handle.remove()

    @contextlib.contextmanager
    def call(self, kind: str, n_texts: int) -> Iterator[None]:
        """Count one call of the model for that many texts."""
        tokens, began = self._tokens, time.perf_counter()
        yield
        tally = self.tallies.setdefault(kind, Tally())
        tally.seconds += time.perf_counter() - began
        tally.texts += n_texts
        tally.tokens += self._tokens - tokens

    def of(self, kind: str) -> Tally:
        """Return what was done for a kind of text; zeros where nothing was."""
        return self.tallies.get(kind, Tally())

    def _look(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        features: Mapping[str, Any] = next((value for value in (*args, kwargs) if isinstance(value, Mapping)), {})
        mask = features.get("attention_mask")
        ids = features.get("input_ids", kwargs.get("input_ids"))
        if isinstance(mask, torch.Tensor):
            self._tokens += int(mask.sum())
        elif isinstance(ids, torch.Tensor):
            self._tokens += ids.numel()
        else:
            return
        self.counts_tokens = True
