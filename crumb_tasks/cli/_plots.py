"""Figures with matplotlib, which the extra ``plot`` brings."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crumb_tasks.errors import MissingExtraError, UsageError
from crumb_tasks.files import output

_FORMATS = ("svg", "pdf", "png")


def save_figure(paint: Callable[[Any], None], path: Path, *, height: float) -> None:
    """Write the figure that ``paint`` draws; the same input gives the same bytes.

    Args:
        paint: Draws into a figure.
        path: The file; its ending is the format.
        height: In inches.

    Raises:
        MissingExtraError: matplotlib is not installed.
        UsageError: The ending is no format, or the file cannot be written.
    """
    ending = path.suffix.lstrip(".").lower()
    if ending not in _FORMATS:
        raise UsageError(f"'{path}' ends in no format of figures; use .{', .'.join(_FORMATS)}")
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("--plot", "plot") from error
    image = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "crumb_tasks", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7.2, height), layout="constrained")
        paint(figure)
        dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending)
        figure.savefig(image, format=ending, metadata=dated, dpi=150)
    with output(path) as file:
        file.write(image.getvalue())
