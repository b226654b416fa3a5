"""The fields of TREC lines, as bytes."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

_SPACES = np.isin(np.arange(256), list(b" \t\n\r\x0b\x0c"))


def tokens_by_line(block: bytes) -> NDArray[np.int64]:
    """Return the number of tokens of each line of ``block``."""
    text = np.frombuffer(block, dtype=np.uint8)
    is_space = _SPACES[text]
    begins = ~is_space
    begins[1:] &= is_space[:-1]
    ends = np.flatnonzero(text == 10)
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(text))
    return np.diff(np.searchsorted(np.flatnonzero(begins), ends), prepend=0)


def is_number(token: bytes) -> bool:
    """Return whether ``token`` is a number as Python and trec_eval read it."""
    try:
        float(token)
    except ValueError:
        return False
    return b"_" not in token


def is_rank(token: bytes) -> bool:
    """Return whether ``token`` is a whole number."""
    return re.fullmatch(rb"[+-]?[0-9]{1,9}", token) is not None


def is_utf8(token: bytes) -> bool:
    """Return whether ``token`` is text."""
    try:
        token.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
