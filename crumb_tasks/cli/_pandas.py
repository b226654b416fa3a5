"""Keeping pandas out of commands that do not need it: its import takes longer than most run files take to be scored."""

from __future__ import annotations

import contextlib
import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    """Says that there is no pandas."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Refuse pandas and leave everything else to the other finders."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)


def leave_pandas_out() -> None:
    """Let pyarrow convert Python's and NumPy's objects without importing pandas.

    At its first conversion pyarrow imports pandas, if it can, to tell whether it was handed one of its objects, and
    never asks again; what needs pandas, such as ``Table.to_pandas``, still imports it. Other libraries here may
    hand it such objects: call `let_pandas_back` before they do.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


def let_pandas_back() -> None:
    """Let pyarrow know pandas again, if it is installed."""
    with contextlib.suppress(ImportError):
        pa.table({}).to_pandas()
