"""Codes for ids that come in pieces."""

from __future__ import annotations

from array import array

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crumb_tasks.runs import Vocabulary

_FEWEST = 2**17


class Interner:
    """Replaces ids by codes while they arrive.

    Ids wait until hashing the known ones again costs half as much as hashing those that wait, so that the whole costs
    about one pass and a half, and memory follows the distinct ids and not the text.
    """

    def __init__(self) -> None:
        self._found = pa.array([], type=pa.string())
        self._waiting: list[pa.Array] = []
        self._n_waiting = 0
        self._codes = array("i")

    def add(self, ids: pa.Array) -> None:
        """Add ids, none of them null."""
        self._waiting.append(ids)
        self._n_waiting += len(ids)
        if self._n_waiting >= max(_FEWEST, 2 * len(self._found)):
            self._encode()

    def finish(self) -> tuple[Vocabulary, NDArray[np.int32]]:
        """Return the vocabulary and the code of each id in the order of arrival."""
        self._encode()
        vocabulary, code_by_found = Vocabulary.of_distinct(self._found)
        codes = np.frombuffer(self._codes, dtype=np.int32)
        for start in range(0, len(codes), _FEWEST):
            codes[start : start + _FEWEST] = code_by_found[codes[start : start + _FEWEST]]
        return vocabulary, codes

    def _encode(self) -> None:
        if not self._waiting:
            return
        encoded = pa.chunked_array([self._found, *self._waiting]).dictionary_encode().combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().chunk(0)
        codes = encoded.indices.to_numpy(zero_copy_only=False)[len(self._found) :]
        self._codes.frombytes(codes.astype(np.int32).tobytes())
        self._found, self._waiting, self._n_waiting = encoded.dictionary, [], 0
