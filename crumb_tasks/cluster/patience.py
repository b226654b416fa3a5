"""An encoding that halves its batches when memory runs out, down to one text."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from crumb_tasks.search.encoding import Encoding

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

_SIGNS = ("out of memory", "can't allocate memory", "cannot allocate memory")
Result = TypeVar("Result")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether ``error`` says that memory ran out, on a GPU or elsewhere."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _SIGNS)


def halving(call: Callable[[int], Result], batch_size: int, note: Callable[[int], None]) -> Result:
    """Return ``call(batch_size)``, with half the size as often as memory runs out.

    Args:
        call: Does the work in batches of the size it is given.
        batch_size: The first size.
        note: Told each smaller size.

    Raises:
        Exception: What ``call`` raised, at once or at a batch of one.
    """
    while True:
        try:
            return call(batch_size)
        except Exception as error:
            if batch_size <= 1 or not is_out_of_memory(error):
                raise
        batch_size //= 2  # outside the handler: its traceback would keep the tensors of the batch
        _free()
        note(batch_size)


def _free() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class PatientEncoding(Encoding):
    """Calls of a model's ``encode`` that survive a batch too large for memory; later calls keep the smaller size."""

    def _encode(self, table: pa.Table, task_metadata: TaskMetadata, kind: str) -> Any:
        def with_size(batch_size: int) -> Any:
            self.kwargs["batch_size"] = batch_size
            return super(PatientEncoding, self)._encode(table, task_metadata, kind)

        return halving(with_size, int(self.kwargs.get("batch_size") or 32), lambda _: None)
